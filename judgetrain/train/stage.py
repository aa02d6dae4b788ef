"""Stages ``initial``, ``sft`` and ``dpo`` (branching paper, sections 4.2 and 4.5)."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path

from judgetrain.artifacts import StageRun, read_rows, write_json_atomic
from judgetrain.config import Config, ModelConfig, TrainConfig
from judgetrain.judges.settings import FILE as SETTINGS
from judgetrain.judges.settings import save_settings
from judgetrain.train.card import write_card
from judgetrain.train.run import Job, train
from judgetrain.tree.prompts import FILE as PROMPTS
from judgetrain.tree.prompts import load_prompt_set


def run_initial(config: Config, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Train the Initial judge: the base model on the teacher's evaluations."""
    rows = list(read_rows(inputs["teacher"], "examples"))

    def finish(model: Path) -> None:
        load_prompt_set(config.prompts).save(model)
        save_settings(config.tree, model)
        _describe(model, config, config.train.initial, inputs, out)

    train(Job(config.train.base, config.train.initial, rows, [], "supervised examples"), out, finish)


def run_sft(config: Config, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Train the SFT judge: the Initial judge on the branches that survived."""
    _continue(config, config.train.sft, inputs, out, start="initial", data="sft", what="supervised examples")


def run_dpo(config: Config, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Train the DPO judge: the SFT judge on the preference pairs; the SFT judge is the reference (equation 2)."""
    _continue(config, config.train.dpo, inputs, out, start="sft", data="pairs", what="preference pairs")


def _continue(
    config: Config,
    settings: TrainConfig,
    inputs: Mapping[str, Path],
    out: StageRun,
    *,
    start: str,
    data: str,
    what: str,
) -> None:
    source = inputs[start] / "model"
    model = ModelConfig(
        path=str(source),
        dtype=config.train.base.dtype,
        attn_implementation=config.train.base.attn_implementation,
        trust_remote_code=config.train.base.trust_remote_code,
    )

    def finish(directory: Path) -> None:
        for name in (PROMPTS, SETTINGS):
            shutil.copyfile(source / name, directory / name)
        _describe(directory, config, settings, inputs, out)

    rows, heldout = (list(read_rows(inputs["label"], f"{data}-{split}")) for split in ("train", "heldout"))
    train(Job(model, settings, rows, heldout, what), out, finish)


def _describe(
    directory: Path, config: Config, settings: TrainConfig, inputs: Mapping[str, Path], out: StageRun
) -> None:
    lineage = {name: path.name for name, path in inputs.items()}
    write_json_atomic(directory / "training_args.json", dataclasses.asdict(settings) | {"seed": config.seed})
    write_card(directory, stage=out.stage, base=config.train.base.path, recipe=config.recipe_name, lineage=lineage)
