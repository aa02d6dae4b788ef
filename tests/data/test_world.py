"""The quickstart world: rules drawn by seed, responses that give nothing away, disjoint splits, the error rate."""

import random
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import get_args

import numpy as np
import pytest
from scipy.stats import chi2_contingency, kruskal

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import (
    SKILL,
    Split,
    counting,
    eval_comparisons,
    linking,
    queries,
    train_dialogues,
    true_rubric,
)
from judgetrain.data.world.engine import Annotator, Referee, WorldEngine
from judgetrain.data.world.floors import PerfectReading, by_linked_texts, by_vote, other_comparisons
from judgetrain.data.world.language import load_language
from judgetrain.data.world.rule import load_world
from judgetrain.engines.base import Request, Sampling, Step
from judgetrain.engines.config import WORLD_BASE
from judgetrain.errors import ConfigError
from judgetrain.judges.prompting.verdicts import read_preference, read_rating, read_verdict
from tests.benchmarks.world_floors import of_rule
from tests.builders.data import RAW, independent_grade

NAMES = list(RAW["properties"])


def test_no_sentence_shows_two_properties() -> None:
    language = load_language()
    for name, prop in language.properties.items():
        for text in (*prop.strong, *prop.weak):
            sentence = text.format(thing="the map")
            shown = [other for other in language.properties if independent_grade(sentence, other)]
            assert shown == [name], sentence


def test_labels_follow_the_rule_read_from_the_text() -> None:
    deciding = load_world(3).deciding
    for comparison in eval_comparisons(WorldConfig(), seed=3):
        rule = deciding[comparison.group or ""]
        a, b = (
            2 * independent_grade(r, rule.primary) + independent_grade(r, rule.secondary)
            for r in (comparison.response_a, comparison.response_b)
        )
        assert comparison.label == ("tie" if a == b else "A" if a > b else "B")


def test_every_seed_draws_its_rule_and_all_properties_and_orders_come_up() -> None:
    # The three properties of 12 kinds over 200 rules: each of ten as often as another, in each place.
    assert load_world(4).deciding == load_world(4).deciding != load_world(5).deciding
    places: dict[str, Counter[str]] = {place: Counter() for place in ("primary", "secondary", "decoy")}
    for seed in range(200):
        for rule in load_world(seed).deciding.values():
            assert len({rule.primary, rule.secondary, rule.decoy}) == 3
            for place, counts in places.items():
                counts[getattr(rule, place)] += 1
    counts = np.array([[counts[name] for name in NAMES] for counts in places.values()])
    assert counts.sum() == 200 * 12 * 3
    assert chi2_contingency(counts).pvalue > 0.001
    assert np.abs(counts - 240).max() < 4.5 * 240**0.5


def test_a_rule_changes_the_labels_of_held_out_comparisons_and_no_word_of_them() -> None:
    """Texts that are the same under every rule say nothing about any."""
    one = eval_comparisons(WorldConfig(rule=1), seed=7)
    two = eval_comparisons(WorldConfig(rule=2), seed=7)
    assert [replace(c, label=None) for c in one] == [replace(c, label=None) for c in two]
    assert [c.label for c in one] != [c.label for c in two]
    assert eval_comparisons(WorldConfig(rule=7), seed=7) == eval_comparisons(WorldConfig(), seed=7)


def test_a_rule_changes_what_training_responses_show() -> None:
    (query,) = random.Random(0).sample(queries("train"), 1)
    texts = {load_world(rule).respond(query, SKILL, random.Random(5)) for rule in range(20)}
    assert len(texts) > 1


def test_no_training_response_says_a_sentence_of_held_out_ones() -> None:
    world = load_world(3)
    rng = random.Random(4)
    said: dict[str, set[str]] = {}
    for split in ("train", "heldout"):
        texts = [world.respond(rng.choice(queries(split)), SKILL, rng) for _ in range(3000)]
        patterns = [(name, text) for name in NAMES for text in RAW["properties"][name]["strong"]]
        patterns += [(name, text) for name in NAMES for text in RAW["properties"][name]["weak"]]
        said[split] = {
            text
            for _, text in patterns
            if any(text.format(thing=thing) in response for thing in RAW["things"] for response in texts)
        }
    assert not said["train"] & said["heldout"]
    # Three strong and two weak sentences a property: two and one for training, one and one for held-out responses.
    assert (len(said["train"]), len(said["heldout"])) == (30, 20)


