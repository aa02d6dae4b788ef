"""Reads what a caller in Python has judged: comparisons, tuples, mappings, a data frame or a ``datasets.Dataset``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from judgetrain.amounts import agree, amount
from judgetrain.errors import DataError
from judgetrain.judges.predictions import Prediction, Score
from judgetrain.schema import Candidates, Comparison

if TYPE_CHECKING:
    from pandas import DataFrame, Index

    from judgetrain.data.cells import RowError
    from judgetrain.data.rows.reader import RowReader

log = logging.getLogger(__name__)

Rows = Iterable[Any]
"""Rows to judge, each a record of this package, a tuple of texts or a mapping from columns to cells; or a table."""
AT_ONCE = 256
"""Rows that are judged between two steps of a progress bar."""
SECONDS_BEFORE_PROGRESS = 3.0
"""A progress bar appears for what takes longer."""
PAIR = ("query", "response_a", "response_b")
SINGLE = ("query", "response")
"""The places of a tuple, by the names that columns of files have."""
ONE_RESPONSE = (
    "; the row holds a single response: compare_all takes two, score_all scores one, and evaluate measures such scores "
    "where all rows hold one"
)
"""The end of a message about a row of one response where two are needed."""
IN_PLACE_OF = {"query": "messages", "response": "responses"}
"""The fields that may stand in place of others."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class UnreadRow:
    """A row whose cells cannot be judged, so that it has an answer without a verdict.

    Args:
        id: of the row.
        reason: why, in a word, as failures are counted.
        message: why, in a sentence.
    """

    id: str
    reason: str
    message: str

    def prediction(self, judge: str) -> Prediction:
        """Return the prediction of a judge of this name on the row, which has no verdict."""
        return Prediction(comparison_id=self.id, method=judge, failures={self.reason: 1})

    @property
    def scores(self) -> list[Score]:
        """Return the one score of the row, which has no value."""
        return [Score(value=None, failures={self.reason: 1})]


@dataclass(frozen=True)
class Table(Sequence[Item]):
    """Rows as records, beside their cells.

    Args:
        items: the comparisons or candidates of the rows that can be judged, in the caller's order.
        cells: the cells of each row by column, for a data frame of answers.
        row_index: of the data frame that the rows are; None for rows of another kind.
        unread: the rows that cannot be judged, by their number from 0.
    """

    items: list[Item]
    cells: list[Mapping[str, Any]]
    row_index: Index | None = None
    unread: Mapping[int, UnreadRow] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, place: Any) -> Any:
        return self.items[place]

    def answers_by_row(self, answers: Iterable[Answer], of_unread: Callable[[UnreadRow], Answer]) -> list[Answer]:
        """Return an answer a row, in the caller's order.

        Args:
            answers: to the items.
            of_unread: returns the answer to a row that cannot be judged.
        """
        remaining = iter(answers)
        by_row = []
        for number in range(len(self.cells)):
            if number in self.unread:
                by_row.append(of_unread(self.unread[number]))
            else:
                by_row.append(next(remaining))
        return by_row


def comparisons_in(rows: Rows, labelled: bool = False) -> Table[Comparison]:
    """Return the comparisons in rows of two responses.

    A mapping is read as a row of a file is (docs/using.md): ``query`` or ``messages``, ``response_a``, ``response_b``,
    and ``label``, ``group``, ``id``, ``criteria``, ``reference`` where they are there. A mapping whose cells cannot be
    judged is among the unread rows, and a label without a meaning is left out; a warning says so.

    Args:
        rows: as the caller gave them.
        labelled: True: the rows are to measure a judge by, so that a cell or label that cannot be read is an error.

    Raises:
        DataError: a row is none of these, or the first one lacks a column; names the row's number, from 0.
    """

    def read(reader: RowReader, row: Mapping[str, Any], number: int) -> Comparison:
        if labelled:
            return reader.comparison(row, number, labelled=None)
        # A label is not needed to judge: one that has no meaning does not cost the row its verdict.
        comparison = reader.comparison(row, number, labelled=False)
        return replace(comparison, label=reader.labels.known_verdict(row))

    def of_tuple(row: Sequence[Any]) -> Comparison:
        _check_texts(row[1:])
        return Comparison.of(*row)

    return _read(rows, Comparison, PAIR, of_tuple, read, strict=labelled)


def candidates_in(rows: Rows) -> Table[Candidates]:
    """Return the candidates in rows of one response (columns ``query`` or ``messages``, and ``response``).

    Raises:
        DataError: as :func:`comparisons_in`.
    """

    def read(reader: RowReader, row: Mapping[str, Any], number: int) -> Candidates:
        return reader.candidates(row, number)

    def of_tuple(row: Sequence[Any]) -> Candidates:
        _check_texts(row[1:])
        prompt, response = row
        return Candidates.of(prompt, [response])

    return _read(rows, Candidates, SINGLE, of_tuple, read)


def _check_texts(responses: Sequence[Any]) -> None:
    """Refuse (DataError) responses of a tuple that are no texts."""
    for response in responses:
        if not isinstance(response, str):
            raise DataError(f"expected responses that are texts, found {type(response).__name__} {response!r:.60}")


