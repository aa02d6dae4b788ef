"""An exported judge behind vLLM's pooling runner: where vLLM is installed (``.ci/parts/vllm``)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.extras.export.stage import fill_slots
from judgetrain.judges import load_judge
from judgetrain.schema import Candidates
from tests.builders.served import free_port, served
from tests.builders.vllm_on_cpu import ENVIRONMENT
from tests.extras.export.test_export import RUBRIC, exported, trained

pytest.importorskip("vllm")
__all__ = ["trained"]

ALONE = ("--trust-remote-code", "--model-impl", "transformers", "--pooler-config", '{"pooling_type": "LAST"}')
(CRITERION,) = RUBRIC.criteria
SHOWN = {"criterion": CRITERION.line, "guideline": str(CRITERION.guideline)}


@contextmanager
def asking(model: Path, *how: str) -> Iterator[Any]:
    """Yield a function that asks a served model: path and body in, the answer out."""
    port, log = str(free_port()), model.with_name("vllm.log")
    command = (sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", port)
    command = (*command, "--model", str(model), "--served-model-name", "judge", "--runner", "pooling", *how)
    with served([*command, "--enforce-eager"], log, f"http://127.0.0.1:{port}", **ENVIRONMENT) as server:

        def ask(path: str, **body: Any) -> Any:
            response = httpx2.post(f"{server.url}{path}", json={"model": "judge", **body}, trust_env=False, timeout=300)
            return response.raise_for_status().json()

        yield ask
        server.process.terminate()  # with the processes that it has started
        server.process.wait(60)


@pytest.fixture(scope="module")
def rows(trained: Path) -> list[tuple[Candidates, list[float]]]:
    """20 queries with five responses each, and the judge's own scores of them."""
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=50), 3)
    texts = [text for c in comparisons for text in (c.response_a, c.response_b)]
    groups = [
        Candidates(c.id, c.dialogue, tuple(texts[5 * i : 5 * i + 5]), RUBRIC) for i, c in enumerate(comparisons[:20])
    ]
    judge: Any = load_judge(trained, reads="one", retries=0)
    judge_scores = [[score.reasons[0].score_a for score in scores] for scores in judge.score_batch(groups)]
    assert len({round(score, 3) for scores in judge_scores for score in scores}) > 50, "they differ"
    return list(zip(groups, judge_scores, strict=True))


@pytest.fixture(scope="module")
def place(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("exported"), trained, "judge.reads=one")


def test_classify_gives_the_judge_s_scores(place: Path, rows: list[tuple[Candidates, list[float]]]) -> None:
    template = (place / "template.txt").read_text()
    with asking(place) as ask:
        for group, judge_scores in rows:
            shown = [fill_slots(template, query=group.dialogue.query, response=r, **SHOWN) for r in group.responses]
            answer = ask("/classify", input=shown, add_special_tokens=False)["data"]
            expected_scores = [sum((i + 1) * p for i, p in enumerate(label["probs"])) for label in answer]
            assert expected_scores == pytest.approx(judge_scores, abs=5e-3)


def test_score_and_rerank_give_its_scores_and_order(place: Path, rows: list[tuple[Candidates, list[float]]]) -> None:
    ranker = place.parent / "ranker"
    with asking(ranker, *ALONE, "--chat-template", str(ranker / "score_template.jinja")) as ask:
        for group, judge_scores in rows:
            query, responses = group.dialogue.query, list(group.responses)
            answer = ask("/score", text_1=query, text_2=responses, chat_template_kwargs=SHOWN)["data"]
            assert [1 + 4 * result["score"] for result in answer] == pytest.approx(judge_scores, abs=5e-3)
            ranked = ask("/rerank", query=query, documents=responses, chat_template_kwargs=SHOWN)["results"]
            in_order = [judge_scores[result["index"]] for result in ranked]
            assert in_order == pytest.approx(sorted(judge_scores, reverse=True), abs=5e-3)
