"""Branches that vLLM samples for stage rl, beside those of the model itself: where vLLM is (``.ci/parts/vllm``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.engines.config import ModelConfig, VllmEngineConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.extras.rl import trainer as rl_trainer
from judgetrain.extras.rl.config import PARTS, RlConfig
from judgetrain.extras.rl.trainer import Labelled, RecordingEngine, Rollouts
from judgetrain.extras.rl.vllm_policy import VllmPolicy
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.schema import Reads
from tests.builders.pairs_pipeline import RL, composed, plant
from tests.builders.vllm_on_cpu import VLLM, children, quiet, still_alive
from tests.extras.export.test_export import learned
from tests.extras.rl.test_rl import ASKING, artifact

pytest.importorskip("vllm")
__all__ = ["quiet"]

COMPARISONS = eval_comparisons(WorldConfig(eval_comparisons=10), 5)


def test_greedy_rollouts_have_the_rewards_of_the_model_s_own_follow_its_weights_and_leave_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, models = load_tokenizer(ModelConfig(path="world")), [load_model(ModelConfig(path="world"))]
    monkeypatch.setattr(rl_trainer, "TEMPERATURE", 0.0)

    @contextmanager
    def lent(trainer: Any) -> Iterator[Any]:
        yield models[-1]

    @contextmanager
    def here(trainer: Any) -> Iterator[RecordingEngine]:
        yield RecordingEngine(models[-1], tokenizer)

    config = VllmEngineConfig(model=ModelConfig(path="world"), vllm=VLLM)
    vllm = VllmPolicy(config, 512, tmp_path / "weights", lent)
    labelled = {c.id: Labelled(c, c.label or "tie") for c in COMPARISONS}
    rl = RlConfig(num_generations=1, credit="criterion")
    prompts = [[{"role": "user", "content": c.id}] for c in COMPARISONS for _ in range(PARTS)]
    accelerator = SimpleNamespace(process_index=0)

    def sampled(engine: Any, step: int, reads: Reads) -> list[tuple[list[int], dict[str, float]]]:
        rollouts = Rollouts(labelled, load_prompt_set("compact"), ASKING, rl, 11, engine, reads)
        state = SimpleNamespace(global_step=step)
        rows = rollouts(prompts, SimpleNamespace(accelerator=accelerator, processing_class=tokenizer, state=state))
        return list(zip(rows["completion_ids"], rows["rewards"], strict=True))

    def compared(step: int, reads: Reads, readable: int = 20) -> list[list[int]]:
        """Return what the model says by itself, where vLLM says nearly the same and has nearly the same rewards."""
        pairs = list(zip(sampled(here, step, reads), sampled(vllm, step, reads), strict=True))
        assert sum(a == b for a, b in pairs) >= 0.9 * len(pairs), "rounding decides near ties alone"
        assert sum(a[1] == b[1] for a, b in pairs) >= 0.9 * len(pairs)
        print(
            f"step {step}, reads {reads}: equal {sum(a == b for a, b in pairs)} of {len(pairs)}, rewards of "
            f"{sum(a[1] == b[1] for a, b in pairs)}; right {sum(b[1]['both_orders'] for _, b in pairs)}"
        )
        assert sum(rewards["unreadable"] == 0 for _, (_, rewards) in pairs if rewards) > readable
        return [ids for (ids, _), _ in pairs]

    # Python's own, which lasts as long as this process and holds no model.
    resource_tracker.ensure_running()
    before_vllm = children()
    try:
        compared(0, "two")
        started = children() - before_vllm
        before = compared(0, "one")
        models.append(learned()[0])
        # These weights were taught scores alone, and write many a list that cannot be read.
        after = compared(1, "one", readable=5)
        changed = sum(one != two for one, two in zip(before, after, strict=True))
        assert changed > 0.2 * len(after), "the new weights say so much else that vLLM must have them to be alike"
    finally:
        vllm.close()
    assert started
    assert not still_alive(started), "the processes that held the model are gone when it is closed"


def test_stage_rl_trains_on_what_vllm_samples(tmp_path: Path) -> None:
    few = "rl={max_steps: 2, eval_steps: 1, credit: criterion}"
    vllm_override = "engine.vllm={enforce_eager: true, kv_cache_memory_bytes: 536870912}"
    plant(composed(tmp_path, *RL, few, "engine=vllm", "~engine.batch_size", vllm_override)).run("rl")
    directory = artifact(tmp_path)
    manifest = json.loads((directory / "manifest.json").read_text())
    rows = [json.loads(line) for line in (directory / "train_log.jsonl").read_text().splitlines()]
    assert manifest["notes"]["training"]["steps"] == 2 and not (directory / "rollout-weights").exists()
    assert [row["step"] for row in rows if "eval_agreement" in row] == [0, 1, 2]
    assert any(row["grad_norm"] > 0 for row in rows if "loss" in row)
