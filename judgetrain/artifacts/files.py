"""Files that are there whole or not at all, whatever stops the process that writes them; and one writer at a time."""

import errno
import glob
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import Any, BinaryIO

from judgetrain.artifacts.console import Console
from judgetrain.errors import JudgetrainError

FULL = re.compile(r"No space left on device|Disk quota exceeded|inline_container.*(unexpected pos|failed writing)")
"""How libraries that do not pass on the system's error say that the disk is full (PyTorch: whatever stops a write)."""


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
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
    """Write a file whole or not at all, also after a power cut (JudgetrainError: a full disk; the old one stays)."""
    with atomic(path) as file:
        file.write(data)


def write_text_atomic(path: Path, text: str) -> None:
    """:func:`write_bytes_atomic` for UTF-8 text."""
    write_bytes_atomic(path, text.encode("utf-8"))


def write_json_atomic(path: Path, value: Any) -> None:
    """Write JSON, indented, keys in the given order."""
    write_text_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_rows_atomic(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines as they come, without holding them all, whole or not at all (JudgetrainError: a full disk)."""
    with atomic(path) as file:
        for row in rows:
            write_row(file, row)


def read_json(path: Path) -> Any:
    """What a file of JSON holds; None where there is none, or none that can be read as such."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def settle(directory: Path) -> None:
    """Have the files that a library wrote on the disk, with the permissions that the umask gives to a new file."""
    probe = directory / f".mode.{os.getpid()}.tmp"
    probe.touch()
    mode = probe.stat().st_mode & 0o777
    probe.unlink()
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(mode)
            with path.open("rb") as file:
                os.fsync(file.fileno())


def named(pattern: str) -> list[Path]:
    """What a path names, or a glob, sorted. Where there is such a path or folder, its own name is no glob."""
    path = Path(pattern).expanduser()
    folder = glob.escape(str(path.parent)) if path.parent.is_dir() else str(path.parent)
    return [path] if path.exists() else [Path(found) for found in sorted(glob.glob(str(Path(folder, path.name))))]


def write_row(file: BinaryIO, row: Mapping[str, Any]) -> None:
    """Add one line of JSON to an open file."""
    file.write((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8"))


@contextmanager
def full_disk_explained(place: Path) -> Iterator[None]:
    """Turn what any library raises where the disk is full into a sentence (JudgetrainError)."""
    try:
        yield
    except JudgetrainError:
        raise
    except Exception as error:
        _explain_full_disk(error, place)
        raise


def refused(error: OSError) -> str | None:
    """A sentence for what the file system does not allow; None for other errors."""
    making = extract_tb(error.__traceback__)[-1:]
    unmade = error.errno == errno.ENOENT and making and making[0].name == "mkdir"  # as /proc says
    if unmade or error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR):
        place = error.filename or "output_dir"
        return f"{place} cannot be used ({error.strerror}): output_dir must be a directory that this process may write"
    return None


def _explain_full_disk(error: BaseException, path: Path) -> None:
    if (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)) or FULL.search(str(error)):
        told = f"the disk is full while writing {path}: free some space and run again; everything finished is kept"
        raise JudgetrainError(told) from error


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
