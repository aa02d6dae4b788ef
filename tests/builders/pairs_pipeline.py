"""Stage dpo, or another, on planted artifacts, in one process or several.

The artifacts that they need are written where the pipeline looks for them, with the shipped base as the judge that is
trained, so that a test of several processes spends its time on them alone.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partialmethod
from multiprocessing.process import BaseProcess
from pathlib import Path

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.files import write_json_atomic
from judgetrain.artifacts.shards import counted
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data import world
from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.saved import save_settings
from judgetrain.pipeline.compose import typed
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Comparison
from judgetrain.train.complete import COMPLETE, complete_checkpoints
from tests.builders.debug_run import command, forked, lines_of
from tests.builders.pipeline import composed as by_hydra
from tests.builders.served import free_port

WORDS = "the cat reads a book for my sister and gives a clear example of it".split()
PAIRS = 46
"""Pairs: five whole optimizer steps an epoch and a rest."""
HELDOUT = 5
COMPARISONS = 20
"""Labelled comparisons of stage rl, those held out included."""
TAUGHT = 12
"""Of these, comparisons that the teacher has evaluated."""
OVERRIDES = [
    "stage=dpo",
    "recipe=debug",
    "track.tracker=none",
    "train.dpo={per_device_train_batch_size: 4, global_accumulation_steps: 2, "
    "num_train_epochs: 2, learning_rate: 1e-3, save_steps: 2, eval_steps: 4}",
    "train.dpo.bf16=false",
    "train.initial={bf16: false, global_accumulation_steps: 2}",
    "train.sft={bf16: false, global_accumulation_steps: 2}",
]
RL = [
    "stage=rl",
    "tree.criteria=4",
    "tree.criteria_sampling.max_new_tokens=40",
    "tree.judgment_sampling.max_new_tokens=50",
    "label.holdout=0.25",
    "rl={start: sft, bf16: false, num_train_epochs: 1, comparisons_per_step: 4, num_generations: 2, "
    "learning_rate: 1e-4, per_device_train_batch_size: 4, eval_steps: 1, beta: 0.05}",
]
"""Four steps of stage rl or so, and as many evaluations."""
ROOT = Path(__file__).parents[2]
STEPS = 12
RATE = 1e-3
"""Of stage dpo with OVERRIDES: its steps and its learning rate."""
RL_STEPS = 4
RL_RATE = 1e-4
"""The same of stage rl with RL."""


def composed(output: Path, *overrides: str) -> Config:
    """Return the configuration, in float32, where nothing of the processes is part of a fingerprint."""
    return typed(by_hydra(*OVERRIDES, f"output_dir={output}", *overrides))


def plant(config: Config, judge: str | None = None, heldout: int = HELDOUT, unlearn: bool = False) -> Pipeline:
    """Return a pipeline whose label and one judge are there: the one that ``stage`` starts from, or another.

    ``unlearn``: the chosen sides have words of their own and the held-out pairs but two have the sides exchanged, so
    that training makes these ever worse and the best checkpoint is the first.
    """
    pipeline = Pipeline(config)
    before = {"sft": "initial", "dpo": "sft", "rl": config.rl.start}
    for name in (
        judge or before[config.stage],
        "label",
        *(("tree", "responses", "teacher") if config.stage == "rl" else ()),
    ):
        directory = pipeline.plan(name).directory
        out = StageRun(directory, name, config.seed, Console())
        if name == "label":
            rng = random.Random(1)
            rows = [_pair(rng, " is clear" if unlearn else "") for _ in range(PAIRS + heldout)]
            held = rows[PAIRS:]
            examples = [
                {"prompt": row["prompt"], "completion": row["chosen"], "comparison_id": f"d{place // 2}"}
                for place, row in enumerate(rows)
            ]
            if config.train.sft.ranking_weight:
                examples = [row | _ranked(place) for place, row in enumerate(examples)]
            out.write_rows("pairs-train", rows[:PAIRS])
            if unlearn:
                exchanged = [row | {"chosen": row["rejected"], "rejected": row["chosen"]} for row in held[2:]]
                # Two stay, so that the agreement on them is not 0, which a sum over nothing would be, too.
                held = held[:2] + exchanged
            out.write_rows("pairs-heldout", held)
            out.write_rows("sft-train", examples[:PAIRS])
            out.write_rows("sft-heldout", examples[PAIRS:])
            out.write_rows("labels", [_label(comparison) for comparison in _comparisons()])
        elif name == "responses":
            out.write_rows("comparisons", [comparison.to_row() for comparison in _comparisons()])
        elif name == "teacher":
            out.write_rows("remaining", [comparison.to_row() for comparison in _comparisons()[TAUGHT:]])
        elif name == "tree":
            out.write_rows("trees", [{"comparison": comparison.to_row()} for comparison in _comparisons()])
        elif not (directory / "model").exists():
            shutil.copytree(Path(world.__file__).parent / "base", directory / "model")
            load_prompt_set(config.prompts).save(directory / "model")
            save_settings(config.judge, directory / "model", config.tree.criteria)
        write_json_atomic(directory / "manifest.json", {"stage": name, "upstream": {}, **counted(), "seconds": 0.0})
    return pipeline


def _comparisons() -> list[Comparison]:
    """Comparisons of the world with their true labels, for stage rl."""
    return eval_comparisons(WorldConfig(eval_comparisons=COMPARISONS), 3)


def _label(comparison: Comparison) -> dict[str, object]:
    return {"comparison_id": comparison.id, "verdict": comparison.label, "share": 1.0}


def _pair(rng: random.Random, mark: str) -> dict[str, object]:
    prompt, chosen, rejected = (" ".join(rng.choices(WORDS, k=rng.randint(3, k))) for k in (40, 12, 12))
    return {
        "prompt": [{"role": "user", "content": prompt}],
        "chosen": [{"role": "assistant", "content": chosen + mark}],
        "rejected": [{"role": "assistant", "content": rejected}],
    }


def _ranked(place: int) -> dict[str, object]:
    """Return what makes judgments of one response each of an example and the next; the first six stay as they are."""
    completion = [{"role": "assistant", "content": f"Score: {place % 5 + 1}"}]
    node = f"d/c0/g{place // 2}/{'AB'[place % 2]}0"
    return (
        {"completion": completion, "nodes": [node], "ahead": (place % 2 * 2 - 1) * (place // 2 % 3 > 0)}
        if place > 5
        else {}
    )


def launched(launcher: tuple[str, ...], output: Path, log: Path, *overrides: str) -> subprocess.Popen[bytes]:
    """Stage dpo by the real command, which a launcher starts."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [*launcher, "-m", "judgetrain", "stage=dpo", f"output_dir={output}", *overrides],
            stdout=file,
            stderr=file,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "TORCHELASTIC_LOG_LEVEL": "ERROR"},
        )


