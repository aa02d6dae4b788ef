"""Who is making an artifact, one process at a time, and whether any process is at work in ``output_dir``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from judgetrain.artifacts.console import Console


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
def using(home: Path) -> Iterator[None]:
    """Keep ``stage=clean`` away while this process makes or reads artifacts of ``output_dir``; a kill ends it too."""
    with _shared(home) as (file, fcntl):
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def cleaning(home: Path) -> Iterator[bool]:
    """Hold ``output_dir`` alone, so that nobody begins to use what is removed; gives whether nobody uses it."""
    with _shared(home) as (file, fcntl):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


@contextmanager
def _shared(home: Path) -> Iterator[tuple[Any, Any]]:
    import fcntl

    home.mkdir(parents=True, exist_ok=True)
    with (home / ".users.lock").open("a+") as file:
        yield file, fcntl


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