def test_splits_share_no_query_and_held_out_queries_are_about_other_topics() -> None:
    language = load_language()
    pools = {split: sorted(queries(split)) for split in get_args(Split)}
    assert sum(map(len, pools.values())) == len(set().union(*pools.values())) == len(language.queries)
    every = [(kind, topic) for kind, rule in RAW["kinds"].items() for topic in rule["topics"]]
    topics = {split: {query for query in every if asked(pools[split], *query)} for split in ("train", "heldout")}
    assert not topics["train"] & topics["heldout"]
    assert len(topics["train"]) == 2 * len(topics["heldout"]) == 48
    config = WorldConfig()
    assert {d.query for d in train_dialogues(config, 1)} <= set(pools["train"])
    assert {c.dialogue.query for c in eval_comparisons(config, 1)} <= set(pools["heldout"])


def asked(pool: list[str], kind: str, topic: str) -> bool:
    """Return whether some query of the sorted pool is about the topic, in the kind's way."""
    starts = [template.split("{person}")[0].format(topic=topic) for template in RAW["kinds"][kind]["templates"]]
    return any(pool[bisect_left(pool, start) : bisect_left(pool, start + "~")] for start in starts)


def test_test_sets_of_different_seeds_share_no_query() -> None:
    config = WorldConfig(eval_comparisons=500)
    seen = set[str]()
    for seed in (*range(12), *range(101, 106)):
        held_out = eval_comparisons(config, seed)
        test_queries = {c.dialogue.query for c in held_out}
        assert len(test_queries) == 500
        assert not test_queries & seen
        seen |= test_queries
        per_kind = Counter(c.group for c in held_out)
        assert max(per_kind.values()) - min(per_kind.values()) <= 1
    assert eval_comparisons(config, 1) == eval_comparisons(config, 1)


def test_the_base_knows_every_word_of_the_world() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(WORLD_BASE)
    language = load_language()
    rng = random.Random(0)
    world = load_world(0)
    texts = [*language.queries] + [world.respond(rng.choice(language.queries), 0.5, rng) for _ in range(2000)]
    first = {text.split(" ", 1)[0] for text in texts}
    others = {word for text in texts for word in text.split(" ")[1:]}
    text = "\n".join(sorted(first)) + "".join(f" {word}" for word in sorted(others))
    assert tokenizer.unk_token_id not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.unk_token_id in tokenizer.encode("for my busy sister")


def shown(count: int, seed: int, rule: int = 3) -> Iterator[tuple[str, list[int], int]]:
    """Yield the kind, the grades of all properties and the number of words of so many responses by all writers."""
    world = load_world(rule)
    rng = random.Random(seed)
    pool = queries("train")
    for _ in range(count):
        query = rng.choice(pool)
        text = world.respond(query, SKILL, rng)
        yield world.language.kind_of(query), [independent_grade(text, name) for name in NAMES], len(text.split())


def test_what_counts_is_shown_as_often_and_as_strongly_as_what_does_not() -> None:
    """Grades 0, 1, 2 of the two properties that count beside those of the eight others, in 4,000 responses."""
    deciding = load_world(3).deciding
    grades = np.zeros((2, 3))
    for kind, grades_shown, _ in shown(4000, 1):
        for name, grade in zip(NAMES, grades_shown, strict=True):
            grades[int(name in deciding[kind].crucial), grade] += 1
    assert chi2_contingency(grades).pvalue > 0.001


def test_a_text_is_as_long_as_what_it_shows_whatever_counts() -> None:
    """Words are explained by the number of strong and weak sentences; whether those count adds nothing."""
    deciding = load_world(3).deciding
    rows = []
    words = []
    for kind, grades, length in shown(3000, 2):
        count = [g for name, g in zip(NAMES, grades, strict=True) if name in deciding[kind].crucial]
        by_property = [[float(g == grade) for g in grades] for grade in (1, 2)]
        rows.append([1.0, *by_property[0], *by_property[1], float(count.count(2)), float(count.count(0))])
        words.append(length)
    design = np.array(rows)
    target = np.array(words, dtype=float)
    weights, *_ = np.linalg.lstsq(design, target, rcond=None)
    rest = target - design @ weights
    covariance = np.linalg.pinv(design.T @ design) * rest.var()
    for place in (-2, -1):
        assert abs(weights[place]) < 4 * covariance[place, place] ** 0.5


