"""Rows of ``verdicts.jsonl`` and ``verdicts.parquet``: one a comparison, with the verdict and what led there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from judgetrain.artifacts.files import atomic
from judgetrain.data.config import SourceConfig
from judgetrain.data.sources import read
from judgetrain.engines.base import UNANSWERED
from judgetrain.errors import DataError
from judgetrain.judges.base import Prediction
from judgetrain.judges.views.verdict_rows import VERDICTS
from judgetrain.schema import Comparison

Row = dict[str, Any]
T = TypeVar("T")
BATCH = 1024
"""Rows of Parquet written together."""

_TEXTS = ("id", "dialogue_id", "response_a", "response_b", "model_a", "model_b", "verdict", "verdict_ab", "verdict_ba")
_REASON = {
    **dict.fromkeys(("order", "criterion", "guideline", "text"), "string"),
    **dict.fromkeys(("score_a", "score_b"), "double"),
    **dict.fromkeys(("verdict", "failure"), "string"),
}
_COST = dict.fromkeys(("prompt_tokens", "generated_tokens", "calls"), "double")
_MESSAGE = {"role": "string", "content": "string"}


def row_of(comparison: Comparison, prediction: Prediction | None, judge: str, failure: str | None = None) -> Row:
    """The row of a comparison, and of the prediction on it where it was judged.

    ``failure`` is why it was not; where the judge's model gave nothing at all (``too_long``, ``error``,
    ``no_content``), that is the reason. A row with a ``failure`` has no verdict. ``cost`` is that of one verdict in one
    order, as everywhere.
    """
    if prediction is not None and failure is None:
        failure = _unanswered(prediction)
    found = prediction or Prediction(comparison_id=comparison.id, method=judge, verdict_ab=None, verdict_ba=None)
    return {
        "id": comparison.id,
        "dialogue_id": comparison.dialogue.id,
        "messages": [asdict(message) for message in comparison.dialogue.messages],
        "response_a": comparison.response_a,
        "response_b": comparison.response_b,
        "model_a": comparison.model_a,
        "model_b": comparison.model_b,
        "verdict": None if failure else found.verdict,
        "verdict_ab": found.verdict_ab,
        "verdict_ba": found.verdict_ba,
        "margin": found.margin,
        "margin_ab": found.margin_ab,
        "margin_ba": found.margin_ba,
        "spread": found.spread,
        "reasons": [asdict(reason) for reason in found.reasons],
        "failures": dict(sorted(found.failures.items())),
        "judge": judge,
        "asked": found.asked,
        "plan": found.plan,
        "branches": found.branches,
        "cost": asdict(found.cost),
        "group": comparison.group,
        "label": comparison.label,
        "failure": failure,
    }


def read_verdicts(files: Sequence[str | Path], key: str, take: Callable[[Any, str], T]) -> Iterator[T]:
    """What ``take`` makes of each row, and of its place, in files and globs of verdicts and directories of stage judge.

    Raises:
        ConfigError: no such file; names the ``key``.
        DataError: a directory without verdicts, or a row that ``take`` refuses (RowError); names its place.
    """
    for i, name in enumerate(files):
        path = Path(name).expanduser()
        if path.is_dir():
            there = [path / f"{VERDICTS}.{end}" for end in ("jsonl", "parquet")]
            path = next((file for file in there if file.is_file()), path)
            if path.is_dir():
                raise DataError(f"{key}: {path} holds no verdicts.jsonl or verdicts.parquet; name the files in it")
        source = SourceConfig(name=VERDICTS, type="jsonl", path=str(path))

        def placed(row: Any, number: int, path: Path = path) -> T:
            return take(row, f"{path}:{number}")

        yield from read(source, f"{key}[{i}]", placed)


def _unanswered(prediction: Prediction) -> str | None:
    """The first reason of an unreadable verdict if its model gave no text at all; else None."""
    reasons = [reason.rpartition(":")[2] for reason in prediction.failures]
    if prediction.verdict != "unreadable" or not reasons or not UNANSWERED.issuperset(reasons):
        return None
    return {"error": "refused"}.get(reasons[0], reasons[0])


def write_parquet(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows as a Parquet file whose columns have the same types whatever they hold; ``failures`` is JSON."""
    import pyarrow as arrow
    import pyarrow.parquet

    schema = _schema()
    with atomic(path) as file, arrow.parquet.ParquetWriter(file, schema) as writer:
        flat = ({**row, "failures": json.dumps(row["failures"])} for row in rows)
        while part := list(islice(flat, BATCH)):
            writer.write_table(arrow.Table.from_pylist(part, schema=schema))


def _schema() -> Any:
    import pyarrow as arrow

    def struct(fields: Mapping[str, str]) -> Any:
        return arrow.struct([(name, arrow.type_for_alias(kind)) for name, kind in fields.items()])

    columns = [(name, arrow.string()) for name in _TEXTS]
    columns.insert(2, ("messages", arrow.list_(struct(_MESSAGE))))
    columns += [(name, arrow.float64()) for name in ("margin", "margin_ab", "margin_ba", "spread")]
    columns += [("reasons", arrow.list_(struct(_REASON)))]
    columns += [(name, arrow.string()) for name in ("failures", "judge", "asked", "plan")]
    columns += [("branches", arrow.int64()), ("cost", struct(_COST))]
    return arrow.schema([*columns, *((name, arrow.string()) for name in ("group", "label", "failure"))])
