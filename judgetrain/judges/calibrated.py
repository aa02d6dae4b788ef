"""Read what stage calibrate wrote for a judge: weights of its criteria, thresholds of its answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from judgetrain.errors import ConfigError

T = TypeVar("T")


def load_calibrated(cls: type[T], name: str, path: str | Path, key: str) -> T:
    """Return the object whose fields a file of stage calibrate holds.

    Args:
        cls: its class.
        name: of the file.
        path: the file, or its directory.
        key: the configuration key that names it, for the message.

    Raises:
        ConfigError: there is no such file, or it is another one.
    """
    try:
        file = Path(path).expanduser()
        if file.is_dir():
            file = file / name
        # Other files of JSON fail by their keys (TypeError).
        return cls(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{key}={path}: expected the {name} of stage calibrate ({error})") from error
