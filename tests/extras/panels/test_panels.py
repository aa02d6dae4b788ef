"""Cascades and juries: what is asked of whom, what they answer, and what it costs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.engines import lazy_model
from judgetrain.errors import ConfigError
from judgetrain.evaluate.metrics.verdicts import forced
from judgetrain.extras.panels.judges import CascadeJudge, JuryJudge, Member
from judgetrain.judges import load_judge
from judgetrain.judges.base import Judge
from judgetrain.judges.deciding import Thresholds
from judgetrain.judges.method import Method
from judgetrain.judges.predictions import Cost, Prediction, Score, as_data
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Candidates, Comparison
from tests.builders.judging import judge_stage, lines
from tests.builders.pipeline import configured
from tests.builders.scripted import ScriptedEngine, comparison
from tests.judges.test_reads_one import scored
from tests.judging.test_judging import answer

PROMISE = {"error": 0.1, "delta": 0.1, "n": 100, "undecided": 0.5, "decided": 50, "wrong": 1}


class Known(Judge):
    """Gives the margins and scores that it is told, and keeps what it was asked."""

    def __init__(self, margins: Sequence[float | None], scores: Sequence[float | None] = (), tokens: int = 10) -> None:
        self.name = "known"
        self.margins = list(margins)
        self.values = list(scores)
        self.cost = Cost(tokens, 1, 1)
        self.asked: list[str] = []

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        predictions = []
        for item in comparisons:
            self.asked.append(item.id)
            margin = self.margins[int(item.id[1:])]
            verdict = None if margin is None else "A" if margin > 0 else "B"
            predictions.append(
                Prediction.of(item, self.name, verdict, verdict, margin=margin, cost=self.cost, plan="shared")
            )
        return predictions

    def score_batch(self, groups: Sequence[Candidates], seed: int = 0) -> list[list[Score]]:
        self.asked += [group.id for group in groups]
        return [[Score(value=self.values[int(group.id[1:])], cost=self.cost)] for group in groups]


def member(judge: Judge, thresholds: Thresholds | None = None, name: str = "longer") -> Member:
    return Member(Method.parse(name), lambda text: judge, thresholds)


def test_a_cascade_asks_the_next_member_about_what_is_undecided_alone() -> None:
    cheap = Known([3.0, 0.5, None, -2.0], tokens=10)
    strong = Known([-1.0, -1.0, 1.0, 1.0], tokens=100)
    thresholds = Thresholds(units="points", margin=1.5, **PROMISE)
    cascade = CascadeJudge([member(cheap, thresholds), member(strong, name="first")], "cascade:x")
    items = [comparison(place) for place in range(4)]
    answers = cascade.compare_batch(items)
    assert (cheap.asked, strong.asked) == (["d0", "d1", "d2", "d3"], ["d1", "d2"])
    assert [answer.verdict for answer in answers] == ["A", "B", "A", "B"]
    assert [len(answer.steps) for answer in answers] == [1, 2, 2, 1]
    assert all(answer.method == "cascade:x" and answer.decision == "decided" for answer in answers)
    # Both orders of the one, and of both where both were asked; a verdict costs half of it.
    assert [answer.whole_cost.prompt_tokens for answer in answers] == [20, 220, 220, 20]
    assert [answer.cost.prompt_tokens for answer in answers] == [10, 110, 110, 10]
    kept = Prediction.from_row(json.loads(json.dumps(as_data(answers[1]))))
    assert kept.steps == answers[1].steps


def test_what_the_last_member_cannot_decide_stays_undecided() -> None:
    thresholds = Thresholds(units="points", margin=1.5, **PROMISE)
    judges = [member(Known([0.1]), thresholds), member(Known([0.2]), thresholds, "first")]
    (answer,) = CascadeJudge(judges, "cascade:x").compare_batch([comparison(0)])
    assert (answer.verdict, answer.margin, answer.decision) == ("A", 0.2, "undecided")


def test_a_cascade_of_single_responses() -> None:
    thresholds = Thresholds(units="score", high=0.8, low=0.2, **PROMISE)
    cheap = Known([], [0.9, 0.5, 0.1, None])
    strong = Known([], [0.0, 0.6, 1.0, None], tokens=100)
    cascade = CascadeJudge([member(cheap, thresholds), member(strong, name="first")], "cascade:x")
    groups = [Candidates(f"d{place}", comparison(place).dialogue, ("text",)) for place in range(4)]
    scores = [score for (score,) in cascade.score_batch(groups)]
    assert [score.value for score in scores] == [0.9, 0.6, 0.1, None]
    assert [score.passes for score in scores] == [True, None, False, None]
    assert strong.asked == ["d1", "d3"]
    assert [score.cost.prompt_tokens for score in scores] == [10, 110, 10, 110]


def test_a_jury_takes_the_mean_of_its_members() -> None:
    jurors = [Known([3.0, 0.1, None]), Known([-1.0, -0.4, None]), Known([1.0, None, 2.0])]
    jury = JuryJudge([member(j, name=n) for j, n in zip(jurors, ("a/a", "a/b", "a/c"), strict=True)], "jury:x")
    answers = jury.compare_batch([comparison(place) for place in range(3)])
    assert [answer.verdict for answer in answers] == ["A", "B", "unreadable"]
    assert answers[0].margin == pytest.approx(np.mean([3.0, -1.0, 1.0]))
    assert answers[1].margin == pytest.approx(np.mean([0.1, -0.4]))
    assert answers[2].margin is None, "of three members one alone could be read"
    assert answers[0].whole_cost.prompt_tokens == 60


def test_a_jury_of_scores_is_their_mean() -> None:
    jury = JuryJudge([member(Known([], [0.2, None])), member(Known([], [0.8, 0.5]), name="first")], "jury:x")
    groups = [Candidates(f"d{place}", comparison(place).dialogue, ("text",)) for place in range(2)]
    assert [score.value for (score,) in jury.score_batch(groups)] == [pytest.approx(0.5), None]


def test_members_of_a_jury_that_are_even_in_decimals_make_it_even() -> None:
    """Their mean margin is 0.1 + 0.2 - 0.3; the mean scores are (0.1 + 0.8) / 3 and (0.2 + 0.7) / 3."""
    jurors = [Known([0.1], [0.1, 0.2]), Known([0.2], [0.8, 0.7]), Known([-0.3], [0.0, 0.0])]
    jury = JuryJudge([member(j, name=n) for j, n in zip(jurors, ("a/a", "a/b", "a/c"), strict=True)], "jury:x")
    (answer,) = jury.compare_batch([comparison(0)])
    assert answer.margin == 0 or abs(answer.margin or 0) > 1e-9, "points, and no trace of rounding"
    groups = [Candidates(f"d{place}", comparison(place).dialogue, ("text",)) for place in range(2)]
    first, second = (score.value for (score,) in jury.score_batch(groups))
    assert 0.1 + 0.8 != 0.2 + 0.7, "or nothing would be rounded"
    assert first == second


def test_a_margin_of_rounding_alone_favours_no_side() -> None:
    """0.7 in one order and 0.3 in the other: over both, no response is ahead."""
    margin = (0.7 + (1 - 0.7) - 1) * 4 + (0.1 + 0.2 - 0.3)
    assert margin != 0
    answer = Prediction.of(comparison(0), "known", "A", "B", margin=margin)
    assert answer.margin == 0
    assert forced(["A"], ["B"], [answer.margin], ["A"]).tolist() == [0.5]


MEMBERS = "[{name: x, members: [{judge: longer}, {judge: base@2}]}]"


def rows(n: int) -> list[dict[str, Any]]:
    return [
        {"query": f"q{i}", "response_a": "a " * (1 + i % 5), "response_b": "b " * (1 + i % 3), "label": "AB"[i % 2]}
        for i in range(n)
    ]


def test_cascades_and_juries_stand_wherever_a_judge_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(scored))
    file = lines(tmp_path / "mine.jsonl", rows(20))
    panels = [f"cascade.judges={MEMBERS}", f"jury.judges={MEMBERS}"]
    directory = judge_stage(tmp_path / "out", f"verdicts.source.path={file}", *panels, judge="jury:x")
    verdicts = list(read_rows(directory, "verdicts"))
    alone = list(read_rows(judge_stage(tmp_path / "out", f"verdicts.source.path={file}", judge="base@2"), "verdicts"))
    expected = []
    for row, of_member in zip(verdicts, alone, strict=True):
        longer = np.sign(len(row["response_a"].strip()) - len(row["response_b"].strip()))
        # The one without margins is wholly for its verdict.
        expected.append(4 * (longer + of_member["margin"] / 4) / 2)
    assert [row["margin"] for row in verdicts] == pytest.approx(expected)

    benchmark = f"evaluate.benchmarks=[{{name: mine, source: {{path: '{file}'}}}}]"
    words = ["recipe=debug", f"output_dir={tmp_path / 'e'}", "track.tracker=none", "robustness.sample=0", benchmark]
    methods = "evaluate.methods=[cascade:x,jury:x,longer]"
    evaluated = Pipeline(configured(*words, methods, *panels), Console()).run("evaluate")
    steps = json.loads((evaluated / "steps.json").read_text())
    first, second, *_ = [step for step in steps if step["judge"] == "cascade:x"]
    ties = sum(len(r["response_a"].strip()) == len(r["response_b"].strip()) for r in rows(20))
    assert ties and (first["asked"], second["asked"]) == (20, 0), "each verdict of longer can be read"
    missed = 0
    for row in rows(20):
        longer = np.sign(len(row["response_a"]) - len(row["response_b"]))
        missed += {1: "A", -1: "B", 0: "tie"}[int(longer)] != row["label"]
    assert first["error"] == pytest.approx(missed / 20)
    (pair,) = [step for step in steps if "pearson" in step]
    a = [np.sign(len(r["response_a"]) - len(r["response_b"])) for r in rows(20)]
    b = [row["margin"] for row in alone]
    assert pair["n"] == 20 and pair["pearson"] == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert "Jurors" in (evaluated / "report.md").read_text()


def test_a_step_s_error_is_of_what_was_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where thresholds tell passes from fails, an answer is right that passes, or fails, as its label does."""
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(answer))
    Thresholds(units="score", high=0.7, low=0.3, passes="4", **PROMISE).save(tmp_path)
    rated = []
    for place in range(50):
        words = 1 + place % 5
        # Never the level that the judge gives, and on its side of 4 but for five of the ten with one word.
        label = {1: 2, 2: 1, 3: 1, 4: 5, 5: 4}[words]
        if words == 1 and place < 25:
            label = 4
        rated.append({"query": f"q{place}", "response": " ".join(["word"] * words), "label": label})
    members = f"[{{judge: base, decided: {tmp_path / 'decided.json'}}}, {{judge: base+one}}]"
    run = Pipeline(
        configured(
            "recipe=debug", f"output_dir={tmp_path / 'e'}", "track.tracker=none", "robustness.sample=0",
            "judge.reads=one", "judge.score=parsed",
            f"evaluate.benchmarks=[{{name: mine, source: {{path: '{lines(tmp_path / 'mine.jsonl', rated)}'}}}}]",
            "evaluate.methods=['cascade:x']", f"cascade.judges=[{{name: x, members: {members}}}]",
        ),
        Console(),
    ).run("evaluate")  # fmt: skip
    first, second = json.loads((run / "steps.json").read_text())
    assert (first["asked"], first["share"], first["error"]) == (50, 0.8, pytest.approx(5 / 40))
    # Three words are half of the scale, which the last member's scores leave below the level 4.
    assert (second["asked"], second["error"]) == (10, 0.0)


