"""Rubrics drawn from labelled pairs and examples in the prompt: which pairs are seen, by whom, and what it costs."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from judgetrain.data.config import ClusterConfig, WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.engines import lazy_model
from judgetrain.engines.base import Request
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.evaluate.dry_run import estimated
from judgetrain.evaluate.stages import EVALUATE, EvaluateSettings
from judgetrain.extras.untrained import learned
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.kinds.pairwise import PairwiseJudge
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.schema import Comparison
from tests.builders.data import write_lines
from tests.builders.evaluate import refused, run
from tests.builders.pipeline import configured
from tests.builders.scripted import ScriptedEngine

HAVE = {"p": {0, 1, 2, 4}, "q": {0, 3, 5}}
"""Which of nine pairs have a better response with a p in it, and which with a q."""
PAIRS = [
    Comparison.of(f"query {i}", f"answer {i} {''.join(n for n in 'pq' if i in HAVE[n])}", f"other {i}", id=str(i))
    for i in range(9)
]
LABELLED = [replace(c, label="A") for c in PAIRS]
LISTS = ["1. p: has a p", "1. q: has a q", "1. p: has a p\n2. q: has a q", "1. never: asked for"]


def drawn(lists: list[str], pairs: list[Comparison] = LABELLED) -> tuple[list[dict[str, Any]], ScriptedEngine, Any]:
    """Return the rounds by a model that writes these lists in turn, and scores responses by the letter asked for."""
    waiting = iter(lists)

    def answer(request: Request, _: int) -> str:
        if request.step == "rubric":
            return next(waiting)
        letter = request.slots["criterion"][0]
        return f"Score: {5 if letter in request.slots['response'].split()[-1] else 1}\nAnalysis: so it is."

    engine = ScriptedEngine(answer)
    options = JudgeOptions.of(JudgeConfig(reads="one", score="parsed", aggregation="mean"), 10)
    options = replace(options, steps=replace(options.steps, write_guidelines=False))
    judge = SimpleNamespace(engine=engine, prompts=load_prompt_set("compact"))
    shard = learned.RubricDrawing(judge, load_prompt_set("rubric", "rubric"), options).rounds(pairs, 1)
    return shard.rows, engine, shard


def test_a_rubric_is_refined_by_what_it_got_wrong_until_the_held_out_pairs_stop_rising() -> None:
    """Pairs 0, 3 and 6 are held out: p is right about one of them, q about two, both together about two."""
    rounds, engine, shard = drawn(LISTS)
    assert [(r["criteria"], r["agreement"]) for r in rounds] == [
        (["p: has a p"], pytest.approx(1 / 3, abs=1e-6)),
        (["q: has a q"], pytest.approx(2 / 3, abs=1e-6)),
        (["p: has a p", "q: has a q"], pytest.approx(2 / 3, abs=1e-6)),
    ]
    drawing_requests = [r for r in engine.requests if r.step == "rubric"]
    shown = [{i for i in range(9) if f"answer {i} " in r.messages[-1]["content"]} for r in drawing_requests]
    assert shown == [{1, 2, 4, 5, 7, 8}, {5, 7, 8}, {1, 2, 4, 7, 8}]
    assert [r.slots["criteria"] for r in drawing_requests] == ["none", "1. p: has a p", "1. q: has a q"]
    text = drawing_requests[0].messages[-1]["content"]
    assert text.index("[Better answer begins]\nanswer 1 p") < text.index("[Worse answer begins]\nother 1")
    assert shard.facts == {"calls": 3 + 2 * 9 * (1 + 1 + 2)} and len(engine.requests) == shard.facts["calls"]
    written = sum(len(text.split()) for text in LISTS[:3]) + 2 * 9 * 4 * 6  # six words a judgment
    assert shard.generated_tokens == written


@pytest.mark.parametrize(
    ("lists", "rounds", "reason"),
    [(["I cannot."], 0, "rubric:none"), (["!error"], 0, "rubric:error"), (["1. p: has a p", "hm"], 1, "rubric:none")],
)
def test_a_list_that_cannot_be_read_ends_the_drawing_and_is_counted(lists: list[str], rounds: int, reason: str) -> None:
    no_rounds, _, shard = drawn(lists)
    assert (len(no_rounds), shard.dropped) == (rounds, {reason: 1})


def test_pairs_of_one_query_are_held_out_one_by_one() -> None:
    # Every third pair is held out. p is right about one of those, as in the test above.
    rounds, engine, _ = drawn(["1. p: has a p", "hm"], [replace(c, dialogue=PAIRS[0].dialogue) for c in LABELLED])
    assert [r["agreement"] for r in rounds] == [pytest.approx(1 / 3, abs=1e-6)]
    first = next(r.messages[-1]["content"] for r in engine.requests if r.step == "rubric")
    assert {i for i in range(9) if f"answer {i} " in first} == {1, 2, 4, 5, 7, 8}


def test_examples_are_turns_before_the_question_with_a_and_b_right_in_turn() -> None:
    engine = ScriptedEngine(lambda *_: "[[A]]\n### User:\n[[B]]")  # a base goes on with questions of its own
    judge = PairwiseJudge(engine, load_prompt_set("pairwise", "pairwise"))
    (replies,) = judge.ask([PAIRS[0]], 1, examples=[[LABELLED[4], LABELLED[5], LABELLED[7].swapped()]])
    assert [(r.text, r.answer) for r in replies] == [("[[A]]", "A"), ("[[A]]", "B")], "they end at the mark"
    for text in ("m[[0, 1]] is wrong, so\n[[B]]", "It is [[A]] or [[B]].\n\n[[B]]", "<think>[[A]]? No.</think>\n[[B]]"):
        explained = PairwiseJudge(ScriptedEngine(lambda *_, text=text: text), judge.prompts)  # type: ignore[misc]
        assert explained.ask([PAIRS[0]], 1, examples=[LABELLED[4:5]])[0][0].answer == "B", text
    for request, first in zip(engine.requests, ("answer 0 pq", "other 0"), strict=True):
        roles, texts = zip(*((m["role"], m["content"]) for m in request.messages), strict=True)
        assert roles == ("system", *("user", "assistant") * 3, "user")
        assert texts[2::2] == ("[[A]]", "[[B]]", "[[A]]")
        shown = [text.partition("[Answer of assistant A begins]\n")[2].partition("\n")[0] for text in texts[1::2]]
        assert shown == ["answer 4 p", "other 5", "answer 7 ", first]


def test_examples_that_do_not_fit_are_left_out_the_farther_half_first() -> None:
    def answer(request: Request, _: int) -> str:
        return "!too_long" if len(request.messages) > 4 else "[[A]]"

    judge = PairwiseJudge(ScriptedEngine(answer), load_prompt_set("pairwise", "pairwise"))
    shard = learned.replied(judge, PAIRS[:2], 1, lambda items: [LABELLED[4:8], LABELLED[5:6]])
    assert {reply["failure"] for row in shard.rows for reply in row["replies"]} == {None}
    shown = [[m["content"] for m in r.messages[1:-1:2]] for r in judge.engine.requests]  # type: ignore[attr-defined]
    assert [len(nearest) for nearest in shown] == [4, 4, 1, 1, 2, 2, 1, 1]
    assert "query 7" in shown[6][0] and "query 5" in shown[2][0]


class Letters:
    """An encoder: how often a text has each digit."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config

    def __call__(self, texts: list[str]) -> Any:
        return np.array([[text.count(digit) / len(text) for digit in "0123456789"] for text in texts], np.float16)


