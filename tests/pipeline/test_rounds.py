"""Rounds: what each depends on, what the gates stop, and which round is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.artifacts.files import write_json_atomic, write_rows_atomic
from judgetrain.artifacts.shards import counted
from judgetrain.engines.base import Request
from judgetrain.errors import ConfigError, DataError, TrainingError
from judgetrain.evaluate.rounds.collapse import Figures, Limits, Round, failures
from judgetrain.evaluate.rounds.stage import read_rounds, row_of
from judgetrain.judges.factory import Models
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.rounds import part_of, with_holdout
from judgetrain.pipeline.clean import leftovers
from judgetrain.pipeline.rounds import OF_A_ROUND, make
from judgetrain.pipeline.run import Pipeline
from judgetrain.pipeline.status import rows
from judgetrain.schema import Comparison
from tests.builders.pipeline import configured, marks
from tests.builders.scripted import ScriptedEngine, comparison, criteria, judged

RECIPE = ("recipe=debug", "track.tracker=none")
# The right response says so; half of the right ones are the longer ones.
HELD = [
    comparison(i, *(("good", "poor, and goes on") if i % 2 else ("good, and goes on", "poor")), label="A")
    for i in range(12)
] + [
    comparison(i, *(("poor", "good, and goes on") if i % 2 else ("poor, and goes on", "good")), label="B")
    for i in range(12, 24)
]

Answer = Callable[[Request, int], str]


def steps(judgment: Callable[[dict[str, Any]], str]) -> Answer:
    """A judge that lists criteria and writes guidelines as any, and judges as told, given the slots."""

    def answer(request: Request, occurrence: int) -> str:
        if request.step == "judgment":
            return judgment(dict(request.slots))
        return criteria(int(request.slots["count"])) if request.step == "criteria" else "a guideline"

    return answer


def fair(wrong: int = 0) -> Answer:
    """Prefers what is good, but in the first ``wrong`` of the held-out comparisons, where it sees a tie."""
    ties = {side for c in HELD[:wrong] for side in (c.response_a, c.response_b)}

    def judgment(slots: dict[str, Any]) -> str:
        if slots["response_a"] in ties:
            return judged(3, 3)
        return judged(4, 2) if "good" in slots["response_a"] else judged(2, 4)

    return steps(judgment)


LONGEST = steps(lambda s: judged(4, 2) if len(s["response_a"]) > len(s["response_b"]) else judged(2, 4))
ALWAYS_A = steps(lambda s: judged(5, 1))
SILENT = steps(lambda s: "I like both.")
GENEROUS = steps(lambda s: judged(5, 5))
EQUAL = steps(lambda s: judged(3, 3))
OPEN = Limits(**dict.fromkeys(field.name for field in fields(Limits)))


def judge_of(answer: Answer) -> BranchingJudge:
    return BranchingJudge(ScriptedEngine(answer), load_prompt_set("compact"))


def figures(answer: Answer) -> Figures:
    return Figures.of([row_of(p) for p in judge_of(answer).compare_all(HELD)], HELD)


def test_figures_of_scripted_judges() -> None:
    found = figures(fair(6))
    assert (found.agreement, found.consistency, found.position_bias, found.unreadable) == (0.75, 1.0, 0.0, 0.0)
    assert found.score == 3.0 and abs(found.length_bias) < 0.1
    assert (found.ties, found.alike, found.tie_labels) == (0.25, 0.375, 0.0), "the other 18 as often the first"
    assert (figures(ALWAYS_A).alike, figures(EQUAL).ties, figures(SILENT).alike) == (1.0, 1.0, 0.0)
    always = figures(ALWAYS_A)
    assert (always.agreement, always.position_bias, always.length_bias) == (0.0, 1.0, 0.0)
    assert figures(LONGEST).length_bias == 0.5 and figures(LONGEST).position_bias == 0
    assert figures(SILENT).unreadable == 1.0 and figures(SILENT).score is None
    last = figures(steps(lambda s: judged(1, 5)))
    assert last.position_bias == -1.0, "who prefers what is shown last is as biased"


@pytest.mark.parametrize(
    ("answer", "stopped"),
    [
        (ALWAYS_A, {"agreement", "position_bias", "alike"}),
        (LONGEST, {"agreement", "length_bias"}),
        (SILENT, {"agreement", "unreadable"}),
        (EQUAL, {"agreement", "ties", "alike"}),
        (GENEROUS, {"agreement", "score", "ties", "alike"}),
        (fair(7), set()),  # a little worse than round 1, within what chance does on 24 comparisons
        (fair(2), set()),
        (fair(9), {"agreement"}),
    ],
)
def test_a_collapse_is_stopped_and_a_sound_judge_is_not(answer: Answer, stopped: set[str]) -> None:
    before = [Round(round=0, judge="initial/x", figures=figures(fair(12)))]
    before.append(Round(round=1, judge="dpo/y", figures=figures(fair(5))))
    found = {sentence.split()[0] for sentence in failures(figures(answer), before)}
    assert found == stopped
    assert not [*failures(figures(answer), before, OPEN)]


def read_as(verdicts: Sequence[tuple[str | None, str | None]], labels: Sequence[str]) -> Figures:
    """The figures of verdicts in both orders, in each comparison's own order, with other labels."""
    rows = [{"verdict_ab": ab, "verdict_ba": ba, "score": 3.0 if ab or ba else None} for ab, ba in verdicts]
    return Figures.of(rows, [replace(c, label=y) for c, y in zip(HELD, labels, strict=True)])  # type: ignore[arg-type]


