"""Scripted response writers of known skill: the quickstart's response models."""

from __future__ import annotations

import random

from judgetrain.data.world.language import Language

HALO = 0.2
"""Chance, times skill, that a response shows a property which does not matter for the query."""

MAX_SENTENCES = 5
"""Most property sentences in one response; the crucial ones are kept first."""

WORDS = (22, 40)
"""Fewest and most words wanted in one response, whatever the skill: what is missing is filled with small talk, so
that length gives quality away as little as it can."""


def write_response(language: Language, query: str, skill: float, rng: random.Random) -> str:
    """A response to a query of the world, as lower-case sentences.

    With chance ``skill`` a crucial property is shown strongly, else weakly or not at all with even chances.
    A skilled writer shows a little more of everything else too (a halo), which is what makes distractors
    plausible; they decide nothing.
    """
    kind = language.kinds[language.kind_of(query)]
    crucial = [kind.primary, kind.secondary]
    grades = {name: 2 if rng.random() < skill else rng.choice((0, 1)) for name in crucial}
    for name in language.properties:
        if name not in crucial and rng.random() < HALO * skill:
            grades[name] = 2 if rng.random() < skill else 1
    shown = [name for name in grades if grades[name]][:MAX_SENTENCES]
    sentences = [sentence(language, name, grades[name], rng) for name in shown]
    wanted = rng.randint(*WORDS)
    while sum(len(s.split()) for s in sentences) < wanted:
        sentences.append(rng.choice(language.fillers).format(thing=rng.choice(language.things)))
    rng.shuffle(sentences)
    return " ".join([rng.choice(language.openers), *sentences])


def sentence(language: Language, name: str, grade: int, rng: random.Random) -> str:
    """One sentence that shows the property ``name`` at grade 1 or 2."""
    prop = language.properties[name]
    return rng.choice(prop.strong if grade == 2 else prop.weak).format(thing=rng.choice(language.things))
