"""Files, sources and stage runs of the data room, and a plain reading of the world's vocabulary."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import RunOptions, StageRun
from judgetrain.data import clustering, dialogues, responses
from judgetrain.data.config import VOCABULARY, ClusterConfig, DialoguesConfig, ResponsesConfig
from judgetrain.data.stages import ClusterSettings, DialoguesSettings, ResponsesSettings
from judgetrain.schema import Dialogue

RAW = yaml.safe_load(VOCABULARY.read_text())
RESPONSES_SEED = 17
"""The seed of the run in :func:`run_responses`."""


def independent_grade(response: str, name: str) -> int:
    """Return the grade of a property, by brute force over the YAML."""
    strong = [s.replace("{thing}", t) for s in RAW["properties"][name]["strong"] for t in RAW["things"]]
    if any(s in response for s in strong):
        return 2
    return 1 if any(s in response for s in RAW["properties"][name]["weak"]) else 0


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    """Write a row a line; returns the path, as configurations have it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def run_dialogues(directory: Path, settings: DialoguesConfig) -> StageRun:
    """Stage dialogues in ``directory/out``."""
    out = StageRun(directory / "out", "dialogues", 0, Console())
    dialogues.run(DialoguesSettings(seed=17, dialogues=settings), {}, out)
    return out


def run_cluster(directory: Path, rows: Iterable[Dialogue], settings: ClusterConfig) -> StageRun:
    """Stage cluster over dialogues, in ``directory/cluster``."""
    source = StageRun(directory / "dialogues", "dialogues", 0, Console())
    source.write_rows("dialogues", (d.to_row() for d in rows))
    out = StageRun(directory / "cluster", "cluster", 0, Console())
    clustering.run(ClusterSettings(seed=17, cluster=settings), {"dialogues": source.directory}, out)
    return out


def run_responses(
    directory: Path, settings: ResponsesConfig, inputs: Mapping[str, Path], home: Path | None = None
) -> StageRun:
    """Stage responses in ``directory``; ``home`` is where answers of paid models are kept."""
    out = StageRun(directory, "responses", 3, Console(), RunOptions(home=home))
    responses.run(ResponsesSettings(seed=RESPONSES_SEED, responses=settings, sources=[]), inputs, out)
    return out
