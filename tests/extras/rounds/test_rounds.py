"""Rounds: what each depends on, what the checks stop, and which round is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.files import write_json_atomic, write_rows_atomic
from judgetrain.artifacts.shards import counted
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.base import Request
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.rounds import holdout
from judgetrain.extras.rounds.collapse import Figures, Round, failures
from judgetrain.extras.rounds.command import make
from judgetrain.extras.rounds.holdout import held_out, part_of
from judgetrain.extras.rounds.stage import read_rounds
from judgetrain.extras.rounds.stages import HOLDOUT, HoldoutSettings
from judgetrain.judges.factory import Models
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.pipeline.clean import leftovers
from judgetrain.pipeline.run import Pipeline
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
EQUAL = steps(lambda s: judged(3, 3))


def judge_of(answer: Answer) -> BranchingJudge:
    return BranchingJudge(ScriptedEngine(answer), load_prompt_set("compact"))


def figures(answer: Answer) -> Figures:
    said = judge_of(answer).compare_all(HELD)
    return read_as([(p.verdict_ab, p.verdict_ba) for p in said], [str(c.label) for c in HELD])


def test_figures_of_scripted_judges() -> None:
    found = figures(fair(6))
    assert (found.agreement, found.consistency, found.position_bias, found.unreadable) == (0.75, 1.0, 0.0, 0.0)
    assert abs(found.length_bias) < 0.1
    assert (found.alike, found.tie_labels) == (0.375, 0.0), "the other 18 as often the first"
    assert (figures(ALWAYS_A).alike, figures(EQUAL).alike, figures(SILENT).alike) == (1.0, 1.0, 0.0)
    always = figures(ALWAYS_A)
    assert (always.agreement, always.position_bias, always.length_bias) == (0.0, 1.0, 0.0)
    assert figures(LONGEST).length_bias == 0.5 and figures(LONGEST).position_bias == 0
    assert figures(SILENT).unreadable == 1.0
    last = figures(steps(lambda s: judged(1, 5)))
    assert last.position_bias == -1.0, "who prefers what is shown last is as biased"


@pytest.mark.parametrize(
    ("answer", "stopped"),
    [
        (ALWAYS_A, {"agreement", "position_bias", "alike"}),
        (LONGEST, {"agreement", "length_bias"}),
        (SILENT, {"agreement", "unreadable"}),
        (EQUAL, {"agreement", "alike"}),
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


def read_as(verdicts: Sequence[tuple[str | None, str | None]], labels: Sequence[str]) -> Figures:
    """The figures of verdicts in both orders, in each comparison's own order, with other labels."""
    rows = [{"verdict_ab": ab, "verdict_ba": ba} for ab, ba in verdicts]
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
    held, others = held_out(everyone, 6, "ensemble", 3)
    parts = [part_of(others, number, None, 3) for number in (1, 2, 3)]
    ids = [c.id for part in (held, *parts) for c in part]
    assert len(ids) == len(set(ids)) == 30 and [*map(len, parts)] == [8, 8, 8]
    assert {c.id for c in everyone[:8]} != {c.id for c in parts[0]}, "whatever order the sources had"
    assert part_of(others, 1, 5) == others[:5] and part_of(others, 5, 5) == others[20:]
    given, rest = held_out(everyone, 6, "given", 3)
    assert len(given) == 6 and all(c.label for c in given) and len(rest) == 24
    with pytest.raises(
        DataError, match=r"round 6 has no comparisons: .* lower rounds\.holdout_comparisons, rounds\.count"
    ):
        part_of(others, 6, 5)


def finished(pipeline: Pipeline, name: str) -> Path:
    """A planted artifact of a stage."""
    directory = pipeline.plan(name).directory
    directory.mkdir(parents=True, exist_ok=True)
    upstream = pipeline.plan(name).upstream
    write_json_atomic(directory / "manifest.json", {"stage": name, "upstream": upstream, **counted(), "seconds": 0.0})
    return directory


Planted = tuple[Pipeline, list[tuple[str | None, str]], list[Answer]]


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planted:
    """Three rounds of planted judges, of which the second always says A; and what each round's trees were given."""
    pipeline = Pipeline(configured(*RECIPE, f"output_dir={tmp_path}", "rounds.count=3"))
    held = finished(pipeline, "holdout_comparisons")
    write_rows_atomic(held / "comparisons.jsonl", [c.to_row() for c in HELD])
    write_rows_atomic(held / "others.jsonl", [comparison(i).to_row() for i in range(30, 42)])
    said: dict[Path, Answer] = {finished(pipeline, "initial"): fair(12)}
    given: list[tuple[str | None, str]] = []
    answers = [fair(4), ALWAYS_A, fair(2)]
    run = Pipeline.run

    def made(self: Pipeline, name: str) -> Path:
        if name == "round_check" and not self.plan("dpo").finished:
            given.append((self.config.tree.judge, str(self.config.tree.comparisons)))
            directory = finished(self, "dpo")
            said[directory] = answers[len(given) - 1]
            (directory / "model").mkdir()
            load_prompt_set("compact").save(directory / "model")
        return run(self, name)

    def judge(models: Models, method: Method, *_: Any) -> BranchingJudge:
        return judge_of(said[models.inputs[method.target]])

    monkeypatch.setattr(Pipeline, "run", made)
    monkeypatch.setattr(Models, "judge", judge)
    return pipeline, given, answers


