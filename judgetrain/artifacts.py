"""Artifacts on disk: atomic writes, shards that survive a kill, locks and manifests.

An artifact is a directory ``<output_dir>/artifacts/<stage>/<fingerprint>``. It is finished when it holds a
``manifest.json``, which is written last; anything else in it is unfinished work that the next run resumes.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from judgetrain.errors import DataError, JudgetrainError
from judgetrain.track import Console
from judgetrain.wandb_runs import Run

T = TypeVar("T")

MANIFEST = "manifest.json"


@dataclass
class ShardResult:
    """What one shard gave: rows to write, and what it counts for in the manifest."""

    rows: list[dict[str, Any]]
    counts_in: int
    dropped: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    generated_tokens: int = 0
    counts_out: int | None = None
    """None counts the rows."""


@contextmanager
def _atomic(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name only once it is whole and on the disk; permissions follow the umask."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            _explain_full_disk(error, path)
        raise


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all, also after a power cut.

    Raises:
        JudgetrainError: the disk is full; the old file, if any, is untouched.
    """
    with _atomic(path) as file:
        file.write(data)


def write_text_atomic(path: Path, text: str) -> None:
    """:func:`write_bytes_atomic` for UTF-8 text."""
    write_bytes_atomic(path, text.encode("utf-8"))