def two(output: Path, log: Path, *overrides: str) -> list[BaseProcess]:
    """Start the command in two processes that know of each other what a launcher tells them, and return them."""
    variables = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    }
    places = [variables | {"RANK": rank, "LOCAL_RANK": rank} for rank in "01"]
    return [forked(log, command, place, ROOT, f"output_dir={output}", *overrides) for place in places]


def together(output: Path, log: Path, *overrides: str) -> str:
    """Run the command in two processes, and return their lines."""
    return [lines_of(run, log) for run in two(output, log, *overrides)][-1]


def make(output: Path, *overrides: str) -> None:
    """Make the stage on what is planted."""
    config = composed(output, *overrides)
    plant(config).run(config.stage)


def make_by_forked(output: Path, *overrides: str) -> None:
    """Make the stage by workers that are forked from this process, and do not import everything anew."""
    from torch.distributed.launcher.api import LaunchConfig

    LaunchConfig.__init__ = partialmethod(LaunchConfig.__init__, start_method="fork")  # type: ignore[method-assign]
    make(output, *overrides)


def first_checkpoint(output: Path, log: Path, runs: Callable[[], bool]) -> Path:
    """Waits until a stage has a complete checkpoint; gives the directory that holds its checkpoints."""
    deadline = time.monotonic() + 600
    while not (marks := [*output.glob(f"artifacts/*/*/checkpoints/*/{COMPLETE}")]):
        assert runs() and time.monotonic() < deadline, log.read_text()
        time.sleep(0.01)
    return marks[0].parents[1]


def killed_once(output: Path, log: Path, *overrides: str) -> list[int]:
    """Make the stage in a process that is killed at its first checkpoint; the steps of those that are complete."""
    run = forked(log, make, output, *overrides)
    checkpoints = first_checkpoint(output, log, run.is_alive)
    run.kill()
    run.join(60)
    assert run.exitcode == -signal.SIGKILL and not (checkpoints.parent / "model").exists()
    return [step for step, _ in complete_checkpoints(checkpoints)]
