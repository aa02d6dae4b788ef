"""Who is making an artifact: one process at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    """Whether a process is making this artifact right now."""
    if not (directory / ".lock").exists():
        return False
    with held_if_free(directory) as free:
        return not free


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
