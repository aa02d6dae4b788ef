"""Rows of verdicts: read from files, and which of them come first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.rows import RowError
from judgetrain.extras.label_queue.config import LabelQueueConfig
from judgetrain.extras.label_queue.information import PARTS, Information
from judgetrain.judging.rows import read_verdicts

Row = Mapping[str, Any]
SHOWN = ("id", "messages", "response_a", "response_b", "model_a", "model_b", "group", "verdict")
NEEDED = ("id", "messages", "response_a", "response_b", "verdict_ab", "verdict_ba")
INFORMATION, CHANCE = "information", "chance"
"""How a comparison came to be in the queue."""


def read_rows_of(files: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of stage judge in files, globs and directories, each id once.

    Raises:
        ConfigError: no such file.
        DataError: a row that stage judge did not write, or one id for two comparisons; names its place.
    """
    found: dict[str, dict[str, Any]] = {}

    def take(row: Any, place: str) -> None:
        if not isinstance(row, Mapping) or any(name not in row for name in NEEDED):
            raise RowError("no_verdict", f"expected a row of stage judge, with {', '.join(NEEDED)}")
        known = found.setdefault(row["id"], dict(row))
        if any(known[name] != row[name] for name in ("messages", "response_a", "response_b")):
            raise RowError("other_id", f"id {row['id']!r} is another comparison's in a file before it; make ids differ")

    for _ in read_verdicts(files, "label_queue.files", take):
        pass
    return list(found.values())


def left_out(row: Row, relabel: bool = False) -> str | None:
    """Why nobody need label a row; None where somebody may. ``relabel``: those that have a label are labelled again."""
    if row.get("label") is not None and not relabel:
        return "labelled"
    if row.get("failure"):
        return "not_judged"
    return None


def ranked(rows: Sequence[Row], config: LabelQueueConfig, seed: int) -> list[dict[str, Any]]:
    """The queue: the comparisons with what a label of each would tell, the most telling first.

    Those drawn by chance are spread evenly among the others, so that whoever stops early has some of both.
    """
    rows = [row for row in rows if left_out(row, config.relabel) is None]
    found = {row["id"]: Information.of(row) for row in rows}
    lot = {row["id"]: derive_seed(seed, "queue", row["id"]) for row in rows}
    telling = sorted(rows, key=lambda r: (-round(found[r["id"]].total(config.by), 9), lot[r["id"]]))
    drawn = sorted(rows, key=lambda r: lot[r["id"]])
    kept: list[dict[str, Any]] = []
    for row, how in _taken(telling, drawn, config):
        known = found[row["id"]]
        facts = {f"of_{part}": getattr(known, part) for part in PARTS} | {"information": known.total(config.by)}
        facts = {name: None if value is None else round(value, 6) for name, value in facts.items()}
        kept.append({n: row.get(n) for n in SHOWN} | facts | {"chosen_by": how, "rank": len(kept) + 1})
    return kept


def _taken(telling: Sequence[Row], drawn: Sequence[Row], config: LabelQueueConfig) -> Iterator[tuple[Row, str]]:
    """Rows of both lists by turns, each once.

    Those of chance are drawn first, from all rows: from what the others leave would be no fair draw.
    """
    total = len(telling) if config.labels is None else min(config.labels, len(telling))
    chance = drawn[: round(config.random * total)]
    fair = {row["id"] for row in chance}
    rest = [row for row in telling if row["id"] not in fair]
    given = 0
    for place in range(1, total + 1):
        if given < round(len(chance) * place / total):
            given += 1
            yield chance[given - 1], CHANCE
        else:
            yield rest[place - 1 - given], INFORMATION
