"""An offline W&B run read back from disk: its log is records in LevelDB's log format, each one of W&B's protobufs.

wandb 0.31 keeps its own reader in its compiled core (its Python one is gone), so the framing is read here; what the
records say is read with W&B's own protobuf classes.
"""

import json
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BLOCK = 32768
HEADER = 7
FULL = 1
FIRST = 2
MIDDLE = 3
LAST = 4


@dataclass
class OfflineRun:
    """What a run told: ``history`` rows, ``made`` and ``used`` artifacts by name, its files and exit code (or None)."""

    directory: Path
    id: str = ""
    group: str = ""
    job_type: str = ""
    sweep: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)
    used: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    started: float = 0.0

    def logged(self, name: str) -> Any:
        """Return the last value logged by a name."""
        return [row[name] for row in self.history if name in row][-1]

    def table(self, name: str) -> dict[str, Any]:
        """Return a logged table: ``columns`` and ``data``."""
        return json.loads((self.directory / "files" / self.logged(name)["path"]).read_text(encoding="utf-8"))


def records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a log file; a checksum that does not fit fails."""
    assert data[:4] == b":W&B"
    at = HEADER
    parts = b""
    while at < len(data):
        room = BLOCK - at % BLOCK
        if room < HEADER:
            at += room
            continue
        checksum, size, kind = struct.unpack("<IHB", data[at : at + HEADER])
        part = data[at + HEADER : at + HEADER + size]
        if len(part) < size:
            return  # not yet written whole
        assert kind in (FULL, FIRST, MIDDLE, LAST)
        assert checksum == zlib.crc32(bytes([kind]) + part)
        parts = parts + part
        at = at + HEADER + size
        if kind in (FULL, LAST):
            yield parts
            parts = b""


def _value(items: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for item in items:
        *above, last = list(item.nested_key) or [item.key]
        place = fields
        for name in above:
            place = place.setdefault(name, {})
        place[last] = json.loads(item.value_json)
    return fields


def read_run(directory: Path, patience: float = 120.0) -> OfflineRun:
    """Read the finished run in ``offline-run-...``; W&B's own process may still be writing its last records."""
    until = time.monotonic() + patience
    while True:
        run = _read(directory)
        if run.exit_code is not None or time.monotonic() > until:
            return run
        time.sleep(0.05)


def _read(directory: Path) -> OfflineRun:
    from wandb.proto import wandb_internal_pb2

    [path] = directory.glob("run-*.wandb")
    run = OfflineRun(directory)
    for data in records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.id = record.run.run_id
            run.group = record.run.run_group
            run.job_type = record.run.job_type
            run.sweep = record.run.sweep_id
            run.tags = list(record.run.tags)
            run.config = _value(record.run.config.update)
            run.started = record.run.start_time.ToNanoseconds() / 1e9
        elif kind == "history":
            step = {"step": record.history.step.num} if record.history.HasField("step") else {}
            run.history.append(_value(record.history.item) | step)
        elif kind == "summary":
            run.summary |= _value(record.summary.update)
        elif kind == "artifact":
            into = run.used if record.artifact.use_after_commit else run.made
            into[record.artifact.name] = record.artifact
        elif kind == "exit":
            run.exit_code = record.exit.exit_code
    return run


def read_runs(output: Path) -> list[OfflineRun]:
    """Read all offline runs below an output directory, in the order in which they began."""
    return sorted(map(read_run, output.glob("wandb/offline-run-*")), key=lambda run: run.started)
