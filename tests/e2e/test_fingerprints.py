"""Every configuration key that a stage reads is part of its fingerprint, or of one upstream, or changes no result."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judgetrain.pipeline.compose import CONF, register, typed
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.graph import STAGES
from judgetrain.pipeline.run import Pipeline
from judgetrain.scorers import prompts

# The seed is in every fingerprint; the recipe's name stands in titles only.
EVERYWHERE = {"seed", "recipe_name"}
ROOMS = ("artifacts", "engines", "data", "scorers", "judges", "label", "train", "evaluate", "pipeline")
TINY = [
    "recipe=debug",
    "dialogues.world={train_dialogues: 24, eval_comparisons: 8}",
    "cluster={n_clusters: 3, sample: 20}",
    "teacher.comparisons=8",
    "train.initial.max_steps=2",
    "train.sft.max_steps=2",
    "train.dpo.max_steps=2",
    "evaluate.branches=[1,2]",
    "evaluate.methods=[base,teacher,initial,sft,dpo,random,one_step:external,rating:base,'scorer:softmax_ent']",
    "label.source=external",
    "label.reward.signals=[probdiff,glassbox]",
    "correct.max_comparisons=2",
    "scorer.max_new_tokens=4",
    "selfeval={limit: 6, sampling: {max_new_tokens: 4}}",
    "studies={prompts: 2, times: 2, spread_prompts: 1, samples: 2, sampling: {max_new_tokens: 4}, judge: external}",
    "track.tracker=none",
]


def composed(output: Path) -> Config:
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore

    register(ConfigStore.instance())
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return typed(compose("config", overrides=[*TINY, f"output_dir={output}"]))


def places(node: Any, path: str = "") -> Iterator[tuple[int, str]]:
    if dataclasses.is_dataclass(node):
        yield id(node), path
        for field in dataclasses.fields(node):
            yield from places(getattr(node, field.name), f"{path}.{field.name}" if path else field.name)
    elif isinstance(node, list):
        for index, entry in enumerate(node):
            yield from places(entry, f"{path}[{index}]")


def covered(stage: str, config: Config) -> set[str]:
    keys = set(STAGES[stage].reads(config))
    return keys.union(*(covered(upstream, config) for upstream in STAGES[stage].inputs(config)))


def test_a_stage_reads_nothing_that_its_fingerprint_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed(tmp_path)
    where = dict(places(config))
    running: list[str] = []
    reads: dict[str, set[str]] = {name: set() for name in STAGES}

    def watch(cls: type) -> None:
        original = cls.__getattribute__
        names = {f.name for f in dataclasses.fields(cls) if not f.metadata.get("neutral")}

        def read(self: Any, name: str) -> Any:
            value = original(self, name)
            if running and name in names and id(self) in where and not dataclasses.is_dataclass(value):
                reads[running[-1]].add(f"{where[id(self)]}.{name}".lstrip("."))
            return value

        monkeypatch.setattr(cls, "__getattribute__", read)

    for cls in {c for name in ROOMS for c in vars(importlib.import_module(f"judgetrain.{name}.config")).values()}:
        if isinstance(cls, type) and dataclasses.is_dataclass(cls):
            watch(cls)
    for name, stage in STAGES.items():
        module, function = stage.function.split(":")
        code = getattr(importlib.import_module(module), function)

        def run(*arguments: Any, name: str = name, code: Any = code) -> None:
            running.append(name)
            try:
                code(*arguments)
            finally:
                running.pop()

        monkeypatch.setattr(f"{module}.{function}", run)
    for name in ("evaluate", "correct", "selfeval", "studies"):
        Pipeline(config).run(name)
    assert all(reads.values())
    left_out = {
        name: {
            key
            for key in keys - EVERYWHERE
            # A list counts as read by its entries: its keys name every one of them.
            if not any(key == k or key.startswith((f"{k}.", f"{k}[")) or k.startswith(f"{key}[") for k in covers)
        }
        for name, keys in reads.items()
        for covers in [covered(name, config)]
    }
    # Stage reference looks at these only to refuse, before its work, what stage dpo could not run on this machine.
    left_out["reference"] -= {"train.dpo.optim", "train.dpo.use_liger_kernel"}
    assert {name: keys for name, keys in left_out.items() if keys} == {}


def test_the_content_of_the_scorers_prompts_counts_for_labels_that_ask_a_signal(tmp_path: Path) -> None:
    config = composed(tmp_path)
    mine = tmp_path / "mine.yaml"
    packaged = Path(prompts.__file__).parent / "prompt_sets" / "default.yaml"
    mine.write_text(packaged.read_text())
    config.scorer.prompts = str(mine)
    before = Pipeline(config).plan("label").fingerprint
    mine.write_text(packaged.read_text() + "\n# another\n")
    assert Pipeline(config).plan("label").fingerprint != before
    config.label.reward.signals = []
    without = Pipeline(config).plan("label").fingerprint
    mine.write_text(packaged.read_text())
    assert Pipeline(config).plan("label").fingerprint == without
