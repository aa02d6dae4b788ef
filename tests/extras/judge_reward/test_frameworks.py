"""The examples of docs/frameworks.md as they stand there, inside the frameworks where these are installed."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.engine import WorldEngine
from judgetrain.extras.server.app import create_app
from judgetrain.extras.server.client import RemoteJudge
from judgetrain.extras.server.config import ServeConfig
from judgetrain.extras.server.service import Service
from judgetrain.judges import BranchingJudge
from judgetrain.judges.base import Score
from judgetrain.judges.config import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.schema import Candidates

PAGE = Path(__file__).parents[3] / "docs" / "frameworks.md"
ROWS = eval_comparisons(WorldConfig(eval_comparisons=3), seed=5)
CRITERIA = ["numbers: states the amounts", "source: backs the claims"]
UNREADABLE = "a query about which nothing can be read"


def example(framework: str) -> dict[str, Any]:
    """What the framework's example on the page defines."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {framework}")[2]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    assert len(code.splitlines()) <= 35
    defined: dict[str, Any] = {"__name__": framework}
    exec(compile(code, PAGE.name, "exec"), defined)
    return defined


class Sometimes(BranchingJudge):
    """Cannot be read on one query."""

    def score_all(self, groups: Sequence[Candidates], seed: int = 0) -> list[list[Score]]:
        if groups[0].dialogue.query == UNREADABLE:
            return [[Score(value=None, failures={"no_score": 2})]]
        return super().score_all(groups, seed)


def judge() -> BranchingJudge:
    engine = WorldEngine(WorldEngineConfig())
    return Sometimes(engine, load_prompt_set("compact"), JudgeOptions(branches=2, reads="one"))


def scores() -> list[float | None]:
    """What the judge says in Python."""
    return [judge()(c.dialogue.messages, c.response_a, criteria=CRITERIA).value for c in ROWS]


def test_a_scorer_of_inspect_ai(tmp_path: Path) -> None:
    inspect_ai = pytest.importorskip("inspect_ai")
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ModelOutput
    from inspect_ai.solver import solver

    @solver
    def written() -> Any:
        """In a model's place, whose tokens inspect_ai would count by a file from the network."""

        async def solve(state: Any, generate: Any) -> Any:
            state.output = ModelOutput.from_content("none", state.metadata["answer"])
            return state

        return solve

    defined, asked = example("inspect_ai"), [(c.dialogue.query, c.response_a) for c in ROWS]
    defined["load_judge"] = lambda name, reads: judge()
    samples = [Sample(input=q, target="", metadata={"answer": a}) for q, a in [*asked, (UNREADABLE, "words")]]
    task = inspect_ai.Task(MemoryDataset(samples), solver=written(), scorer=defined["judged"]("./my-judge", CRITERIA))
    [log] = inspect_ai.eval(task, model="mockllm/model", log_dir=str(tmp_path), display="none")
    assert log.status == "success", log.error.traceback
    found = [sample.scores["judged"] for sample in log.samples]
    assert [each.value for each in found[:3]] == pytest.approx(scores())
    assert "states the amounts" in found[0].explanation
    assert math.isnan(found[3].value) and found[3].reason == "scoring_failed"
    [metrics] = log.results.scores
    assert metrics.metrics["mean"].value == pytest.approx(sum(filter(None, scores())) / 3), (
        "and is left out of the mean"
    )


def test_a_rubric_judge_of_verifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    vf = pytest.importorskip("verifiers.v1")
    defined = example("verifiers")
    client = TestClient(create_app(Service(judge(), ServeConfig(), 17)))

    def send(request: httpx2.Request) -> httpx2.Response:
        answer = client.post(request.url.path, content=request.content, headers=dict(request.headers))
        return httpx2.Response(answer.status_code, content=answer.content)

    class Here(RemoteJudge):
        def __init__(self, url: str) -> None:
            super().__init__(url)
            self._client = httpx2.Client(transport=httpx2.MockTransport(send))

    defined["RemoteJudge"] = Here

    def rewarded(query: str, reply: str) -> float:
        task = defined["Judged"](defined["Data"](prompt=query, rubric=CRITERIA))
        trace = vf.Trace.model_construct(task=None, agent=None, root_reply=reply, rewards={}, metrics={})
        asyncio.run(task.score(trace))
        return float(trace.rewards["judged"].score)

    assert [rewarded(c.dialogue.query, c.response_a) for c in ROWS] == pytest.approx(scores())
    with pytest.raises(vf.TaskError, match="no judgment could be read"):
        rewarded(UNREADABLE, "words")
