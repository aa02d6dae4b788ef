"""The quickstart world: truth computed from the text, disjoint splits, the annotator's stated error rate."""

import random
from bisect import bisect_left
from collections import Counter
from typing import get_args

import numpy as np
import pytest

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import Split, eval_comparisons, queries, train_dialogues, true_verdict
from judgetrain.data.world.engine import Annotator, Referee, WorldEngine
from judgetrain.data.world.language import load_language, write_response
from judgetrain.engines.base import Request, Sampling, Step
from judgetrain.engines.config import WORLD_BASE
from judgetrain.errors import ConfigError
from judgetrain.judges.kinds.baselines import differences, fitted
from judgetrain.judges.prompting.verdicts import read_preference, read_rating, read_verdict
from judgetrain.schema import Comparison, Dialogue, Message
from tests.builders.data import RAW, independent_grade


def test_no_sentence_shows_two_properties() -> None:
    language = load_language()
    for name, prop in language.properties.items():
        for text in (*prop.strong, *prop.weak):
            sentence = text.format(thing="the map")
            shown = [other for other in language.properties if independent_grade(sentence, other)]
            assert shown == [name], sentence


def test_labels_follow_the_hidden_rule_read_from_the_text() -> None:
    for comparison in eval_comparisons(WorldConfig(), seed=3):
        rule = RAW["kinds"][comparison.group]
        a, b = (
            2 * independent_grade(r, rule["primary"]) + independent_grade(r, rule["secondary"])
            for r in (comparison.response_a, comparison.response_b)
        )
        assert comparison.label == ("tie" if a == b else "A" if a > b else "B")
        assert true_verdict(comparison.dialogue.query, comparison.response_a, comparison.response_b) == comparison.label


def test_splits_share_no_query_and_held_out_queries_are_about_other_topics() -> None:
    language = load_language()
    pools = {split: sorted(queries(split)) for split in get_args(Split)}
    assert sum(map(len, pools.values())) == len(set().union(*pools.values())) == len(language.queries)
    every = [(kind, topic) for kind, rule in RAW["kinds"].items() for topic in rule["topics"]]
    topics = {split: {each for each in every if asked(pools[split], *each)} for split in ("train", "heldout")}
    assert not topics["train"] & topics["heldout"]
    assert len(topics["train"]) == 2 * len(topics["heldout"]) == 48
    config = WorldConfig()
    assert {d.query for d in train_dialogues(config, 1)} <= set(pools["train"])
    assert {c.dialogue.query for c in eval_comparisons(config, 1)} <= set(pools["heldout"])


def asked(pool: list[str], kind: str, topic: str) -> bool:
    """Whether some query of the sorted pool is about the topic, in the kind's way."""
    starts = [template.split("{person}")[0].format(topic=topic) for template in RAW["kinds"][kind]["templates"]]
    return any(pool[bisect_left(pool, start) : bisect_left(pool, start + "~")] for start in starts)


def test_test_sets_of_different_seeds_share_no_query() -> None:
    config, seen = WorldConfig(eval_comparisons=500), set[str]()
    for seed in (*range(12), *range(101, 106)):
        held_out = eval_comparisons(config, seed)
        found = {c.dialogue.query for c in held_out}
        assert len(found) == 500
        assert not found & seen
        seen |= found
        per_kind = Counter(c.group for c in held_out)
        assert max(per_kind.values()) - min(per_kind.values()) <= 1
    assert eval_comparisons(config, 1) == eval_comparisons(config, 1)


def test_the_base_knows_every_word_of_the_world() -> None:
    from transformers import AutoTokenizer

    tokenizer, language, rng = AutoTokenizer.from_pretrained(WORLD_BASE), load_language(), random.Random(0)
    told = [*language.queries] + [write_response(language, rng.choice(language.queries), 0.5, rng) for _ in range(2000)]
    first = {text.split(" ", 1)[0] for text in told}
    others = {word for text in told for word in text.split(" ")[1:]}
    text = "\n".join(sorted(first)) + "".join(f" {word}" for word in sorted(others))
    assert tokenizer.unk_token_id not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.unk_token_id in tokenizer.encode("for my busy sister")


def test_a_response_says_as_much_whatever_its_quality() -> None:
    language, rng = load_language(), random.Random(0)
    lengths: dict[int, list[int]] = {}
    for query in rng.sample(queries("train"), 3000):
        rule = RAW["kinds"][language.kind_of(query)]
        text = write_response(language, query, rng.choice((0.35, 0.6, 0.85)), rng)
        strong = [independent_grade(text, rule[role]) for role in ("primary", "secondary")].count(2)
        assert strong + sum(independent_grade(text, name) == 2 for name in rule["off_topic"]) == 2
        assert not any(independent_grade(text, name) == 1 for name in rule["off_topic"])
        lengths.setdefault(strong, []).append(len(text.split()))
    assert {min(found) for found in lengths.values()} == {36}
    assert {max(found) for found in lengths.values()} == {46}
    means = [sum(found) / len(found) for found in lengths.values()]
    assert max(means) - min(means) < 0.7  # standard error about 0.13


