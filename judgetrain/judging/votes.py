"""The labels of a file's rows that count, where several rows label one pair of responses, or one response."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from judgetrain.amounts import agree, amount
from judgetrain.data.labelled import Votes
from judgetrain.data.votes import Repeats, repeats, response_of, sentence_on_alike
from judgetrain.judging.items import JudgedRow
from judgetrain.schema import Comparison, Verdict


@dataclass(frozen=True)
class Labels:
    """The labels of rows that count in place of the rows' own.

    Args:
        by_id: the labels by the rows' ids; None: the row counts as one without a label.
        differing: the number of rows on pairs of responses that rows label differently.
    """

    by_id: Mapping[str, Verdict | None] = field(default_factory=dict)
    differing: int = 0


THEIR_OWN = Labels()
"""Every row's own label counts."""


def labels_that_count(items: Sequence[JudgedRow], say: Callable[[str], object]) -> Labels:
    """Return the labels that count where several rows label a pair of responses.

    The first of such rows gets the majority of their labels, the others none. Rows that are not named keep their own.

    Args:
        items: all rows.
        say: takes a sentence about such rows, where there are any.
    """
    comparisons = [item.comparison for item in items]
    repeated = list(repeats(comparisons, [_votes_of(item) for item in items]))
    labels: dict[str, Verdict | None] = {}
    for rows in repeated:
        ids = [comparisons[place].id for place in rows.places]
        labels |= dict.fromkeys(ids)
        labels[ids[0]] = rows.label
    tell_repeats(repeated, comparisons, say)
    alike = sentence_on_alike(item.comparison for item in items if item.group is None)
    if alike:
        say(alike)
    return Labels(labels, sum(len(rows.places) for rows in repeated if rows.differ))


def tell_repeats(repeated: Sequence[Repeats], comparisons: Sequence[Comparison], say: Callable[[str], object]) -> None:
    """Say which pairs of responses stand in several rows, with different labels and with the same one.

    Args:
        repeated: the pairs.
        comparisons: of all rows.
        say: takes a sentence, where there are any such pairs.
    """
    contradicted = [rows for rows in repeated if rows.differ]
    if contradicted:
        say(_sentence_on_different_labels(contradicted, comparisons[contradicted[0].places[0]].id))
    agreeing = [rows for rows in repeated if not rows.differ]
    if agreeing:
        say(_sentence_on_equal_labels(agreeing, comparisons[agreeing[0].places[0]].id))


def _votes_of(item: JudgedRow) -> list[Verdict]:
    """Return the label of a row as a list, empty where there is none; a row of single responses has no label of two."""
    if item.group is not None or item.comparison.label is None:
        return []
    return [item.comparison.label]


def _sentence_on_different_labels(contradicted: Sequence[Repeats], name: str) -> str:
    """Return the sentence about pairs of responses that rows label differently; ``name`` is the first one's id."""
    without_majority = sum(rows.label is None for rows in contradicted)
    return (
        f"{amount(len(contradicted), 'pair')} of responses {agree(len(contradicted), 'stand')} in several rows "
        f"with different labels, such as {name} "
        f"({', '.join(contradicted[0].votes)}): of each the majority counts once, and {without_majority} "
        f"{agree(without_majority, 'have')} none"
    )


def _sentence_on_equal_labels(repeated: Sequence[Repeats], name: str) -> str:
    """Return the sentence about pairs of responses that rows label alike; ``name`` is the first one's id."""
    rows = sum(len(pair.places) for pair in repeated)
    return (
        f"{amount(len(repeated), 'pair')} of responses {agree(len(repeated), 'stand')} in several rows with the "
        f"same label, {rows} in all, "
        f"such as {name}: "
        "the label of each counts once"
    )


def response_labels_that_count(
    items: Sequence[JudgedRow], say: Callable[[str], object]
) -> dict[str, dict[str, float | None]]:
    """Return the labels, by row id and criterion, that count where several rows label one response.

    The first of such rows gets the label that all their annotators give together, the others none. Rows that are not
    named keep their own.

    Args:
        items: all rows.
        say: takes a sentence about such rows, where there are any.
    """
    items_of: dict[Hashable, list[JudgedRow]] = {}
    for item in items:
        if item.votes and item.group is not None:
            items_of.setdefault(response_of(item.group), []).append(item)

    labels: dict[str, dict[str, float | None]] = {}
    repeated = [rows for rows in items_of.values() if len(rows) > 1]
    for rows in repeated:
        first = rows[0]
        for row in rows:
            labels[row.comparison.id] = {}
        votes: dict[str, Votes] = {}
        for row in rows:
            for name, of_row in row.votes.items():
                votes[name] = (*votes.get(name, ()), *of_row)
        labels[first.comparison.id] = {name: first.scales[name].label(of_all) for name, of_all in votes.items()}
    if repeated:
        differing = sum(any(row.labels != rows[0].labels for row in rows) for rows in repeated)
        say(
            f"{amount(len(repeated), 'response')} {agree(len(repeated), 'stand')} in several rows with labels, "
            f"{sum(map(len, repeated))} in all, such as "
            f"{repeated[0][0].comparison.id}; of {differing} the labels differ: the label that all of a response's "
            "rows give together counts once"
        )
    return labels
