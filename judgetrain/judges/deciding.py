"""Thresholds above and below which a judge's answer counts as decided, as stage calibrate writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, get_args

from judgetrain.artifacts.files import write_json_atomic
from judgetrain.errors import ConfigError
from judgetrain.judges.calibrated import load_calibrated

DECIDED = "decided.json"
"""The file of thresholds, which users may put into a trained judge's directory."""

BRANCHES = "branches"
"""The setting of :attr:`Thresholds.asked` that says of how many branches an answer is made."""

Decision = Literal["decided", "undecided"]
"""``decided``: the answer is certain enough to be taken without a person or a stronger judge."""

Units = Literal["points", "log_odds", "score"]
"""The unit of thresholds: of a mean margin, -4 to 4; of a fitted margin, nats; or of a response's score, 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """When a judge decides, and the promise that was made for it.

    With a chance of at least 1 - ``delta`` over the labelled rows, at most a share ``error`` of all that is decided is
    wrong. Of single responses this holds for passes and for fails, each.

    Args:
        units: what the thresholds are compared with.
        error: the promised share of wrong answers among decided ones, at most.
        delta: the chance of labelled rows for which the promise does not hold, at most.
        n: labelled rows, one a prompt, that the thresholds were chosen on.
        undecided: share of these rows that is left undecided.
        decided: how many of them are decided.
        wrong: how many of the decided ones are wrong.
        margin: of pairs, the least distance of a margin from 0 that decides; None: no margin does.
        high: of single responses, the lowest score that passes; None: no score does.
        low: of single responses, the highest score that fails; None: no score does.
        passes: of single responses, the lowest level that is a pass.
        asked: how the judge was asked that the promise was made for, by setting
            (:attr:`~judgetrain.judges.options.JudgeOptions.way`); empty in files of earlier versions.
    """

    units: Units
    error: float
    delta: float
    n: int
    undecided: float
    decided: int
    wrong: int
    margin: float | None = None
    high: float | None = None
    low: float | None = None
    passes: str = ""
    asked: Mapping[str, str] = field(default_factory=dict)

    def differences(self, way: Mapping[str, str]) -> list[str]:
        """Return in words in what a judge is asked otherwise than the one that the promise was made for.

        Args:
            way: how the judge is asked; what only one of the two has is not compared.
        """
        differences = []
        for name in self.asked.keys() & way.keys():
            # How many branches a verdict is made of shows with each verdict (:meth:`holds_for`).
            if name != BRANCHES and self.asked[name] != way[name]:
                differences.append(f"{name} was {self.asked[name]}, and is {way[name]}")
        return sorted(differences)

    def holds_for(self, branches: int) -> bool:
        """Return whether the promise was made for answers of so many branches."""
        return self.asked.get(BRANCHES, str(branches)) == str(branches)

    @property
    def of_scores(self) -> bool:
        """Return whether they are about scores of single responses, and not about margins of pairs."""
        return self.units == "score"

    def of_margin(self, margin: float | None) -> Decision:
        """Return whether a margin decides; None, where nothing could be read or the orders differ, does not."""
        # The margin at the threshold itself decides, as the labelled rows on it were counted.
        if margin is None or self.margin is None or abs(margin) < self.margin:
            return "undecided"
        return "decided"

    def of_score(self, score: float | None) -> Decision:
        """Return whether a score decides; None, where nothing could be read, does not."""
        if self.passed(score) is None:
            return "undecided"
        return "decided"

    def passed(self, score: float | None) -> bool | None:
        """Return whether a response passes by its score; None where that is undecided."""
        if score is None:
            return None
        # At the threshold itself a score decides: labelled rows on it were counted so.
        if self.high is not None and score >= self.high:
            return True
        if self.low is not None and score <= self.low:
            return False
        return None

    def save(self, directory: Path) -> None:
        """Write the thresholds as ``decided.json``."""
        write_json_atomic(directory / DECIDED, asdict(self))

    @classmethod
    def load(cls, path: str | Path, key: str = "judge.decided") -> Thresholds:
        """Read what :meth:`save` wrote.

        Args:
            path: the file, or its directory.
            key: the configuration key that names it, for the message.

        Raises:
            ConfigError: there is no such file, or it is another one.
        """
        thresholds = load_calibrated(cls, DECIDED, path, key)
        # A file of a later version may measure in units that this one cannot compare with.
        if thresholds.units not in get_args(Units):
            raise ConfigError(f"{key}={path}: units={thresholds.units!r}: allowed are {', '.join(get_args(Units))}")
        return thresholds
