"""Artifacts on disk: what a stage writes and counts, in shards that survive a kill.

An artifact is a directory ``<output_dir>/artifacts/<stage>/<fingerprint>``. It is finished when it holds a
``manifest.json``, which is written last; anything else in it is unfinished work that the next run resumes.
"""

import hashlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.executor import Executor, Work
from judgetrain.artifacts.files import (
    atomic,
    read_json,
    write_json_atomic,
    write_row,
    write_rows_atomic,
    write_text_atomic,
)
from judgetrain.artifacts.integrity import MANIFEST as MANIFEST
from judgetrain.artifacts.integrity import described, whole_shard
from judgetrain.artifacts.shards import SECONDS, counted, markers_of, seconds_so_far, shards_of
from judgetrain.artifacts.shards import ShardResult as ShardResult
from judgetrain.artifacts.shards import tokens_of as tokens_of
from judgetrain.artifacts.tracker import Run
from judgetrain.errors import DataError, JudgetrainError, UnansweredError

T = TypeVar("T")

PRINTED = "printed.txt"
"""What a stage printed at its end."""


def derive_seed(*parts: object) -> int:
    """A 31-bit seed that depends on every part and on nothing else."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def is_held_out(seed: int, identifier: str, share: float) -> bool:
    """Whether a comparison is among the share (``label.holdout``) that is held out of training; ``seed``: the run's.

    The same in every stage and every run: what one stage chooses by, no stage before it was trained on, as long as its
    share is no larger than theirs.
    """
    return derive_seed(derive_seed(seed, "label"), "heldout", identifier) / 2**31 < share


class ShardSeeds:
    """What a worker elsewhere knows of a :class:`StageRun`: seeds and places; it has nothing to write or to say."""

    def __init__(self, directory: Path, stage: str, seed: int, home: Path) -> None:
        self.directory, self.stage, self.seed, self.home = directory, stage, seed, home

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardSeeds, (self.directory, self.stage, self.seed, self.home)

    def shard_seed(self, index: int) -> int:
        """The seed of one shard, the same in every run of the artifact."""
        return derive_seed(self.seed, "shard", index)


class StageRun(ShardSeeds):
    """One stage's directory in the making: where rooms put what they make, and what they count.

    Args:
        directory: the artifact's directory.
        stage: the stage's name.
        seed: the run's seed; :attr:`seed` is derived from it and the stage's name.
        console: where lines and progress go.
        writes: False in a process that only helps to train, and leaves the directory's files alone.
        home: ``output_dir``, which all runs share; by default the third folder above the directory.
        recipe: the recipe's name, for titles.
        clock: gives seconds from any beginning.
        executor: where shards are processed that may be; by default here.
    """

    def __init__(
        self,
        directory: Path,
        stage: str,
        seed: int,
        console: Console,
        writes: bool = True,
        home: Path | None = None,
        recipe: str = "",
        clock: Callable[[], float] = time.monotonic,
        executor: Executor | None = None,
    ) -> None:
        super().__init__(directory, stage, derive_seed(seed, stage), home or directory.parents[2])
        self.executor, self.recipe, self.console, self.track = executor or Executor(), recipe, console, Run()
        self._writes = writes
        directory.mkdir(parents=True, exist_ok=True)
        for stale in directory.glob(".*.tmp") if writes else ():  # of a killed run; nobody else writes here
            if stale.is_file():
                stale.unlink()
        self._direct: list[dict[str, Any]] = []
        self._notes_path = directory / ".notes.json"
        self._notes: dict[str, Any] = read_json(self._notes_path) if self._notes_path.exists() else {}
        if not isinstance(self._notes, dict):
            told = f"{self._notes_path} is damaged: remove {directory}, which is not finished"
            raise DataError(f"{told}, and run the same command again")
        self._sharded: list[str] = []
        self._printed = ""
        earlier, cpu = seconds_so_far(directory)
        self._clock, self._since, self._cpu_since = clock, clock() - earlier, _cpu() - cpu

    @property
    def seconds(self) -> float:
        """Seconds spent on the artifact so far, those of earlier runs included, up to what they finished last."""
        return self._clock() - self._since

    @property
    def cpu_seconds(self) -> float:
        """The same of a processor: this process's, and those of the workers on this machine."""
        return _cpu() - self._cpu_since + self.executor.cpu

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Write :attr:`seconds` down at the beginning and at any end that Python sees."""
        self.keep_seconds()
        try:
            yield
        finally:
            # The time is the least of what a full disk costs; the stage itself says what is wrong.
            with suppress(OSError, JudgetrainError):
                self.keep_seconds()

    def keep_seconds(self) -> None:
        """Write :attr:`seconds` down: whenever something is finished, so that a kill loses no more than the rest."""
        if self._writes:
            write_json_atomic(self.path(SECONDS), [round(self.seconds, 3), round(self.cpu_seconds, 3)])

    def count(self, *, in_: int = 0, out: int = 0, dropped: Mapping[str, int] | None = None) -> None:
        """Add to the manifest's counts."""
        self._direct.append(counted(in_=in_, out=out, dropped=dropped))

    def note(self, key: str, value: Any) -> None:
        """Put a fact into the manifest's notes; kept over a resume."""
        self._notes[key] = value
        if self._writes:
            write_json_atomic(self._notes_path, self._notes)

    @property
    def notes(self) -> dict[str, Any]:
        """The facts noted so far."""
        return dict(self._notes)

    def log(self, message: str, keep: bool = False) -> None:
        """Print a line; ``keep``: it is part of what :meth:`tell` keeps, and so names no place on this machine."""
        self.console.line(message)
        if keep:
            self._keep(f"{message}\n")

    def tell(self, parts: Iterable[Any]) -> None:
        """Print the tables and text that the stage ends with (Rich renderables), and keep them in ``printed.txt``.

        Whoever asks for the finished stage again is shown them from there.
        """
        self._keep(self.console.plain(parts))

    def _keep(self, text: str) -> None:
        self._printed += text
        if self._writes:
            write_text_atomic(self.path(PRINTED), self._printed)

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
        with atomic(self.path(f"{name}.jsonl")) as file:
            yield lambda row: write_row(file, row)

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
        load: Callable[[], object] | None = None,
        spread: bool = False,
        gpus: int | None = None,
    ) -> float:
        """Process items in shards, skipping those already finished; gives the seconds of those that were not.

        Shard ``i`` of ``n`` becomes ``<name>-<i>-of-<n>.jsonl`` with a hidden marker that holds its counts, the seconds
        that ``process`` took and its facts; the marker is written last and says that the shard is finished. Where a
        server gave requests of some shards up, all others are finished first (UnansweredError).

        Args:
            name: of the shards.
            items: what is processed; a shard's are taken when its turn comes.
            size: items of a shard.
            process: gives a shard's result from its number and its items.
            unit: what the items are, for the progress bar.
            load: called before a shard is timed, to load what ``process`` needs.
            spread: the run's executor may process shards elsewhere and in any order: ``process`` and ``load`` can be
                pickled and depend on nothing that happens here meanwhile.
            gpus: that a copy of the model takes; None: what the largest of the stage does.
        """
        total = max(1, -(-len(items) // size))
        write_json_atomic(self.path(f".{name}.plan.json"), {"shards": total, "items": len(items), "unit": unit})
        self._sharded.append(name)
        for markers in (True, False):  # a run that split the items otherwise has left shards of other items
            for path, of in shards_of(self.directory, name, markers=markers):
                if of != total:
                    path.unlink()
        stems = [f"{name}-{i:05d}-of-{total:05d}" for i in range(total)]
        sizes = [min(size, len(items) - i * size) for i in range(total)]
        marked = [i for i in range(total) if self._marker(stems[i]).exists()]
        finished = {i for i in marked if whole_shard(self.path(f"{stems[i]}.jsonl"), self._marker(stems[i]))}
        for i in sorted({*marked} - finished):
            self.log(f"{self.stage}: {stems[i]} is not what was written: it is made again")
        before = sum(sizes[i] for i in finished)
        unanswered: list[UnansweredError] = []
        spent = 0.0
        left = ((i, items[i * size : (i + 1) * size]) for i in range(total) if i not in finished)
        executor = self.executor if spread else Executor()
        work = Work(process=process, load=load, clock=self._clock, gpus=gpus)
        with self.console.progress(f"{self.stage}: {name}", len(items), unit, before) as advance:
            for done in executor.run(work, left):
                if isinstance(done.result, UnansweredError):
                    unanswered.append(done.result)
                else:
                    spent += done.seconds
                    self._finish(stems[done.index], done.result, done.seconds)
                advance(sizes[done.index])
        if unanswered:
            raise UnansweredError(sum(error.number for error in unanswered), unanswered[-1].reason)
        return spent

    def _finish(self, stem: str, result: ShardResult, seconds: float) -> None:
        path = self.path(f"{stem}.jsonl")
        write_rows_atomic(path, result.rows)
        said = result.counted() | {"seconds": seconds, "facts": result.facts, "file": described(path)}
        write_json_atomic(self._marker(stem), said)
        self.keep_seconds()

    def _marker(self, stem: str) -> Path:
        return self.path(f".{stem}.json")

    def totals(self) -> dict[str, Any]:
        """Counts and tokens of everything done, the shards of earlier runs included."""
        parts = [*self._direct, *(part for name in self._sharded for part in markers_of(self.directory, name))]
        return counted(
            in_=sum(part["counts"]["in"] for part in parts),
            out=sum(part["counts"]["out"] for part in parts),
            dropped=sum((Counter(part["counts"]["dropped"]) for part in parts), Counter()),
            prompt=sum(part["tokens"]["prompt"] for part in parts),
            generated=sum(part["tokens"]["generated"] for part in parts),
        )


def adopt(shards: str, key: str, out: StageRun) -> None:
    """Take over the finished ``shards`` of artifacts beside this one that have the same key, and leave the key here.

    So a change that leaves some of a stage's work as it is (another metric, another weight of a reward) does not repeat
    it. The ``key`` is a hash of all that decides what they hold; those that lie here under another one are dropped.
    """
    if not _has(out.directory, shards, key):
        for markers in (True, False):
            for stale, _ in shards_of(out.directory, shards, markers=markers):
                stale.unlink()
        write_text_atomic(out.path(f".{shards}.key"), key)
    for other in sorted(out.directory.parent.iterdir()):
        if other == out.directory or not _has(other, shards, key):
            continue
        taken = 0
        for marker, _ in shards_of(other, shards, markers=True):
            if _failed(marker):
                continue
            stem = marker.name.removeprefix(".").removesuffix(".json")
            files = [f"{stem}.jsonl", marker.name]  # the marker last: it says that the shard is there
            if whole_shard(other / files[0], marker) and not out.path(marker.name).exists():
                for name in files:
                    _link(other / name, out.path(name))
                taken += 1
        if taken:
            out.log(f"{out.stage}: {shards}: {taken} shards are those of {other}")


def _failed(marker: Path) -> bool:
    """Whether a shard holds what an engine failed to answer, which is asked again rather than taken over.

    The reason is ``error``, by itself or behind what it is about (``judgment:error``).
    """
    found = read_json(marker)
    dropped = found["counts"]["dropped"] if isinstance(found, dict) and "counts" in found else ("error",)
    return any(reason == "error" or reason.endswith(":error") for reason in dropped)


def _has(directory: Path, shards: str, key: str) -> bool:
    path = directory / f".{shards}.key"
    return path.is_file() and path.read_text(encoding="utf-8") == key


def _link(source: Path, target: Path) -> None:
    """A second name for a file, which is never changed in place; a copy where the disk knows no second names."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _cpu() -> float:
    """Seconds of a processor that this process and its ended children have taken."""
    return sum(os.times()[:4])
