"""Read ratings and scores of responses from files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from judgetrain.data.cells import EMPTY, RowError, id_text, name_text, turn_number
from judgetrain.data.sources import read
from judgetrain.extras.correlate.answers import Answer, Answers, RaterColumn
from judgetrain.extras.correlate.config import ColumnConfig
from judgetrain.messages import scalar_text


def read_columns(configs: Sequence[ColumnConfig], key: str, answers: Answers) -> list[RaterColumn]:
    """Return the columns that files hold; several entries with one name are one column.

    A row is about the answer that it holds (column ``response``) or, if it holds none, about its model's only one.

    Args:
        configs: entries of the configuration.
        key: where their list stands, for messages.
        answers: what the runs answered; where a row's response is not among them, the row stands for itself.

    Raises:
        ConfigError: a missing path.
        DataError: a row without id, benchmark, model or number, one that is there twice, or one that may be about the
            answers of several runs; names file and line.
    """
    columns: dict[str, RaterColumn] = {}
    for number, config in enumerate(configs):
        # Of a rating more is better; a file of scores where less is would be correlated with its sign changed.
        column = columns.setdefault(config.name, RaterColumn(config.name, 1))
        for values in read(config.source, f"{key}[{number}].source", _row_reader(config, column, answers)):
            column.values.update(values)

    # After all files of a column are read: one negative number anywhere in it makes -1 a number.
    with_minus_one = {config.name for config in configs if config.keep_minus_one}
    for name, column in columns.items():
        if name not in with_minus_one:
            _leave_out_stand_ins(column)
    return list(columns.values())


def _leave_out_stand_ins(column: RaterColumn) -> None:
    """Take -1 out of a column in which no other value is negative: there it stands for none (FastChat)."""
    if any(value < 0 and value != -1 for value in column.values.values()):
        return
    rated = {answer: value for answer, value in column.values.items() if value != -1}
    column.stand_ins = len(column.values) - len(rated)
    column.values = rated


def _row_reader(
    config: ColumnConfig, column: RaterColumn, answers: Answers
) -> Callable[[Any, int], dict[Answer, float]]:
    """Return a function that reads one row's numbers, by answer; it counts in ``column`` what no run gave."""

    def read_row(row: Any, _number: int) -> dict[Answer, float]:
        if not isinstance(row, Mapping) or config.id not in row or config.value not in row:
            raise RowError("missing_field", f"expected an object with the columns {config.id} and {config.value}")
        # A row that another entry is about is no error, and counts nowhere.
        for name, value in config.where.items():
            if id_text(row.get(name)) != id_text(value):
                return {}
        benchmark = name_text(config.benchmark or row.get("benchmark"))
        model = name_text(config.model or row.get("model"))
        if not benchmark or not model:
            raise RowError("missing_field", "expected the columns benchmark and model, or keys of these names")
        numbers = row[config.value]
        # FastChat's files hold a number a row with its turn, others a list of all turns' numbers.
        if not isinstance(numbers, list):
            numbers = [numbers]
        # A list is counted on from the row's turn, if it has one.
        first_turn = 1
        if row.get("turn") not in EMPTY:
            first_turn = turn_number(row["turn"])
        values: dict[Answer, float] = {}
        for turn, value in enumerate(numbers, start=first_turn):
            if not _is_number(value):
                continue
            answer = Answer(benchmark, model, id_text(row[config.id]), turn)
            runs_answers = _runs_answers(answer, scalar_text(row.get("response")), answers)
            if not runs_answers:
                column.elsewhere += 1
            # Several runs may have given the very same text, which the rating is about in each of them.
            values |= dict.fromkeys(runs_answers, float(value))
        for answer in values:
            if answer in column.values:
                raise RowError("twice", f"{answer}: there is a row of it already; choose with where")
        return values

    return read_row


def _runs_answers(answer: Answer, response: object, answers: Answers) -> list[Answer]:
    """Return the runs' answers that a row is about: those with its text, or the only one.

    Args:
        answer: the row's, with the model's own name. It is returned itself if no run has it.
        response: the row's text of the answer; None if it holds none.
        answers: of the runs.

    Raises:
        RowError: the row holds no text, and several runs gave different answers.
    """
    texts = answers.get(answer, {})
    if not texts:
        return [answer]
    if isinstance(response, str):
        return [run_answer for run_answer, text in texts.items() if text == response.strip()]
    # Runs of a model with other settings may answer otherwise: which of the texts was rated cannot be guessed.
    if len(set(texts.values())) > 1:
        names = ", ".join(run_answer.model for run_answer in texts)
        raise RowError("several_runs", f"{answer}: answers of several runs: {names}; give the answer (column response)")
    return list(texts)


def _is_number(value: Any) -> bool:
    """Return True for a finite number, False for null and NaN (RowError: it is something else)."""
    if value is None:
        return False
    # True is an integer to Python, and no rating to anybody.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RowError("no_number", f"expected a number, null or a list of them, found {value!r}")
    return math.isfinite(value)
