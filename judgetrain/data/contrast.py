"""Pairs constructed so that their better side is known: a good answer, and one that is worse by how it is made.

A good answer to a similar but other query is the rejected side in "Self-Taught Evaluators" (Wang et al. 2024,
arXiv:2408.02666, section 3.2). Which side stands first is drawn, and every pair says how it was made.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
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


class Neighbours:
    """The dialogues of a sample by how near their queries are, by the embeddings of stage cluster."""

    def __init__(self, directory: Path, dialogues: Sequence[Dialogue]) -> None:
        places = {row["id"]: number for number, row in enumerate(read_rows(directory, "clusters"))}
        rows = [places[dialogue.id] for dialogue in dialogues]
        self._dialogues, self._numbers = dialogues, {d.id: i for i, d in enumerate(dialogues)}
        self._embeddings = np.asarray(np.load(directory / "embeddings.npy", mmap_mode="r")[rows], dtype=np.float32)

    def of(self, dialogue: Dialogue) -> Iterator[Dialogue]:
        """The others, the nearest first, but those whose cosine is above :data:`MOST_SIMILAR`.

        Of another category, where the dialogue has one: a good answer to a query of the same kind may be as good here
        (docs/training.md has the counts).
        """
        cosine = self._embeddings @ self._embeddings[self._numbers[dialogue.id]]
        for i in np.argsort(-cosine, kind="stable"):
            other = self._dialogues[i]
            same = dialogue.category and other.category == dialogue.category
            if cosine[i] <= MOST_SIMILAR and not same and other.query.strip() != dialogue.query.strip():
                yield other


def constructed(
    kinds: Sequence[str], dialogues: Sequence[Dialogue], texts: Texts, cluster: Path, seed: int, leave: Collection[str]
) -> tuple[dict[str, Comparison], Counter[str]]:
    """Labelled pairs by dialogue, and counts: of pairs by kind, and as ``KIND:REASON`` of what could not be made.

    A dialogue gets a pair of the first of the kinds, tried in a drawn order, for which one can be made; where several
    wrote a good answer, whose it is is drawn, and so is which side stands first.

    Args:
        kinds: what is set against good answers (``responses.contrast``).
        dialogues: those to construct pairs for.
        texts: good answers to them.
        cluster: the directory of stage cluster.
        seed: what is drawn for a dialogue depends on it and on the dialogue's id alone.
        leave: ids of dialogues that get none; what is said in them still serves other queries.
    """
    neighbours = Neighbours(cluster, dialogues) if "nearby" in kinds else None
    found, counts = dict[str, Comparison](), Counter[str]()
    for dialogue in dialogues:
        rng = random.Random(derive_seed(seed, "contrast", dialogue.id))
        for kind in rng.sample(kinds, len(kinds)) if dialogue.id not in leave else ():
            writers = sorted(name for name, said in texts.items() if said.get(dialogue.id, "").strip())
            if not writers:
                counts[f"{kind}:no_good_answer"] += 1
                continue
            said = texts[writer := rng.choice(writers)]
            good = said[dialogue.id].strip()
            if neighbours and kind == "nearby":
                worse, lacking = _nearby(dialogue, good, said, neighbours), "no_neighbour"
            else:
                worse, lacking = _other_numbers(good, rng) or _other_order(good, rng), "no_place_for_errors"
            if worse is None:
                counts[f"{kind}:{lacking}"] += 1
                continue
            counts[kind] += 1
            bad, how = worse
            about = dialogue.id, replace(dialogue, rubric=None), good, bad, writer, writer
            told = f"{kind}: {how}"
            pair = Comparison(*about, label="A", group=dialogue.category, made=told, rubric=dialogue.rubric)
            found[dialogue.id] = pair if rng.random() < 0.5 else pair.swapped()
            break
    longer = ((len(c.response_a) > len(c.response_b)) == (c.label == "A") for c in found.values())
    counts["better_is_longer"] = sum(longer)
    return found, counts


def _nearby(dialogue: Dialogue, good: str, said: Mapping[str, str], neighbours: Neighbours) -> tuple[str, str] | None:
    """The same writer's answer to the nearest other query, and whose it is."""
    answers = ((other.id, said.get(other.id, "").strip()) for other in neighbours.of(dialogue))
    return next(((text, f"an answer to {name}") for name, text in answers if text and text != good), None)


def sentences(text: str) -> list[str]:
    """The sentences of a text, by their closing marks; lines that end without one count, too."""
    return [found.strip() for found in re.split(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\n+", text) if found.strip()]


def _other_numbers(text: str, rng: random.Random) -> tuple[str, str] | None:
    """The text with at most ``MOST_ERRORS`` of its numbers changed, and what was put in for what.

    The number of an item in a list says nothing, and stays.
    """
    places = [place for place in NUMBER.finditer(text) if not _numbers_an_item(text, place)]
    changed: list[str] = []
    for place in sorted(rng.sample(places, min(len(places), MOST_ERRORS)), key=lambda p: -p.start()):
        wrong = wrong_number(place[0], rng)
        text = text[: place.start()] + wrong + text[place.end() :]
        changed.insert(0, f"{wrong} for {place[0]}")
    return (text, ", ".join(changed)) if changed else None


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
