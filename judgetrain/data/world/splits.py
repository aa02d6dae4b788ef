"""The world's splits: pretraining, training and held-out queries, disjoint by query."""

from __future__ import annotations

import hashlib
import random
from typing import Literal

from judgetrain.data.config import WorldConfig
from judgetrain.data.world.language import Language, load_language
from judgetrain.data.world.writers import write_response
from judgetrain.errors import ConfigError
from judgetrain.schema import Comparison, Dialogue, Message, Verdict

Split = Literal["pretrain", "train", "heldout"]

WRITER_SKILLS = {"careful": 0.85, "steady": 0.6, "hasty": 0.35}
"""The writers whose responses the held-out comparisons pair."""

_SHARES: tuple[tuple[Split, float], ...] = (("heldout", 0.3), ("train", 0.7), ("pretrain", 1.0))


def split_of(query: str) -> Split:
    """The split of a query, by its hash alone: 30% held out, 40% training, 30% pretraining of the shipped base."""
    position = int.from_bytes(hashlib.sha256(query.encode()).digest()[:4], "big") / 2**32
    return next(split for split, upper in _SHARES if position < upper)


def queries(language: Language, split: Split) -> list[str]:
    """All queries of a split, in a fixed order."""
    return [query for query in language.queries if split_of(query) == split]


def _sample(split: Split, count: int, seed: int, key: str) -> list[str]:
    pool = queries(load_language(), split)
    if count > len(pool):
        raise ConfigError(f"dialogues.world.{key}={count}: the world's {split} split has {len(pool)} queries")
    return random.Random(f"{split} {seed}").sample(pool, count)


def train_dialogues(config: WorldConfig, seed: int) -> list[Dialogue]:
    """``config.train_dialogues`` single-turn dialogues of the training split; ``category`` is the query's kind."""
    language = load_language()
    chosen = _sample("train", config.train_dialogues, seed + config.seed, "train_dialogues")
    return [_dialogue(language, query, f"world:{i:05d}") for i, query in enumerate(chosen)]


def eval_comparisons(config: WorldConfig, seed: int) -> list[Comparison]:
    """``config.eval_comparisons`` labelled comparisons of held-out queries; ``group`` is the query's kind.

    The label is the world's truth: the response with the higher quality by the hidden rule, or a tie.
    """
    language = load_language()
    chosen = _sample("heldout", config.eval_comparisons, seed + config.seed, "eval_comparisons")
    rng = random.Random(f"comparisons {seed + config.seed}")
    return [_comparison(language, query, f"world-eval:{i:05d}", rng) for i, query in enumerate(chosen)]


def true_verdict(query: str, response_a: str, response_b: str) -> Verdict:
    """The world's truth about two responses to one of its queries."""
    language = load_language()
    a, b = language.quality(query, response_a), language.quality(query, response_b)
    return "tie" if a == b else "A" if a > b else "B"


def _dialogue(language: Language, query: str, identifier: str) -> Dialogue:
    return Dialogue(identifier, "world", (Message("user", query),), None, language.kind_of(query))


def _comparison(language: Language, query: str, identifier: str, rng: random.Random) -> Comparison:
    names = rng.sample(list(WRITER_SKILLS), 2)
    response_a, response_b = (write_response(language, query, WRITER_SKILLS[n], rng) for n in names)
    label = true_verdict(query, response_a, response_b)
    dialogue = _dialogue(language, query, identifier)
    return Comparison(identifier, dialogue, response_a, response_b, names[0], names[1], label, dialogue.category)
