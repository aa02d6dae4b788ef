"""Files that are written whole or not at all, whatever stops the process; and locks for one writer at a time."""

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
"""Matches the messages by which libraries report a full disk without passing on the system's error.

PyTorch's message stands for anything that stops a write.
"""
NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR)
"""Errors of a path that cannot be used as a directory, or not be written."""


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes its name only once it is whole and on the disk; permissions follow the umask.

    Raises:
        JudgetrainError: the disk is full; a file that had the name before stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several processes and threads may write the same file; the last one to finish wins.
    # Beside its target, since a file can only be renamed within one file system.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            # After a power cut, a renamed file whose data never reached the disk would be empty.
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    # Ctrl-C as well: an unfinished file has no use.
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            _explain_full_disk(error, path)
        raise


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, also after a power cut.

    Raises:
        JudgetrainError: the disk is full; a file that had the name before stays.
    """
    with atomic(path) as file:
        file.write(data)


def write_text_atomic(path: Path, text: str) -> None:
    """Write UTF-8 text as :func:`write_bytes_atomic` writes bytes."""
    write_bytes_atomic(path, text.encode("utf-8"))


def write_json_atomic(path: Path, value: Any) -> None:
    """Write indented JSON, keys in their order, as :func:`write_bytes_atomic` writes bytes."""
    write_text_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_rows_atomic(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines as they come, without holding them all in memory; the file is whole or not there.

    Raises:
        JudgetrainError: the disk is full.
    """
    with atomic(path) as file:
        for row in rows:
            write_row(file, row)


def read_json(path: Path) -> Any:
    """Return the value in a JSON file; None where there is no file, or no JSON in it."""
    try:
        return json.loads(path.read_bytes())
    # A file of deeply nested lists makes the parser recurse too far.
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def described(path: Path, sha256: str | None = None) -> dict[str, Any]:
    """Return a file's size in bytes and its SHA-256, which is computed unless it is given."""
    return {"bytes": path.stat().st_size, "sha256": sha256 or sha256_of(path)}


def settle(directory: Path) -> None:
    """Flush the files that a library wrote to the disk, and give them the permissions of a new file under the umask."""
    probe = directory / f".mode.{os.getpid()}.tmp"
    # The umask cannot be read without setting it, which would change it for other threads too.
    probe.touch()
    mode = probe.stat().st_mode & 0o777
    probe.unlink()

    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(mode)
            with path.open("rb") as file:
                os.fsync(file.fileno())


def named(pattern: str) -> list[Path]:
    """Return the file that a path names, or the files that a glob matches, sorted.

    A name that exists is no glob, whatever characters it has. The same holds for an existing folder's name.
    """
    path = Path(pattern).expanduser()
    if path.exists():
        return [path]

    # Only the name is a pattern if the folder is there: a folder may be called data[1].
    folder = str(path.parent)
    if path.parent.is_dir():
        folder = glob.escape(folder)
    return [Path(match) for match in sorted(glob.glob(str(Path(folder, path.name))))]


def write_row(file: BinaryIO, row: Mapping[str, Any]) -> None:
    """Add one line of JSON to an open file."""
    file.write((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8"))


@contextmanager
def full_disk_explained(place: Path) -> Iterator[None]:
    """Turn any library's error about a full disk into a JudgetrainError that says so.

    Args:
        place: the file or directory that was being written, for the message.
    """
    try:
        yield
    except JudgetrainError:
        raise
    except Exception as error:
        _explain_full_disk(error, place)
        raise


def refused(error: OSError) -> str | None:
    """Return a message where the file system does not allow a directory to be used; None for other errors."""
    if error.errno not in NOT_ALLOWED and not _failed_in_mkdir(error):
        return None
    place = error.filename or "output_dir"
    return f"{place} cannot be used ({error.strerror}): output_dir must be a directory that this process may write"


def _failed_in_mkdir(error: OSError) -> bool:
    """Return whether a directory could not be made although its parents exist, as happens below ``/proc``."""
    frames = extract_tb(error.__traceback__)
    return error.errno == errno.ENOENT and bool(frames) and frames[-1].name == "mkdir"


def _explain_full_disk(error: BaseException, path: Path) -> None:
    """Raise JudgetrainError where an error says that the disk is full, and do nothing for other errors."""
    is_system_error = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if is_system_error or FULL.search(str(error)):
        raise JudgetrainError(
            f"the disk is full while writing {path}: free some space and run again; everything finished is kept"
        ) from error


@contextmanager
def held_if_free(directory: Path) -> Iterator[bool]:
    """Hold an artifact's directory alone if no other process does, and yield whether it is held."""
    from filelock import FileLock, Timeout

    lock = FileLock(directory / ".lock")
    try:
        # Not waited for: whoever has to wait wants to say so first.
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def in_use(directory: Path) -> bool:
    """Return whether a process is making this artifact right now."""
    # Asking for the lock would make its file, also in directories that a command only looks at.
    if not (directory / ".lock").exists():
        return False
    try:
        with held_if_free(directory) as free:
            return not free
    except OSError:
        # A directory that cannot be written is not being made by anybody here.
        return False


@contextmanager
def using(home: Path) -> Iterator[None]:
    """Keep ``stage=clean`` away while this process makes or reads artifacts of ``output_dir``.

    The operating system ends the lock when the process dies.
    """
    with _shared(home) as (file, fcntl):
        # Shared: several runs may use one output_dir at once, and only cleaning must be alone.
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def cleaning(home: Path) -> Iterator[bool]:
    """Hold ``output_dir`` alone, and yield whether that was possible.

    Nobody can then begin to use artifacts that are being removed. False: a process uses some now.
    """
    with _shared(home) as (file, fcntl):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


@contextmanager
def _shared(home: Path) -> Iterator[tuple[Any, Any]]:
    """Yield the open file that users of ``output_dir`` lock, and the module ``fcntl`` to lock it with."""
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
    # Tried without waiting first, to know whether there is something to say.
    with held_if_free(directory) as held:
        if held:
            yield
            return
    console.line(f"{directory} is being made by another process: waiting for it")
    with FileLock(directory / ".lock"):
        yield