def test_no_surface_statistic_tells_the_better_response() -> None:
    """Chance on decided pairs, fitted on as many labels as it likes: 4,000 for the fit, 4,000 others for the test."""
    # The same fit finds what is there: the words of the two properties that decide in one kind of queries.
    for kind, count in ((None, 4000), ("recipe", 2000)):
        fit, test = (decided_pairs(count, seed, kind) for seed in (0, 1))
        features = differences([*fit, *test])
        signs = np.array([1 if c.label == "A" else -1 for c in (*fit, *test)])
        found = np.sign(features @ fitted(features[: len(fit)], signs[: len(fit)]))
        right = np.mean(found[len(fit) :] == signs[len(fit) :])
        assert right > 0.9 if kind else abs(right - 0.5) < 0.03  # standard error 0.008
        sides = np.sign([len(c.response_a) - len(c.response_b) for c in (*fit, *test)])
        assert kind or abs(np.mean((sides == signs)[sides != 0]) - 0.5) < 0.02


def decided_pairs(count: int, seed: int, kind: str | None = None) -> list[Comparison]:
    """So many comparisons that are no ties, as many of each kind as chance has it."""
    language, rng, found = load_language(), random.Random(seed), list[Comparison]()
    pool = [q for q in queries("train") if kind in (None, language.kind_of(q))]
    while len(found) < count:
        query = rng.choice(pool)
        a, b = (write_response(language, query, skill, rng) for skill in rng.sample((0.35, 0.6, 0.85), 2))
        if (label := true_verdict(query, a, b)) != "tie":
            dialogue = Dialogue(str(len(found)), "world", (Message("user", query),))
            found.append(Comparison(str(len(found)), dialogue, a, b, "a", "b", label))
    return found


def test_the_annotator_thinks_of_the_decoy_first_and_of_crucial_properties_no_sooner_than_of_others() -> None:
    language, rng, first = load_language(), random.Random(0), Counter[str]()
    annotator = Annotator(language, 0.0)
    for query in rng.sample(queries("train"), 6000):
        rule = RAW["kinds"][language.kind_of(query)]
        name = annotator.criteria(query, 10, rng).split("\n")[0].split(". ")[1].split(":")[0]
        roles = [role for role in ("primary", "secondary", "decoy") if rule[role] == name]
        first[roles[0] if roles else "other"] += 1
        assert name not in rule["off_topic"]
    assert abs(first["decoy"] / 6000 - 4 / 13) < 0.02
    for role in ("primary", "secondary"):
        assert abs(first[role] / 6000 - 1 / 13) < 0.015
    assert abs(first["other"] / 6000 - 7 / 13) < 0.025


def test_more_queries_than_the_world_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dialogues\.world\.train_dialogues=999999"):
        train_dialogues(WorldConfig(train_dialogues=999999), 0)
    with pytest.raises(ConfigError, match=r"dialogues\.world\.eval_comparisons=99999"):
        eval_comparisons(WorldConfig(eval_comparisons=99999), 0)


@pytest.mark.parametrize("error_rate", [0.0, 0.2])
def test_annotator_errs_as_often_as_stated(error_rate: float) -> None:
    language = load_language()
    annotator = Annotator(language, error_rate)
    rng = random.Random(1)
    unfaithful = total = 0
    for query in queries("train")[::600]:
        first, second = (write_response(language, query, 0.6, rng) for _ in range(2))
        for line in annotator.criteria(query, 10, rng).split("\n"):
            criterion = line.split(". ", 1)[1]
            name = criterion.split(":")[0]
            text = annotator.judgment(criterion, annotator.sound_guideline(criterion), first, second, rng)
            scores = [int(row.rsplit(" ", 1)[1]) for row in text.split("\n") if "Score" in row]
            unfaithful += scores != [1 + 2 * independent_grade(r, name) for r in (first, second)]
            total += 1
    # Some errors land on the right scores by chance, so the observed share lies below the stated one.
    assert unfaithful / total <= error_rate
    assert unfaithful / total >= 0.6 * error_rate


def test_engine_is_deterministic_and_reports_unknown_queries() -> None:
    engine = WorldEngine(WorldEngineConfig(skill=0.5))
    query = queries("train")[0]
    request = Request(messages=({"role": "user", "content": query},), sampling=Sampling(), slots={"query": query})
    unknown = Request(messages=({"role": "user", "content": "?"},), sampling=Sampling(), slots={"query": "who are you"})
    first = engine.generate([request, request, unknown], seed=4)
    assert first == engine.generate([request, request, unknown], seed=4)
    assert first[0].text != first[1].text
    assert first[2].finish_reason == "error"


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


def test_a_rubric_is_drawn_by_counting_what_the_better_responses_show() -> None:
    """Two of three pairs speak for an example, one for a summary, one against; the known one has a pair's weight."""
    language, names = load_language(), ("example", "summary")
    strong = {name: language.properties[name].strong[0].format(thing=language.things[0]) for name in names}
    pairs = [(strong["example"], "so it is"), (strong["example"], strong["summary"]), (strong["summary"], "so it is")]
    annotator = Annotator(language, 0.0)
    example, summary = (language.properties[name].criteria[0] for name in names)
    assert annotator.rubric(pairs, [], 4) == f"1. {example}"
    assert annotator.rubric(pairs, [f"1. {summary}"], 4) == f"1. {example}\n2. {summary}"
    assert annotator.rubric(pairs, [f"1. {summary}"], 1) == f"1. {example}"
