"""Errors that a user can act on: printed as one message without a traceback, exit code 2."""

from collections.abc import Mapping


class JudgetrainError(Exception):
    """Base of all expected failures; the message names the cause, the place and the remedy."""


class ConfigError(JudgetrainError):
    """A configuration key has a wrong name, type or value; names key, value and what is allowed."""


class DataError(JudgetrainError):
    """Input data cannot be read; names the file and line (or the data set and row) and what was expected."""


class EngineError(JudgetrainError):
    """A model or server cannot be used (missing package, unknown model, no network, no key)."""


class EngineLostError(EngineError):
    """What holds a model has ended by itself, and cannot be used again; another may do what it was asked."""


class UnansweredError(EngineError):
    """A server answered all requests of a call but so many, which were given up, the last for this reason."""

    def __init__(self, number: int, reason: str) -> None:
        self.number, self.reason = number, reason
        super().__init__(f"{number} requests were given up, the last for: {reason}; the same command asks these alone")

    def __reduce__(self) -> tuple[object, ...]:
        """Between processes it goes by its parts, not by its message."""
        return type(self), (self.number, self.reason)


class TrainingError(JudgetrainError):
    """Training cannot start or go on; names the cause and the remedy."""


class NothingToLearnError(DataError, TrainingError):
    """No example or pair came out for a judge to be trained on; those before it stand. Names what was lost for what."""


def causes(reasons: Mapping[str, int], hints: Mapping[str, str], otherwise: str) -> str:
    """How much was lost for each reason, most first, and the hint for the first of them that has one.

    ``hints`` are by what a reason ends in: ``too_long`` is for ``judgment:too_long`` too. ``otherwise``: what to look
    at where no reason has one.
    """
    counted = sorted(((reason, n) for reason, n in reasons.items() if n), key=lambda item: -item[1])
    helping = (hint for reason, _ in counted for end, hint in hints.items() if reason.endswith(end))
    return "; ".join(
        [*([", ".join(f"{n} {reason}" for reason, n in counted)] if counted else []), next(helping, otherwise)]
    )
