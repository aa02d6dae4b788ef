"""Artifacts on disk: what a stage writes and counts, in shards that survive a kill.

An artifact is a directory ``<output_dir>/artifacts/<stage>/<fingerprint>``. It is finished when it holds a
``manifest.json``, which is written last; anything else in it is unfinished work that the next run resumes.
"""

import hashlib
import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.console import Console
from judgetrain.artifacts.environment import unresolved
from judgetrain.artifacts.executor import Executor, Work
from judgetrain.artifacts.files import (
    atomic,
    described,
    read_json,
    write_json_atomic,
    write_row,
    write_rows_atomic,
    write_text_atomic,
)
from judgetrain.artifacts.integrity import MANIFEST as MANIFEST
from judgetrain.artifacts.shards import SECONDS, counted, markers_of, seconds_so_far, shards_of, whole_shard
from judgetrain.artifacts.shards import ShardResult as ShardResult
from judgetrain.artifacts.shards import tokens_of as tokens_of
from judgetrain.artifacts.tracker import Run
from judgetrain.errors import DataError, JudgetrainError, UnansweredError

T = TypeVar("T")

PRINTED = "printed.txt"
"""The file that keeps what a stage printed at its end."""
NOTES = ".notes.json"
"""The file that keeps the notes of an unfinished artifact."""


def earlier_notes(directory: Path) -> dict[str, Any]:
    """Return the notes that earlier runs of an artifact left; empty without any.

    Raises:
        DataError: they are damaged; says what to remove.
    """
    path = directory / NOTES
    if not path.exists():
        return {}
    notes = read_json(path)
    if not isinstance(notes, dict):
        raise DataError(f"{path} is damaged: remove {directory}, which is not finished, and run the same command again")
    return notes


def derive_seed(*parts: object) -> int:
    """Return a 31-bit seed that depends on every part and on nothing else."""
    # The separator keeps ("ab", "c") apart from ("a", "bc").
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    # NumPy takes seeds of 32 bits, and some libraries only those that fit into a signed integer.
    return int.from_bytes(digest[:4], "big") >> 1


def is_held_out(seed: int, identifier: str, share: float) -> bool:
    """Return whether what has this name is held out of training.

    The answer is the same in every stage and every run. So no stage was trained on comparisons that a later stage
    selects models with, as long as the later stage's share is no larger.

    Args:
        seed: the run's.
        identifier: of the prompt that comparisons are on, or of an example by itself.
        share: how much is held out, from 0 to 1 (``label.holdout``).
    """
    # The inner seed is the one of stage label's run, whichever stage asks: all hold out the same prompts.
    place = derive_seed(derive_seed(seed, "label"), "heldout", identifier) / 2**31
    return place < share