def _read(
    rows: Any,
    kind: type[Item],
    names: tuple[str, ...],
    of_tuple: Callable[[Sequence[Any]], Item],
    read: Callable[[RowReader, Mapping[str, Any], int], Item],
    strict: bool = False,
) -> Table[Item]:
    """Return rows as records of a kind.

    Args:
        rows: as the caller gave them (:data:`Rows`).
        kind: of the records; a row that is one is taken as it is.
        names: what the places of a tuple are called.
        of_tuple: makes a record of a tuple of as many texts.
        read: makes a record of a mapping, whose number is given.
        strict: whether a mapping whose cells cannot be judged is an error.
    """
    # Most callers within this package have records, and reading files takes a second to import.
    from judgetrain.data.cells import TWO_COLUMNS, RowError
    from judgetrain.data.config import SourceConfig
    from judgetrain.data.rows.reader import RowReader

    reader = RowReader(SourceConfig(name="rows"), key="")
    items: list[Item] = []
    cells: list[Mapping[str, Any]] = []
    unread: dict[int, UnreadRow] = {}
    for number, row in enumerate(each_row(rows)):
        try:
            shown: Mapping[str, Any]
            if isinstance(row, kind):
                item = row
                shown = _cells_of(row)
            elif isinstance(row, Mapping):
                shown = row
                item = read(reader, row, number)
            elif isinstance(row, (tuple, list)) and len(row) == len(names):
                item = of_tuple(row)
                shown = dict(zip(names, row, strict=True))
            else:
                raise DataError(
                    f"expected ({', '.join(names)}), a mapping with such columns or a {kind.__name__}, "
                    f"found {type(row).__name__} {row!r:.60}"
                )
            items.append(item)
        except DataError as error:
            raise DataError(f"row {number}: {error}") from error
        except RowError as error:
            # What is wrong with the columns of the first row is wrong with all, and the caller has to know at once.
            of_columns = error.reason == TWO_COLUMNS or (number == 0 and _lacks_column(reader, row, names))
            if strict or of_columns:
                hint = ""
                if kind is Comparison and reader.columns.is_scored(row):
                    hint = ONE_RESPONSE
                raise DataError(f"row {number}: {error}{hint}") from error
            unread[number] = _unread_row(reader, row, number, error)
        cells.append(shown)
    _warn_of_unread(unread, len(cells))
    for message in reader.labels.messages():
        log.warning("rows: %s", message)
    # A data frame has its index under this name, a list a method.
    row_index = None
    if hasattr(rows, "itertuples"):
        row_index = rows.index
    return Table(items, cells, row_index, unread)


def _lacks_column(reader: RowReader, row: Mapping[str, Any], fields: Sequence[str]) -> bool:
    """Return whether a row has no column for one of these fields, whatever its other columns hold."""
    for name in fields:
        other = IN_PLACE_OF.get(name, name)
        if not reader.columns.has_column(row, name) and not reader.columns.has_column(row, other):
            return True
    return False


def _unread_row(reader: RowReader, row: Mapping[str, Any], number: int, error: RowError) -> UnreadRow:
    """Return what is known of a row that cannot be judged; its id is its number where it has none to read."""
    # Imported here for the same reason as in :func:`_read`.
    from judgetrain.data.cells import RowError

    row_id = f"rows:{number:07d}"
    with suppress(RowError):
        row_id = reader.id_of(row, number)
    return UnreadRow(row_id, error.reason, str(error))


def _warn_of_unread(unread: Mapping[int, UnreadRow], total: int) -> None:
    """Warn of rows that cannot be judged, with the first of them as an example; say nothing where there are none."""
    if not unread:
        return
    number = min(unread)
    count = len(unread)
    log.warning(
        "%d of %s cannot be judged and %s no verdict or score, such as row %d: %s",
        count,
        amount(total, "row"),
        agree(count, "have"),
        number,
        unread[number].message,
    )


def each_row(rows: Rows) -> Iterator[Any]:
    """Yield the rows of a table or of any iterable; a missing cell of a data frame is None.

    Raises:
        DataError: what was given holds no rows, or two columns of one name.
    """
    table: Any = rows
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise DataError(f"expected rows, as in a list or a data frame, found {type(table).__name__}")
    # A data frame yields the names of its columns where its rows are wanted.
    if not hasattr(table, "itertuples"):
        yield from _with_classes(rows)
        return
    # Not at the top, as judges are made where no row is read.
    from judgetrain.data.cells import check_names

    columns = [str(column) for column in table.columns]
    check_names(columns, "the data frame")
    # What is missing has several marks (NaN, NaT, NA), by the column's type.
    missing = table.isna().itertuples(index=False, name=None)
    for values, are_missing in zip(table.itertuples(index=False, name=None), missing, strict=True):
        cells = (None if is_missing else value for value, is_missing in zip(values, are_missing, strict=True))
        yield dict(zip(columns, cells, strict=True))


