"""``python -m tests.train.pipeline_of_pairs OUTPUT [KEY=VALUE ...]``: stages reference and dpo on planted artifacts.

The artifacts that they need are written where the pipeline looks for them, with the shipped base as SFT judge, so that
a test of several processes spends its time on them alone.
"""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

from judgetrain.artifacts import StageRun
from judgetrain.compose import CONF, register, typed
from judgetrain.config import Config
from judgetrain.dialogues import world
from judgetrain.errors import JudgetrainError
from judgetrain.files import write_json_atomic
from judgetrain.judges.settings import save_settings
from judgetrain.pipeline import Pipeline
from judgetrain.track import Console
from judgetrain.tree.prompts import load_prompt_set

PAIRS = 46
"""Pairs: five whole optimizer steps an epoch and a rest."""
OVERRIDES = [
    "recipe=debug",
    "track.tracker=none",
    "train.dpo={batch_size: 4, accumulation: 2, epochs: 2, learning_rate: 1e-3, save_steps: 2, eval_steps: 4}",
    "train.dpo.bf16=false",
    "train.initial={bf16: false, accumulation: 2}",
    "train.sft={bf16: false, accumulation: 2}",
]
WORDS = "the cat reads a book for my sister and gives a clear example of it".split()


def composed(output: Path, *overrides: str) -> Config:
    """The configuration, in float32, where nothing of the processes is part of a fingerprint."""
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore

    register(ConfigStore.instance())
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return typed(compose("config", overrides=[*OVERRIDES, f"output_dir={output}", *overrides]))


def plant(config: Config) -> Pipeline:
    """A pipeline whose label and sft are there."""
    pipeline = Pipeline(config)
    for name in ("sft", "label"):
        directory = pipeline.plan(name).directory
        out = StageRun(directory, name, config.seed, Console())
        if name == "label":
            rng = random.Random(1)
            rows = [_pair(rng) for _ in range(PAIRS + 5)]
            out.write_rows("pairs-train", rows[:PAIRS])
            out.write_rows("pairs-heldout", rows[PAIRS:])
        elif not (directory / "model").exists():
            shutil.copytree(Path(world.__file__).parent / "base", directory / "model")
            load_prompt_set(config.prompts).save(directory / "model")
            save_settings(config.tree, directory / "model")
        counts = {"in": 0, "out": 0, "dropped": {}}
        write_json_atomic(directory / "manifest.json", {"stage": name, "upstream": {}, "counts": counts})
    return pipeline


def _pair(rng: random.Random) -> dict[str, object]:
    prompt, chosen, rejected = (" ".join(rng.choices(WORDS, k=rng.randint(3, k))) for k in (40, 12, 12))
    return {
        "prompt": [{"role": "user", "content": prompt}],
        "chosen": [{"role": "assistant", "content": chosen}],
        "rejected": [{"role": "assistant", "content": rejected}],
    }


def main() -> int:
    """Make stage dpo; 2 and the sentence for an expected error, as the command line does."""
    try:
        plant(composed(Path(sys.argv[1]), *sys.argv[2:])).run("dpo")
    except JudgetrainError as error:
        print(f"judgetrain: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
