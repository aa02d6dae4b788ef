"""The rule of what decides in the world, drawn from a seed, and the writers whose responses follow it.

For every kind of query two properties count, the primary one twice as much as the secondary one. A third, the decoy,
counts for nothing and is what an annotator thinks of first. The three are drawn for each kind by itself, so that every
seed is another world and no setting can be chosen on the worlds that are reported.

No response gives its label away:

- A property that counts is shown as often, and as strongly, as one that does not. What is missing is not replaced.
- Small talk is drawn by itself. A text is longer only where it shows more.
- A response is written with care or in haste. What counts follows the writer's care closely, what does not follows it
  a little (:data:`HALO`). So without labels what counts can be told by one thing alone: properties that count go
  together. Which of the two counts twice cannot be told at all.
- That does not carry over to held-out queries by itself. Responses to them say everything in sentences that no training
  response has, and their writers do not know what counts: all properties follow care alike, a little. So counting which
  sentences go together, in training texts or in held-out ones, says nothing about held-out responses. Somebody must
  see which sentences of both say the same.
"""

import functools
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from judgetrain.data.world.language import Language, Wording, load_language, sentence, small_talk
from judgetrain.schema import Verdict

WITH_CARE = 0.9
"""Chance that a response written with care shows a property that counts strongly."""
IN_HASTE = 0.05
"""The same chance of a response written in haste."""
HALO = 0.25
"""The share by which properties that do not count follow the writer's care; 1: as much as those that count."""
WEAKLY = 0.1
"""Chance that a property which is not shown strongly is shown weakly, whatever the care."""
MOST_SMALL_TALK = 1
"""A response has from none to so many sentences that show nothing, drawn by themselves."""
BEST_QUALITY = 6
"""The highest quality by the rule: both properties that count shown strongly."""


@dataclass(frozen=True)
class Deciding:
    """The properties that decide for one kind of query, by name."""

    primary: str
    secondary: str
    decoy: str

    @property
    def crucial(self) -> tuple[str, str]:
        """Return the two properties that count, the one that counts twice first."""
        return self.primary, self.secondary


@dataclass(frozen=True)
class World:
    """A language together with a rule of what decides, by kind of query."""

    language: Language
    deciding: Mapping[str, Deciding]

    def deciding_for(self, query: str) -> Deciding:
        """Return what decides for a query (KeyError: not a query of this world)."""
        return self.deciding[self.language.kind_of(query)]

    def quality(self, query: str, response: str) -> int:
        """Return twice the grade of the primary property plus that of the secondary one: 0 to :data:`BEST_QUALITY`."""
        deciding = self.deciding_for(query)
        primary = self.language.grade(response, deciding.primary)
        secondary = self.language.grade(response, deciding.secondary)
        return 2 * primary + secondary

    def verdict(self, query: str, response_a: str, response_b: str) -> Verdict:
        """Return which of two responses has the higher quality, or a tie."""
        quality_a = self.quality(query, response_a)
        quality_b = self.quality(query, response_b)
        if quality_a == quality_b:
            return "tie"
        return "A" if quality_a > quality_b else "B"

    def respond(self, query: str, skill: float, rng: random.Random) -> str:
        """Return a response to a query; with chance ``skill`` it is written with care, else in haste."""
        # Drawn first, and for the whole response: properties that follow care then go together.
        careful = rng.random() < skill
        crucial: tuple[str, ...] = self.deciding_for(query).crucial
        wording: Wording = "training"
        if self.language.held_out(query):
            # Else held-out responses would tell by themselves what counts for their kind.
            crucial = ()
            wording = "held out"
        grades = draw_grades(self.language.properties, crucial, careful, rng)
        return write(self.language, grades, rng, wording)


@functools.cache
def load_world(seed: int) -> World:
    """Return the world whose rule is drawn from ``seed``."""
    language = load_language()
    rng = random.Random(f"rule {seed}")
    # Three different ones a kind: two that count, and the decoy.
    names = list(language.properties)
    deciding = {kind: Deciding(*rng.sample(names, 3)) for kind in language.kinds}
    return World(language, deciding)


def draw_grades(names: Iterable[str], crucial: Iterable[str], careful: bool, rng: random.Random) -> dict[str, int]:
    """Return the grades of the properties that a response shows: 2 strongly, 1 weakly.

    Args:
        names: all properties.
        crucial: those that follow the writer's care closely.
        careful: whether the response is written with care.
        rng: the source of chance.
    """
    closely = WITH_CARE if careful else IN_HASTE
    # The mean of care and haste: what does not count is shown as often, on average, as what counts.
    middle = (WITH_CARE + IN_HASTE) / 2
    loosely = middle + HALO * (closely - middle)
    grades: dict[str, int] = {}
    for name in names:
        strongly = closely if name in crucial else loosely
        if rng.random() < strongly:
            grades[name] = 2
        elif rng.random() < WEAKLY:
            grades[name] = 1
    return grades


def write(language: Language, grades: Mapping[str, int], rng: random.Random, wording: Wording = "any") -> str:
    """Return a text of lower-case sentences that shows these grades, in a random order after an opening sentence."""
    sentences = [sentence(language, name, grade, rng, wording) for name, grade in grades.items()]
    # Independent of what is shown, so that length alone tells little.
    sentences += [small_talk(language, rng) for _ in range(rng.randint(0, MOST_SMALL_TALK))]
    rng.shuffle(sentences)
    return " ".join([rng.choice(language.openers), *sentences])