LABELS = ["tie" if i in (0, 1, 12, 13) else str(c.label) for i, c in enumerate(HELD)]
"""Four of the 24 are ties; of the others the longer response is the right one in half."""
LONGER = [c.longer for c in HELD]
COLLAPSES: dict[str, list[tuple[str | None, str | None]]] = {
    "alike": [("A", "B")] * 24,
    "ties": [("tie", "tie")] * 24,
    "unreadable": [(None, None)] * 24,
    "length_bias": [(side, side) for side in LONGER],
}
SAID = st.tuples(*[st.sampled_from(["A", "B", "tie", None])] * 2)


@settings(max_examples=30)
@given(start=st.lists(SAID, min_size=24, max_size=24))
@pytest.mark.parametrize("name", COLLAPSES)
def test_a_plain_collapse_is_stopped_whatever_the_initial_judge_is(
    name: str, start: list[tuple[str | None, str | None]]
) -> None:
    before = [Round(round=0, judge="initial/x", figures=read_as(start, LABELS))]
    stopped = [*failures(read_as(COLLAPSES[name], LABELS), before)]
    caps = [s for s in stopped if s.startswith(("alike" if name == "ties" else name, "agreement"))]
    assert caps, f"{name} by its cap, or for being no better than one verdict for all"
    if name != "length_bias":
        assert any("one verdict for all has 0.17" in s for s in stopped)


def test_a_judge_that_begins_as_badly_as_it_ends_is_stopped() -> None:
    """What the gates that look at changes alone let pass: nothing here moves by more than their limits."""
    labels = [str(c.label) for c in HELD]
    mostly = {
        "alike": [("A", "B")] * 20 + [("A", "A")] * 4,
        "ties": [("tie", "tie")] * 20 + [("A", "A")] * 4,
        "unreadable": [(None, None)] * 23 + [("A", "A")],
        "length_bias": [
            (a if i % 6 else b, a if i % 6 else b) for i, (a, b) in enumerate(zip(LONGER, labels, strict=True))
        ],
    }
    relative = Limits(alike=None, most_unreadable=None, most_length=None, above_constant=None)
    for name, said in mostly.items():
        before = [Round(round=0, judge="initial/x", figures=read_as(said, labels))]
        found = read_as(COLLAPSES[name], labels)
        changed = {s.split()[0] for s in failures(found, before, relative)} - {"agreement"}
        assert not changed, name
        stopped = [*failures(found, before)]
        cap = {"ties": "alike"}.get(name, name)
        assert any(s.startswith(cap) and "more than" in s for s in stopped), name