def test_what_counts_goes_together_and_nothing_else_does_as_much() -> None:
    """Over 4,000 responses: the correlation of the two that count is above that of any other two, for every kind."""
    deciding = load_world(3).deciding
    by_kind: dict[str, list[list[int]]] = {}
    for kind, grades_shown, _ in shown(6000, 3):
        by_kind.setdefault(kind, []).append(grades_shown)
    for kind, grades in by_kind.items():
        matrix = np.corrcoef(np.array(grades).T)
        pairs = {frozenset((NAMES[i], NAMES[j])): matrix[i, j] for i, j in combinations(range(len(NAMES)), 2)}
        best, second, *_ = sorted(pairs, key=lambda pair: -pairs[pair])
        assert best == {*deciding[kind].crucial}
        assert pairs[best] > 0.5 > 0.35 > pairs[second]


def test_no_rule_without_labels_or_with_seventy_comes_near_the_ceiling() -> None:
    """Mean agreements over four rules, n = 400 each: every floor is ten points or more below "both alike"."""
    by_rule = [of_rule(rule, 400) for rule in (3, 8, 9, 12)]

    def share(needs: str, name: str) -> float:
        return statistics.mean(agreements[needs][name] for agreements in by_rule)

    ceiling = share("the rule", "both_alike")
    assert share("the rule", "rule") == 1.0 > ceiling > 0.85
    for needs in ("no label", "70 labels"):
        for name in by_rule[0][needs]:
            assert share(needs, name) < ceiling - 0.1, (needs, name)
    assert share("2200 labels", "ridge_by_kind") > ceiling, "what a rule with labels finds is there to be found"
    assert share("2200 comparisons without a label", "agreement") > ceiling - 0.01, "and so without them, by reading"
    assert share("2200 comparisons without a label", "agreement_of_raw_texts") < 0.5, "but not by counting"
    linked = share("2200 comparisons without a label", "agreement_of_linked_texts")
    assert share("no label", "sum_of_all") < linked < ceiling - 0.1, "and not nearly by how sentences look"


def test_who_wrote_what_tells_nothing() -> None:
    # The three writers' responses show equally much (a test of ranks over 4,400 responses).
    comparisons = other_comparisons(load_world(3), 0, 2200)
    grades: dict[str, list[int]] = {}
    for comparison in comparisons:
        for writer, text in ((comparison.model_a, comparison.response_a), (comparison.model_b, comparison.response_b)):
            grades.setdefault(writer, []).append(sum(independent_grade(text, name) for name in NAMES))
    assert len(grades) == 3
    assert kruskal(*grades.values()).pvalue > 0.001


def test_a_vote_of_rules_believes_those_that_get_labels_right() -> None:
    # Two rules, three labels: by hand exp(3) speaks for the rule that is right once more than the other.
    leads = np.array([[2.0, -1.0], [-1.0, 2.0], [1.0, 1.0]])
    reading = PerfectReading(leads, leads, leads[:, 0], ["news"] * 3, [("ann", "ben")] * 3, np.zeros(3))
    labelled = replace(reading, labels=np.array([1.0, -1.0, 1.0]))
    verdicts = by_vote(reading, labelled, np.eye(2), np.zeros(2))
    assert verdicts.tolist() == [1.0, -1.0, 1.0], "the first property alone gives all three labels"
    # What speaks against a rule beforehand can outweigh its labels: exp(-7) is less than exp(-6).
    doubted = by_vote(reading, labelled, np.eye(2), np.array([-7.0, 0.0]))
    assert doubted.tolist() == [-1.0, 1.0, 1.0]


def test_phrases_that_never_meet_are_one_group() -> None:
    # Two sets of sentences, one of each in every text: those of a set never meet, those of two sets do.
    rng = random.Random(0)
    colours = ["the wall is red .", "it was painted blue ."]
    sizes = ["a very large house .", "quite small it is ."]
    texts = [f"{rng.choice(colours)} {rng.choice(sizes)}" for _ in range(200)]
    groups = counting.exclusive_groups(texts)
    assert {frozenset(group) for group in groups} == {
        frozenset().union(*(counting.phrases(sentence) for sentence in colours)),
        frozenset().union(*(counting.phrases(sentence) for sentence in sizes)),
    }
    assert counting.shown(groups, [colours[0], f"{colours[1]} {sizes[0]}", "nothing of it ."]).sum(axis=1).tolist() == [
        1,
        2,
        0,
    ]


