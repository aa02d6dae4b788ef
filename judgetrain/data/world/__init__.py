"""The quickstart world: a generated world whose truth is known (docs/world.md).

Its splits are pretraining, training and held-out queries; the last two share no topic. What decides is drawn from
``WorldConfig.rule``, by default the run's seed.
"""

import functools
import hashlib
import random
from dataclasses import replace
from itertools import chain
from typing import Literal

from judgetrain.amounts import amount
from judgetrain.data.config import SourceConfig, WorldConfig
from judgetrain.data.world.engine import Annotator
from judgetrain.data.world.language import Language, load_language
from judgetrain.data.world.rule import World, load_world
from judgetrain.errors import ConfigError
from judgetrain.rubrics import Criterion, Rubric
from judgetrain.schema import Comparison, Dialogue, Message

Split = Literal["pretrain", "train", "heldout"]

WRITERS = ("ann", "ben", "cora")
"""The writers whose responses the held-out comparisons pair."""
SKILL = 0.5
"""The share of its responses that each of them writes with care.

All are alike. Were one more careful than another, counting what the two differ in would tell what counts without any
judging: with shares of 0.7, 0.5 and 0.3 that rule has 96%.
"""
PRETRAINING_SHARE = 0.3
"""The share of the first queries that the shipped base was pretrained on, by their hash."""


def pretraining_queries(language: Language) -> list[str]:
    """Return the queries of the base's pretraining text, in a fixed order."""
    return [query for query in language.first_queries if _position(query) >= 1 - PRETRAINING_SHARE]


@functools.cache
def _pools() -> dict[Split, list[str]]:
    """Return the queries of each split; those about held-out topics are no training queries."""
    language = load_language()
    pools: dict[Split, list[str]] = {"pretrain": pretraining_queries(language), "train": [], "heldout": []}
    # The base has read these, so that neither training nor tests may ask them.
    seen = set(pools["pretrain"])
    for query in language.queries:
        if query in seen:
            continue
        split: Split = "heldout" if language.held_out(query) else "train"
        pools[split].append(query)
    return pools


def queries(split: Split) -> list[str]:
    """Return all queries of a split, in a fixed order."""
    return list(_pools()[split])


def _check_size(split: Split, pool: list[str], count: int, key: str) -> None:
    """Refuse (ConfigError) more queries than a split's pool has; ``key`` is the setting with the count."""
    if count > len(pool):
        raise ConfigError(f"dialogues.world.{key}={count}: the world's {split} split has {amount(len(pool), 'query')}")


def _position(query: str) -> float:
    """Return a number in [0, 1) that the query's text alone decides, as evenly spread as a hash."""
    return int.from_bytes(hashlib.sha256(query.encode()).digest()[:4], "big") / 2**32


@functools.cache
def _test_order() -> list[str]:
    """Return the held-out queries in one fixed random order, in which the kinds take turns."""
    language = load_language()
    rng = random.Random("heldout")
    by_kind: dict[str, list[str]] = {kind: [] for kind in language.kinds}
    for query in _pools()["heldout"]:
        by_kind[language.kind_of(query)].append(query)
    for queries_of_kind in by_kind.values():
        rng.shuffle(queries_of_kind)
    # A query of each kind in turn, so that every part of the order is as mixed as the whole. It ends where the
    # smallest kind has no more queries.
    turns = zip(*by_kind.values(), strict=False)
    return list(chain.from_iterable(turns))


def train_dialogues(config: WorldConfig, seed: int) -> list[Dialogue]:
    """Return ``config.train_dialogues`` single-turn dialogues of the training split.

    A dialogue's ``category`` is its query's kind.
    """
    language = load_language()
    pool = queries("train")
    _check_size("train", pool, config.train_dialogues, "train_dialogues")
    # Seeded by a text, so that other draws by the same number are independent of this one.
    chosen = random.Random(f"train {seed}").sample(pool, config.train_dialogues)
    return [_dialogue(language, query, f"world:{number:05d}") for number, query in enumerate(chosen)]


def of_source(config: WorldConfig, source: SourceConfig) -> WorldConfig:
    """Return the world's configuration as a source reads it: by the source's own rule, where it has one."""
    return config if source.rule is None else replace(config, rule=source.rule)


def world_of(config: WorldConfig, seed: int) -> World:
    """Return the world of a configuration; without a rule of its own, that of the run's seed."""
    rule = seed if config.rule is None else config.rule
    return load_world(rule)


def eval_comparisons(config: WorldConfig, seed: int) -> list[Comparison]:
    """Return ``config.eval_comparisons`` labelled comparisons of held-out queries; ``group`` is the query's kind.

    The label is the world's truth: the response with the higher quality by the hidden rule, or a tie. No query of a
    seed is among those of the next ``len(order) // count - 1`` seeds.
    """
    world = world_of(config, seed)
    count = config.eval_comparisons
    order = _test_order()
    _check_size("heldout", order, count, "eval_comparisons")
    # The order is cut into parts of ``count`` queries, and seeds go round the parts.
    start = seed % (len(order) // count) * count
    rng = random.Random(f"comparisons {seed}")
    comparisons = []
    for number, query in enumerate(order[start : start + count]):
        comparisons.append(labelled_comparison(world, query, f"world-eval:{number:05d}", rng))
    return comparisons


def true_rubric(world: World, query: str) -> Rubric:
    """Return the criteria that decide about a query, by the hidden rule: the primary property counts twice."""
    language = world.language
    annotator = Annotator(language, error_rate=0.0)
    criteria = []
    for name, weight in zip(world.deciding_for(query).crucial, (2.0, 1.0), strict=True):
        text = language.properties[name].criteria[0]
        criteria.append(Criterion(text=text, weight=weight, guideline=annotator.sound_guideline(text)))
    return Rubric(tuple(criteria))


def with_truth(world: World, comparison: Comparison) -> Comparison:
    """Return the comparison labelled by the world's verdict, where it is one of the world's."""
    if comparison.dialogue.source != "world":
        return comparison
    try:
        truth = world.verdict(comparison.dialogue.query, comparison.response_a, comparison.response_b)
    except KeyError:
        # Somebody's own source is called "world", too.
        return comparison
    return replace(comparison, label=truth)


def _dialogue(language: Language, query: str, identifier: str) -> Dialogue:
    """Return a query as a dialogue of one turn."""
    return Dialogue(identifier, "world", (Message("user", query),), None, language.kind_of(query))


def labelled_comparison(world: World, query: str, identifier: str, rng: random.Random) -> Comparison:
    """Return two of the world's writers' responses to a query, with the truth; ``group`` is the query's kind."""
    model_a, model_b = rng.sample(WRITERS, 2)
    response_a = world.respond(query, SKILL, rng)
    response_b = world.respond(query, SKILL, rng)
    dialogue = _dialogue(world.language, query, identifier)
    return Comparison(
        id=identifier,
        dialogue=dialogue,
        response_a=response_a,
        response_b=response_b,
        model_a=model_a,
        model_b=model_b,
        label=world.verdict(query, response_a, response_b),
        group=dialogue.category,
    )