def test_rows_without_a_label_are_neither_right_nor_wrong(tmp_path: Path) -> None:
    """Of ten pairs the annotators of six are divided: of the four that have a label, one juror is right on all.

    The other's verdict changes with the order, which is never the label.
    """
    pairs = []
    for place in range(10):
        labels = {"one": "A", "two": "A"}
        if place >= 4:
            labels["two"] = "B"
        pairs.append({"query": f"q{place}", "response_a": f"longer text {place}", "response_b": "short", **labels})
    adapter = tmp_path / "my.yaml"
    adapter.write_text(
        "kind: pair\nfields: {query: [query], response_a: [response_a], response_b: [response_b]}\n"
        "label_columns: [one, two]\nlabels: {A: A, B: B}\n"
    )
    source = f"{{path: '{lines(tmp_path / 'mine.jsonl', pairs)}', adapter: '{adapter}'}}"
    run = Pipeline(
        configured(
            "recipe=debug", f"output_dir={tmp_path / 'e'}", "track.tracker=none", "robustness.sample=0",
            f"evaluate.benchmarks=[{{name: mine, source: {source}}}]", "evaluate.methods=['jury:x']",
            "jury.judges=[{name: x, members: [{judge: longer}, {judge: first}]}]",
        ),
        Console(),
    ).run("evaluate")  # fmt: skip
    *steps, jurors = json.loads((run / "steps.json").read_text())
    assert [(step["asked"], step["share"], step["error"]) for step in steps] == [(4, 1.0, 0.0), (4, 1.0, 1.0)]
    assert (jurors["n"], jurors["same_errors"]) == (4, 0.0)


