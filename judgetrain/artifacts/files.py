"""Files that are there whole or not at all, whatever stops the process that writes them."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from judgetrain.errors import JudgetrainError


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
    """Write a file so that it is there whole or not at all, also after a power cut.

    Raises:
        JudgetrainError: the disk is full; the old file, if any, is untouched.
    """
    with atomic(path) as file:
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
    with atomic(path) as file:
        for row in rows:
            write_row(file, row)


def write_row(file: BinaryIO, row: Mapping[str, Any]) -> None:
    """Add one line of JSON to an open file."""
    file.write((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8"))


def _explain_full_disk(error: OSError, path: Path) -> None:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise JudgetrainError(
            f"the disk is full while writing {path}: free some space and run the same command again; "
            "everything finished is kept"
        ) from error
