"""The world's language, read from ``vocabulary.yaml``: properties, query kinds, the hidden rule; and its writers."""

import functools
import random
from collections.abc import Iterable, Mapping, Sequence
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
    """A kind of query, with the hidden rule that says which properties decide between responses to it.

    ``decoy``: the plausible property that an annotator thinks of first, which decides nothing; ``off_topic``: those
    that nobody would look for; ``common``: what the base's pretraining text says most often, whatever decides.
    """

    name: str
    templates: tuple[str, ...]
    topics: tuple[str, ...]
    primary: str
    secondary: str
    decoy: str
    off_topic: tuple[str, ...]
    common: tuple[str, str]

    @property
    def crucial(self) -> tuple[str, str]:
        """The properties that decide."""
        return self.primary, self.secondary


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

    def plausible(self, kind: str) -> tuple[str, ...]:
        """The properties an annotator would consider for a kind: the two crucial ones and eight distractors."""
        return tuple(sorted(set(self.properties) - set(self.kinds[kind].off_topic)))

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

    def quality(self, query: str, response: str) -> int:
        """The hidden rule: twice the grade of the kind's primary property plus the grade of its secondary one."""
        kind = self.kinds[self.kind_of(query)]
        return 2 * self.grade(response, kind.primary) + self.grade(response, kind.secondary)


@functools.cache
def load_language() -> Language:
    """The world's language from the packaged ``vocabulary.yaml``."""
    raw = yaml.safe_load(VOCABULARY.read_text(encoding="utf-8"))

    def frozen(entries: Mapping[str, Any]) -> dict[str, Any]:
        return {name: tuple(value) if isinstance(value, list) else value for name, value in entries.items()}

    properties = {name: Property(name, **frozen(entries)) for name, entries in raw.pop("properties").items()}
    kinds = {name: Kind(name, **frozen(entries)) for name, entries in raw.pop("kinds").items()}
    return Language(properties=properties, kinds=kinds, **frozen(raw))


DISTRACTION = 0.15
"""Chance, whatever the skill, that a response shows a plausible property which does not matter for the query."""
WORDS = (36, 46)
"""Fewest and most words of a response, punctuation marks among them; small talk fills what the rest leaves."""


def write_response(language: Language, query: str, skill: float, rng: random.Random) -> str:
    """A response to a query of the world, as lower-case sentences.

    With chance ``skill`` a crucial property is shown strongly, else not at all, and a property that is off topic is
    shown strongly in its place. Other plausible properties are shown at any skill alike. The number of words is drawn
    first, and kept to exactly. Since every property is as often crucial as it is off topic in the place of a crucial
    one, over the kinds of queries no count of words, and no sum of weights of words, tells the better response.
    """
    kind = language.kinds[language.kind_of(query)]
    instead = rng.sample(kind.off_topic, len(kind.crucial))
    grades = {name if rng.random() < skill else other: 2 for name, other in zip(kind.crucial, instead, strict=True)}
    distractors = [p for p in language.plausible(kind.name) if p not in kind.crucial and rng.random() < DISTRACTION]
    rng.shuffle(distractors)
    words = rng.randint(*WORDS)
    while True:
        shown = grades | {name: rng.choice((1, 2)) for name in distractors}
        sentences = [sentence(language, name, grade, rng) for name, grade in shown.items()]
        opener = rng.choice(language.openers)
        rest = words - _words([opener, *sentences])
        if (talk := _small_talk(language, rest, rng)) is not None:
            sentences += talk
            rng.shuffle(sentences)
            return " ".join([opener, *sentences])
        distractors = distractors[:-1]


def sentence(language: Language, name: str, grade: int, rng: random.Random) -> str:
    """One sentence that shows the property ``name`` at grade 1 or 2."""
    prop = language.properties[name]
    return rng.choice(prop.strong if grade == 2 else prop.weak).format(thing=rng.choice(language.things))


def _words(sentences: Sequence[str]) -> int:
    return sum(len(each.split()) for each in sentences)


def _small_talk(language: Language, words: int, rng: random.Random) -> list[str] | None:
    """Sentences that show nothing and have together so many words; None where none add up to it."""
    lengths = {filler: len(filler.format(thing=language.things[0]).split()) for filler in language.fillers}
    each, found = frozenset(lengths.values()), list[str]()
    while words:
        fitting = [filler for filler in language.fillers if _adds_up(words - lengths[filler], each)]
        if not fitting:
            return None
        found.append(rng.choice(fitting).format(thing=rng.choice(language.things)))
        words -= _words(found[-1:])
    return found


@functools.cache
def _adds_up(words: int, lengths: frozenset[int]) -> bool:
    return words == 0 or (words > 0 and any(_adds_up(words - length, lengths) for length in lengths))
