"""How a trained judge is sampled, carried in its directory so that ``from_pretrained`` needs nothing else."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from judgetrain.config import SamplingConfig, TreeConfig
from judgetrain.files import write_json_atomic

FILE = "judge.json"


def save_settings(settings: TreeConfig, directory: Path) -> None:
    """Write the number of criteria and the sampling at each level as ``judge.json``."""
    write_json_atomic(directory / FILE, dataclasses.asdict(settings))


def load_settings(directory: Path, otherwise: TreeConfig | None = None) -> TreeConfig:
    """Read ``judge.json``; ``otherwise``, or the defaults, when there is none."""
    path = directory / FILE
    if not path.is_file():
        return otherwise or TreeConfig()
    raw = json.loads(path.read_text(encoding="utf-8"))
    samplings = {k: SamplingConfig(**v) for k, v in raw.items() if k.endswith("_sampling")}
    return TreeConfig(**(raw | samplings))
