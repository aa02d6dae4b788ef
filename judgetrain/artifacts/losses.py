"""Count what a filter leaves out, and tell it where it is a large part of the rows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

LARGE = 0.2
"""The share of all rows above which a reason that leaves rows out is told, with an example and what to change."""


NOTHING: Mapping[str, Any] = MappingProxyType({})


class Losses(Counter[str]):
    """The numbers of rows that were left out, by reason, with the first row of each reason as an example."""

    def __init__(self, counts: Mapping[str, int] = NOTHING, examples: Mapping[str, str] = NOTHING) -> None:
        super().__init__(counts)
        self.examples = dict(examples)

    def __reduce__(self) -> tuple[Any, ...]:
        # A Counter would be pickled without the examples.
        return Losses, (dict(self), self.examples)

    def lose(self, reason: str, example: str) -> None:
        """Count a row; ``example`` says which one it is."""
        self[reason] += 1
        self.examples.setdefault(reason, " ".join(example.split()))

    def lose_all(self, reason: str, examples: Iterable[str]) -> None:
        """Count rows; ``examples`` say which ones they are."""
        for example in examples:
            self.lose(reason, example)

    def sentences(self, number: int, hints: Mapping[str, str], rows: str = "") -> Iterator[str]:
        """Yield a sentence for each reason that left out more than :data:`LARGE` of the rows.

        Args:
            number: of all rows.
            hints: what to change, by what a reason ends in.
            rows: what they are, in the plural; empty: it is plain.
        """
        for reason, count in self.items():
            if count <= LARGE * number:
                continue
            whose = f"{number:,} {rows}".rstrip()
            sentence = f"{count:,} of {whose} are left out as {reason}"
            if reason in self.examples:
                sentence += f", such as {self.examples[reason]}"
            hint = next((hint for end, hint in hints.items() if reason.endswith(end)), "")
            yield f"{sentence}: {hint}" if hint else sentence