def test_sentences_that_differ_in_a_thing_are_one_pattern() -> None:
    # Six fillings make a blank, of one word or of two; five might be five things to say.
    things = ["red", "blue", "green", "very dark", "quite pale", "grey"]
    texts = [f"the wall is {thing} today . hello there ." for thing in things]
    texts += [f"we like {thing} ." for thing in things[:5]]
    assert linking.patterns(texts) == {
        **{f"the wall is {thing} today .": "the wall is _ today ." for thing in things},
        **{f"we like {thing} .": f"we like {thing} ." for thing in things[:5]},
        "hello there .": "hello there .",
    }


def test_what_two_sets_of_texts_say_is_linked_by_how_it_looks() -> None:
    """Two things said in other words, and an opening that both sets share; the rare sentence is the weak one."""
    rng = random.Random(0)

    def texts(colours: list[str], sizes: list[str]) -> list[str]:
        drawn = [(rng.choices(colours, [9, 1])[0], rng.choice(sizes)) for _ in range(400)]
        return [" ".join(["hello there .", *rng.sample(pair, 2)]) for pair in drawn]

    known_texts = texts(["a painted wall .", "some paint ."], ["a very large house .", "so large a hall ."])
    new_texts = texts(["they were painting .", "it needs paints ."], ["the larger one .", "much enlarged it was ."])
    known, new = linking.two_sets(known_texts, new_texts)
    groups = [{frozenset(group) for group in things.groups} for things in (known, new)]
    assert groups[0] == {
        frozenset({"a painted wall .", "some paint ."}),
        frozenset({"a very large house .", "so large a hall ."}),
    }
    assert groups[1] == {
        frozenset({"they were painting .", "it needs paints ."}),
        frozenset({"the larger one .", "much enlarged it was ."}),
    }
    for things, all_texts in ((known, known_texts), (new, new_texts)):
        for column, group in enumerate(things.groups):
            strengths = {"some paint .": 1, "it needs paints .": 1}
            expected = [max(strengths.get(p, 2) for p in group if p in text) for text in all_texts]
            assert things.grades[:, column].tolist() == expected

    weights = linking.links(known, new, linking.likeness_of_letters)
    assert weights.sum(axis=0) == pytest.approx(1) and weights.sum(axis=1) == pytest.approx(1)
    for row, group in enumerate(known.groups):
        linked = new.groups[int(weights[row].argmax())]
        assert ("some paint ." in group) == ("it needs paints ." in linked)


def test_the_linking_of_texts_calls_a_tie_where_nothing_can_be_linked() -> None:
    world = load_world(3)
    comparisons = other_comparisons(world, 0, 6)
    kinds = [c.group or "" for c in comparisons]
    # Both sets say the same in the same words.
    assert by_linked_texts(comparisons, kinds, comparisons, kinds).tolist() == [0.0] * 6


def test_the_annotator_finds_all_plausible_and_thinks_of_the_decoy_first() -> None:
    world = load_world(3)
    rng = random.Random(0)
    first = Counter[str]()
    decoys = {kind: rule.decoy for kind, rule in world.deciding.items()}
    annotator = Annotator(world.language, 0.0, decoys)
    for query in rng.sample(queries("train"), 6000):
        rule = world.deciding_for(query)
        lines = annotator.criteria(query, 10, rng).split("\n")
        names = [line.split(". ")[1].split(":")[0] for line in lines]
        assert sorted(names) == sorted(NAMES)
        roles = [role for role in ("primary", "secondary", "decoy") if getattr(rule, role) == names[0]]
        first[roles[0] if roles else "other"] += 1
    assert abs(first["decoy"] / 6000 - 4 / 13) < 0.02
    for role in ("primary", "secondary"):
        assert abs(first[role] / 6000 - 1 / 13) < 0.015
    assert abs(first["other"] / 6000 - 7 / 13) < 0.025


