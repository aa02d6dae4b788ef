"""The text that the shipped base was pretrained on: its very stream, and that it hints at no rule."""

import hashlib
import random
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare

from judgetrain.data.world import pretraining_queries, queries
from judgetrain.data.world.engine import criterion_name
from judgetrain.data.world.language import load_language
from judgetrain.extras.world_base.corpus import Corpus
from judgetrain.extras.world_base.pretrain import PHASES
from tests.builders.data import RAW, independent_grade

NAMES = list(RAW["properties"])
STREAMS = ("3f51a12781b5566a", "255a3cc133e2aac4", "215cc8debd1e81c8", "215cc8debd1e81c8", "e00dfb7fbf88c32f")
"""How the hashes of 3,000 texts of each phase begin."""


def corpus_of(phase: int) -> Corpus:
    """Return the text of one phase of pretraining."""
    language = load_language()
    settings = PHASES[phase]
    queries_met = pretraining_queries(language)
    return Corpus(language, queries_met, settings.worded, varied=settings.last, kinds=settings.kinds)


def test_the_pretraining_text_is_what_the_base_was_made_from() -> None:
    assert len(STREAMS) == len(PHASES)
    for phase, expected in enumerate(STREAMS):
        corpus = corpus_of(phase)
        rng = random.Random("corpus 1 test")
        digest = hashlib.sha256()
        for _ in range(3000):
            digest.update("\0".join(corpus.exchange(rng)).encode())
        assert digest.hexdigest().startswith(expected)


def test_pretraining_queries_are_in_no_other_split() -> None:
    pool = pretraining_queries(load_language())
    assert not set(pool) & {*queries("train"), *queries("heldout")}


def test_one_more_query_is_of_the_same_kind_and_of_the_base_s_own() -> None:
    # A fifth of 3,000 texts ask so. They use queries of the pretraining split alone, all kinds equally often.
    # Kinds have unlike numbers of queries in that split, so "equally" means by their share of it.
    language = load_language()
    pool = pretraining_queries(language)
    corpus = corpus_of(4)
    rng = random.Random("corpus another test")
    answered = Counter[str]()
    for _ in range(3000):
        prompt, answer = corpus.exchange(rng)
        if not prompt.startswith("Write one more Query like this.\nQuery: "):
            continue
        query = prompt.partition("\nQuery: ")[2]
        assert {query, answer} <= set(pool)
        assert language.kind_of(answer) == language.kind_of(query)
        answered[language.kind_of(answer)] += 1
    assert 520 < answered.total() < 680
    in_pool = Counter(language.kind_of(query) for query in pool)
    expected = [answered.total() * in_pool[kind] / len(pool) for kind in in_pool]
    assert chisquare([answered[kind] for kind in in_pool], expected).pvalue > 0.001


@pytest.mark.parametrize("phase", [2, 4])
def test_no_property_stands_out_for_a_kind_of_query(phase: int) -> None:
    """Reviews on one criterion, lists and responses of 20,000 texts, counted by kind: even beyond chance in no cell."""
    language = load_language()
    kinds = list(RAW["kinds"])
    reviewed = np.zeros((len(kinds), len(NAMES)))
    listed_first = np.zeros_like(reviewed)
    shown = np.zeros((len(kinds), len(NAMES), 3))
    corpus = corpus_of(phase)
    rng = random.Random("corpus even test")
    seen = Counter[str]()
    every_query = set(language.queries)
    for _ in range(20_000):
        question, answer = corpus.exchange(rng)
        if question.startswith("Review") and "\nCriterion: " in question:
            kind = kinds.index(language.kind_of(question.split("Query: ")[1].split("\n")[0]))
            reviewed[kind, NAMES.index(criterion_name(question.split("\nCriterion: ")[1]))] += 1
            seen["review"] += 1
        elif question.startswith("List"):
            kind = kinds.index(language.kind_of(question.split("Query: ")[1]))
            first_lines = [line.partition(". ")[2] for line in answer.splitlines()[:3]]
            for line in first_lines:
                listed_first[kind, NAMES.index(criterion_name(line))] += 1
            seen["list"] += 1
        elif question in every_query:
            kind = kinds.index(language.kind_of(question))
            for place, name in enumerate(NAMES):
                shown[kind, place, independent_grade(answer, name)] += 1
            seen["dialogue"] += 1
    assert min(seen.values()) > 2500
    assert chi2_contingency(reviewed).pvalue > 0.001
    assert chi2_contingency(listed_first).pvalue > 0.001
    for grade in (1, 2):
        against = np.stack([shown[:, :, grade].ravel(), shown.sum(axis=2).ravel() - shown[:, :, grade].ravel()])
        assert chi2_contingency(against).pvalue > 0.001
    for table in (reviewed, listed_first):
        even = table.sum(axis=1, keepdims=True) / len(NAMES)
        assert np.abs((table - even) / even**0.5).max() < 4.5
