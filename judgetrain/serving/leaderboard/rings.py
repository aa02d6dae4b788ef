"""Systems that beat each other in a ring."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from judgetrain.serving.leaderboard.fit import Fit
from judgetrain.serving.leaderboard.games import linked
from judgetrain.serving.leaderboard.records import Ring

SHOWN = 20
"""At most so many rings, those that hold in the most resamples."""


def rings(found: Fit, names: Sequence[str]) -> list[Ring]:
    """A shortest ring through every majority that is part of one; most certain first."""
    wins = found.games.wins
    beats = wins > wins.T
    same = linked(beats.astype(float), mutual=True)
    rings = dict.fromkeys(
        _turned(path)
        for i, j in zip(*np.nonzero(beats), strict=True)
        if same[i] == same[j]
        for path in [_path(beats, int(j), int(i))]
    )
    held = []
    for ring in rings:
        i, j = np.array(ring), np.roll(ring, -1)
        share = wins[i, j] / (wins[i, j] + wins[j, i])
        hold = (found.won[1:, i, j] > found.won[1:, j, i]).all(1)
        held.append(Ring([names[k] for k in ring], float(share.min()), float(hold.mean())))
    return sorted(held, key=lambda ring: -ring.held)[:SHOWN]


def _path(beats: np.ndarray, start: int, end: int) -> tuple[int, ...]:
    """The shortest way from one system to another along majorities; there is one."""
    before, waiting = {start: start}, deque([start])
    while end not in before:
        here = waiting.popleft()
        for there in np.flatnonzero(beats[here]).tolist():
            if there not in before:
                before[there] = here
                waiting.append(there)
    path = [end]
    while path[-1] != start:
        path.append(before[path[-1]])
    return tuple(path[::-1])


def _turned(ring: tuple[int, ...]) -> tuple[int, ...]:
    """The same ring from its first system on."""
    first = ring.index(min(ring))
    return ring[first:] + ring[:first]