class ShardSeeds:
    """The part of a :class:`StageRun` that workers elsewhere get: seeds and places.

    A StageRun is pickled as this, since workers write no files and print no lines.

    Args:
        directory: the artifact's directory.
        stage: the stage's name.
        seed: the stage's seed.
        home: ``output_dir``.
    """

    def __init__(self, directory: Path, stage: str, seed: int, home: Path) -> None:
        self.directory = directory
        self.stage = stage
        self.seed = seed
        self.home = home

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardSeeds, (self.directory, self.stage, self.seed, self.home)

    def shard_seed(self, index: int) -> int:
        """Return the seed of one shard, which is the same in every run of the artifact."""
        return derive_seed(self.seed, "shard", index)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a stage's run that a pipeline sets; a stage that is run by itself needs none of them.

    Args:
        writes: False in a process that only helps to train, which writes no files here.
        home: ``output_dir``, which all runs share; by default the third folder above the artifact's directory.
        recipe: the recipe's name, for titles.
        asking: words of the command line that say how a judge of this run is asked.
        clock: returns seconds from any beginning.
        executor: processes shards that may be processed elsewhere; by default, this process does.
        written: returns a setting, given it as JSON values and its key, without what came from the environment.
    """

    writes: bool = True
    home: Path | None = None
    recipe: str = ""
    asking: tuple[str, ...] = ()
    clock: Callable[[], float] = time.monotonic
    executor: Executor | None = None
    written: Callable[[Any, str], Any] = lambda value, key: value


class StageRun(ShardSeeds):
    """The run of one stage: writes files and shards into the artifact's directory, and counts what was done.

    Args:
        directory: the artifact's directory.
        stage: the stage's name.
        seed: the run's seed; :attr:`seed` is derived from it and the stage's name.
        console: prints lines and progress.
        options: the pipeline's part; by default, of a stage that is run by itself.

    Raises:
        DataError: the notes of an earlier run are damaged.
    """

    def __init__(
        self, directory: Path, stage: str, seed: int, console: Console, options: RunOptions | None = None
    ) -> None:
        options = options or RunOptions()
        super().__init__(directory, stage, derive_seed(seed, stage), options.home or directory.parents[2])
        self.executor = options.executor or Executor()
        self.written = options.written
        self.recipe = options.recipe
        self.asking = options.asking
        self.console = console
        # The pipeline puts the tracker's run here when it begins.
        self.track = Run()
        self._writes = options.writes
        directory.mkdir(parents=True, exist_ok=True)
        if self._writes:
            self._remove_temporary_files()

        self._notes = earlier_notes(directory)
        # Counts that were added one by one, beside those in the shards' markers.
        self._direct: list[dict[str, Any]] = []
        self._sharded: list[str] = []
        self._printed = ""

        # Seconds count on from where earlier runs of the artifact stopped.
        earlier_seconds, earlier_cpu_seconds = seconds_so_far(directory)
        self._clock = options.clock
        self._since = self._clock() - earlier_seconds
        self._cpu_since = _cpu() - earlier_cpu_seconds

    def _remove_temporary_files(self) -> None:
        """Remove what a killed run left half written; nobody else writes in this directory."""
        # Files alone: a library's half-written directory is made anew by whoever writes it.
        for path in self.directory.glob(".*.tmp"):
            if path.is_file():
                path.unlink()

    @property
    def seconds(self) -> float:
        """Return the seconds spent on the artifact so far; earlier runs count up to what they finished last."""
        return self._clock() - self._since

    @property
    def cpu_seconds(self) -> float:
        """Return the seconds of processor time spent so far, by this process and the workers on this machine."""
        return _cpu() - self._cpu_since + self.executor.cpu

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Write :attr:`seconds` to the directory at the beginning, and at any end that Python sees."""
        self.keep_seconds()
        try:
            yield
        finally:
            # The time is the least of what a full disk costs; the stage itself says what is wrong.
            with suppress(OSError, JudgetrainError):
                self.keep_seconds()

    def keep_seconds(self) -> None:
        """Write the seconds spent so far to the directory.

        It is called whenever something is finished, so that a kill loses only the time since.
        """
        if self._writes:
            write_json_atomic(self.path(SECONDS), [round(self.seconds, 3), round(self.cpu_seconds, 3)])

    def count(self, *, in_: int = 0, out: int = 0, dropped: Mapping[str, int] | None = None) -> None:
        """Add to the manifest's counts: things processed, things that came out, and things left out, by reason."""
        self._direct.append(counted(in_=in_, out=out, dropped=dropped))

    def note(self, key: str, value: Any) -> None:
        """Put a fact into the manifest's notes, which a resumed run keeps.

        Variables' names take the place of what the configuration took from the environment.
        """
        self._notes[key] = unresolved(value)
        if self._writes:
            write_json_atomic(self.path(NOTES), self._notes)

    @property
    def notes(self) -> dict[str, Any]:
        """Return the facts noted so far."""
        return dict(self._notes)

    def log(self, message: str, keep: bool = False) -> None:
        """Print a line.

        Args:
            message: the line.
            keep: also keep it in ``printed.txt`` (:meth:`tell`). A line that is kept names no place on this machine.
        """
        self.console.line(message)
        if keep:
            self._keep(f"{message}\n")

    def tell(self, parts: Iterable[Any]) -> None:
        """Print the tables and text that the stage ends with, and keep them in ``printed.txt``.

        They are shown from there when the finished stage is run again.

        Args:
            parts: texts and Rich renderables.
        """
        self._keep(self.console.plain(parts))

    def _keep(self, text: str) -> None:
        """Add text to ``printed.txt``, without what the configuration took from the environment."""
        self._printed += unresolved(text)
        if self._writes:
            write_text_atomic(self.path(PRINTED), self._printed)

    def path(self, name: str) -> Path:
        """Return a path inside the directory."""
        return self.directory / name

    def write_rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> Path:
        """Write ``<name>.jsonl`` atomically and return its path."""
        path = self.path(f"{name}.jsonl")
        write_rows_atomic(path, rows)
        return path

    @contextmanager
    def rows_writer(self, name: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """Yield a function that writes one row to ``<name>.jsonl``.

        The file takes its name when all is well at the end.
        """
        with atomic(self.path(f"{name}.jsonl")) as file:
            yield lambda row: write_row(file, row)

    def write_json(self, name: str, value: Any) -> Path:
        """Write ``<name>.json`` (the suffix is added when missing) atomically and return its path."""
        if not name.endswith(".json"):
            name = f"{name}.json"
        path = self.path(name)
        write_json_atomic(path, value)
        return path

    def sharded(
        self,
        name: str,
        items: Sequence[T],
        size: int,
        work: Callable[[int, Sequence[T]], ShardResult] | Work[ShardResult],
        unit: str = "items",
    ) -> float:
        """Process items in shards, skip the finished ones, and return the seconds that the others took.

        Shard ``i`` of ``n`` becomes ``<name>-<i>-of-<n>.jsonl`` with a hidden marker that holds its counts, the seconds
        that the work took and its facts. The marker is written last and says that the shard is finished.

        Args:
            name: the shards' name.
            items: what is processed; a shard's items are fetched when its turn comes.
            size: how many items a shard has.
            work: returns a shard's result, given its number and its items. A function needs no model and stays in this
                process; what a model has to be loaded for, or other processes may do, is a :class:`Work`.
            unit: the items' name in the plural, for the progress bar.

        Raises:
            UnansweredError: a server gave up requests of some shards; all other shards are finished first.
        """
        plan = _Plan(name, items, size)

        # Another process, of stage=status, reads here how many shards there will be.
        write_json_atomic(self.path(f".{name}.plan.json"), {"shards": plan.total, "items": len(items), "unit": unit})
        self._sharded.append(name)
        finished = self._finished_shards(plan)
        items_before = sum(plan.size_of(index) for index in finished)
        # A generator: the items of a shard may be large, and are fetched when a worker is free.
        remaining = ((index, plan.items_of(index)) for index in range(plan.total) if index not in finished)

        if not isinstance(work, Work):
            work = Work(process=work)
        # Markers, the manifest and the run's seconds are read from one clock.
        timed_work = replace(work, clock=self._clock)

        # The executor that the user chose takes only work that may leave this process.
        executor = self.executor if work.spread else Executor()
        # Other shards are finished before the unanswered ones are reported, so that only these are asked again.
        unanswered: list[UnansweredError] = []
        seconds = 0.0
        with self.console.progress(f"{self.stage}: {name}", len(items), unit, items_before) as advance:
            for done in executor.run(timed_work, remaining):
                if isinstance(done.result, UnansweredError):
                    unanswered.append(done.result)
                else:
                    seconds += done.seconds
                    self._finish(plan.stem_of(done.index), done.result, done.seconds)
                advance(plan.size_of(done.index))

        if unanswered:
            raise UnansweredError(sum(error.number for error in unanswered), unanswered[-1].reason)
        return seconds

    def _finished_shards(self, plan: "_Plan") -> set[int]:
        """Return the numbers of the shards that earlier runs finished, and remove shards of another plan."""
        # Markers first: a kill in between must leave no marker without its rows.
        for markers in (True, False):
            for path, total in shards_of(self.directory, plan.name, markers=markers):
                # A run that split the items otherwise has left shards of other items.
                if total != plan.total:
                    path.unlink()

        finished = set()
        for index in range(plan.total):
            stem = plan.stem_of(index)
            marker = self._marker(stem)
            if not marker.exists():
                continue
            if whole_shard(self.path(f"{stem}.jsonl"), marker):
                finished.add(index)
            else:
                self.log(f"{self.stage}: {stem} is not what was written: it is made again")
        return finished

    def _finish(self, stem: str, result: ShardResult, seconds: float) -> None:
        """Write a shard's rows, then the marker that says that they are whole."""
        path = self.path(f"{stem}.jsonl")
        write_rows_atomic(path, result.rows)
        marker = result.counted() | {"seconds": seconds, "facts": result.facts, "file": described(path)}
        write_json_atomic(self._marker(stem), marker)
        self.keep_seconds()

    def _marker(self, stem: str) -> Path:
        """Return the path of a shard's hidden marker."""
        return self.path(f".{stem}.json")

    def totals(self) -> dict[str, Any]:
        """Return counts and tokens of everything done, the shards of earlier runs included."""
        parts = list(self._direct)
        for name in self._sharded:
            parts += markers_of(self.directory, name)

        # By reason: one that several shards count stands once in the manifest, with the sum.
        dropped: Counter[str] = sum((Counter(part["counts"]["dropped"]) for part in parts), Counter())
        return counted(
            in_=sum(part["counts"]["in"] for part in parts),
            out=sum(part["counts"]["out"] for part in parts),
            dropped=dropped,
            prompt=sum(part["tokens"]["prompt"] for part in parts),
            generated=sum(part["tokens"]["generated"] for part in parts),
        )


class _Plan:
    """Splits items into shards of one size; the last one may be smaller.

    Args:
        name: the shards' name.
        items: what is split. Without items there is one shard, which is empty.
        size: how many items a shard has.
    """

    def __init__(self, name: str, items: Sequence[Any], size: int) -> None:
        self.name = name
        self._items = items
        self._size = size
        self.total = max(1, math.ceil(len(items) / size))

    def stem_of(self, index: int) -> str:
        """Return the name of a shard's files without their suffix."""
        return f"{self.name}-{index:05d}-of-{self.total:05d}"

    def size_of(self, index: int) -> int:
        """Return the number of items in a shard, without fetching them."""
        return min(self._size, len(self._items) - index * self._size)

    def items_of(self, index: int) -> Sequence[Any]:
        """Return the items of a shard."""
        return self._items[index * self._size : (index + 1) * self._size]


def adopt(shards: str, key: str, out: StageRun) -> None:
    """Take over finished shards from other artifacts of the stage that have the same key, and note the key here.

    A change that leaves some of a stage's work as it is (another metric, another weight of a reward) then does not
    repeat it. Shards that lie here under another key are removed.

    Args:
        shards: the shards' name.
        key: a hash of all that decides what the shards hold.
        out: the run of the artifact that takes them over.
    """
    if not _has_key(out.directory, shards, key):
        # Markers first, as above.
        for markers in (True, False):
            for stale, _ in shards_of(out.directory, shards, markers=markers):
                stale.unlink()
        write_text_atomic(out.path(f".{shards}.key"), key)

    # All artifacts of this stage lie side by side, so an earlier one may hold the same shards.
    for other in sorted(out.directory.parent.iterdir()):
        if other == out.directory or not _has_key(other, shards, key):
            continue
        number = _adopt_from(other, shards, out)
        if number:
            out.log(f"{out.stage}: {shards}: {amount(number, 'shard')} {agree(number, 'are')} taken from {other}")


def adopt_file(name: str, key: str, is_whole: Callable[[Path], bool], out: StageRun) -> None:
    """Take over a finished file from another artifact of the stage that has the same key, and note the key here.

    As :func:`adopt`, for what a stage makes as one file. The other artifact may be unfinished: its stage may have
    failed behind the file. A file that lies here under another key is removed.

    Args:
        name: the file's.
        key: a hash of all that decides what the file holds.
        is_whole: returns whether a file that stands under the name can be used; a damaged one is made again.
        out: the run of the artifact that takes it over.
    """
    if not _has_key(out.directory, name, key):
        out.path(name).unlink(missing_ok=True)
        write_text_atomic(out.path(f".{name}.key"), key)
    if out.path(name).exists():
        return
    for other in sorted(out.directory.parent.iterdir()):
        file = other / name
        if other != out.directory and _has_key(other, name, key) and file.is_file() and is_whole(file):
            _link(file, out.path(name))
            out.log(f"{out.stage}: {name} is taken from {other}")
            return


def _adopt_from(other: Path, shards: str, out: StageRun) -> int:
    """Link the finished shards of another artifact into this one, and return how many there were."""
    number = 0
    for marker, _ in shards_of(other, shards, markers=True):
        if _failed(marker):
            continue
        stem = marker.name.removeprefix(".").removesuffix(".json")
        rows_name = f"{stem}.jsonl"
        # What this artifact finished itself stays; a damaged shard is made again here, not spread.
        if whole_shard(other / rows_name, marker) and not out.path(marker.name).exists():
            # The marker comes last: it says that the shard is there.
            _link(other / rows_name, out.path(rows_name))
            _link(marker, out.path(marker.name))
            number += 1
    return number


def _failed(marker: Path) -> bool:
    """Return whether a shard holds requests that an engine failed to answer; they are asked again, not taken over.

    Their reason is ``error``, by itself or behind what it is about (``judgment:error``).
    """
    facts = read_json(marker)
    if not isinstance(facts, dict) or "counts" not in facts:
        return True
    return any(reason == "error" or reason.endswith(":error") for reason in facts["counts"]["dropped"])


def _has_key(directory: Path, name: str, key: str) -> bool:
    """Return whether an artifact's shards, or its file, of a name were made under a key."""
    path = directory / f".{name}.key"
    return path.is_file() and path.read_text(encoding="utf-8") == key


def _link(source: Path, target: Path) -> None:
    """Give a file, which is never changed in place, a second name; copy it where the disk has no second names."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        # A copy that a kill cut short would pass for a whole file.
        with source.open("rb") as content, atomic(target) as file:
            shutil.copyfileobj(content, file)


def _cpu() -> float:
    """Return the seconds of processor time that this process and its ended children have spent."""
    return sum(os.times()[:4])
