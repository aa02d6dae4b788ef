"""Ratings and scores of single responses, from files and from finished stages ``selfeval``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.cells import RowError, label_text
from judgetrain.data.sources import read
from judgetrain.evaluate.report.merge import told_apart
from judgetrain.extras.correlate.config import ColumnConfig
from judgetrain.scorers.stages import finished_settings, model_of

Row = dict[str, Any]


class Item(NamedTuple):
    """A response: of which model to which question, that is which turn (from 1) of which prompt of a benchmark."""

    benchmark: str
    model: str
    id: str
    turn: int


@dataclass
class Column:
    """Numbers of responses by one rater or score; ``better``: 1 where more of it is better, else -1.

    ``elsewhere``: rows of a file that are about an answer that no run gave. ``stand_ins``: items with -1 for none.
    """

    name: str
    better: int
    values: dict[Item, float] = field(default_factory=dict)
    elsewhere: int = 0
    stand_ins: int = 0


@dataclass(frozen=True)
class Run:
    """A finished stage selfeval: its model, its rows of answers, and by score 1 or -1: what is better.

    ``scores``: its rows of scores by item. An item's ``model`` is the run's name: several runs of one model are told
    apart by the settings that differ.
    """

    model: str
    responses: Sequence[Row]
    scores: Mapping[Item, Row]
    better: Mapping[str, int]


def read_runs(directories: Sequence[Path], called: Mapping[str, str]) -> list[Run]:
    """Finished stages selfeval, whatever their scores; ``called``: what models' paths are called.

    Raises:
        DataError: a directory holds none.
    """
    settings = [finished_settings(directory) for directory in directories]
    models = [called.get(path, path) for path in map(model_of, settings)]
    result = []
    for directory, model, name in zip(directories, models, told_apart(models, settings), strict=True):
        metrics = json.loads((directory / "metrics.json").read_text(encoding="utf-8"))
        responses, scores = (list(read_rows(directory, rows)) for rows in ("responses", "scores"))
        items = _items([str(row["id"]) for row in scores], name)
        better = {row["method"]: row["better"] for row in metrics}
        result.append(Run(model, responses, dict(zip(items, scores, strict=True)), better))
    return result


def _items(ids: Sequence[str], name: str) -> Iterator[Item]:
    """The items of a run's answers.

    The earlier answers of a conversation have ids that end in ``#`` and their number; the last one has none.
    """
    known, turns = set(ids), dict[str, int]()
    for each in ids:
        base, mark, number = each.rpartition("#")
        if mark and base in known and number.isdecimal():
            turns[base] = max(turns.get(base, 0), int(number))
    for each in ids:
        base, _, number = each.rpartition("#")
        turn = int(number) if base in turns and number.isdecimal() else 1 + turns.get(each, 0)
        benchmark, _, local = (base if base in turns else each).partition(":")
        yield Item(benchmark, name, local, turn)


def scores_of(runs: Sequence[Run]) -> list[Column]:
    """Every score of the runs; answers that could not be scored are not among a score's values."""
    found: dict[str, Column] = {}
    for run in runs:
        for name, better in run.better.items():
            column = found.setdefault(name, Column(name, better))
            for item, row in run.scores.items():
                if not isinstance(value := row["scores"][name], str):
                    column.values[item] = float(value)
    return list(found.values())


Answers = Mapping[Item, Mapping[Item, str]]
"""What the runs answered, by items with the model's own name: by the runs' items, the text."""


def answers_of(runs: Sequence[Run]) -> dict[Item, dict[Item, str]]:
    """Every answer that is not empty."""
    found: dict[Item, dict[Item, str]] = {}
    for run in runs:
        for item, row in run.scores.items():
            if text := row["response"].strip():
                found.setdefault(item._replace(model=run.model), {})[item] = text
    return found


def read_columns(configs: Sequence[ColumnConfig], key: str, answers: Answers) -> list[Column]:
    """The columns that files hold; ``key`` is where their list stands, for messages.

    A row is about the answer that it holds (column ``response``) or, if it holds none, about its model's only one.

    Raises:
        ConfigError: a missing path.
        DataError: a row without id, benchmark, model or number, one that is there twice, or one that may be about the
            answers of several runs; names file and line.
    """
    found: dict[str, Column] = {}
    for i, config in enumerate(configs):
        column = found.setdefault(config.name, Column(config.name, 1))
        for row in read(config.source, f"{key}[{i}].source", _taker(config, column, answers)):
            column.values.update(row)
    kept = {config.name for config in configs if config.keep_minus_one}
    for column in (column for name, column in found.items() if name not in kept):
        if all(value >= 0 or value == -1 for value in column.values.values()):
            known = {item: value for item, value in column.values.items() if value != -1}
            column.stand_ins, column.values = len(column.values) - len(known), known
    return list(found.values())


def _taker(config: ColumnConfig, column: Column, answers: Answers) -> Any:
    def take(row: Any, number: int) -> dict[Item, float]:
        if not isinstance(row, Mapping) or config.id not in row or config.value not in row:
            raise RowError("missing_field", f"expected an object with the columns {config.id} and {config.value}")
        if any(label_text(row.get(name)) != value for name, value in config.where.items()):
            return {}
        benchmark, model = (config.benchmark or row.get("benchmark"), config.model or row.get("model"))
        if not benchmark or not model:
            raise RowError("missing_field", "expected the columns benchmark and model, or keys of these names")
        value, first = row[config.value], int(row.get("turn") or 1)
        result: dict[Item, float] = {}
        for turn, x in enumerate(value if isinstance(value, list) else [value], start=first):
            if _is_number(x):
                item = Item(str(benchmark), str(model), label_text(row[config.id]), turn)
                places = _places(item, row.get("response"), answers)
                column.elsewhere += not places
                result |= dict.fromkeys(places, float(x))
        if twice := column.values.keys() & result.keys():
            raise RowError("twice", f"{next(iter(twice))}: there is a row of it already; choose with where")
        return result

    return take


def _places(item: Item, response: object, answers: Answers) -> list[Item]:
    """The runs' items that a row is about: those with this answer, or the only one. Itself where no run has it."""
    known = answers.get(item, {})
    if not known:
        return [item]
    if isinstance(response, str):
        return [place for place, text in known.items() if text == response.strip()]
    if len(set(known.values())) > 1:
        names = ", ".join(place.model for place in known)
        raise RowError(
            "several_runs", f"{item}: there are answers of several runs: {names}; give the answer in a column response"
        )
    return list(known)


def _is_number(value: Any) -> bool:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise RowError("no_number", f"expected a number, null or a list of them, found {value!r}")
    return value is not None and math.isfinite(value)
