"""Labels that several rows give one pair of responses: votes on one comparison, whichever response stands first."""

import json
import unicodedata
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from judgetrain.amounts import agree, amount
from judgetrain.data.cells import majority
from judgetrain.schema import Candidates, Comparison, Dialogue, Verdict, mirror


@dataclass(frozen=True)
class Repeats:
    """Rows with a label on one pair of responses.

    Args:
        places: of the rows, the first one first.
        votes: of all rows, in the order of the first row's responses.
        differ: whether the rows have different labels.
    """

    places: list[int]
    votes: list[Verdict]
    differ: bool

    @property
    def label(self) -> Verdict | None:
        """Return the majority of the votes, in the order of the first row's responses; None where there is none."""
        return majority(self.votes)


def as_shown(text: str) -> str:
    """Return a text as its reader sees it, by which two spellings of it are one.

    Characters are composed (Unicode NFC), lines end alike, and nothing but blanks at either end is left out.
    """
    return unicodedata.normalize("NFC", text).replace("\r\n", "\n").strip()


def is_reversed(comparison: Comparison) -> bool:
    """Return whether the responses stand in the other order than :func:`pair_of` has them."""
    return as_shown(comparison.response_a) > as_shown(comparison.response_b)


def sentence_on_alike(comparisons: Iterable[Comparison]) -> str | None:
    """Return the sentence about comparisons whose label prefers one of two responses that read the same.

    They may differ in what a reader is not shown, as in thoughts. It is None where there are none.
    """
    names = []
    for comparison in comparisons:
        texts = {as_shown(comparison.response_a), as_shown(comparison.response_b)}
        if comparison.label in ("A", "B") and len(texts) == 1:
            names.append(comparison.id)
    if not names:
        return None
    return (
        f"{amount(len(names), 'comparison')} {agree(len(names), 'have')} two responses that read the same and a label "
        f"that prefers one, such as {names[0]}: no judge can agree with that; leave such rows out"
    )


def pair_of(comparison: Comparison) -> Hashable:
    """Return what two rows have in common that ask the same of a judge, whichever response stands first.

    That is the prompt, the reference, the criteria, the group (labels of another group may be about something else)
    and the two responses.
    """
    criteria = ""
    if comparison.rubric is not None:
        criteria = json.dumps(comparison.rubric.to_row())
    dialogue = comparison.dialogue
    # Sorted, so that both orders of the responses are one pair.
    responses = tuple(sorted(map(as_shown, (comparison.response_a, comparison.response_b))))
    return messages_as_shown(dialogue), dialogue.reference, criteria, comparison.group, responses


def response_of(group: Candidates) -> Hashable:
    """Return what two rows of one response have in common that ask the same of a judge.

    That is the prompt, the reference, the criteria and the response.
    """
    criteria = ""
    if group.rubric is not None:
        criteria = json.dumps(group.rubric.to_row())
    responses = tuple(map(as_shown, group.responses))
    return messages_as_shown(group.dialogue), group.dialogue.reference, criteria, responses


def messages_as_shown(dialogue: Dialogue) -> Hashable:
    """Return what the messages of a dialogue are, as its reader sees them."""
    return tuple((message.role, as_shown(message.content)) for message in dialogue.messages)


def repeats(comparisons: Sequence[Comparison], votes: Sequence[Sequence[Verdict]]) -> Iterator[Repeats]:
    """Yield the pairs of responses that several rows label, in the order of their first rows.

    Args:
        comparisons: of the rows.
        votes: of each row, in the order of its responses; a row without any has no label. Several are one label, their
            majority.
    """
    rows_of: dict[Hashable, list[int]] = {}
    for place, comparison in enumerate(comparisons):
        if votes[place]:
            rows_of.setdefault(pair_of(comparison), []).append(place)

    for places in rows_of.values():
        if len(places) == 1:
            continue
        in_order: list[list[Verdict]] = []
        # Each row's votes in the order of the first row's responses.
        for place in places:
            of_row = list(votes[place])
            if is_reversed(comparisons[place]) != is_reversed(comparisons[places[0]]):
                of_row = [mirror(vote) for vote in of_row]
            in_order.append(of_row)

        # Several annotators of one row may differ; a contradiction is between rows.
        differ = len({majority(of_row) for of_row in in_order}) > 1
        yield Repeats(places, [vote for of_row in in_order for vote in of_row], differ)
