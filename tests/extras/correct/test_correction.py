"""Response correction: who is rewritten and with what, against scores computed here."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import SourceConfig
from judgetrain.data.rubrics import rubric_of
from judgetrain.engines import lazy_model
from judgetrain.engines.base import Request
from judgetrain.engines.config import OpenAIEngineConfig, SamplingConfig
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.correct import stage as correct_stage
from judgetrain.extras.correct.stage import Corrected, Correction, Corrector, evaluation_of, refinement
from judgetrain.judges import BranchingJudge
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.pipeline.config import Config
from judgetrain.schema import Comparison
from tests.builders.evaluate import check, write_rows
from tests.builders.evaluate import judge as judge_directory
from tests.builders.evaluate import run as run_stage
from tests.builders.scripted import ScriptedEngine, comparison, judged, noisy
from tests.builders.watched import interrupted

JUDGED_BY = load_prompt_set("compact")
REWRITE = load_prompt_set("correction", "correction")
COMPARISONS = [comparison(i, "x" * (i % 4), "y" * (i % 3)) for i in range(9)]
BRANCHES = 3


def score(response: str) -> int:
    """Return what the scripted judge gives a response: a point for each character, 5 at most."""
    return min(5, max(1, len(response.strip()) - 1))


def by_length(request: Request, occurrence: int) -> str:
    if request.step == "correction":
        return f"{request.slots['response'].strip()}+"
    if request.step != "judgment":
        return noisy(request, occurrence)
    first, second = (request.slots[f"response_{side}"] for side in "ab")
    text = (
        judged(score(first), score(second))
        .replace(": x", f": it says {first!r}.")
        .replace(": y", f": reads {second!r}")
    )
    return f"{text}\nComparison: whatever"


def judge(engine: object) -> BranchingJudge:
    return BranchingJudge(engine, JUDGED_BY, JudgeOptions(branches=BRANCHES, steps=TreeConfig(criteria=4)))  # type: ignore[arg-type]


def correct(items: Sequence[Comparison], engine: ScriptedEngine, single: bool = False) -> Corrected:
    return Corrector(judge(engine), engine, REWRITE, SamplingConfig(), single=single).correct(items, 0)


def test_responses_below_the_threshold_are_rewritten() -> None:
    engine = ScriptedEngine(by_length)
    done = correct(COMPARISONS, engine)
    responses = [(c, side) for c in COMPARISONS for side in "AB"]
    assert [(c.comparison_id, c.side) for c in done.corrections] == [(c.id, side) for c, side in responses]
    rewritten = 0
    for (item, side), correction in zip(responses, done.corrections, strict=True):
        response = item.response_a if side == "A" else item.response_b
        assert (correction.response, correction.score) == (response, score(response))
        if score(response) >= 3:
            assert (correction.corrected, correction.failure) == (None, None)
            continue
        assert correction.corrected == f"{response.strip()}+"
        rewritten += 1
    rewrites = [r for r in engine.requests if r.step == "correction"]
    assert len(rewrites) == rewritten == len(done.completions) > 4
    assert len(done.trees) == len(COMPARISONS)
    table = refinement(done.corrections)
    before = [score(r) for c in COMPARISONS for r in (c.response_a, c.response_b)]
    low = [s for s in before if s < 3]
    assert table["refine_rate"] == pytest.approx(len(low) / len(before), abs=1e-6)


def test_by_a_given_rubric_scores_are_weighted_and_penalties_count_against() -> None:
    rubric = rubric_of([
        {"name": "Facts", "text": "right", "weight": 1},
        {"name": "Slang", "text": "It is full of slang.", "weight": -3},
    ])  # fmt: skip

    def says(request: Request, occurrence: int) -> str:
        if request.step != "judgment":
            return by_length(request, occurrence)
        marks = []
        for side in "ab":
            text = request.slots[f"response_{side}"]
            is_penalty = "slang" in request.slots["criterion"]
            marks.append((5 if "slangy" in text else 1) if is_penalty else 5)
        return f"{judged(*marks)}\nComparison: whatever"

    item = replace(comparison(1, "slangy", "clean"), rubric=rubric)
    done = correct([item], ScriptedEngine(says))
    # HealthBench's mean: (1 - 3) / 1 is below 0, and so the least; without slang it is 1 / 1.
    assert [(c.side, c.score, c.corrected is not None) for c in done.corrections] == [
        ("A", 1.0, True),
        ("B", 5.0, False),
    ]
    assert "slang.\nScore: 5 of 5 (1 is best)" in done.corrections[0].evaluation


def test_the_rewriter_sees_what_was_said_of_this_response_alone() -> None:
    engine = ScriptedEngine(by_length)
    item = comparison(1, "a", "the other")
    done = correct([item], engine)
    rewrite = next(r for r in engine.requests if r.step == "correction")
    text = rewrite.messages[-1]["content"]
    assert (rewrite.slots["response"], rewrite.slots["query"]) == ("a 1", "query 1")
    assert rewrite.slots["judgment"].count("Score: 2 of 5\nAnalysis: it says 'a 1'.") == BRANCHES
    assert "c1: looks at 1" in text
    assert "the other" not in text
    # Of response B from the order that showed it first, in the words used of the first.
    assert evaluation_of(done.trees[0], "B").count("Score: 5 of 5\nAnalysis: it says 'the other 1'.") == BRANCHES


def test_an_unreadable_order_is_made_up_for_by_the_other() -> None:
    def half(request: Request, occurrence: int) -> str:
        if request.step == "judgment" and request.slots["response_a"].startswith("a"):
            return "no scores"
        return by_length(request, occurrence)

    tree = judge(ScriptedEngine(half)).sample([comparison(1, "a", "b")], 0)[0]
    assert evaluation_of(tree, "A").count("Score: 2 of 5\nAnalysis: reads 'a 1'") == BRANCHES
    done = correct([comparison(1)], ScriptedEngine(lambda r, i: "?" if r.step == "judgment" else noisy(r, i)))
    assert [(c.score, c.evaluation, c.corrected) for c in done.corrections] == [(None, "", None)] * 2
    assert refinement(done.corrections)["refine_rate"] is None


FAILURES = {0: "too_long", 1: "error", 2: "empty", 3: "unchanged", 4: "cut_off", 5: None}


def test_what_cannot_be_rewritten_stays_and_is_counted() -> None:
    class Engine(ScriptedEngine):
        def generate(self, requests, seed):  # type: ignore[no-untyped-def]
            done = super().generate(requests, seed)
            cut = [r.step == "correction" and int(r.slots["query"].split()[1]) == 4 for r in requests]
            return [replace(c, finish_reason="length") if short else c for c, short in zip(done, cut, strict=True)]

    def failing(request: Request, occurrence: int) -> str:
        if request.step != "correction":
            return by_length(request, occurrence)
        kind = int(request.slots["query"].split()[1])
        same = f"  {request.slots['response']}\n"
        return {0: "!too_long", 1: "!error", 2: " \n", 3: same}.get(kind, "a much better one")

    engine = Engine(failing)
    done = correct([comparison(i, "a", "long enough") for i in range(6)], engine)
    low = [c for c in done.corrections if c.side == "A"]
    assert {i: c.failure for i, c in enumerate(low)} == FAILURES
    assert [c.corrected for c in low] == [None] * 5 + ["a much better one"]
    assert refinement(done.corrections)["failures"] == dict.fromkeys((f for f in FAILURES.values() if f), 1)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    rows = [
        {"query": f"query {i}", "response_a": c.response_a, "response_b": c.response_b}
        for i, c in enumerate(COMPARISONS)
    ]
    path = write_rows(tmp_path / "pairs.jsonl", rows)
    judge_directory(tmp_path / "dpo")
    monkeypatch.setattr(lazy_model, "make_engine", lambda *a, **k: ScriptedEngine(by_length))
    config = Config(prompts="compact", tree=TreeConfig(criteria=4))
    config.correct.source = SourceConfig(name="mine", type="comparisons", path=path)
    monkeypatch.setattr(correct_stage, "SHARD", 4)
    return config


def run(config: Config, tmp_path: Path, name: str = "out") -> StageRun:
    return run_stage("correct", config, {"dpo": tmp_path / "dpo"}, tmp_path / name, 0)


def test_the_stage_counts_what_it_did_and_resumes(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = run(config, tmp_path)
    rows = [Correction(**row) for row in read_rows(out.directory, "corrections")]
    assert len(rows) == 2 * len(COMPARISONS)
    rewritten = sum(c.corrected is not None for c in rows)
    totals = out.totals()
    assert (totals["counts"]["in"], totals["counts"]["out"]) == (len(rows), rewritten)
    assert totals["tokens"]["generated"] > 0
    assert f"{rewritten} of " in (out.directory / "printed.txt").read_text()
    assert out.notes["refinement"] == json.loads((out.directory / "refinement.json").read_text()) == refinement(rows)
    calls = interrupted(monkeypatch, Corrector, "correct", 2)
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path, "cut")
    again = run(config, tmp_path, "cut")
    assert len(calls) == 4, "three shards of four comparisons: one done, one lost, then the last two"
    assert [*read_rows(again.directory, "corrections")] == [*read_rows(out.directory, "corrections")]
    config.correct.source.limit = 2
    assert run(config, tmp_path, "few").totals()["counts"]["in"] == 4


def test_what_cannot_be_corrected_is_refused(config: Config, tmp_path: Path) -> None:
    check(config, "correct")
    for change, message in (
        ({"source": SourceConfig()}, r"correct\.source\.path is empty"),
        *(
            ({"judge": name}, rf"correct\.judge='{name}': a judge that grows branches is needed; allowed are base")
            for name in ("pairwise:base", "scorer:base", "stored:dpo", "random")
        ),
        ({"prompts": "compact"}, r"step 'correction' needs a 'user' template"),
        ({"engine": OpenAIEngineConfig()}, r"correct\.engine\.model is empty"),
    ):
        with pytest.raises(ConfigError, match=message):
            check(replace(config, correct=replace(config.correct, **change)), "correct")
    (tmp_path / "empty.jsonl").write_text("\n")
    config.correct.source.path = str(tmp_path / "empty.jsonl")
    with pytest.raises(DataError, match=r"correct\.source holds no comparison"):
        run(config, tmp_path, "none")


def test_a_single_response_is_judged_against_itself_and_corrected_once() -> None:
    items = [replace(c, response_b=c.response_a) for c in COMPARISONS]
    engine = ScriptedEngine(by_length)
    done = correct(items, engine, single=True)
    assert [(c.comparison_id, c.side, c.score) for c in done.corrections] == [
        (c.id, "A", score(c.response_a)) for c in items
    ]
    low = [c for c in items if score(c.response_a) < 3]
    assert len(done.completions) == len(low) == sum(c.corrected is not None for c in done.corrections)


def test_ratings_before_and_after_are_of_the_same_responses() -> None:
    """Three are rated 4, 6 and 9; the first becomes 8, the new text of the second cannot be read, the third stays."""
    kept = Correction("c", "A", "m", "q", "r", 5.0, rated=9.0)
    better = Correction("a", "A", "m", "q", "r", 1.0, corrected="x", rated=4.0, rated_after=8.0)
    unread = Correction("b", "A", "m", "q", "r", 1.0, corrected="x", rated=6.0)
    table = refinement([better, unread, kept])
    assert (table["rated"], table["rated_after"]) == ((4 + 9) / 2, (8 + 9) / 2)


def test_an_external_rater_rates_every_response_and_every_new_one(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rate(request: Request, occurrence: int) -> str:
        if request.step == "pointwise":
            return f"[[{1 + score(request.slots['response'])}]]"
        return by_length(request, occurrence)

    monkeypatch.setattr(lazy_model, "make_engine", lambda *a, **k: ScriptedEngine(rate))
    single = [{"query": f"query {i}", "response": c.response_a} for i, c in enumerate(COMPARISONS)]
    config.correct.source = SourceConfig(
        name="mine",
        type="comparisons",
        path=write_rows(tmp_path / "single.jsonl", single),
        fields={"response_a": "response", "response_b": "response"},
    )
    config.correct.rater = "pointwise:external"
    config.evaluate.external = OpenAIEngineConfig(model="strong")
    table = run(config, tmp_path).notes["refinement"]
    before = [1 + score(c.response_a) for c in COMPARISONS]
    after = [
        1 + score(f"{c.response_a.strip()}+") if score(c.response_a) < 3 else 1 + score(c.response_a)
        for c in COMPARISONS
    ]
    assert table["responses"] == len(COMPARISONS)
    assert (table["rated"], table["rated_after"]) == pytest.approx(
        (sum(before) / len(before), sum(after) / len(after)), abs=1e-6
    )
    config.correct.rater = "pairwise:external"
    with pytest.raises(ConfigError, match=r"correct\.rater='pairwise:external'"):
        check(config, "correct")
