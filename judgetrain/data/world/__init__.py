"""The quickstart world: a generated world whose truth is known (DESIGN section 7).

Its splits are pretraining, training and held-out queries; the last two share no topic.
"""

import functools
import hashlib
import random
from dataclasses import replace
from typing import Literal

from judgetrain.data.config import WorldConfig
from judgetrain.data.world.engine import Annotator
from judgetrain.data.world.language import Language, load_language, write_response
from judgetrain.errors import ConfigError
from judgetrain.rubrics import Criterion, Rubric
from judgetrain.schema import Comparison, Dialogue, Message, Verdict

Split = Literal["pretrain", "train", "heldout"]

WRITER_SKILLS = {"careful": 0.85, "steady": 0.6, "hasty": 0.35}
"""The writers whose responses the held-out comparisons pair."""
PRETRAINING_SHARE = 0.3
"""Of the first queries, by their hash: those that the shipped base was pretrained on."""


def pretraining_queries(language: Language) -> list[str]:
    """The queries of the base's pretraining text, in a fixed order."""
    return [query for query in language.first_queries if _position(query) >= 1 - PRETRAINING_SHARE]


@functools.cache
def _pools() -> dict[Split, list[str]]:
    """The queries of each split: pretraining's, and of the others those about held-out topics and the rest."""
    language = load_language()
    pools: dict[Split, list[str]] = {"pretrain": pretraining_queries(language), "train": [], "heldout": []}
    seen = set(pools["pretrain"])
    for query in language.queries:
        if query not in seen:
            pools["heldout" if language.held_out(query) else "train"].append(query)
    return pools


def queries(split: Split) -> list[str]:
    """All queries of a split, in a fixed order."""
    return list(_pools()[split])


def _check_size(split: Split, pool: list[str], count: int, key: str) -> None:
    if count > len(pool):
        raise ConfigError(f"dialogues.world.{key}={count}: the world's {split} split has {len(pool)} queries")


def _position(query: str) -> float:
    return int.from_bytes(hashlib.sha256(query.encode()).digest()[:4], "big") / 2**32


@functools.cache
def _test_order() -> list[str]:
    """The held-out queries in one fixed random order, in which the kinds take turns."""
    language, rng = load_language(), random.Random("heldout")
    by_kind: dict[str, list[str]] = {kind: [] for kind in language.kinds}
    for query in _pools()["heldout"]:
        by_kind[language.kind_of(query)].append(query)
    for found in by_kind.values():
        rng.shuffle(found)
    return [query for turn in zip(*by_kind.values(), strict=False) for query in turn]


def train_dialogues(config: WorldConfig, seed: int) -> list[Dialogue]:
    """``config.train_dialogues`` single-turn dialogues of the training split; ``category`` is the query's kind."""
    language = load_language()
    pool = queries("train")
    _check_size("train", pool, config.train_dialogues, "train_dialogues")
    chosen = random.Random(f"train {seed}").sample(pool, config.train_dialogues)
    return [_dialogue(language, query, f"world:{i:05d}") for i, query in enumerate(chosen)]


def eval_comparisons(config: WorldConfig, seed: int) -> list[Comparison]:
    """``config.eval_comparisons`` labelled comparisons of held-out queries; ``group`` is the query's kind.

    The label is the world's truth: the response with the higher quality by the hidden rule, or a tie. No query of a
    seed is among those of the next ``len(order) // count - 1`` seeds.
    """
    language, count = load_language(), config.eval_comparisons
    order = _test_order()
    _check_size("heldout", order, count, "eval_comparisons")
    start, rng = seed % (len(order) // count) * count, random.Random(f"comparisons {seed}")
    chosen = order[start : start + count]
    return [_comparison(language, query, f"world-eval:{i:05d}", rng) for i, query in enumerate(chosen)]


def true_verdict(query: str, response_a: str, response_b: str) -> Verdict:
    """The world's truth about two responses to one of its queries."""
    language = load_language()
    a, b = language.quality(query, response_a), language.quality(query, response_b)
    return "tie" if a == b else "A" if a > b else "B"


def true_rubric(query: str) -> Rubric:
    """The criteria that decide about a query, by the hidden rule: the primary property counts twice."""
    language = load_language()
    annotator, kind = Annotator(language, error_rate=0.0), language.kinds[language.kind_of(query)]
    lines = zip((language.properties[name].criteria[0] for name in kind.crucial), (2.0, 1.0), strict=True)
    return Rubric(tuple(Criterion(text=t, weight=w, guideline=annotator.sound_guideline(t)) for t, w in lines))


def with_truth(comparison: Comparison) -> Comparison:
    """The comparison labelled by the world's verdict, where it is one of the world's."""
    if comparison.dialogue.source != "world":
        return comparison
    try:
        truth = true_verdict(comparison.dialogue.query, comparison.response_a, comparison.response_b)
    except KeyError:  # a source of the same name
        return comparison
    return replace(comparison, label=truth)


def _dialogue(language: Language, query: str, identifier: str) -> Dialogue:
    return Dialogue(identifier, "world", (Message("user", query),), None, language.kind_of(query))


def _comparison(language: Language, query: str, identifier: str, rng: random.Random) -> Comparison:
    names = rng.sample(list(WRITER_SKILLS), 2)
    response_a, response_b = (write_response(language, query, WRITER_SKILLS[n], rng) for n in names)
    label = true_verdict(query, response_a, response_b)
    dialogue = _dialogue(language, query, identifier)
    return Comparison(identifier, dialogue, response_a, response_b, names[0], names[1], label, dialogue.category)