def _with_classes(rows: Iterable[Any]) -> Iterator[Any]:
    """Yield rows; those of a ``datasets.Dataset`` with the names of classes that it keeps as numbers."""
    features = getattr(rows, "features", None)
    if not features:
        yield from rows
        return
    from judgetrain.data.class_names import names_in_features, with_class_names

    names = names_in_features(features)
    for row in rows:
        yield with_class_names(row, names)


def _cells_of(record: Comparison | Candidates | Any) -> dict[str, Any]:
    """Return what a data frame shows of a record."""
    cells: dict[str, Any] = {"id": record.id, "query": record.dialogue.query}
    if isinstance(record, Comparison):
        cells |= {"response_a": record.response_a, "response_b": record.response_b, "label": record.label}
    elif len(record.responses) == 1:
        cells["response"] = record.responses[0]
    return cells


def in_steps(
    items: Sequence[Item], judge: Callable[[Sequence[Item]], list[Answer]], name: str, progress: bool
) -> list[Answer]:
    """Return the answers to all items, which are judged some at a time under a progress bar.

    Args:
        items: to be judged.
        judge: answers some of them.
        name: of the judge, before the bar.
        progress: whether to show the bar, once it has taken :data:`SECONDS_BEFORE_PROGRESS`.
    """
    if not progress or len(items) <= AT_ONCE:
        return judge(items)
    from tqdm.auto import tqdm

    answers: list[Answer] = []
    with tqdm(total=len(items), desc=name, unit="row", delay=SECONDS_BEFORE_PROGRESS) as bar:
        for start in range(0, len(items), AT_ONCE):
            some = items[start : start + AT_ONCE]
            answers += judge(some)
            bar.update(len(some))
    return answers


OF_PREDICTION: Mapping[str, Callable[[Prediction], Any]] = {
    "verdict": lambda prediction: prediction.verdict,
    "verdict_ab": lambda prediction: prediction.verdict_ab,
    "verdict_ba": lambda prediction: prediction.verdict_ba,
    "margin": lambda prediction: prediction.margin,
    "score_a": lambda prediction: prediction.score_a,
    "score_b": lambda prediction: prediction.score_b,
    "decision": lambda prediction: prediction.decision,
    "failures": lambda prediction: dict(prediction.failures),
    "note": lambda prediction: prediction.note,
    "reasons": lambda prediction: [reason.text for reason in prediction.reasons],
}
"""The columns that a data frame has of a prediction."""
OF_SCORE: Mapping[str, Callable[[Score], Any]] = {
    "score": lambda score: score.value,
    "by_criterion": lambda score: score.by_criterion,
    "decision": lambda score: score.decision,
    "passes": lambda score: score.passes,
    "failures": lambda score: dict(score.failures),
    "note": lambda score: score.note,
    "reasons": lambda score: [reason.text for reason in score.reasons],
}
"""The columns that a data frame has of a score, beside the response."""


def frame_of_predictions(table: Table[Comparison], predictions: Sequence[Prediction]) -> DataFrame:
    """Return a data frame [row, column]: the cells of the rows, then the verdict and what it rests on.

    Rows of a data frame keep its index, by which pandas puts columns of two data frames side by side.
    """
    rows = []
    for number, (cells, prediction) in enumerate(zip(table.cells, predictions, strict=True)):
        values = {name: value(prediction) for name, value in OF_PREDICTION.items()}
        if number in table.unread:
            values["note"] = table.unread[number].message
        rows.append(_beside(cells, values))
    return _frame(rows, [*PAIR, *OF_PREDICTION], table.row_index)


def frame_of_scores(table: Table[Candidates], scores: Sequence[Sequence[Score]]) -> DataFrame:
    """Return a data frame [response, column]: the cells of the rows, then the score and what it rests on.

    Its index is as of :func:`frame_of_predictions`; a row of several responses stands in it as often.
    """
    rows = []
    groups = iter(table.items)
    for number, (cells, of_row) in enumerate(zip(table.cells, scores, strict=True)):
        if number in table.unread:
            values = {name: value(of_row[0]) for name, value in OF_SCORE.items()}
            values["note"] = table.unread[number].message
            rows.append(_beside(cells, values))
            continue
        for response, score in zip(next(groups).responses, of_row, strict=True):
            values = {name: value(score) for name, value in OF_SCORE.items()}
            if not response.strip():
                values["note"] = "the response has no text"
            rows.append(_beside({**cells, "response": response}, values))
    index = table.row_index
    if index is not None:
        index = index.repeat([len(of_row) for of_row in scores])
    return _frame(rows, [*SINGLE, *OF_SCORE], index)


def _beside(cells: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's cells and the judge's values; a cell whose column's name is taken keeps it behind ``given_``."""
    row: dict[str, Any] = {}
    for name, cell in cells.items():
        row[f"given_{name}" if name in values else name] = cell
    return {**row, **values}


def _frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], index: Index | None) -> DataFrame:
    """Return rows as a data frame with an index; None: their numbers.

    Without any row it has ``columns``, so that code which names them goes on.
    """
    from pandas import DataFrame

    if not rows:
        return DataFrame(columns=[*columns], index=index)
    frame = DataFrame.from_records(rows)
    if index is not None:
        frame.index = index
    return frame
