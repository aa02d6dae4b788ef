"""Ratings and scores of single responses, from files and from finished stages ``selfeval``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.rows import RowError, label_text
from judgetrain.data.sources import read
from judgetrain.extras.correlate.config import ColumnConfig
from judgetrain.scorers.stages import finished_settings, model_of


class Item(NamedTuple):
    """A response: of which model to which question, that is which turn (from 1) of which prompt of a benchmark."""

    benchmark: str
    model: str
    id: str
    turn: int


@dataclass
class Column:
    """Numbers of responses by one rater or score; ``better``: 1 where more of it is better, else -1."""

    name: str
    better: int
    values: dict[Item, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Finished:
    """A finished stage selfeval: its model, its rows of answers and of scores, and by score 1 or -1: what is better."""

    model: str
    responses: list[dict[str, Any]]
    scores: list[dict[str, Any]]
    better: Mapping[str, int]


def read_finished(directory: str | Path) -> Finished:
    """A finished stage selfeval, whatever its scores.

    Raises:
        DataError: the directory holds none.
    """
    directory = Path(directory).expanduser()
    model = model_of(finished_settings(directory))
    metrics = json.loads((directory / "metrics.json").read_text(encoding="utf-8"))
    responses, scores = (list(read_rows(directory, name)) for name in ("responses", "scores"))
    return Finished(model, responses, scores, {row["method"]: row["better"] for row in metrics})


def items_of(run: Finished, model: str) -> list[Item]:
    """The items of a finished stage selfeval, in the order of its answers.

    The earlier answers of a conversation have ids that end in ``#`` and their number; the last one has none.
    """
    ids = [str(row["id"]) for row in run.scores]
    known, turns = set(ids), dict[str, int]()
    for name in ids:
        base, mark, number = name.rpartition("#")
        if mark and base in known and number.isdecimal():
            turns[base] = max(turns.get(base, 0), int(number))
    result = []
    for name in ids:
        base, _, number = name.rpartition("#")
        turn = int(number) if base in turns and number.isdecimal() else 1 + turns.get(name, 0)
        benchmark, _, local = (base if base in turns else name).partition(":")
        result.append(Item(benchmark, model, local, turn))
    return result


def scores_of(run: Finished, items: Sequence[Item]) -> list[Column]:
    """Every score of a finished stage selfeval; answers that it could not score are not among a score's values."""
    found = [Column(name, better) for name, better in run.better.items()]
    for column in found:
        for item, row in zip(items, run.scores, strict=True):
            if not isinstance(value := row["scores"][column.name], str):
                column.values[item] = float(value)
    return found


def read_columns(configs: Sequence[ColumnConfig], key: str) -> list[Column]:
    """The columns that files hold; ``key`` is where their list stands, for messages.

    Raises:
        ConfigError: a missing path.
        DataError: a row without id, benchmark, model or number, or one that is there twice; names file and line.
    """
    found: dict[str, Column] = {}
    for i, config in enumerate(configs):
        column = found.setdefault(config.name, Column(config.name, 1))
        for row in read(config.source, f"{key}[{i}].source", _taker(config, column.values)):
            column.values.update(row)
    return list(found.values())


def _taker(config: ColumnConfig, known: Mapping[Item, float]) -> Any:
    def take(row: Any, number: int) -> dict[Item, float]:
        if not isinstance(row, Mapping) or config.id not in row or config.value not in row:
            raise RowError("missing_field", f"expected an object with the columns {config.id} and {config.value}")
        if any(label_text(row.get(column)) != value for column, value in config.where.items()):
            return {}
        benchmark, model = (config.benchmark or row.get("benchmark"), config.model or row.get("model"))
        if not benchmark or not model:
            raise RowError("missing_field", "expected the columns benchmark and model, or keys of these names")
        value, first = row[config.value], int(row.get("turn") or 1)
        given = value if isinstance(value, list) else [value]
        result = {
            Item(str(benchmark), str(model), label_text(row[config.id]), turn): float(x)
            for turn, x in enumerate(given, start=first)
            if _is_number(x)
        }
        if twice := known.keys() & result.keys():
            raise RowError("twice", f"{next(iter(twice))}: there is a row of it already; choose with where")
        return result

    return take


def _is_number(value: Any) -> bool:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise RowError("no_number", f"expected a number, null or a list of them, found {value!r}")
    return value is not None and math.isfinite(value)


def merged(columns: Iterable[Column]) -> list[Column]:
    """One column a name: those of several models are joined."""
    found: dict[str, Column] = {}
    for column in columns:
        found.setdefault(column.name, Column(column.name, column.better)).values.update(column.values)
    return list(found.values())
