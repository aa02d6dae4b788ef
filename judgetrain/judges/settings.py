"""How a trained judge is sampled, carried in its directory so that ``from_pretrained`` needs nothing else."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from judgetrain.artifacts.files import write_json_atomic
from judgetrain.engines.config import SamplingConfig
from judgetrain.judges.config import TreeConfig

FILE = "judge.json"
OF_STAGE_TREE = ("retries", "max_comparisons", "shard_size")
"""Settings of the trees that label, which a judge at inference has no use for."""


def save_settings(settings: TreeConfig, directory: Path) -> None:
    """Write the number of criteria and the sampling at each level as ``judge.json``."""
    names = [f.name for f in dataclasses.fields(settings) if f.name not in OF_STAGE_TREE]
    values = {name: getattr(settings, name) for name in names}
    plain = {k: dataclasses.asdict(v) if isinstance(v, SamplingConfig) else v for k, v in values.items()}
    write_json_atomic(directory / FILE, plain)


def load_settings(directory: Path, otherwise: TreeConfig | None = None) -> TreeConfig:
    """Read ``judge.json``; ``otherwise``, or the defaults, when there is none."""
    path = directory / FILE
    if not path.is_file():
        return otherwise or TreeConfig()
    raw = json.loads(path.read_text(encoding="utf-8"))
    samplings = {k: SamplingConfig(**v) for k, v in raw.items() if k.endswith("_sampling")}
    return TreeConfig(**(raw | samplings))
