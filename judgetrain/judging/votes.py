"""The labels of a file's rows that count, where several rows label one pair of responses differently."""

from collections.abc import Callable, Sequence

from judgetrain.data.votes import Contradiction, contradictions
from judgetrain.judging.items import JudgedRow
from judgetrain.schema import Verdict


def labels_that_count(items: Sequence[JudgedRow], say: Callable[[str], None]) -> dict[str, Verdict | None]:
    """Return the labels that count for rows which label a pair of responses differently, by the rows' ids.

    The first of such rows gets the majority of their labels, the others get None, which counts for nothing. Rows that
    are not named keep their own.

    Args:
        items: all rows.
        say: takes a sentence about such rows, where there are any.
    """
    comparisons = [item.comparison for item in items]
    contradicted = list(contradictions(comparisons, [_votes_of(item) for item in items]))
    labels: dict[str, Verdict | None] = {}
    for contradiction in contradicted:
        ids = [comparisons[place].id for place in contradiction.places]
        labels |= dict.fromkeys(ids)
        labels[ids[0]] = contradiction.label
    if contradicted:
        say(_told(contradicted, comparisons[contradicted[0].places[0]].id))
    return labels


def _votes_of(item: JudgedRow) -> list[Verdict]:
    """Return the label of a row as a list, empty where there is none; a row of single responses has no label of two."""
    if item.group is not None or item.comparison.label is None:
        return []
    return [item.comparison.label]


def _told(contradicted: Sequence[Contradiction], name: str) -> str:
    """Return the sentence about pairs of responses that rows label differently; ``name`` is the first one's id."""
    without_majority = sum(contradiction.label is None for contradiction in contradicted)
    return (
        f"{len(contradicted)} pairs of responses stand in several rows with different labels, such as {name} "
        f"({', '.join(contradicted[0].votes)}): of each the majority counts once, and {without_majority} have none"
    )
