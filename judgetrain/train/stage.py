"""Stages ``initial``, ``sft``, ``dpo`` (branching paper, sections 4.2 and 4.5) and ``rl``."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from judgetrain.artifacts.files import write_json_atomic
from judgetrain.artifacts.integrity import read_manifest
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.judges.config import SETTINGS
from judgetrain.judges.prompting.prompts import FILE as PROMPTS
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.train.card import write_card
from judgetrain.train.config import AdapterConfig
from judgetrain.train.preflight import memory_explained
from judgetrain.train.run import Job, train, trainable
from judgetrain.train.stages import DpoSettings, InitialSettings, ReferenceSettings, RlSettings, SftSettings

Trained = InitialSettings | SftSettings | DpoSettings | RlSettings


def run_initial(settings: InitialSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Train the Initial judge: the base model on the teacher's evaluations."""
    rows = list(read_rows(inputs["teacher"], "examples"))

    def finish(model: Path) -> None:
        load_prompt_set(settings.prompts).save(model)
        settings.judge.save(model, settings.criteria)
        _describe(model, settings, inputs, out)

    job = Job(start=settings.base, config=settings.train, train=rows, heldout=[], what="supervised examples")
    train(job, out, finish)


def run_sft(settings: SftSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Train the SFT judge: the Initial judge on the branches that survived."""
    _continue(settings, inputs, out, start="initial", data="sft", what="supervised examples")


def run_reference(settings: ReferenceSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Log-probabilities of the preference pairs under the reference of equation 2: the SFT judge, or another model."""
    from judgetrain.train.reference import Reference, reference_logps

    adapters = AdapterConfig(enabled=settings.adapters, quantize=settings.quantize)
    config = replace(settings.train, lora=adapters)
    policy = settings.base.at(inputs["sft"] / "model")
    model = trainable(config.reference if config.reference.path else policy, config)
    pairs = {split: list(read_rows(inputs["label"], f"pairs-{split}")) for split in ("train", "heldout")}
    with memory_explained(out.stage):
        reference_logps(Reference(model=model, policy=policy, config=config), pairs, out)


def run_dpo(settings: DpoSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Train the DPO judge: the SFT judge on the preference pairs; the SFT judge is the reference (equation 2)."""
    _continue(settings, inputs, out, start="sft", data="pairs", what="preference pairs")


def _continue(
    settings: SftSettings | DpoSettings,
    inputs: Mapping[str, Path],
    out: StageRun,
    *,
    start: str,
    data: str,
    what: str,
) -> None:
    source = inputs[start] / "model"
    model = settings.base.at(source)
    rows, heldout = (list(read_rows(inputs["label"], f"{data}-{split}")) for split in ("train", "heldout"))
    reference = inputs.get("reference")
    job = Job(start=model, config=settings.train, train=rows, heldout=heldout, what=what, reference=reference)
    train(job, out, _goes_on(source, settings, inputs, out))


def run_rl(settings: RlSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Train a judge on branches that it samples itself, rewarded by the labels of stage label."""
    from judgetrain.train.rl.run import train_policy

    source = inputs[settings.train.start] / "model"
    train_policy(settings, inputs, out, _goes_on(source, settings, inputs, out))


def _goes_on(source: Path, settings: Trained, inputs: Mapping[str, Path], out: StageRun) -> Callable[[Path], None]:
    """What a judge's directory gets besides its weights: how it is asked, as the judge before it, and its card."""

    def finish(directory: Path) -> None:
        for name in (PROMPTS, SETTINGS):
            shutil.copyfile(source / name, directory / name)
        _describe(directory, settings, inputs, out)

    return finish


def _describe(directory: Path, settings: Trained, inputs: Mapping[str, Path], out: StageRun) -> None:
    arguments = dataclasses.asdict(settings.train) | {"seed": settings.seed}
    reference = arguments.get("reference", {})
    for name in ("path", "chat_template"):  # a model that is pushed tells nothing of the machine
        if reference.get(name) and Path(reference[name]).expanduser().exists():
            reference[name] = Path(reference[name]).name
    write_json_atomic(directory / "training_args.json", arguments)
    write_card(
        directory,
        stage=out.stage,
        base=settings.base,
        recipe=out.recipe,
        fingerprint=out.directory.name,
        lineage=_lineage(inputs),
    )


def _lineage(inputs: Mapping[str, Path]) -> dict[str, str]:
    """Fingerprints of everything that a stage was made from, by stage, nearest first; read off the manifests."""
    marks: dict[str, str] = {}
    waiting = list(inputs.items())
    while waiting:
        name, directory = waiting.pop(0)
        if name in marks:
            continue
        marks[name] = directory.name
        upstream = (read_manifest(directory) or {}).get("upstream", {})
        waiting += [(stage, directory.parent.parent / stage / mark) for stage, mark in upstream.items()]
    return marks
