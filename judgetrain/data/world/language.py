"""The world's language, read from ``vocabulary.yaml``: properties, kinds of query, and the words for them.

What decides between two responses is no part of it: :mod:`judgetrain.data.world.rule` draws that from a seed.
"""

import functools
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import yaml

from judgetrain.data.config import VOCABULARY

GRADE_SCORES = (1, 3, 5)
"""The score that a faithful judgment gives to each grade (0 absent, 1 weak, 2 strong)."""
HELD_OUT_TOPICS = 2
"""The number of topics of a kind, its last ones, that only held-out queries are about."""
HELD_OUT_SENTENCES = 1
"""The number of strong sentences of a property, and of weak ones, that only held-out responses say: the last ones."""

Wording = Literal["any", "training", "held out"]
"""Which of a property's sentences a response may say."""


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
        """Return the lines by which a judge can name this property as a criterion."""
        return tuple(f"{self.name}: {description}" for description in self.descriptions)

    def patterns(self, grade: int, wording: Wording) -> tuple[str, ...]:
        """Return the sentences that show this property at grade 1 or 2, in some wording."""
        every = self.strong if grade == 2 else self.weak
        if wording == "training":
            return every[:-HELD_OUT_SENTENCES]
        if wording == "held out":
            return every[-HELD_OUT_SENTENCES:]
        return every


@dataclass(frozen=True)
class QueryKind:
    """A kind of query: its wordings and its topics. The rule, not the kind, holds what decides."""

    name: str
    templates: tuple[str, ...]
    topics: tuple[str, ...]


# Not frozen: properties are cached on it.
@dataclass(kw_only=True)
class Language:
    """Everything that the world can say. A method raises a KeyError for a query that was not generated here.

    Args:
        properties: by name.
        kinds: the kinds of query, by name.
        persons: for whom the queries of the base's pretraining text ask.
        whose: the first words of further persons (for whose friend).
        which: adjectives of further persons.
        who: nouns of further persons.
        things: nouns that fill the sentences.
        openers: first sentences of a response.
        fillers: sentences that show no property.
    """

    properties: Mapping[str, Property]
    kinds: Mapping[str, QueryKind]
    persons: tuple[str, ...]
    whose: tuple[str, ...]
    which: tuple[str, ...]
    who: tuple[str, ...]
    things: tuple[str, ...]
    openers: tuple[str, ...]
    fillers: tuple[str, ...]

    def kind_of(self, query: str) -> str:
        """Return the kind of a query of this world."""
        kind, _ = self._kinds_and_topics[query]
        return kind

    def held_out(self, query: str) -> bool:
        """Return whether a query asks about a topic that no training query asks about."""
        kind, topic = self._kinds_and_topics[query]
        # By topic, not by query: a judge must not have seen its responses in other words.
        return topic in self.kinds[kind].topics[-HELD_OUT_TOPICS:]

    @functools.cached_property
    def _kinds_and_topics(self) -> dict[str, tuple[str, str]]:
        """Return the kind and the topic of every query."""
        # Many more persons than the base has read of, so that tests of several seeds need no query twice.
        further = [f"for {whose} {who}" for whose, who in product(self.whose, self.who)]
        further += [f"for {whose} {which} {who}" for whose, which, who in product(self.whose, self.which, self.who)]
        return self._queries(self.persons) | self._queries(further)

    def _queries(self, persons: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return the kind and the topic of all queries for some persons."""
        persons = list(persons)
        queries = {}
        for kind in self.kinds.values():
            for template, topic, person in product(kind.templates, kind.topics, persons):
                queries[template.format(topic=topic, person=person)] = (kind.name, topic)
        return queries

    @functools.cached_property
    def queries(self) -> tuple[str, ...]:
        """Return every query that the world can ask, in a fixed order."""
        return tuple(self._kinds_and_topics)

    @property
    def first_queries(self) -> list[str]:
        """Return the queries for ``persons`` alone, part of which the base was pretrained on, in a fixed order."""
        return list(self._queries(self.persons))

    def grade(self, response: str, name: str) -> int:
        """Return the grade at which a response shows a property: 2 strongly, 1 weakly, 0 not at all.

        The text alone decides.
        """
        # Sentences are templates, so that reading is looking for them: no model's opinion is part of the truth.
        if any(sentence in response for sentence in self._strong_sentences[name]):
            return 2
        if any(sentence in response for sentence in self.properties[name].weak):
            return 1
        return 0

    @functools.cached_property
    def _strong_sentences(self) -> dict[str, tuple[str, ...]]:
        """Return all sentences that show a property strongly, by its name."""
        sentences = {}
        for shown in self.properties.values():
            filled = (pattern.format(thing=thing) for pattern, thing in product(shown.strong, self.things))
            sentences[shown.name] = tuple(filled)
        return sentences


@functools.cache
def load_language() -> Language:
    """Return the world's language from the packaged ``vocabulary.yaml``."""
    raw = yaml.safe_load(VOCABULARY.read_text(encoding="utf-8"))
    properties = {name: Property(name, **_with_tuples(fields)) for name, fields in raw.pop("properties").items()}
    kinds = {name: QueryKind(name, **_with_tuples(fields)) for name, fields in raw.pop("kinds").items()}
    return Language(properties=properties, kinds=kinds, **_with_tuples(raw))


def _with_tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with tuples for their lists, as frozen dataclasses have them."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def sentence(language: Language, name: str, grade: int, rng: random.Random, wording: Wording = "any") -> str:
    """Return one sentence that shows the property ``name`` at grade 1 or 2."""
    pattern = rng.choice(language.properties[name].patterns(grade, wording))
    return pattern.format(thing=rng.choice(language.things))


def small_talk(language: Language, rng: random.Random) -> str:
    """Return one sentence that shows no property."""
    return rng.choice(language.fillers).format(thing=rng.choice(language.things))
