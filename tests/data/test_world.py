"""The quickstart world: truth computed from the text, disjoint splits, the annotator's stated error rate."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons, train_dialogues, true_verdict
from judgetrain.data.world.annotator import SLOPPY_GUIDELINE, Annotator
from judgetrain.data.world.engine import WorldEngine
from judgetrain.data.world.language import load_language
from judgetrain.data.world.splits import queries
from judgetrain.data.world.writers import write_response
from judgetrain.engines.base import Request, Sampling
from judgetrain.errors import ConfigError
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


def test_splits_share_no_query_and_seeds_differ() -> None:
    language = load_language()
    pools = [set(queries(language, split)) for split in ("pretrain", "train", "heldout")]
    assert sum(map(len, pools)) == len(set().union(*pools)) == len(language.queries)
    config = WorldConfig()
    train = {d.query for d in train_dialogues(config, 1)}
    held_out = [c.dialogue.query for c in eval_comparisons(config, 1)]
    assert not train & set(held_out)
    assert len(set(held_out)) == len(held_out) == 300
    assert eval_comparisons(config, 1) == eval_comparisons(config, 1) != eval_comparisons(config, 2)


def test_more_queries_than_the_world_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dialogues\.world\.train_dialogues=9999"):
        train_dialogues(WorldConfig(train_dialogues=9999), 0)


def test_skill_raises_quality() -> None:
    language = load_language()
    rng = random.Random(0)
    pool = queries(language, "train")
    means = [
        sum(language.quality(q, write_response(language, q, skill, rng)) for q in pool) / len(pool)
        for skill in (0.1, 0.5, 0.9)
    ]
    assert all(low < high for low, high in pairwise(means))


@pytest.mark.parametrize("error_rate", [0.0, 0.2])
def test_annotator_errs_as_often_as_stated(error_rate: float) -> None:
    language = load_language()
    annotator = Annotator(language, error_rate)
    rng = random.Random(1)
    unfaithful = total = 0
    for query in queries(language, "train")[:200]:
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


def test_criteria_name_both_crucial_properties_among_distractors() -> None:
    language = load_language()
    lines = Annotator(language, 0.0).criteria(queries(language, "train")[0], 10, random.Random(0)).split("\n")
    kind = language.kinds[language.kind_of(queries(language, "train")[0])]
    names = [line.split(". ")[1].split(":")[0] for line in lines]
    assert len(set(names)) == 10
    assert {kind.primary, kind.secondary} <= set(names)


def test_engine_is_deterministic_and_reports_unknown_queries() -> None:
    engine = WorldEngine(WorldEngineConfig(skill=0.5))
    query = queries(load_language(), "train")[0]
    request = Request(messages=({"role": "user", "content": query},), sampling=Sampling(), slots={"query": query})
    unknown = Request(messages=({"role": "user", "content": "?"},), sampling=Sampling(), slots={"query": "who are you"})
    first = engine.generate([request, request, unknown], seed=4)
    assert first == engine.generate([request, request, unknown], seed=4)
    assert first[0].text != first[1].text
    assert first[2].finish_reason == "error"


def test_sloppy_guidelines_err_more() -> None:
    language = load_language()
    annotator = Annotator(language, 0.2)
    criterion = language.properties["cost"].criteria[0]
    faithful = annotator.write_judgment("cost", [0, 0], [1, 1])

    def errors(guideline: str) -> int:
        rng = random.Random(0)
        return sum(annotator.judgment(criterion, guideline, "none", "none", rng) != faithful for _ in range(2000))

    assert errors(SLOPPY_GUIDELINE) > 1.5 * errors(annotator.sound_guideline(criterion))
