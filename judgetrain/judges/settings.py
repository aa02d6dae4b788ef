"""How a trained judge is asked unless one says otherwise, carried in its directory for ``from_pretrained``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import write_json_atomic
from judgetrain.engines.config import SamplingConfig
from judgetrain.judges.config import AskingConfig

FILE = "judge.json"


def save_settings(settings: AskingConfig, directory: Path) -> None:
    """Write the number of criteria and the sampling at each level as ``judge.json``."""
    write_json_atomic(directory / FILE, dataclasses.asdict(settings))


def load_settings(directory: Path, otherwise: AskingConfig | None = None) -> AskingConfig:
    """Read ``judge.json``; ``otherwise``, or the defaults, when there is none."""
    path = directory / FILE
    if not path.is_file():
        return otherwise or AskingConfig()
    raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    values: dict[str, Any] = {k: SamplingConfig(**v) if k.endswith("_sampling") else v for k, v in raw.items()}
    return AskingConfig(**values)
