"""How long an artifact has taken, over all the runs that it took."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import TracebackType

from judgetrain.artifacts.files import write_json_atomic


class Stopwatch:
    """Seconds spent on an artifact, those of earlier runs included.

    While it runs, a thread keeps the time on disk every ``every`` seconds, so that ``kill -9`` loses no more than that.

    Args:
        path: the file that holds the seconds.
        every: seconds between two writes.
    """

    def __init__(self, path: Path, every: float = 5.0) -> None:
        self._path, self._every = path, every
        self._before = float(json.loads(path.read_text())) if path.exists() else 0.0
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return self._before + time.monotonic() - self._started

    def __enter__(self) -> Stopwatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._write()

    def _keep(self) -> None:
        while not self._stop.wait(self._every):
            self._write()

    def _write(self) -> None:
        # The time is the least of what a full disk costs; the stage itself says what is wrong.
        try:
            write_json_atomic(self._path, round(self.seconds, 2))
        except Exception:
            return
