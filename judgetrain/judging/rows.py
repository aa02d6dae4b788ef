"""Rows of ``verdicts.jsonl``, one a comparison, and of ``scores.jsonl``, one a response that was scored by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from judgetrain.data.config import SourceConfig
from judgetrain.data.sources import read
from judgetrain.engines.base import UNANSWERED
from judgetrain.errors import DataError
from judgetrain.judges.base import Prediction, Score
from judgetrain.judges.views.tree_page import VERDICTS
from judgetrain.schema import Candidates, Comparison, Dialogue

Row = dict[str, Any]
T = TypeVar("T")

SCORES = "scores"
"""The name of the rows of responses; :data:`VERDICTS` is that of comparisons."""
_TEXTS = ("response_a", "response_b", "model_a", "model_b")
_SAID = ("verdict_ab", "verdict_ba", "score_a", "score_b", "margin", "margin_ab", "margin_ba", "spread")
_ASKED = ("asked", "plan", "branches")


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
        **_shown(comparison.dialogue),
        **{name: getattr(comparison, name) for name in _TEXTS},
        "verdict": None if failure else found.verdict,
        **{name: getattr(found, name) for name in _SAID},
        "reasons": [asdict(reason) for reason in found.reasons],
        "failures": dict(sorted(found.failures.items())),
        "judge": judge,
        **{name: getattr(found, name) for name in _ASKED},
        "cost": asdict(found.cost),
        "group": comparison.group,
        "label": comparison.label,
        "failure": failure,
    }


def score_rows(
    group: Candidates, scores: Sequence[Score], judge: str, failure: str | None = None
) -> Iterator[dict[str, Any]]:
    """A row for each response of a group.

    ``score`` is 0 to 1, None where nothing could be read; ``rank`` counts from 1 among the group's responses, the best
    first, equal scores alike. ``failure``: why the group was not judged.
    """
    known = [score.value for score in scores if score.value is not None]
    for place, response in enumerate(group.responses):
        score = scores[place] if scores else Score(value=None)
        yield {
            "id": group.id,
            **_shown(group.dialogue),
            "place": place,
            "response": response,
            "score": score.value,
            "rank": None if score.value is None else 1 + sum(other > score.value for other in known),
            "reasons": [
                {
                    **{name: getattr(reason, name) for name in ("name", "criterion", "weight", "source", "guideline")},
                    "score": reason.score_a,
                    "text": reason.text,
                    "failure": reason.failure,
                }
                for reason in score.reasons
            ],
            "failures": dict(sorted(score.failures.items())),
            "judge": judge,
            "cost": asdict(score.cost),
            "failure": failure,
        }


def _shown(dialogue: Dialogue) -> Row:
    return {"dialogue_id": dialogue.id, "messages": [asdict(message) for message in dialogue.messages]}


def reason_of(failure: object) -> str:
    """A row's ``failure`` in a word."""
    return str(failure).partition(":")[0]


def dropped(row: Mapping[str, Any]) -> str | None:
    """Why a row has no verdict or score, in a word; None where it has one."""
    if row["failure"]:
        return reason_of(row["failure"])
    unread = row["score"] is None if "score" in row else row["verdict"] == "unreadable"
    return "unreadable" if unread else None


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