def test_rounds_stop_at_a_collapse_and_the_best_is_kept(planted: Planted, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline, given, _ = planted
    best = make(pipeline)
    printed = capsys.readouterr().out
    assert "round 2 is stopped" in printed and "rounds: the best is round 1: " in printed
    gates = sorted((pipeline.root / "round_check").glob("*/rounds.json"), key=lambda p: p.stat().st_mtime_ns)
    first, second = (read_rounds(path.parent) for path in gates)
    assert [row["round"] for row in second["rounds"]] == [0, 1, 2] and second["best"] == 1 and not second["go_on"]
    assert first["rounds"] == second["rounds"][:2], "what was measured stays"
    assert "position_bias 1.00 after 0.00" in " ".join(second["rounds"][2]["stopped"])
    assert second["rounds"][1]["judge"] == f"dpo/{best.name}"
    (nobody, one), (judge, other) = given
    assert nobody is None and judge == str(best / "model"), "round 2's trees are grown by round 1's judge"
    ids = [[json.loads(line)["id"] for line in Path(file).read_text().splitlines()] for file in (one, other)]
    assert [*map(len, ids)] == [4, 4] and not {*ids[0]} & {*ids[1]}
    made = [*pipeline.made]
    assert make(pipeline) == best and pipeline.made == made, "run again, all is there"
    manifest = json.loads((gates[1].parent / "manifest.json").read_text())
    assert manifest["notes"]["round_check"]["best"] == 1 and set(manifest["upstream"]) == {"holdout_comparisons", "dpo"}
    assert not leftovers(pipeline), "results keep what they were made from, whatever the present settings are"


def test_a_first_round_that_collapses_leaves_the_initial_judge(planted: Planted) -> None:
    pipeline, given, answers = planted
    answers[0] = LONGEST
    assert make(pipeline) == pipeline.plan("initial").directory
    assert len(given) == 1


def test_what_a_round_does_not_depend_on(tmp_path: Path) -> None:
    two, moved = (marks(configured(*RECIPE, f"rounds.stop_on_collapse={on}")) for on in ("true", "false"))
    assert [n for n in two if moved[n] != two[n]] == ["round_check"], "opening the checks has nothing trained anew"
    assert marks(configured(*RECIPE, "rounds.count=5")) == two, "further rounds leave those that are there"
    file = tmp_path / "part.jsonl"
    write_rows_atomic(file, [comparison(1).to_row()])
    part = marks(configured(*RECIPE, f"tree.comparisons={file}"))
    assert part["teacher"] == two["teacher"] and part["tree"] != two["tree"]


def test_rounds_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rounds\.count=1: must be at least 2"):
        configured(*RECIPE, "rounds.count=1")
    nobody = Pipeline(configured(*RECIPE, f"output_dir={tmp_path}", f"tree.judge={tmp_path}"))
    with pytest.raises(ConfigError, match=r"tree\.judge='.*': it holds no prompts\.yaml"):
        nobody.check("tree")


def test_given_labels_are_the_datas(tmp_path: Path) -> None:
    config = configured(*RECIPE, "rounds.holdout_comparisons=5", "label.source=given")
    assert [*HOLDOUT.inputs(HOLDOUT.settings.of(config))] == ["teacher"]
    teacher = StageRun(tmp_path / "teacher", "teacher", 0, Console())
    everyone = [replace(c, label=c.label if i % 2 else None) for i, c in enumerate(HELD)]
    teacher.write_rows("remaining", (c.to_row() for c in everyone))
    out = StageRun(tmp_path / "holdout", "holdout_comparisons", 0, Console())
    holdout.run(HoldoutSettings.of(config), {"teacher": teacher.directory}, out)
    found = [Comparison.from_row(json.loads(line)) for line in out.path("comparisons.jsonl").open()]
    assert len(found) == 5 and all(int(c.id[1:]) % 2 and c.label for c in found)
    others = [json.loads(line)["id"] for line in out.path("others.jsonl").open()]
    assert len(others) == len(HELD) - 5 and not {c.id for c in found} & {*others}
    teacher.write_rows("remaining", (replace(c, label=None).to_row() for c in everyone))
    with pytest.raises(DataError, match=r"no comparison has a label: set label\.source=ensemble"):
        holdout.run(HoldoutSettings.of(config), {"teacher": teacher.directory}, out)