def test_the_nearest_pairs_stand_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "Encoder", Letters)
    near = learned.Nearest(LABELLED[1:6], ClusterConfig())
    (nearest,) = near([Comparison.of("4 4 4 4 3 3 3 2 2 5", "a", "b")])
    assert [c.id for c in nearest] == ["5", "2", "3", "4"]


@pytest.fixture
def responses(tmp_path: Path) -> Path:
    """Training comparisons of the world: nine with a winner, and those that must not be learned from."""
    decided = [c for c in eval_comparisons(WorldConfig(eval_comparisons=40), 2) if c.label != "tie"][:9]
    (tested,) = eval_comparisons(WorldConfig(eval_comparisons=12), 1)[:1]
    rest = [replace(decided[0], id="tie", label="tie"), replace(decided[1], id="none", label=None)]
    rest.append(replace(decided[2], id="made", made="errors"))
    rows = [replace(c, id=f"train:{i}") for i, c in enumerate(decided)] + rest + [replace(tested, id="seen", label="A")]
    directory = tmp_path / "artifacts" / "responses" / "r1"
    directory.mkdir(parents=True)
    write_lines(directory / "comparisons.jsonl", [c.to_row() for c in rows])
    return directory


def settings(*methods: str) -> Any:
    return configured(
        "recipe=debug",
        f"evaluate.methods=[{','.join(methods)}]",
        "evaluate.external={type: world, error_rate: 0}",
        "dialogues.world.eval_comparisons=12",
        "robustness.sample=0",
        "judge.tie=0",
        "seed=1",
    )


