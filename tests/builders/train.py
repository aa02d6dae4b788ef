"""Examples, settings and short runs of the training stages on the shipped base."""

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import WORLD_BASE, ModelConfig
from judgetrain.engines.loading import load_model
from judgetrain.judges.config import JudgeConfig
from judgetrain.pipeline.config import Config
from judgetrain.train import stage
from judgetrain.train.config import DpoConfig, SupervisedConfig, TrainConfig, TrainStages
from judgetrain.train.stages import DpoSettings, InitialSettings, ReferenceSettings, SftSettings
from tests.builders.pairs_pipeline import WORDS

T = TypeVar("T", bound=TrainConfig)


def templated(directory: Path, template: str) -> str:
    """Return the path of the shipped base with another chat template."""
    shutil.copytree(WORLD_BASE, directory)
    (directory / "chat_template.jinja").write_text(template)
    return str(directory)


def rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    examples = []
    for i in range(count):
        text = " ".join(rng.choices(WORDS, k=rng.randint(3, 20)))
        examples.append(
            {
                "prompt": [{"role": "user", "content": f"List 10 criteria.\nQuery: {text}"}],
                "completion": [{"role": "assistant", "content": f"it gives {WORDS[len(text) % 5]}"}],
                "chosen": [{"role": "assistant", "content": "it gives a clear example"}],
                "rejected": [{"role": "assistant", "content": "it gives no example"}],
                "comparison_id": f"d{i}",
            }
        )
    return examples


def sft_rows(count: int) -> list[dict[str, Any]]:
    return [{k: r[k] for k in ("prompt", "completion", "comparison_id")} for r in rows(count)]


def pair_rows(count: int) -> list[dict[str, Any]]:
    return [{k: r[k] for k in ("prompt", "chosen", "rejected", "comparison_id")} for r in rows(count)]


def config(**changes: Any) -> Config:
    settings: dict[str, Any] = {
        "learning_rate": 1e-3,
        "per_device_train_batch_size": 4,
        "max_length": 256,
        "save_steps": 2,
        **changes,
    }

    assert set(settings) <= {*DpoConfig.__dataclass_fields__, *SupervisedConfig.__dataclass_fields__}, settings

    def made(kind: type[T]) -> T:
        return kind(**{name: value for name, value in settings.items() if name in kind.__dataclass_fields__})

    stages = TrainStages(ModelConfig(path="world"), made(SupervisedConfig), made(SupervisedConfig), made(DpoConfig))
    judge = JudgeConfig(criteria_tokens=120, guideline_tokens=40, judgment_tokens=64)
    return Config(prompts="compact", train=stages, judge=judge)


def run_initial(
    tmp_path: Path, settings: Config, data: list[dict[str, Any]], name: str = "initial", seed: int = 0
) -> StageRun:
    """Stage initial on these examples."""
    source = artifact(tmp_path, "teacher", {"examples": data})
    out = StageRun(tmp_path / name, "initial", seed, Console())
    stage.run_initial(InitialSettings.of(settings), {"teacher": source}, out)
    return out


def run_sft(tmp_path: Path, settings: Config, start: Path, data: list[dict[str, Any]]) -> StageRun:
    """Stage sft on these examples, from the judge of ``start``."""
    label = artifact(tmp_path, "label", {"sft-train": data, "sft-heldout": []})
    out = StageRun(tmp_path / "sft", "sft", 0, Console())
    stage.run_next(SftSettings.of(settings), {"initial": start, "label": label}, out)
    return out


def run_reference(
    tmp_path: Path, settings: Config, start: Path, data: list[dict[str, Any]], heldout: Sequence[dict[str, Any]] = ()
) -> StageRun:
    """Stage reference on these pairs, with the judge of ``start``."""
    label = artifact(tmp_path, "label", {"pairs-train": data, "pairs-heldout": heldout, "sft-train": []})
    out = StageRun(tmp_path / "reference", "reference", 0, Console())
    stage.run_reference(ReferenceSettings.of(settings), {"sft": start, "label": label}, out)
    return out


def run_dpo(
    tmp_path: Path,
    settings: Config,
    start: Path,
    name: str = "dpo",
    data: Sequence[dict[str, Any]] | None = None,
    heldout: Sequence[dict[str, Any]] | None = None,
    reference: Path | None = None,
    examples: Sequence[dict[str, Any]] = (),
) -> StageRun:
    """Stage dpo on these pairs, by default 24 and 4 held out, from the judge of ``start``."""
    pairs = {"pairs-train": pair_rows(24) if data is None else data, "sft-train": examples}
    label = artifact(tmp_path, "label", pairs | {"pairs-heldout": pair_rows(4) if heldout is None else heldout})
    inputs = {"sft": start, "label": label} | ({"reference": reference} if reference else {})
    out = StageRun(tmp_path / name, "dpo", 0, Console())
    stage.run_next(DpoSettings.of(settings), inputs, out)
    return out


def artifact(tmp_path: Path, name: str, files: Mapping[str, Sequence[dict[str, Any]]]) -> Path:
    """Return a directory with the rows of an artifact of this stage."""
    stage_run = StageRun(tmp_path / name, name, 0, Console())
    for file, data in files.items():
        stage_run.write_rows(file, data)
    return stage_run.directory


def logged(out: StageRun) -> list[dict[str, Any]]:
    """Return the rows of the training log."""
    return [json.loads(line) for line in out.path("train_log.jsonl").read_text().splitlines()]


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return load_model(ModelConfig(path=str(directory / "model"))).state_dict()


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)
