"""Stage calibrate."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.keys import key


@dataclass
class CalibrateConfig:
    """Stage calibrate: weights of criteria, or with an error the thresholds that promise it."""

    # Half or more of the answers wrong is what a coin promises.
    error: float | None = key(
        None,
        "choose from which margin or score on the judge decides, so that at most this share of what it decides is "
        "wrong; None: fit weights",
        above=0.0,
        high=0.5,
    )
    delta: float = key(
        0.1,
        "the chance of labelled rows for which more than calibrate.error is wrong, at most",
        above=0.0,
        high=0.5,
        active_if=lambda c: c.error is not None,
    )
    passes: str | None = key(
        None,
        "the lowest level of single responses' labels that passes, as rows write it (4); needed for more than two",
        active_if=lambda c: c.error is not None,
    )
    length: bool = key(
        False,
        "let the weights of pairs know which response is longer, and by how much: labels that go with length are met "
        "more often, and longer answers gain",
        active_if=lambda c: c.length,
    )
