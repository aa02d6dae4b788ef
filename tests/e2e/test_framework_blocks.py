"""The examples of docs/frameworks.md run as printed inside the frameworks, where they are installed (.ci/parts/ray)."""

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.builders.debug_run import finished_once
from tests.builders.page_home import Block, blocks
from tests.builders.served import Served
from tests.pipeline.test_docs import ROOT

PAGE = ROOT / "docs" / "frameworks.md"
ADDRESS = "http://127.0.0.1:8765"
"""The served judge's address in the page."""


def block_with(text: str) -> Block:
    """Return the page's only block of Python that holds a text."""
    (block,) = [block for block in blocks(PAGE) if block.language == "python" and text in block.text]
    return block


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the debug recipe's judge, asked for scores alone, which need no form to be learned."""
    (trained,) = finished_once(tmp_path_factory).glob("artifacts/dpo/*/model")
    place = tmp_path_factory.mktemp("judge") / "my-judge"
    shutil.copytree(trained, place)
    options = json.loads((place / "judge.json").read_text())
    (place / "judge.json").write_text(json.dumps(options | {"reasons": False, "reads": "one"}))
    return place


def test_every_framework_that_the_page_shows_has_a_test_here() -> None:
    headings = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("## ")]
    assert len([block for block in blocks(PAGE) if block.language == "python"]) == len(headings) == 2


def test_a_scorer_of_inspect_ai(judge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("inspect_ai")
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Target
    from inspect_ai.solver import TaskState

    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(block_with("inspect_ai").text, str(PAGE), "exec"), names)
    # Not by a whole task: inspect_ai gets a tokenizer from the network to count what its mock model writes.
    output = ModelOutput.from_content("mockllm/model", "the rhine .")
    state = TaskState("mockllm/model", sample_id=1, epoch=1, input="name a river .", messages=[], output=output)  # type: ignore[arg-type]
    score = asyncio.run(names["judged"](str(judge), ["Names the river."])(state, Target("the rhine .")))
    assert 0 <= score.value <= 1
    assert [reason["criterion"] for reason in score.metadata["reasons"]] == ["Names the river."]


def test_a_judge_of_verifiers_behind_a_server(judge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vf = pytest.importorskip("verifiers.v1")
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.trace import AgentInfo, TraceTask

    command = [sys.executable, "-m", "judgetrain", "serve", f"serve.judge={judge}", "judge.reads=one", "serve.port=0"]
    server = Served([*command, f"output_dir={tmp_path}"], tmp_path / "log").wait()
    try:
        text = block_with("verifiers").text
        assert ADDRESS in text
        names: dict[str, Any] = {}
        exec(compile(text.replace(ADDRESS, server.url), str(PAGE), "exec"), names)
        data = names["Data"](prompt="name a river .", answer="the rhine .", rubric=["Names the river."])
        reply = MessageNode(message=vf.AssistantMessage(content="the rhine ."), sampled=True)
        trace = vf.Trace(task=TraceTask(type="Judged", data=data), agent=AgentInfo(config={}), nodes=[reply])
        asyncio.run(names["Judged"](data).score(trace))
    finally:
        server.process.terminate()
        server.process.wait(120)
    assert 0 <= trace.rewards["judged"].score <= 1
