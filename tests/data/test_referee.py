"""The quickstart's external judge and corrector: right by the hidden rule, and wrong as often as stated."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.engine import Annotator, Referee, WorldEngine
from judgetrain.data.world.language import load_language
from judgetrain.engines.base import Request, Sampling, Step
from judgetrain.judges.prompting.verdicts import read_preference, read_rating, read_verdict
from tests.builders.data import RAW, independent_grade

ITEMS = eval_comparisons(WorldConfig(), 0)
LANGUAGE = load_language()


def completed(step: Step, slots: dict[str, str], **settings: float) -> str:
    engine = WorldEngine(WorldEngineConfig(**settings))  # type: ignore[arg-type]
    (done,) = engine.generate(
        [Request(messages=({"role": "user", "content": "?"},), sampling=Sampling(), step=step, slots=slots)], 0
    )
    assert done.error is None
    return done.text


def test_without_errors_it_gives_the_labels() -> None:
    for item in ITEMS[:60]:
        slots = {"query": item.dialogue.query, "response_a": item.response_a, "response_b": item.response_b}
        assert read_verdict(completed("pairwise", slots, error_rate=0.0)).value == item.label


@pytest.mark.parametrize("error_rate", [0.2, 0.6])
def test_it_errs_as_often_as_stated_and_leans_to_the_first(error_rate: float) -> None:
    referee, rng = Referee(LANGUAGE, error_rate), random.Random(0)
    wrong: Counter[str | None] = Counter()
    draws = 0
    for item in ITEMS:
        for _ in range(4):
            text = referee.pairwise(item.dialogue.query, item.response_a, item.response_b, rng)
            draws += 1
            if (verdict := read_verdict(text).value) != item.label:
                wrong[verdict] += 1
    # A slip lands on the right verdict by chance, so fewer are seen than are made.
    assert 0.5 * error_rate < wrong.total() / draws < error_rate
    assert wrong["A"] > 2 * wrong["B"]


@pytest.mark.parametrize("scale", [(1, 10), (1, 5)])
def test_ratings_follow_the_hidden_rule(scale: tuple[int, int]) -> None:
    lowest, highest = scale
    seen = set()
    for item in ITEMS[:80]:
        rule = RAW["kinds"][item.group]
        grades = [independent_grade(item.response_a, rule[name]) for name in ("primary", "secondary")]
        slots = {"query": item.dialogue.query, "response": item.response_a}
        ends = {"lowest": str(lowest), "highest": str(highest)}
        rating = read_rating(completed("pointwise", slots | ends, error_rate=0.0), lowest, highest).value
        assert rating == lowest + round((2 * grades[0] + grades[1]) / 6 * (highest - lowest))
        seen.add(rating)
    assert {lowest, highest} <= seen


def test_the_faithful_critique_is_preferred_wherever_it_stands() -> None:
    annotator, rng = Annotator(LANGUAGE, 0.0), random.Random(0)
    told = 0
    for item in ITEMS[:40]:
        criterion = LANGUAGE.properties[RAW["kinds"][item.group]["primary"]].criteria[0]
        faithful = annotator.judgment(criterion, "", item.response_a, item.response_b, rng)
        unfaithful = Annotator(LANGUAGE, 1.0).judgment(criterion, "", item.response_a, item.response_b, rng)
        if faithful.split("Comparison")[0] == unfaithful.split("Comparison")[0]:
            continue
        slots = {"criterion": criterion, "response_a": item.response_a, "response_b": item.response_b}
        for x, y, expected in ((faithful, unfaithful, "X"), (unfaithful, faithful, "Y")):
            texts = {"judgment_x": x, "judgment_y": y}
            assert read_preference(completed("preference", slots | texts, error_rate=0.0)).value == expected
        told += 1
    assert told > 15


def test_a_correction_adds_what_the_judgment_misses_and_nothing_else() -> None:
    cost, humor = (RAW["properties"][name]["grades"] for name in ("cost", "humor"))
    judgment = f"Analysis: it {cost[0]}.\nAnalysis: it {humor[2]}."
    slots = {"query": "?", "response": "okay .", "judgment": judgment}
    text = completed("correction", slots, skill=1.0)
    assert text.startswith("okay . ")
    assert {name for name in RAW["properties"] if independent_grade(text, name)} == {"cost"}
    assert independent_grade(text, "cost") == 2
    assert completed("correction", slots, skill=0.0) == "okay ."


def test_a_criterion_that_the_world_does_not_know_is_an_error_completion() -> None:
    slots = dict.fromkeys(("response_a", "response_b", "judgment_x", "judgment_y"), "x") | {"criterion": "depth: x"}
    engine = WorldEngine(WorldEngineConfig())
    (done,) = engine.generate([Request(messages=(), sampling=Sampling(), step="preference", slots=slots)], 0)
    assert (done.finish_reason, done.error) == ("error", "the world does not know 'depth'")
