"""Candidates' probabilities out of the log-probabilities that servers report for the likeliest tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from judgetrain.engines.base import Choice

LOGPROBS = 20
"""Likeliest tokens asked for at each position: the most that servers commonly allow."""


def choices_of(
    tokens: Iterable[tuple[str, Sequence[tuple[str, float]]]], candidates: Sequence[str], text: str
) -> Iterator[Choice]:
    """A choice wherever one of the candidates was generated.

    ``tokens``: each generated token with the likeliest tokens at its position and their log-probabilities (natural).
    Candidates that are not among those have probability 0. Positions after the end of ``text`` (a stop string was
    cut off) and those whose token does not stand in it are left out.
    """
    upto = 0
    for token, ranked in tokens:
        start, upto = upto, upto + len(token)
        written = token.strip()
        at = start + token.find(written)
        if written not in candidates or text[at : at + len(written)] != written:
            continue
        mass = [math.fsum(math.exp(p) for t, p in ranked if t.strip() == candidate) for candidate in candidates]
        total = math.fsum(mass)
        if total > 0:
            yield Choice(at, tuple(round(m / total, 6) for m in mass))
