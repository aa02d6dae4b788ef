"""Scripted response writers of known skill: the quickstart's response models."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

from judgetrain.data.world.language import Language

DISTRACTION = 0.15
"""Chance, whatever the skill, that a response shows a plausible property which does not matter for the query."""
WORDS = (36, 46)
"""Fewest and most words of a response, punctuation marks among them; small talk fills what the rest leaves."""


EFFORT = 3
"""Words that a crucial property adds where length tells something; chance adds as many at most."""
RAMBLED = (48, 60)
"""Fewest and most words of a response that rambles."""


def write_response(language: Language, query: str, skill: float, rng: random.Random, rambling: float = 0.0) -> str:
    """A response to a query of the world, as lower-case sentences.

    With chance ``skill`` a crucial property is shown strongly, else not at all, and a property that is off topic is
    shown strongly in its place. Other plausible properties are shown at any skill alike. The number of words is drawn
    first, and kept to exactly. Since every property is as often crucial as it is off topic in the place of a crucial
    one, over the kinds of queries no count of words, and no sum of weights of words, tells the better response.

    With ``rambling`` length does tell, and misleads: a share of the responses says nothing that decides, in more words
    than any other has; each crucial property that one of the others shows adds :data:`EFFORT` words to the fewest.
    """
    rambles = bool(rambling) and rng.random() < rambling
    kind = language.kinds[language.kind_of(query)]
    instead = rng.sample(kind.off_topic, len(kind.crucial))
    skill = 0.0 if rambles else skill
    grades = {name if rng.random() < skill else other: 2 for name, other in zip(kind.crucial, instead, strict=True)}
    distractors = [p for p in language.plausible(kind.name) if p not in kind.crucial and rng.random() < DISTRACTION]
    rng.shuffle(distractors)
    words = _number_of_words(rng, sum(name in grades for name in kind.crucial), rambling, rambles)
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


def _number_of_words(rng: random.Random, crucial: int, rambling: float, rambles: bool) -> int:
    if not rambling:
        return rng.randint(*WORDS)
    return rng.randint(*RAMBLED) if rambles else WORDS[0] + EFFORT * crucial + rng.randint(0, EFFORT)


def sentence(language: Language, name: str, grade: int, rng: random.Random) -> str:
    """One sentence that shows the property ``name`` at grade 1 or 2."""
    prop = language.properties[name]
    return rng.choice(prop.strong if grade == 2 else prop.weak).format(thing=rng.choice(language.things))


def _words(sentences: Sequence[str]) -> int:
    return sum(len(each.split()) for each in sentences)


def _small_talk(language: Language, words: int, rng: random.Random) -> list[str] | None:
    """Sentences that show nothing and have together so many words; None where none add up to it."""
    lengths = [len(f.format(thing=language.things[0]).split()) for f in language.fillers]
    found = []
    while words:
        fitting = [
            filler
            for filler, length in zip(language.fillers, lengths, strict=True)
            if _adds_up(words - length, frozenset(lengths))
        ]
        if not fitting:
            return None
        found.append(rng.choice(fitting).format(thing=rng.choice(language.things)))
        words -= _words(found[-1:])
    return found


@functools.cache
def _adds_up(words: int, lengths: frozenset[int]) -> bool:
    """Whether some of the lengths, each as often as one likes, add up to so many words."""
    return words == 0 or (words > 0 and any(_adds_up(words - length, lengths) for length in lengths))
