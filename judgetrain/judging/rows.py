"""Rows of ``verdicts.jsonl``: one a comparison, with the verdict and what led there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from judgetrain.data.config import SourceConfig
from judgetrain.data.sources import read
from judgetrain.engines.base import UNANSWERED
from judgetrain.errors import DataError
from judgetrain.judges.base import Prediction
from judgetrain.judges.views.verdict_rows import VERDICTS
from judgetrain.schema import Comparison

Row = dict[str, Any]
T = TypeVar("T")


def row_of(comparison: Comparison, prediction: Prediction | None, judge: str, failure: str | None = None) -> Row:
    """The row of a comparison, and of the prediction on it where it was judged.

    ``failure`` is why it was not; where the judge's model gave nothing at all (``too_long``, ``error``,
    ``no_content``), that is the reason. A row with a ``failure`` has no verdict. ``cost`` is that of one verdict in one
    order, as everywhere.
    """
    if prediction is not None and failure is None:
        failure = _unanswered(prediction)
    found = prediction or Prediction(comparison_id=comparison.id, method=judge)
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
        "score_a": found.score_a,
        "score_b": found.score_b,
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
            path = path / f"{VERDICTS}.jsonl"
            if not path.is_file():
                raise DataError(f"{key}: {path.parent} holds no verdicts.jsonl; name the files in it")
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