@settings(max_examples=30)
@given(kept=st.lists(st.booleans(), min_size=24, max_size=24), start=st.lists(SAID, min_size=24, max_size=24))
def test_an_honest_judge_that_changes_a_little_is_not_stopped(
    kept: list[bool], start: list[tuple[str | None, str | None]]
) -> None:
    """It gives the label but in two of them, where it now says another verdict; whatever the Initial judge was."""
    labels = ["A", "B", "B", "A", "tie", "A"] * 4
    wrong = [i for i, keep in enumerate(kept) if not keep][:2]
    said = [("tie", "tie") if i in wrong else (y, y) for i, y in enumerate(labels)]
    own = read_as([(y, y) for y in labels], labels)
    before = [Round(round=0, judge="initial/x", figures=own), Round(round=1, judge="dpo/y", figures=own)]
    assert not [*failures(read_as(said, labels), before)]
    first = [Round(round=0, judge="initial/x", figures=read_as(start, labels))]
    moved = {s.split()[0] for s in failures(read_as(said, labels), first)}
    assert not moved, "a better judge has fewer ties, is easier to read, and leans no more"


def test_where_nearly_all_labels_are_ties_nearly_all_verdicts_may_be() -> None:
    labels = ["tie"] * 23 + ["A"]
    sure = read_as([(y, y) for y in labels], labels)
    assert not [*failures(sure, [Round(round=0, judge="x", figures=sure)])]
    always = read_as([("tie", "tie")] * 24, labels)
    stopped = [*failures(always, [Round(round=0, judge="x", figures=sure)])]
    assert {s.split()[0] for s in stopped} == {"alike", "agreement"}
    assert "agreement 0.96, where one verdict for all has 0.96" in stopped


def test_a_drift_in_small_steps_is_held_against_the_first_judge() -> None:
    start = figures(fair(6))
    steps_ = [replace(start, position_bias=0.15), replace(start, position_bias=0.3)]
    before = [Round(round=i, judge="x", figures=f) for i, f in enumerate([start, steps_[0]])]
    assert not [*failures(steps_[0], before[:1])]
    assert [*failures(steps_[1], before)] == ["position_bias 0.30 after 0.00 (allowed: 0.2)"]


def test_no_comparison_is_in_two_rounds_or_held_out() -> None:
    everyone = [comparison(i, label="A" if i % 3 else None) for i in range(30)]
    held, others = with_holdout(everyone, 6, "ensemble", 3)
    parts = [part_of(others, number, None, 3) for number in (1, 2, 3)]
    ids = [c.id for part in (held, *parts) for c in part]
    assert len(ids) == len(set(ids)) == 30 and [*map(len, parts)] == [8, 8, 8]
    assert {c.id for c in everyone[:8]} != {c.id for c in parts[0]}, "whatever order the sources had"
    assert part_of(others, 1, 5) == others[:5] and part_of(others, 5, 5) == others[20:]
    given, rest = with_holdout(everyone, 6, "given", 3)
    assert len(given) == 6 and all(c.label for c in given) and len(rest) == 24
    with pytest.raises(
        DataError, match=r"round 6 has no comparisons: .* lower rounds\.holdout_comparisons, rounds\.count"
    ):
        part_of(others, 6, 5)


def test_what_a_round_is_made_from() -> None:
    third = Pipeline(configured(*RECIPE, "rounds.count=3"))
    first, second = third.in_round(1), third.in_round(2)
    assert third.before is not None and third.before.plan("dpo") == second.plan("dpo")
    assert second.plan("tree").upstream == {
        "teacher": first.plan("teacher").fingerprint,
        "dpo": first.plan("dpo").fingerprint,
    }
    assert first.plan("tree").inputs["initial"] == third.plan("initial"), "one Initial judge for all rounds"
    assert second.plan("sft").inputs["initial"] == third.plan("initial"), "each goes on from the same seed"
    assert {
        p.plan(name).fingerprint for p in (first, second, third) for name in ("holdout_comparisons", "initial")
    } == {third.plan(name).fingerprint for name in ("holdout_comparisons", "initial")}
    for name in OF_A_ROUND:
        assert len({p.plan(name).fingerprint for p in (first, second, third)}) == 3
    last = Pipeline(configured(*RECIPE, "rounds={count: 2, start: last, judge: rl}", "label.signals=[softmax_var]"))
    before = last.in_round(1)
    assert last.plan("sft").inputs["rl"] == last.plan("tree").inputs["rl"] == before.plan("rl")
    assert last.plan("label").inputs["rl"] == before.plan("rl"), "branches are scored by the judge that wrote them"
    assert "initial" in before.plan("sft").inputs
    assert last.plan("rl").inputs["dpo"] == last.plan("dpo"), "rl goes on from its own round's"


