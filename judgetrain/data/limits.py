"""Leave out what is longer than a judge is to read."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from judgetrain.artifacts.losses import Losses


class Lengthy(Protocol):
    """Something with an id whose characters can be counted, such as a comparison or a single response."""

    @property
    def id(self) -> str:
        """Return its name."""
        ...

    @property
    def characters(self) -> int:
        """Return the number of characters that a judge would be shown."""
        ...


Item = TypeVar("Item", bound=Lengthy)


def fitting(items: Iterable[Item], most: int | None, left_out: Losses) -> list[Item]:
    """Return the items of at most so many characters; the others are counted as ``too_long``.

    Args:
        items: in the order in which they stay.
        most: characters of an item; None: any number.
        left_out: takes the others.
    """
    kept = []
    for item in items:
        if most is None or item.characters <= most:
            kept.append(item)
        else:
            left_out.lose("too_long", item.id)
    return kept
