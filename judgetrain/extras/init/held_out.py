"""Choose the rows of a file that are measured on: whole prompts, at random, with the labels that the file has."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from judgetrain.data.parts import place_of
from judgetrain.schema import Dialogue

DIGITS = 17
"""The most digits of the ends of a part; two places between 0 and 1 never differ in fewer."""


@dataclass(frozen=True)
class HeldOut:
    """The rows that are measured on.

    Args:
        part: the stretch of 0 to 1 in which their prompts stand, as ``part`` of a benchmark has it.
        labels: their numbers by label.
    """

    part: tuple[float, float]
    labels: Mapping[str, int]

    @property
    def rows(self) -> int:
        """Return the number of rows with a label."""
        return sum(self.labels.values())


def hold_out(dialogues: Sequence[Dialogue], labels: Sequence[str | None], number: int) -> HeldOut:
    """Return about ``number`` rows with a label, and whichever share a prompt with them.

    A prompt's place between 0 and 1 is a hash, so that a stretch is a random set of prompts, wherever they stand in the
    file. Of all stretches of the right size the one is taken whose labels are most like the file's.

    Args:
        dialogues: of the rows.
        labels: of the rows; None: it has none.
        number: of rows with a label; at least 1, and there are as many.
    """
    by_place: dict[float, Counter[str]] = {}
    for dialogue, label in zip(dialogues, labels, strict=True):
        counts = by_place.setdefault(place_of(dialogue), Counter())
        if label is not None:
            counts[label] += 1
    places = sorted(by_place)
    total: Counter[str] = Counter()
    for counts in by_place.values():
        total.update(counts)
    aim = {label: number * count / total.total() for label, count in total.items()}

    best: tuple[float, int, int] | None = None
    held: Counter[str] = Counter()
    end = 0
    for begin in range(len(places)):
        while end < len(places) and held.total() < number:
            held.update(by_place[places[end]])
            end += 1
        if held.total() < number:
            # No longer stretch is left behind this place.
            break
        distance = sum(abs(held[label] - wanted) for label, wanted in aim.items())
        if best is None or distance < best[0]:
            best = (distance, begin, end)
        held.subtract(by_place[places[begin]])
    assert best is not None, "all places together have as many labels"

    _, begin, end = best
    low = 0.0
    if begin:
        low = _between(places[begin - 1], places[begin])
    high = 1.0
    if end < len(places):
        high = _between(places[end - 1], places[end])
    labels_held: Counter[str] = Counter()
    for place in places[begin:end]:
        labels_held.update(by_place[place])
    return HeldOut((low, high), dict(sorted(labels_held.items())))


def _between(low: float, high: float) -> float:
    """Return a number above ``low`` and not above ``high``, with as few digits as will do."""
    for digits in range(1, DIGITS):
        number = round((low + high) / 2, digits)
        if low < number <= high:
            return number
    return high