def test_what_a_round_does_not_depend_on() -> None:
    two, moved = (marks(configured(*RECIPE, "rounds.count=2", f"rounds.gates={on}")) for on in ("true", "false"))
    assert [n for n in two if moved[n] != two[n]] == ["gate"], "opening the gates has nothing trained anew"
    fixed = (*RECIPE, "tree.max_comparisons=4", "rounds.round=2")
    more = marks(configured(*fixed, "rounds.count=5"))
    assert more == marks(configured(*fixed, "rounds.count=2")), "of rounds of a given size, further ones are added"
    beta = marks(configured(*fixed, "rounds.count=2", "train.dpo.beta=0.7"))
    assert more["tree"] != beta["tree"], "the last round's judge has grown it"
    assert marks(configured(*RECIPE))["tree"] == marks(configured(*RECIPE, "rounds.holdout_comparisons=7"))["tree"]


def finished(pipeline: Pipeline, name: str) -> Path:
    """A planted artifact of a stage."""
    directory = pipeline.plan(name).directory
    directory.mkdir(parents=True, exist_ok=True)
    upstream = pipeline.plan(name).upstream
    write_json_atomic(directory / "manifest.json", {"stage": name, "upstream": upstream, **counted(), "seconds": 0.0})
    return directory


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Three rounds, of which the second's judge always says A; nothing is there that the third could be made with."""
    pipeline = Pipeline(configured(*RECIPE, f"output_dir={tmp_path}", "rounds.count=3"))
    first, second = pipeline.in_round(1), pipeline.in_round(2)
    write_rows_atomic(finished(first, "holdout_comparisons") / "comparisons.jsonl", [c.to_row() for c in HELD])
    said = {finished(p, n): a for p, n, a in ((first, "initial", fair(12)), (first, "dpo", fair(4)))}
    said[finished(second, "dpo")] = ALWAYS_A
    for name in ("tree", "label", "sft", "reference"):
        finished(second, name)

    def judge(models: Models, method: Method, *_: Any) -> BranchingJudge:
        return judge_of(said[models.inputs[method.target]])

    monkeypatch.setattr(Models, "judge", judge)
    return pipeline


