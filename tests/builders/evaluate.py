"""Evaluations of a scripted judge: files of comparisons, judges' directories, predictions, manifests, and runs."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.executor import Executor
from judgetrain.artifacts.stage_run import RunOptions, StageRun
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.engines.config import WORLD_BASE
from judgetrain.errors import ConfigError
from judgetrain.extras.robustness.config import RobustnessConfig
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.predictions import Prediction
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.saved import save_settings
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.schema import Comparison, Dialogue, Message
from tests.builders.data import write_lines as write_rows
from tests.builders.pipeline import check_stage

__all__ = ["write_rows"]

LABELS = ("A", "B", "tie")
UNATTACKED = RobustnessConfig(sample=0)
"""For tests that count what is asked."""


def judge(directory: Path) -> Path:
    """Write a judge's directory as a training stage leaves it, without weights, and return the stage's."""
    (directory / "model").mkdir(parents=True)
    load_prompt_set("compact").save(directory / "model")
    save_settings(JudgeConfig(), directory / "model", 10)
    return directory


def world_judge(directory: Path, branches: int = 10) -> Path:
    """Write a judge's directory with the weights of the world's base, which is not trained, and return it."""
    shutil.copytree(WORLD_BASE, directory, copy_function=os.symlink)
    load_prompt_set("compact").save(directory)
    save_settings(JudgeConfig(), directory, branches)
    return directory


def pairs(directory: Path, n: int, labels: Sequence[str] = LABELS) -> BenchmarkConfig:
    """Write a benchmark called pairs, of ``n`` comparisons with these labels in turn, and return its settings."""
    rows = [
        {
            "id": i,
            "query": f"q{i}",
            "response_a": f"one {i}",
            "response_b": f"two {i}",
            "label": labels[i % len(labels)],
        }
        for i in range(n)
    ]
    source = SourceConfig(name="pairs", path=write_rows(directory / "pairs.jsonl", rows), format="comparison")
    return BenchmarkConfig("pairs", source)


def check(config: Config, stage: str) -> None:
    """Check what a stage is about to read, as the pipeline does.

    Raises:
        ConfigError: names the key, its value and the remedy.
    """
    check_stage(stage, config)


def refused(config: Config, stage: str) -> str:
    """Return the message with which a stage's check refuses a configuration; empty where it does not."""
    try:
        check(config, stage)
    except ConfigError as error:
        return str(error)
    return ""


def run(
    stage: str,
    config: Config,
    inputs: Mapping[str, Path],
    directory: Path,
    seed: int = 1,
    executor: Executor | None = None,
) -> StageRun:
    """Run a stage alone, on inputs that lie there, with the settings that it reads of a configuration."""
    has_output_dir = config.output_dir != Config().output_dir
    home = Path(config.output_dir) if has_output_dir else directory.parent
    options = RunOptions(home=home, recipe=config.recipe_name, executor=executor)
    out = StageRun(directory, stage, seed, Console(), options)
    STAGES[stage].run(STAGES[stage].settings.of(config), inputs, out)
    return out


def benchmark(n: int, queries: int | None = None) -> Benchmark:
    """Comparisons with all three labels in turn, on so many queries."""
    comparisons = []
    for i in range(n):
        dialogue = Dialogue(f"b:{i}", "b", (Message("user", f"query {i % (queries or n)}"),))
        comparisons.append(Comparison(f"b:{i}", dialogue, "x", "yy", label=LABELS[i % 3], group=f"g{i % 2}"))  # type: ignore[arg-type]
    return Benchmark(name="b", split="test", comparisons=comparisons)


def prediction(
    c: Comparison, method: str, k: int, ab: str | None, ba: str | None, margin: float, **of: Any
) -> Prediction:
    """Return a judge's answer to a comparison, by its verdicts in both orders."""
    fields: dict[str, Any] = {"verdict_ab": ab, "verdict_ba": ba, "margin": margin, **of}
    return Prediction(comparison_id=c.id, method=method, branches=k, **fields)


def answers(name: str, k: int, of: Benchmark, right: int) -> list[Prediction]:
    """Predictions that give the label on the first ``right`` comparisons and nothing on the others."""
    return [
        Prediction(comparison_id=c.id, method=name, branches=k, verdict_ab=verdict, verdict_ba=verdict)
        for i, c in enumerate(of.comparisons)
        for verdict in [c.label if i < right else None]
    ]


def manifest(root: Path, name: str, mark: str, upstream: dict[str, str]) -> Path:
    """Return a finished artifact's directory with nothing in it but its manifest."""
    directory = root / name / mark
    directory.mkdir(parents=True)
    counts = {"in": 3, "out": 2, "dropped": {}}
    tokens = {"prompt": 1, "generated": 7}
    parts = {"stage": name, "fingerprint": mark, "recipe": "r", "seed": 1, "counts": counts, "tokens": tokens}
    (directory / "manifest.json").write_text(json.dumps(parts | {"seconds": 1.0, "config": {}, "upstream": upstream}))
    return directory
