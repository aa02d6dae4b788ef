"""A writer that GRPO trains on the verdicts of a judge becomes better by the world's truth."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from judgetrain.data.config import WorldEngineConfig
from judgetrain.data.world.engine import WorldEngine
from judgetrain.data.world.splits import queries
from judgetrain.judges import OneStepJudge
from judgetrain.rewards import JudgeReward
from tests.benchmarks.writer_grpo import GENERATIONS, answers, base, quality, trained

OPTIONS = Namespace(prompts=4, learning_rate=5e-4, seed=0, steps=12)


def test_the_verdicts_of_the_world_s_referee_make_a_writer_better(tmp_path: Path) -> None:
    """The referee errs in a tenth of its verdicts; a few steps are enough to see which way they lead."""
    reward = JudgeReward(OneStepJudge(WorldEngine(WorldEngineConfig(error_rate=0.1))), num_generations=GENERATIONS)
    asked = queries("heldout")[::500]
    before, after = (quality(asked, answers(*writer, asked)) for writer in (base(), trained(reward, OPTIONS, tmp_path)))
    assert 2.5 < before.mean() < 4
    assert after.mean() > before.mean() + 0.5
