"""Numbers with what they count, as messages say them: ``1 row holds``, ``2,000 rows hold``."""

PLURALS = {"criterion": "criteria", "person": "people"}
"""Plurals that no rule makes."""
SINGULARS = {"are": "is", "were": "was", "have": "has", "do": "does"}
"""Verbs whose singular no rule makes."""
HISSING = ("s", "x", "ch", "sh")
"""Endings behind which ``es`` makes the plural of a noun, and the singular of a verb."""


def amount(number: float, noun: str) -> str:
    """Return a number and its noun, as in ``1 row``, ``2,000 rows`` and ``0 criteria``.

    Args:
        number: how many.
        noun: what, in the singular.
    """
    if number == 1:
        return f"{number:,.0f} {noun}"
    return f"{number:,.0f} {PLURALS.get(noun) or _with_s(noun)}"


def agree(number: float, verb: str) -> str:
    """Return a verb that agrees with a number of things, as in ``holds`` for one and ``hold`` for others.

    Args:
        number: of the things.
        verb: in the plural.
    """
    if number != 1:
        return verb
    return SINGULARS.get(verb) or _with_s(verb)


def _with_s(word: str) -> str:
    """Return a word with the ending of a plural noun, which is that of a verb of one thing."""
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{word[:-1]}ies"
    if word.endswith(HISSING):
        return f"{word}es"
    return f"{word}s"