def test_rounds_stop_at_a_collapse_and_the_best_is_kept(planted: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = planted.in_round(1), planted.in_round(2)
    assert make(planted) == first.plan("dpo").directory
    found = read_rounds(second.plan("gate").directory)
    assert [row["round"] for row in found["rounds"]] == [0, 1, 2] and found["best"] == 1 and not found["go_on"]
    assert [row["judge"].partition("/")[0] for row in found["rounds"]] == ["initial", "dpo", "dpo"]
    assert "position_bias 1.00 after 0.00" in " ".join(found["rounds"][2]["stopped"])
    printed = capsys.readouterr().out
    assert "round 2 is stopped" in printed and "rounds: the best is round 1: " in printed
    assert not planted.plan("tree").directory.exists(), "nothing of round 3 is begun"
    made = [*planted.made]
    assert make(planted) == first.plan("dpo").directory and planted.made == made, "run again, all is there"
    with pytest.raises(TrainingError, match=r"round 2 was stopped by its gates: .*; the best is round 1\. Set rounds"):
        planted.run("tree")
    manifest = json.loads((second.plan("gate").directory / "manifest.json").read_text())
    assert manifest["notes"]["gate"]["best"] == 1 and set(manifest["upstream"]) == {
        "holdout_comparisons",
        "gate",
        "dpo",
    }


def test_a_first_round_that_collapses_leaves_the_initial_judge(planted: Pipeline) -> None:
    longest = planted.in_round(1).plan("dpo").directory
    answers: dict[Path, Answer] = {longest: LONGEST}
    before = Models.judge

    def judge(models: Models, method: Method, *how: Any) -> BranchingJudge:
        answer = answers.get(models.inputs[method.target])
        return judge_of(answer) if answer else before(models, method, *how)

    Models.judge = judge  # type: ignore[method-assign]  # the fixture puts its own back
    assert make(planted) == planted.plan("initial").directory
    assert not planted.in_round(2).plan("gate").finished


def test_status_has_the_rounds_and_clean_leaves_them(planted: Pipeline) -> None:
    make(planted)
    shown = {row["stage"]: row for row in rows(planted)}
    assert [f"{name} {i}" for i in (1, 2, 3) for name in OF_A_ROUND] == [s for s in shown if s[-1].isdigit()]
    assert shown["gate 2"]["state"] == shown["dpo 1"]["state"] == shown["holdout_comparisons"]["state"] == "done"
    assert shown["dpo 2"]["stage=dpo"] == "reuse" and shown["dpo 3"]["stage=dpo"] == "make"
    assert not leftovers(planted)
    alone = Pipeline(replace(planted.config, rounds=replace(planted.config.rounds, count=1)))
    assert not {"holdout_comparisons", "gate"} & {row["stage"] for row in rows(alone)}
    assert not leftovers(alone), "the gates keep what they have measured, whatever the present settings are"
    assert {entry.directory.parent.name for entry in leftovers(alone, evaluations=True)} >= {"gate", "dpo"}


@pytest.mark.parametrize(
    ("overrides", "stage", "message"),
    [
        (["rounds={count: 2, round: 3}"], "dpo", r"rounds\.round=3: there are rounds\.count=2"),
        (["rounds={count: 2, branches: 9}"], "gate", r"rounds\.branches=9: at most tree\.criteria=4"),
        (
            ["rounds={count: 2, start: last, judge: rl}", "train.rl={start: initial, keep_best: false}"],
            "rl",
            r"rounds\.start=last: sft goes on from the last round",
        ),
    ],
)
def test_rounds_that_cannot_be_are_refused(overrides: list[str], stage: str, message: str, tmp_path: Path) -> None:
    pipeline = Pipeline(configured(*RECIPE, f"output_dir={tmp_path}", *overrides))
    with pytest.raises(ConfigError, match=message):
        pipeline.check(stage)
    with pytest.raises(ConfigError, match=r"rounds\.count=1 is no more than stage=dpo"):
        make(Pipeline(configured(*RECIPE, f"output_dir={tmp_path}")))


def test_given_holdout_comparisons_are_labelled_by_the_data(tmp_path: Path) -> None:
    from judgetrain.artifacts.console import Console
    from judgetrain.artifacts.stage_run import StageRun
    from judgetrain.label import holdout_comparisons
    from judgetrain.label.stages import HOLDOUT_COMPARISONS as STAGE
    from judgetrain.label.stages import HoldoutSettings

    config = configured(*RECIPE, "rounds={count: 2, holdout_comparisons: 5, holdout_labels: given}")
    assert [*STAGE.inputs(config)] == ["teacher"]
    teacher = StageRun(tmp_path / "teacher", "teacher", 0, Console())
    everyone = [replace(c, label=c.label if i % 2 else None) for i, c in enumerate(HELD)]
    teacher.write_rows("remaining", (c.to_row() for c in everyone))
    out = StageRun(tmp_path / "holdout_comparisons", "holdout_comparisons", 0, Console())
    holdout_comparisons.run(HoldoutSettings.of(config), {"teacher": teacher.directory}, out)
    found = [Comparison.from_row(json.loads(line)) for line in out.path("comparisons.jsonl").open()]
    assert len(found) == 5 and all(int(c.id[1:]) % 2 and c.label for c in found)
    teacher.write_rows("remaining", (replace(c, label=None).to_row() for c in everyone))
    with pytest.raises(DataError, match=r"no comparison has a label: set rounds\.holdout_labels=ensemble"):
        holdout_comparisons.run(HoldoutSettings.of(config), {"teacher": teacher.directory}, out)