def write_json_atomic(path: Path, value: Any) -> None:
    """Write JSON, indented, keys in the given order."""
    write_text_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_rows_atomic(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines as they come, without holding them all, so that the file is there whole or not at all.

    Raises:
        JudgetrainError: the disk is full.
    """
    with _atomic(path) as file:
        for row in rows:
            _write_row(file, row)


def _write_row(file: BinaryIO, row: Mapping[str, Any]) -> None:
    file.write((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8"))


def _explain_full_disk(error: OSError, path: Path) -> None:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise JudgetrainError(
            f"the disk is full while writing {path}: free some space and run the same command again; "
            "everything finished is kept"
        ) from error


_SHARD = re.compile(r"-(\d{5,})-of-(\d{5,})")


def _shards(directory: Path, name: str, *, markers: bool = False) -> list[tuple[Path, int]]:
    """The shards of ``name`` (or their hidden markers) in order, each with the number of shards it is one of.

    The name is matched whole: the shards of ``a-1`` are none of ``a``.
    """
    prefix, suffix = (f".{name}", ".json") if markers else (name, ".jsonl")
    found = []
    for path in directory.glob(f"{glob.escape(prefix)}-*{suffix}"):
        match = _SHARD.fullmatch(path.name[len(prefix) : -len(suffix)])
        if match:
            found.append((int(match[1]), int(match[2]), path))
    return [(path, total) for _, total, path in sorted(found)]


def read_rows(directory: Path, name: str) -> Iterator[dict[str, Any]]:
    """The rows of ``<name>.jsonl``, or of all its shards in order.

    Raises:
        DataError: no such file, a missing shard, or a malformed line (named with its number).
    """
    for path in _files(directory, name):
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    raise DataError(f"{path}:{number}: not a JSON object ({error.msg})") from error


def _files(directory: Path, name: str) -> list[Path]:
    single = directory / f"{name}.jsonl"
    shards = [(single, 1)] if single.exists() else _shards(directory, name)
    if not shards:
        raise DataError(f"{directory} holds neither {name}.jsonl nor shards of it")
    if len(shards) != shards[0][1]:
        raise DataError(f"{directory}: {len(shards)} of {shards[0][1]} shards of {name} are there")
    return [path for path, _ in shards]


def count_rows(directory: Path, name: str) -> int:
    """How many rows :func:`read_rows` gives, without parsing them.

    Raises:
        DataError: no such file, or a missing shard.
    """
    count = 0
    for path in _files(directory, name):
        with path.open("rb") as lines:
            count += sum(1 for _ in lines)
    return count


def derive_seed(*parts: object) -> int:
    """A 31-bit seed that depends on every part and on nothing else."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


class StageRun:
    """One stage's directory in the making: where rooms put what they make, and what they count.

    Args:
        directory: the artifact's directory.
        stage: the stage's name.
        seed: the run's seed; :attr:`seed` is derived from it and the stage's name.
        console: where lines and progress go.
        writes: False in a process that only helps to train, and leaves the directory's files alone.
    """

    def __init__(self, directory: Path, stage: str, seed: int, console: Console, writes: bool = True) -> None:
        self.directory = directory
        self.stage = stage
        self.seed = derive_seed(seed, stage)
        self.console = console
        self.track = Run()
        self._writes = writes
        directory.mkdir(parents=True, exist_ok=True)
        for stale in directory.glob(".*.tmp") if writes else ():  # of a killed run; nobody else writes here
            if stale.is_file():
                stale.unlink()
        self._direct: dict[str, Any] = _empty_counts()
        self._notes_path = directory / ".notes.json"
        self._notes: dict[str, Any] = json.loads(self._notes_path.read_text()) if self._notes_path.exists() else {}
        self._sharded: list[str] = []

    def shard_seed(self, index: int) -> int:
        """The seed of one shard, the same in every run of the artifact."""
        return derive_seed(self.seed, "shard", index)

    def count(self, *, in_: int = 0, out: int = 0, dropped: Mapping[str, int] | None = None) -> None:
        """Add to the manifest's counts."""
        _add(self._direct, in_, out, dropped or {}, 0, 0)

    def tokens(self, *, prompt: int = 0, generated: int = 0) -> None:
        """Add to the manifest's token counts."""
        _add(self._direct, 0, 0, {}, prompt, generated)

    def note(self, key: str, value: Any) -> None:
        """Put a fact into the manifest's notes; kept over a resume."""
        self._notes[key] = value
        if self._writes:
            write_json_atomic(self._notes_path, self._notes)

    @property
    def notes(self) -> dict[str, Any]:
        """The facts noted so far."""
        return dict(self._notes)

    def log(self, message: str) -> None:
        """Print a line."""
        self.console.line(message)

    def path(self, name: str) -> Path:
        """A path inside the directory."""
        return self.directory / name

    def write_rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> Path:
        """Write ``<name>.jsonl`` atomically and return its path."""
        path = self.path(f"{name}.jsonl")
        write_rows_atomic(path, rows)
        return path

    @contextmanager
    def rows_writer(self, name: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """Write ``<name>.jsonl`` row by row with the function given; the file takes its name when all is well."""
        with _atomic(self.path(f"{name}.jsonl")) as file:
            yield lambda row: _write_row(file, row)

    def write_json(self, name: str, value: Any) -> Path:
        """Write ``<name>.json`` (the suffix is added when missing) atomically and return its path."""
        path = self.path(name if name.endswith(".json") else f"{name}.json")
        write_json_atomic(path, value)
        return path

    def sharded(
        self,
        name: str,
        items: Sequence[T],
        size: int,
        process: Callable[[int, Sequence[T]], ShardResult],
        unit: str = "items",
    ) -> None:
        """Process items in shards, skipping those already finished.

        Shard ``i`` of ``n`` becomes ``<name>-<i>-of-<n>.jsonl`` with a hidden sidecar that holds its counts;
        the sidecar is written last and marks the shard as finished.
        """
        total = max(1, -(-len(items) // size))
        write_json_atomic(self.path(f".{name}.plan.json"), {"shards": total, "items": len(items), "unit": unit})
        self._sharded.append(name)
        self._forget_other_shards(name, total)
        chunks = {f"{name}-{i:05d}-of-{total:05d}": items[i * size : (i + 1) * size] for i in range(total)}
        finished = {s for s in chunks if self._sidecar(s).exists() and self.path(f"{s}.jsonl").exists()}
        before = sum(len(chunks[stem]) for stem in finished)
        with self.console.progress(f"{self.stage}: {name}", len(items), unit, before) as advance:
            for index, (stem, chunk) in enumerate(chunks.items()):
                if stem in finished:
                    continue
                result = process(index, chunk)
                write_rows_atomic(self.path(f"{stem}.jsonl"), result.rows)
                counts = _empty_counts()
                _add(
                    counts,
                    result.counts_in,
                    len(result.rows) if result.counts_out is None else result.counts_out,
                    result.dropped,
                    result.prompt_tokens,
                    result.generated_tokens,
                )
                write_json_atomic(self._sidecar(stem), counts)
                advance(len(chunk))

    def _forget_other_shards(self, name: str, total: int) -> None:
        """Remove what a run that split the items otherwise has left: its shards hold other items."""
        for markers in (True, False):
            for path, of in _shards(self.directory, name, markers=markers):
                if of != total:
                    path.unlink()

    def _sidecar(self, stem: str) -> Path:
        return self.path(f".{stem}.json")

    def totals(self) -> dict[str, Any]:
        """Counts and tokens of everything done, the shards of earlier runs included."""
        total = _empty_counts()
        parts = [self._direct]
        for name in self._sharded:
            parts += [json.loads(p.read_text()) for p, _ in _shards(self.directory, name, markers=True)]
        for part in parts:
            counts, tokens = part["counts"], part["tokens"]
            _add(total, counts["in"], counts["out"], counts["dropped"], tokens["prompt"], tokens["generated"])
        return total


def shard_progress(directory: Path) -> tuple[int, int] | None:
    """How many shards of an unfinished artifact are finished, of how many; None if it has no shards."""
    done = total = 0
    for plan in directory.glob(".*.plan.json"):
        name = plan.name[1 : -len(".plan.json")]
        total += json.loads(plan.read_text())["shards"]
        done += len(_shards(directory, name, markers=True))
    return (done, total) if total else None


def _empty_counts() -> dict[str, Any]:
    return {"counts": {"in": 0, "out": 0, "dropped": {}}, "tokens": {"prompt": 0, "generated": 0}}


def _add(into: dict[str, Any], in_: int, out: int, dropped: Mapping[str, int], prompt: int, generated: int) -> None:
    counts, tokens = into["counts"], into["tokens"]
    counts["in"] += in_
    counts["out"] += out
    for reason, number in dropped.items():
        if number:
            counts["dropped"][reason] = counts["dropped"].get(reason, 0) + number
    tokens["prompt"] += prompt
    tokens["generated"] += generated


def in_use(directory: Path) -> bool:
    """Whether a process is making this artifact right now."""
    from filelock import FileLock, Timeout

    if not (directory / ".lock").exists():
        return False
    try:
        with FileLock(directory / ".lock", timeout=0):
            return False
    except Timeout:
        return True


@contextmanager
def locked(directory: Path, console: Console) -> Iterator[None]:
    """Hold an artifact's directory alone; the operating system frees the lock when the process dies.

    A second process that wants the same artifact waits here and says so once.
    """
    from filelock import FileLock, Timeout

    directory.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        console.line(f"{directory} is being made by another process: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
