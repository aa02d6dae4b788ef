"""Models with an output form of their own: what a prompt set says under ``reads``, and Fennec's judgments."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from judgetrain.errors import ConfigError
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.config import OnceConfig
from judgetrain.judges.kinds.prompted import PairwiseJudge, PointwiseJudge
from judgetrain.judges.prompting.parsing import parse_judgment
from judgetrain.judges.prompting.prompts import PACKAGED, has_step, load_prompt_set
from judgetrain.pipeline.config import Config
from judgetrain.schema import Comparison
from tests.builders.scripted import ScriptedEngine

ITEM = Comparison.of("Name a river.", "The Rhine.", "Blue.", id="c")
AUTO_J = """The key factors:

1. Correctness: Response 1 names a river. The final decision is not hard.
2. Response 2 does not.

So, the final decision is {}."""


@pytest.mark.parametrize(
    ("said", "verdict", "failure"),
    [
        ("Response 1", "A", None),
        ("response 2, by far", "B", None),
        ("Tie", "tie", None),
        ("Response 3", None, "no_verdict"),
    ],
)
def test_auto_js_final_decision(said: str, verdict: str | None, failure: str | None) -> None:
    reads = load_prompt_set("auto_j", "pairwise").reads
    assert reads is not None
    found = reads.verdict(AUTO_J.format(said))
    assert (found.value, found.failure) == (verdict, failure)


def test_a_judge_of_auto_js_form_answers_both_orders() -> None:
    def reply(text: str) -> str:
        first = text.index("The Rhine.") < text.index("Blue.")
        assert "[Response 1]:" in text and "[[A]]" not in text
        return AUTO_J.format("Response 1" if first else "Response 2")

    engine = ScriptedEngine(lambda request, n: reply(request.messages[-1]["content"]))
    judge = PairwiseJudge(engine, load_prompt_set("auto_j", "pairwise"))
    (found,) = judge.compare_all([ITEM])
    assert (found.verdict_ab, found.verdict_ba) == ("A", "A")


@pytest.mark.parametrize(
    ("prompts", "text", "rating", "failure"),
    [
        ("auto_j_rating", "Critiques: 3 points.\nRating: [[7]]", 7, None),
        ("auto_j_rating", "Rating: [[12]]", None, "out_of_range"),
        ("auto_j_rating", "It is good.", None, "no_rating"),
        ("auto_j_score", "8\nIt is 9 of 10 in parts.", 8, None),
        ("auto_j_score", "Score: 4.5\nbecause", 4.5, None),
        ("auto_j_score", "I give it an 8.", None, "no_rating"),
    ],
)
def test_auto_js_ratings(prompts: str, text: str, rating: float | None, failure: str | None) -> None:
    judge = PointwiseJudge(ScriptedEngine(lambda request, n: text), load_prompt_set(prompts, "pointwise"))
    (reply,) = judge.rate([ITEM])
    assert (reply.answer, reply.failure) == (rating, failure)


def test_fennecs_judgment_is_read() -> None:
    text = (
        "Response A Score: 4\nExplanation: It names a river, score 5 would need more.\n"
        "Response B Score: 2\nExplanation: No river.\nComparison: Response A is better."
    )
    found = parse_judgment(text, frame=load_prompt_set("fennec").frames["judgment"])
    assert (found.first, found.second, found.failure) == (4, 2, None)
    assert load_prompt_set("fennec").judgment_frame("judgment", 100).startswith(r"Response A Score: [1-5]\nExplanation")


def test_a_directory_is_asked_by_the_prompts_it_carries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from judgetrain.judges.factory import Models
    from judgetrain.judges.method import Method

    monkeypatch.setattr(Models, "engine", lambda self, method: ScriptedEngine(lambda request, n: ""))
    settings = replace(EvaluateSettings.of(Config()), pairwise=OnceConfig())
    models, method = Models(settings, {}, None), Method.parse(f"pairwise:{tmp_path}/auto-j")  # type: ignore[arg-type]
    (tmp_path / "auto-j").mkdir()
    assert models.judge(method).prompts.name == "pairwise"
    shutil.copy(PACKAGED / "auto_j.yaml", tmp_path / "auto-j" / "prompts.yaml")
    assert models.judge(method).prompts.name == "auto_j"
    assert not has_step(tmp_path / "auto-j" / "prompts.yaml", "pointwise")


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        ("x", "expected a pattern"),
        ("{pattern: '(a)'}", "verdicts belong to a step pairwise"),
        ("{pattern: '(a', verdicts: {a: A}}", "no regular expression"),
        ("{pattern: 'a', verdicts: {a: A}}", "expected one group"),
        ("{pattern: '(a)', verdicts: {a: C}}", "-> A, B or tie"),
    ],
)
def test_wrong_rules_are_refused(reads: str, expected: str, tmp_path: Path) -> None:
    text = (PACKAGED / "pairwise.yaml").read_text(encoding="utf-8")
    (tmp_path / "own.yaml").write_text(f"{text}\nreads: {reads}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=expected):
        load_prompt_set(tmp_path / "own.yaml", "pairwise")
