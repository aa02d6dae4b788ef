"""The world's language, read from ``vocabulary.yaml``: properties, kinds of query, and the words for them.

What decides between two responses is no part of it: :mod:`judgetrain.data.world.rule` draws that from a seed.
"""

import functools
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from judgetrain.data.config import VOCABULARY

GRADE_SCORES = (1, 3, 5)
"""The score that a faithful judgment gives to each grade (0 absent, 1 weak, 2 strong)."""
HELD_OUT_TOPICS = 2
"""How many topics of a kind, the last ones, are asked about in held-out queries alone."""


@dataclass(frozen=True)
class Property:
    """Something a response may show, checkable from its text."""

    name: str
    descriptions: tuple[str, ...]
    strong: tuple[str, ...]
    weak: tuple[str, ...]
    grades: tuple[str, str, str]

    @property
    def criteria(self) -> tuple[str, ...]:
        """The lines by which a judge can name this property as a criterion."""
        return tuple(f"{self.name}: {d}" for d in self.descriptions)


@dataclass(frozen=True)
class Kind:
    """A kind of query: how it is asked, and the topics that it is asked about. What decides is in the rule."""

    name: str
    templates: tuple[str, ...]
    topics: tuple[str, ...]


@dataclass(kw_only=True)  # not frozen: cached properties
class Language:
    """Everything the world can say. ``persons`` are those of the base's pretraining text.

    A query that was not generated here is a KeyError.
    """

    properties: Mapping[str, Property]
    kinds: Mapping[str, Kind]
    persons: tuple[str, ...]
    whose: tuple[str, ...]
    which: tuple[str, ...]
    who: tuple[str, ...]
    things: tuple[str, ...]
    openers: tuple[str, ...]
    fillers: tuple[str, ...]

    def kind_of(self, query: str) -> str:
        """The kind of a query of this world."""
        return self._asked[query][0]

    def held_out(self, query: str) -> bool:
        """Whether a query asks about a topic that no training query asks about."""
        kind, topic = self._asked[query]
        return topic in self.kinds[kind].topics[-HELD_OUT_TOPICS:]

    @functools.cached_property
    def _asked(self) -> dict[str, tuple[str, str]]:
        """By query its kind, and about which of the kind's topics it asks."""
        further = [f"for {whose} {who}" for whose in self.whose for who in self.who]
        further += [f"for {whose} {which} {who}" for whose in self.whose for which in self.which for who in self.who]
        return self._queries(self.persons) | self._queries(further)

    def _queries(self, persons: Iterable[str]) -> dict[str, tuple[str, str]]:
        persons = list(persons)
        return {
            template.format(topic=topic, person=person): (kind.name, topic)
            for kind in self.kinds.values()
            for template in kind.templates
            for topic in kind.topics
            for person in persons
        }

    @functools.cached_property
    def queries(self) -> tuple[str, ...]:
        """Every query the world can ask, in a fixed order."""
        return tuple(self._asked)

    @property
    def first_queries(self) -> list[str]:
        """The queries for ``persons`` alone, part of which the base was pretrained on, in a fixed order."""
        return list(self._queries(self.persons))

    def grade(self, response: str, name: str) -> int:
        """How strongly a response shows a property: 2 strong, 1 weak, 0 not at all; read from the text alone."""
        for grade, sentences in ((2, self._strong[name]), (1, self.properties[name].weak)):
            if any(s in response for s in sentences):
                return grade
        return 0

    @functools.cached_property
    def _strong(self) -> dict[str, tuple[str, ...]]:
        return {
            p.name: tuple(s.format(thing=thing) for s in p.strong for thing in self.things)
            for p in self.properties.values()
        }


@functools.cache
def load_language() -> Language:
    """The world's language from the packaged ``vocabulary.yaml``."""
    raw = yaml.safe_load(VOCABULARY.read_text(encoding="utf-8"))

    def frozen(entries: Mapping[str, Any]) -> dict[str, Any]:
        return {name: tuple(value) if isinstance(value, list) else value for name, value in entries.items()}

    properties = {name: Property(name, **frozen(entries)) for name, entries in raw.pop("properties").items()}
    kinds = {name: Kind(name, **frozen(entries)) for name, entries in raw.pop("kinds").items()}
    return Language(properties=properties, kinds=kinds, **frozen(raw))


def sentence(language: Language, name: str, grade: int, rng: random.Random) -> str:
    """Return one sentence that shows the property ``name`` at grade 1 or 2."""
    shown = language.properties[name]
    pattern = rng.choice(shown.strong if grade == 2 else shown.weak)
    return pattern.format(thing=rng.choice(language.things))


def small_talk(language: Language, rng: random.Random) -> str:
    """Return one sentence that shows no property."""
    return rng.choice(language.fillers).format(thing=rng.choice(language.things))
