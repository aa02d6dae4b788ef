"""Errors that a user can act on: printed as one message without a traceback, exit code 2."""

import sys
from collections.abc import Iterable, Mapping

from judgetrain.amounts import agree, amount

_CONTROLS = {
    # Line feeds and tabs are layout, and harmless.
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
    # They turn the order of what follows them, also of the program's own words. Letters have a direction by themselves.
    **{code: f"<U+{code:04X}>" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
    # Ends of lines, by which a name could pass for a line of the program's.
    **{code: f"<U+{code:04X}>" for code in (0x2028, 0x2029)},
}
"""Control characters, and the visible text that stands for them."""


def printable(text: str) -> str:
    """Return a text whose control characters are shown and not obeyed.

    Names and texts of data and models are printed, too. An escape sequence in one could rename the terminal's window,
    hide what stands before it, or have the terminal type.
    """
    return text.translate(_CONTROLS)


def say_error(message: object) -> None:
    """Print the message with which the command ends on standard error."""
    print(f"judgetrain: {printable(str(message))}", file=sys.stderr)


class JudgetrainError(Exception):
    """Base of all expected failures; the message names the cause, the place and the remedy."""


class ConfigError(JudgetrainError):
    """A configuration key has a wrong name, type or value; names key, value and what is allowed."""


class DataError(JudgetrainError):
    """Input data cannot be read; names the file and line (or the data set and row) and what was expected."""


class EngineError(JudgetrainError):
    """A model or server cannot be used (missing package, unknown model, no network, no key)."""


class EngineLostError(EngineError):
    """A process that holds a model has ended by itself.

    It cannot be used again. Another process may answer the same requests.
    """


class UnansweredError(EngineError):
    """A server left some requests of a call unanswered, and the client gave them up.

    Args:
        number: how many requests were given up; the others were answered.
        reason: why the last of them was given up.
    """

    def __init__(self, number: int, reason: str) -> None:
        self.number = number
        self.reason = reason
        super().__init__(
            f"{amount(number, 'request')} {agree(number, 'were')} given up, the last for: {reason}; the same command "
            "asks these alone"
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Return how to build the error again in another process.

        Exceptions are rebuilt from their message by default, which is not what this class is made from.
        """
        return type(self), (self.number, self.reason)


class TrainingError(JudgetrainError):
    """Training cannot start or go on; names the cause and the remedy."""


class TerminatedError(KeyboardInterrupt):
    """SIGTERM or SIGUSR1 has come; it ends a run as Ctrl-C does, and keeps of what is under way what Ctrl-C keeps."""


class NothingToLearnError(DataError, TrainingError):
    """A step left no example or pair for a judge to be trained on; steps before it keep their results.

    The message counts what was lost, by reason.
    """


def causes(reasons: Mapping[str, int], hints: Mapping[str, str], otherwise: str) -> str:
    """Return the end of a message that says why things were lost and what to change.

    Reasons stand with their counts, the most frequent first. Behind them stands the hint for the most frequent reason
    that has one.

    Args:
        reasons: how many things were lost for each reason, as ``{"judgment:too_long": 3}``.
        hints: what to change, by what a reason ends in: ``too_long`` serves ``judgment:too_long`` too.
        otherwise: what to look at where no reason has a hint.
    """
    counted = [(reason, number) for reason, number in reasons.items() if number]
    counted.sort(key=lambda item: -item[1])
    hint = _first_hint([reason for reason, _ in counted], hints, otherwise)
    if not counted:
        return hint

    return ", ".join(f"{number} {reason}" for reason, number in counted) + f"; {hint}"


def _first_hint(reasons: Iterable[str], hints: Mapping[str, str], otherwise: str) -> str:
    """Return the hint for the first of the reasons that has one, or ``otherwise``."""
    for reason in reasons:
        for end, hint in hints.items():
            if reason.endswith(end):
                return hint
    return otherwise
