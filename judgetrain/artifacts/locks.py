"""Who is making an artifact, one process at a time, and which artifacts processes that are at work need."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.files import read_json, write_json_atomic

IN_USE = ".in-use"
"""The folder of ``output_dir`` in which every process at work says what it needs."""


@contextmanager
def held_if_free(directory: Path) -> Iterator[bool]:
    """Hold an artifact's directory alone if no other process does; gives whether it is held."""
    from filelock import FileLock, Timeout

    lock = FileLock(directory / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def in_use(directory: Path) -> bool:
    """Whether a process is making this artifact right now; where nothing can be written, nobody here is."""
    if not (directory / ".lock").exists():
        return False
    try:
        with held_if_free(directory) as free:
            return not free
    except OSError:
        return False


@contextmanager
def cleaning(home: Path) -> Iterator[None]:
    """Hold what keeps artifacts from being removed while a process says that it needs them."""
    from filelock import FileLock

    (home / IN_USE).mkdir(parents=True, exist_ok=True)
    with FileLock(home / IN_USE / ".lock"):
        yield


@contextmanager
def using(home: Path, directories: Iterable[Path]) -> Iterator[None]:
    """Say for a while that this process makes or reads these artifacts; a kill ends it too."""
    from filelock import FileLock

    record = home / IN_USE / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.json"
    with cleaning(home):
        held = FileLock(record.with_suffix(".lock"))
        held.acquire()
        write_json_atomic(record, [str(directory.resolve()) for directory in directories])
    try:
        yield
    finally:
        record.unlink(missing_ok=True)
        held.release()
        record.with_suffix(".lock").unlink(missing_ok=True)


def needed_by_others(home: Path) -> Iterator[Path]:
    """The artifacts that living processes make or read; to be called under :func:`cleaning`.

    What killed processes have said goes away.
    """
    from filelock import FileLock, Timeout

    for record in (home / IN_USE).glob("*.json"):
        try:
            with FileLock(record.with_suffix(".lock"), timeout=0):
                record.unlink(missing_ok=True)
        except Timeout:
            yield from map(Path, read_json(record) or ())
        else:
            record.with_suffix(".lock").unlink(missing_ok=True)


@contextmanager
def locked(directory: Path, console: Console) -> Iterator[None]:
    """Hold an artifact's directory alone; the operating system frees the lock when the process dies.

    A second process that wants the same artifact waits here and says so once.
    """
    from filelock import FileLock

    directory.mkdir(parents=True, exist_ok=True)
    with held_if_free(directory) as held:
        if held:
            yield
            return
    console.line(f"{directory} is being made by another process: waiting for it")
    with FileLock(directory / ".lock"):
        yield
