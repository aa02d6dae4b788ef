"""Pairs constructed so that their better side is known: a good answer, and one that is worse by how it is made.

A good answer to a similar but other query is the rejected side in "Self-Taught Evaluators" (Wang et al. 2024,
arXiv:2408.02666, section 3.2). Which side stands first is drawn, and every pair says how it was made.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.schema import Comparison, Dialogue

MOST_ERRORS = 3
"""Numbers that are changed in one answer."""
STEPS = (1, 2, 3, 10)
"""By how much: up as often as down, to as many digits, or the larger or the longer number would be the wrong one."""
NUMBER = re.compile(r"(?<![\w.,])\d+(?![\w]|[.,]\d)")
"""A whole number, which is no part of a word or of a longer number."""
LEAST_WORDS = 4
"""Words of a sentence that can be put in another order."""
MOST_SIMILAR = 0.7
"""Queries with a larger cosine may have answers that are as good, and are no neighbours (docs/real_text.md)."""

Texts = Mapping[str, Mapping[str, str]]
"""Answers by who wrote them and by dialogue id."""


@dataclass(frozen=True)
class ConstructedPair:
    """A good and a bad answer, who wrote them, and how the bad one came about."""

    good: str
    bad: str
    writer: str
    how: str

    def comparison(self, dialogue: Dialogue, kind: str, rng: random.Random) -> Comparison:
        """The comparison, labelled; which side stands first is drawn."""
        pair = Comparison(
            id=dialogue.id,
            dialogue=dialogue,
            response_a=self.good,
            response_b=self.bad,
            model_a=self.writer,
            model_b=self.writer,
            label="A",
            group=dialogue.category,
            made=f"{kind}: {self.how}",
        )
        return pair if rng.random() < 0.5 else pair.swapped()


class Neighbours:
    """The dialogues of a sample by how near their queries are, by the embeddings of stage cluster."""

    def __init__(self, directory: Path, ids: Sequence[str]) -> None:
        wanted = {name: i for i, name in enumerate(ids)}
        places = [(wanted[r["id"]], row) for row, r in enumerate(read_rows(directory, "clusters")) if r["id"] in wanted]
        rows = [row for _, row in sorted(places)]
        self._ids, self._numbers = list(ids), wanted
        self._embeddings = np.asarray(np.load(directory / "embeddings.npy", mmap_mode="r")[rows], dtype=np.float32)

    def of(self, name: str) -> list[str]:
        """The others, the nearest first, but those whose cosine is above :data:`MOST_SIMILAR`."""
        number = self._numbers[name]
        cosine = self._embeddings @ self._embeddings[number]
        order = np.argsort(-cosine, kind="stable")
        return [self._ids[i] for i in order if i != number and cosine[i] <= MOST_SIMILAR]


class Contrasts:
    """Constructs pairs.

    Args:
        kinds: what is set against good answers (``responses.contrast``).
        dialogues: those to construct pairs for.
        texts: good answers to them.
        cluster: the directory of stage cluster.
        seed: what is drawn for a dialogue depends on it and on the dialogue's id alone.
    """

    def __init__(
        self, kinds: Sequence[str], dialogues: Sequence[Dialogue], texts: Texts, cluster: Path, seed: int
    ) -> None:
        self.kinds, self.texts, self.seed = kinds, texts, seed
        self._dialogues, self._cluster = {d.id: d for d in dialogues}, cluster
        self.counts: Counter[str] = Counter()
        """Pairs by kind, and as ``KIND:REASON`` what could not be made."""

    @cached_property
    def neighbours(self) -> Neighbours:
        """Read for the first pair of kind ``nearby``."""
        return Neighbours(self._cluster, list(self._dialogues))

    def pairs(self, leave: Collection[str] = ()) -> dict[str, Comparison]:
        """The pairs by dialogue: one for each for which one of the kinds, tried in a drawn order, can be made.

        None are constructed for dialogues whose ids are in ``leave``; what is said in them still serves other queries.
        """
        found = {}
        for dialogue in self._dialogues.values():
            if dialogue.id not in leave and (pair := self._pair(dialogue)):
                found[dialogue.id] = pair
        agree = [(len(c.response_a) > len(c.response_b)) == (c.label == "A") for c in found.values()]
        self.counts["better_is_longer"] = sum(agree)
        return found

    def _pair(self, dialogue: Dialogue) -> Comparison | None:
        rng = random.Random(derive_seed(self.seed, "contrast", dialogue.id))
        for kind in rng.sample(self.kinds, len(self.kinds)):
            made = self._made(kind, dialogue, rng)
            if isinstance(made, ConstructedPair):
                self.counts[kind] += 1
                return made.comparison(dialogue, kind, rng)
            self.counts[f"{kind}:{made}"] += 1
        return None

    def _made(self, kind: str, dialogue: Dialogue, rng: random.Random) -> ConstructedPair | str:
        """A pair, or the reason why there is none; where several wrote a good answer, whose it is is drawn."""
        writers = sorted(name for name, texts in self.texts.items() if texts.get(dialogue.id, "").strip())
        if not writers:
            return "no_good_answer"
        writer = rng.choice(writers)
        good = self.texts[writer][dialogue.id].strip()
        if kind == "nearby":
            return self._nearby(dialogue, good, writer)
        bad, how = _other_numbers(good, rng) or _other_order(good, rng) or ("", "")
        return ConstructedPair(good, bad, writer, how) if bad else "no_place_for_errors"

    def _nearby(self, dialogue: Dialogue, good: str, writer: str) -> ConstructedPair | str:
        """The same writer's answer to the nearest other query; of another category, where the dialogue has one.

        A good answer to a query of the same kind may be as good here (docs/training.md has the counts).
        """
        for name in self.neighbours.of(dialogue.id):
            neighbour, other = self._dialogues[name], self.texts[writer].get(name, "").strip()
            if dialogue.category and neighbour.category == dialogue.category:
                continue
            if other and other != good and neighbour.query.strip() != dialogue.query.strip():
                return ConstructedPair(good, other, writer, f"an answer to {name}")
        return "no_neighbour"


def sentences(text: str) -> list[str]:
    """The sentences of a text, by their closing marks; lines that end without one count, too."""
    found = re.split(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\n+", text.strip())
    return [sentence.strip() for sentence in found if sentence.strip()]


def _other_numbers(text: str, rng: random.Random) -> tuple[str, str] | None:
    """The text with at most ``MOST_ERRORS`` of its numbers changed, and what was put in for what.

    The number of an item in a list says nothing, and stays.
    """
    places = [place for place in NUMBER.finditer(text) if not _numbers_an_item(text, place)]
    if not places:
        return None
    changed: list[str] = []
    for place in sorted(rng.sample(places, min(len(places), MOST_ERRORS)), key=lambda p: p.start(), reverse=True):
        wrong = wrong_number(place[0], rng)
        text = text[: place.start()] + wrong + text[place.end() :]
        changed.insert(0, f"{wrong} for {place[0]}")
    return text, ", ".join(changed)


def wrong_number(digits: str, rng: random.Random) -> str:
    """Another whole number of as many digits, as often smaller as larger where there are such on either side."""
    right, up = int(digits), rng.choice((True, False))
    for side in (1, -1) if up else (-1, 1):
        near = [found for step in STEPS if (found := right + side * step) >= 0]
        if fitting := [found for found in near if len(str(found)) == len(str(right))]:
            return str(rng.choice(fitting))
    raise AssertionError("every number has a neighbour of as many digits")


def _numbers_an_item(text: str, place: re.Match[str]) -> bool:
    line = text[: place.start()].rpartition("\n")[2]
    return not line.strip(" \t*#(->+") and re.match(r"[.):]\**(\s|$)", text[place.end() :]) is not None


def _other_order(text: str, rng: random.Random) -> tuple[str, str] | None:
    """The text with the words of one sentence in another order."""
    for sentence in rng.sample(found := sentences(text), len(found)):
        words = sentence.split()
        other = rng.sample(words, len(words))
        if len(words) >= LEAST_WORDS and other != words:
            return text.replace(sentence, " ".join(other), 1), "the words of a sentence in another order"
    return None