def test_what_was_learned_from_and_spent_stands_in_the_rows(
    responses: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agreement is recounted from the scores that were written; another evaluation asks nobody."""
    monkeypatch.setattr(learned, "Encoder", Letters)
    config = settings("rubric:9:external", "fewshot:9:external")
    inputs = {"responses": responses}
    assert EVALUATE.inputs(EvaluateSettings.of(config)) == ["responses"]
    out = run("evaluate", config, inputs, tmp_path / "artifacts" / "evaluate" / "e1")
    rubric, fewshot = json.loads(out.path("metrics.json").read_text())
    rounds = [json.loads(line) for line in out.path("rubric-rubric.9.external-00000-of-00001.jsonl").open()]
    best = max(rounds, key=lambda r: r["agreement"])["criteria"]
    right = []
    for line in out.path("trees-world-rubric.9.external-00000-of-00001.jsonl").open():
        tree = json.loads(line)
        assert [c["text"] for c in tree["criteria"]] == best
        judged = [j for c in tree["criteria"] for g in c["guidelines"] for j in g["judgments"]]
        a, b = (sum(j[f"score_{side.lower()}"] for j in judged if j["order"] == side) for side in "AB")
        right.append(("tie" if a == b else "A" if a > b else "B") == tree["comparison"]["label"])
    assert rubric["agreement"] == pytest.approx(sum(right) / 12, abs=1e-6)
    assert rubric["calls"] == 2 * len(best)
    calls = len(rounds) + sum(2 * 9 * len(r["criteria"]) for r in rounds)
    assert {k: rubric["learned"][k] for k in ("labels", "calls")} == {"labels": 9, "calls": calls}
    assert rubric["learned"]["prompt_tokens"] > 100 and rubric["learned"]["seconds"] > 0
    assert fewshot["learned"]["labels"] == 9 and fewshot["agreement"] == 1, "the world's referee never errs here"
    assert "| labels used |" in out.path("report.md").read_text()
    monkeypatch.setattr(lazy_model, "make_engine", lambda *a, **k: pytest.fail("nobody is asked"))
    again = run("evaluate", config, inputs, tmp_path / "artifacts" / "evaluate" / "e2")
    assert json.loads(again.path("metrics.json").read_text()) == [rubric, fewshot]


def test_fewer_labelled_pairs_than_asked_for_are_taken_and_told(
    responses: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings("rubric:70:external")
    inputs = {"responses": responses}
    out = run("evaluate", config, inputs, tmp_path / "artifacts" / "evaluate" / "e1")
    assert json.loads(out.path("metrics.json").read_text())[0]["learned"]["labels"] == 9
    counts = "10 of 13 training rows are labelled A or B, 9 have no benchmark's query"
    assert f"rubric:70:external: {counts}: it learns from these" in capsys.readouterr().out


def test_too_few_labelled_pairs_give_no_verdicts_and_end_nothing(
    responses: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (responses / "comparisons.jsonl").read_text().splitlines()[5:]
    (responses / "comparisons.jsonl").write_text("\n".join(rows) + "\n")
    monkeypatch.setattr(lazy_model, "make_engine", lambda *a, **k: pytest.fail("a model is asked for nothing"))
    out = run("evaluate", settings("rubric:70:external"), {"responses": responses}, tmp_path / "rubric")
    (row,) = json.loads(out.path("metrics.json").read_text())
    assert (row["agreement"], row["unreadable_verdicts"], row["failures"]) == (0, 24, {"too_few_labels": 12})
    counts = "5 of 8 training rows are labelled A or B, 4 have no benchmark's query"
    assert f"rubric:70:external: {counts}: too few to learn from, no verdicts" in capsys.readouterr().out

    # A third of a rubric's pairs is held out; one pair is an example.
    (responses / "comparisons.jsonl").write_text("")
    out = run("evaluate", settings("fewshot:70:external"), {"responses": responses}, tmp_path / "fewshot")
    (row,) = json.loads(out.path("metrics.json").read_text())
    assert (row["agreement"], row["failures"]) == (0, {"too_few_labels": 12})


def test_a_model_that_names_no_criteria_has_no_verdicts(
    responses: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lazy_model, "make_engine", lambda *a, **k: ScriptedEngine(lambda *_: "I cannot."))
    out = run("evaluate", settings("rubric:9:external"), {"responses": responses}, tmp_path / "out")
    (row,) = json.loads(out.path("metrics.json").read_text())
    assert (row["agreement"], row["unreadable_verdicts"], row["failures"]) == (0, 24, {"rubric:none": 12})
    assert "the model named no criteria" in capsys.readouterr().out


def test_a_dry_run_counts_the_drawing(tmp_path: Path) -> None:
    # It counts as many rounds as a run may make, four, with four criteria in each, as the verdicts have.
    config = settings("rubric:8:external")
    config.evaluate.external = OpenAIEngineConfig(model="m", price=[1, 1])
    ((name, costs),) = estimated(EvaluateSettings.of(config))
    calls = {step: cost["calls"] for step, cost in costs.items()}
    assert (name, calls) == ("rubric:8:external (m)", {"rubric": 4, "score": 4 * 2 * 4 * 8 + 2 * 4 * 12})


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("rubric:5", "expected rubric:N or rubric:N:MODEL, N at least 6"),
        ("rubric:many", "expected rubric:N"),
        ("fewshot:0", "N at least 1"),
        ("fewshot:9:nobody", "allowed are base, teacher, external"),
        ("prompted:x", "allowed are base, teacher, external"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(method: str, message: str) -> None:
    assert message in refused(settings(method), "evaluate")


def test_examples_need_verdicts_that_are_marks() -> None:
    config = settings("fewshot:9:external")
    config.evaluate.pairwise.prompts = "auto_j"
    assert "the examples of 'fewshot:9:external' end in [[A]] or [[B]]" in refused(config, "evaluate")