def test_the_true_rubric_gives_the_labels() -> None:
    world = load_world(2)
    for comparison in eval_comparisons(WorldConfig(rule=2), seed=2)[:100]:
        criteria = true_rubric(world, comparison.dialogue.query).criteria
        lead = sum(
            c.weight * (independent_grade(comparison.response_a, c.text.split(":")[0])
                        - independent_grade(comparison.response_b, c.text.split(":")[0]))
            for c in criteria
        )  # fmt: skip
        assert comparison.label == ("tie" if lead == 0 else "A" if lead > 0 else "B")


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
        first, second = (load_world(1).respond(query, 0.6, rng) for _ in range(2))
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
DECIDING = load_world(0).deciding


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
    referee = Referee(load_world(0), error_rate)
    rng = random.Random(0)
    wrong: Counter[str | None] = Counter()
    draws = 0
    for item in ITEMS:
        for _ in range(4):
            text = referee.pairwise(item.dialogue.query, item.response_a, item.response_b, rng)
            draws += 1
            verdict = read_verdict(text).value
            if verdict != item.label:
                wrong[verdict] += 1
    # A slip lands on the right verdict by chance, so fewer are seen than are made.
    assert 0.5 * error_rate < wrong.total() / draws < error_rate
    assert wrong["A"] > 2 * wrong["B"]


@pytest.mark.parametrize("scale", [(1, 10), (1, 5)])
def test_ratings_follow_the_hidden_rule(scale: tuple[int, int]) -> None:
    lowest, highest = scale
    seen = set()
    for item in ITEMS[:80]:
        grades = [independent_grade(item.response_a, name) for name in DECIDING[item.group or ""].crucial]
        slots = {"query": item.dialogue.query, "response": item.response_a}
        ends = {"lowest": str(lowest), "highest": str(highest)}
        rating = read_rating(completed("pointwise", slots | ends, error_rate=0.0), lowest, highest).value
        assert rating == lowest + round((2 * grades[0] + grades[1]) / 6 * (highest - lowest))
        seen.add(rating)
    assert {lowest, highest} <= seen


def test_the_faithful_critique_is_preferred_wherever_it_stands() -> None:
    annotator = Annotator(LANGUAGE, 0.0)
    rng = random.Random(0)
    preferred = 0
    for item in ITEMS[:40]:
        criterion = LANGUAGE.properties[DECIDING[item.group or ""].primary].criteria[0]
        faithful = annotator.judgment(criterion, "", item.response_a, item.response_b, rng)
        unfaithful = Annotator(LANGUAGE, 1.0).judgment(criterion, "", item.response_a, item.response_b, rng)
        if faithful.split("Comparison")[0] == unfaithful.split("Comparison")[0]:
            continue
        slots = {"criterion": criterion, "response_a": item.response_a, "response_b": item.response_b}
        for x, y, expected in ((faithful, unfaithful, "X"), (unfaithful, faithful, "Y")):
            texts = {"judgment_x": x, "judgment_y": y}
            assert read_preference(completed("preference", slots | texts, error_rate=0.0)).value == expected
        preferred += 1
    assert preferred > 15


def test_a_correction_adds_what_the_judgment_misses_and_nothing_else() -> None:
    cost, thanks = (RAW["properties"][name]["grades"] for name in ("cost", "thanks"))
    judgment = f"Analysis: it {cost[0]}.\nAnalysis: it {thanks[2]}."
    slots = {"query": "?", "response": "okay .", "judgment": judgment}
    text = completed("correction", slots, skill=1.0)
    assert text.startswith("okay . ")
    assert {name for name in RAW["properties"] if independent_grade(text, name)} == {"cost"}
    assert independent_grade(text, "cost") == 2
    assert completed("correction", slots, skill=0.0) == "okay ."


def test_a_rubric_is_drawn_by_counting_what_the_better_responses_show() -> None:
    # Two of three pairs speak for an example, one for thanks, one against; the known one has a pair's weight.
    language = load_language()
    names = ("example", "thanks")
    strong = {name: language.properties[name].strong[0].format(thing=language.things[0]) for name in names}
    pairs = [(strong["example"], "so it is"), (strong["example"], strong["thanks"]), (strong["thanks"], "so it is")]
    annotator = Annotator(language, 0.0)
    example, thanks = (language.properties[name].criteria[0] for name in names)
    assert annotator.rubric(pairs, [], 4) == f"1. {example}"
    assert annotator.rubric(pairs, [f"1. {thanks}"], 4) == f"1. {example}\n2. {thanks}"
    assert annotator.rubric(pairs, [f"1. {thanks}"], 1) == f"1. {example}"