def test_steps_on_single_responses_leave_the_development_split_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ratings.json does, whose n is of the test split."""
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(answer))
    rated = []
    for place in range(40):
        words = 1 + place % 5
        rated.append({"query": f"q{place}", "response": " ".join(["word"] * words), "label": words})
    run = Pipeline(
        configured(
            "recipe=debug", f"output_dir={tmp_path / 'e'}", "track.tracker=none", "robustness.sample=0",
            "judge.reads=one", "judge.score=parsed", "evaluate.dev_share=0.5",
            f"evaluate.benchmarks=[{{name: mine, source: {{path: '{lines(tmp_path / 'mine.jsonl', rated)}'}}}}]",
            "evaluate.methods=['jury:x']", "jury.judges=[{name: x, members: [{judge: base}, {judge: base+one}]}]",
        ),
        Console(),
    ).run("evaluate")  # fmt: skip
    of_jury, _ = json.loads((run / "ratings.json").read_text())
    assert 0 < of_jury["n"] < 40
    *steps, jurors = json.loads((run / "steps.json").read_text())
    assert {step["asked"] for step in steps} == {of_jury["n"]} == {jurors["n"]}


def test_python_names_members_in_the_call() -> None:
    judge = load_judge("jury:lengths", members=["longer", {"judge": "first"}])
    assert judge("q", "longer text", "short").verdict == "A"
    assert [step.judge for step in judge("q", "longer text", "short").steps] == ["longer", "first"]


@pytest.mark.parametrize(
    ("judge", "members", "told"),
    [
        ("cascade:y", MEMBERS, "cascade.judges has no such entry, only x"),
        ("cascade:x", "[{name: x, members: [{judge: longer}]}]", "it needs two members at least, found 1"),
        ("cascade:x", "[{name: x, members: [{judge: longer}, {judge: longer}]}]", "'longer' stands there twice"),
        ("cascade:x", "[{name: x, members: [{judge: longer}, {judge: 'jury:x'}]}]", "cannot be a cascade or a jury"),
        ("cascade:x", "[{name: x, members: [{judge: longer}, {judge: lnger}]}]", "members.1..judge='lnger'"),
        ("cascade:x", "[{name: x, members: [{judge: longer, decided: no.json}, {judge: first}]}]", "no.json"),
        # A right name that cannot stand there is not proposed in its own place.
        ("cascade:x", "[{name: x, members: [{judge: longer}, {judge: surface}]}]", "systemone:URL, scorer:NAME$"),
    ],
)
def test_members_that_cannot_judge_are_refused_in_a_sentence(
    judge: str, members: str, told: str, tmp_path: Path
) -> None:
    source = f"verdicts.source.path={lines(tmp_path / 'mine.jsonl', rows(2))}"
    with pytest.raises(ConfigError, match=told):
        judge_stage(tmp_path / "out", source, f"cascade.judges={members}", judge=judge)


def test_python_says_what_lacks() -> None:
    with pytest.raises(ConfigError, match="name its judges with members="):
        load_judge("jury:x")
    with pytest.raises(ConfigError, match=r"members='longer': expected a list, as in members=\['DIR@3', 'external'\]"):
        load_judge("jury:x", members="longer")
    with pytest.raises(ConfigError, match="a member has the keys judge and decided"):
        load_judge("jury:x", members=["longer", {"name": "first"}])
    with pytest.raises(ConfigError, match="a jury decides nothing by its members' thresholds"):
        load_judge("jury:x", members=["longer", {"judge": "first", "decided": "d.json"}])
