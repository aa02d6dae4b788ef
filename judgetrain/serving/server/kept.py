"""Answers that were given, kept on disk: a server that is started again judges none of them a second time."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from judgetrain.artifacts.fingerprint import fingerprint
from judgetrain.judges.base import Cost, Prediction, Reason
from judgetrain.schema import Comparison


class KeptAnswers:
    """Predictions by what was asked, in one SQLite file; a kill at any moment leaves it whole.

    Each is found by the judge's identity, the seed, and the comparison's id and texts. Several threads may use it.

    Args:
        path: of the file; None: nothing is kept.
        identity: whatever decides the judge's answers besides seed and comparison.
    """

    def __init__(self, path: Path | None, identity: str) -> None:
        self._identity, self._lock = identity, threading.Lock()
        self._file: sqlite3.Connection | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(path, check_same_thread=False, timeout=60, isolation_level=None)
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=NORMAL")  # what is committed survives the process, if not the power
            self._file.execute("CREATE TABLE IF NOT EXISTS answers (asked TEXT PRIMARY KEY, answer TEXT) WITHOUT ROWID")

    def key(self, comparison: Comparison, seed: int) -> str:
        """What an answer is found by."""
        texts = (
            [[m.role, m.content] for m in comparison.dialogue.messages],
            comparison.response_a,
            comparison.response_b,
        )
        return fingerprint({"judge": self._identity, "seed": seed, "id": comparison.id, "texts": texts})

    def get(self, key: str) -> Prediction | None:
        """The answer that is kept, if any."""
        if self._file is None:
            return None
        with self._lock:
            found = self._file.execute("SELECT answer FROM answers WHERE asked = ?", (key,)).fetchone()
        return prediction_of_row(json.loads(found[0])) if found else None

    def put(self, answers: Mapping[str, Prediction]) -> None:
        """Keep answers, all of them or none; when this returns they are on disk.

        Raises:
            sqlite3.Error: the disk is full, or another process writes for too long.
        """
        if self._file is None or not answers:
            return
        rows = [(key, json.dumps(asdict(prediction))) for key, prediction in answers.items()]
        with self._lock, self._file:  # which takes back what fails, so that the next ones can be kept
            self._file.execute("BEGIN")
            self._file.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", rows)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def prediction_of_row(row: Mapping[str, Any]) -> Prediction:
    """The prediction that a JSON object holds; fields that a prediction does not have are left out."""
    names = Prediction.__dataclass_fields__
    fields = {name: value for name, value in row.items() if name in names}
    cost, reasons = Cost(**row["cost"]), tuple(Reason(**reason) for reason in row["reasons"])
    return Prediction(**{**fields, "cost": cost, "reasons": reasons})
