"""Several annotators' rows on one pair of responses, or on one response: one judgment, with the label of all."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from judgetrain.data.labelled import OVERALL, Scale, Votes
from judgetrain.data.votes import is_reversed, pair_of, repeats, response_of, sentence_on_alike
from judgetrain.extras.rubric.pairing import ScoredResponse
from judgetrain.judging.items import JudgedRow
from judgetrain.judging.votes import response_labels_that_count, tell_repeats
from judgetrain.rubrics import Rubric
from judgetrain.schema import Candidates, Comparison, Verdict, mirror


@dataclass(frozen=True, kw_only=True)
class PairRow:
    """A row on a pair of responses, without what was said of them.

    Args:
        number: of the row among all.
        comparison: with the row's label, and the criteria that were given for it.
        judge: who judged it.
        has_criteria: whether it was judged by any criterion; False: its label counts, and nothing else of it.
    """

    number: int
    comparison: Comparison
    judge: str
    has_criteria: bool


@dataclass(frozen=True, kw_only=True)
class ResponseRow:
    """A row on one response.

    Args:
        response: with its scores, and the row's label.
        judge: who scored it.
        rubric: the criteria that were given for it; None: there are none.
        file: that the row stands in.
    """

    response: ScoredResponse
    judge: str
    rubric: Rubric | None
    file: str


@dataclass(frozen=True)
class Standing:
    """The rows on pairs that stand for several.

    Args:
        labels: of all rows on the pair, in the row's own order, by the number of the row that has them; None: as many
            rows say one as say another.
        left_out: the numbers of rows for which an earlier row of the same judge stands.
    """

    labels: dict[int, Verdict | None]
    left_out: set[int]


def standing_pairs(rows: Sequence[PairRow], say: Callable[[str], object]) -> Standing:
    """Return which rows stand for pairs that several rows label, with the labels that count as in stage ``judge``.

    Several judges' judgments of one pair all stand: each says something else of it.

    Args:
        rows: all with a label.
        say: takes a sentence about such pairs, where there are any.
    """
    comparisons = _with_known_criteria(rows)
    votes: list[list[Verdict]] = []
    for comparison in comparisons:
        votes.append([comparison.label] if comparison.label is not None else [])
    repeated = list(repeats(comparisons, votes))
    labels: dict[int, Verdict | None] = {}
    left_out: set[int] = set()
    for of_pair in repeated:
        first = comparisons[of_pair.places[0]]
        judges: set[str] = set()
        for place in of_pair.places:
            row = rows[place]
            if not row.has_criteria:
                continue
            if row.judge in judges:
                left_out.add(row.number)
                continue
            judges.add(row.judge)
            label = of_pair.label
            if label is not None and is_reversed(row.comparison) != is_reversed(first):
                label = mirror(label)
            labels[row.number] = label
    tell_repeats(repeated, comparisons, say)
    alike = sentence_on_alike(comparisons)
    if alike:
        say(alike)
    return Standing(labels, left_out)


def standing_responses(rows: Sequence[ResponseRow], say: Callable[[str], object]) -> list[ScoredResponse]:
    """Return the responses, each once for a judge, with the label that all rows on it give together.

    The label is the mean of the rows' labels, as in stage ``judge``. Of two levels it is the one that most rows say, so
    that one annotator's slip makes no response better than another; None where as many say either. Responses that were
    scored by no criterion are left out.

    Args:
        rows: all rows.
        say: takes a sentence about responses that several rows label, where there are any.
    """
    scales = _scales_by_file(rows)
    rubrics = _known_rubrics(
        [response_of(_group(row.response, None)) for row in rows],
        [row.rubric for row in rows],
        [bool(row.response.criteria) for row in rows],
    )
    items = []
    keys: list[Hashable] = []
    identifiers: set[str] = set()
    for number, row in enumerate(rows):
        response = row.response
        identifier = response.id
        # Rows of several files may have one id.
        if identifier in identifiers:
            identifier = f"{identifier}#{number}"
        identifiers.add(identifier)
        group = _group(response, rubrics[number])
        votes: dict[str, Votes] = {}
        if response.label is not None:
            votes = {OVERALL: (response.label,)}
        comparison = Comparison(identifier, response.dialogue, "", "")
        items.append(JudgedRow(comparison, group=group, votes=votes, scales={OVERALL: scales[row.file]}))
        keys.append(response_of(group))

    counting = response_labels_that_count(items, say)
    labels: dict[Hashable, float | None] = {}
    for key, item in zip(keys, items, strict=True):
        # The first row with a label has the label of all.
        if item.votes and key not in labels:
            label = counting.get(item.comparison.id, item.labels).get(OVERALL)
            scale = item.scales[OVERALL]
            if label is not None and scale.has_two_levels:
                label = scale.scores[scale.level(label)]
            labels[key] = label

    standing = []
    seen: set[tuple[Hashable, str]] = set()
    for key, row in zip(keys, rows, strict=True):
        if row.response.criteria and (key, row.judge) not in seen:
            seen.add((key, row.judge))
            standing.append(replace(row.response, label=labels.get(key)))
    return standing


def _with_known_criteria(rows: Sequence[PairRow]) -> list[Comparison]:
    """Return the comparisons of rows, those that were not judged with the criteria of others on their pair."""
    comparisons = [row.comparison for row in rows]
    rubrics = _known_rubrics(
        [pair_of(replace(comparison, rubric=None)) for comparison in comparisons],
        [comparison.rubric for comparison in comparisons],
        [row.has_criteria for row in rows],
    )
    return [replace(comparison, rubric=rubric) for comparison, rubric in zip(comparisons, rubrics, strict=True)]


def _known_rubrics(
    keys: Sequence[Hashable], rubrics: Sequence[Rubric | None], are_judged: Sequence[bool]
) -> list[Rubric | None]:
    """Return the criteria that were given for each row.

    A row that could not be judged does not say them: they are those of the rows on the same responses, where these have
    the same ones.

    Args:
        keys: what rows on the same responses have in common [row].
        rubrics: what each row says; None: nothing [row].
        are_judged: whether a row was judged by any criterion [row].
    """
    rubrics_of: dict[Hashable, set[Rubric | None]] = {}
    for key, rubric, is_judged in zip(keys, rubrics, are_judged, strict=True):
        if is_judged:
            rubrics_of.setdefault(key, set()).add(rubric)
    known: list[Rubric | None] = []
    for key, rubric, is_judged in zip(keys, rubrics, are_judged, strict=True):
        of_others = rubrics_of.get(key, set())
        if not is_judged and rubric is None and len(of_others) == 1:
            known.extend(of_others)
        else:
            known.append(rubric)
    return known


def _group(response: ScoredResponse, rubric: Rubric | None) -> Candidates:
    """Return a response as stage judge asks about it, by these criteria."""
    return Candidates(response.id, response.dialogue, (response.response,), rubric)


def _scales_by_file(rows: Sequence[ResponseRow]) -> dict[str, Scale]:
    """Return the scale of each file's labels: the levels that its rows have, since scores do not say which it has."""
    levels: dict[str, set[float]] = {}
    for row in rows:
        of_file = levels.setdefault(row.file, set())
        if row.response.label is not None:
            of_file.add(row.response.label)
    scales = {}
    for file, of_file in levels.items():
        in_order = sorted(of_file)
        scales[file] = Scale(tuple(in_order), tuple(map(str, in_order)))
    return scales
