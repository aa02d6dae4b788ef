"""Reference log-probabilities as an artifact: made once, right, resumed shard by shard, and no reference in memory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from judgetrain.artifacts.shards import read_rows
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.errors import TrainingError
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.train import trainers
from judgetrain.train.data import Slices, digest, fitting, table, with_reference
from tests.builders.pairs_pipeline import PAIRS, composed, plant
from tests.builders.watched import Elsewhere


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    pipeline = plant(composed(tmp_path_factory.mktemp("cached"), "train.dpo.max_steps=4"))
    pipeline.run("dpo")
    return pipeline


def by_hand(config: Config, model_path: Path, rows: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Sums of the completion tokens' log-probabilities, pair by pair without padding."""
    settings = ModelConfig(path=str(model_path))
    tokenizer, model = load_tokenizer(settings), load_model(settings)
    sums = []
    for row in rows:
        both = []
        for side in ("chosen", "rejected"):
            prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
            whole = tokenizer.apply_chat_template(row["prompt"] + row[side], tokenize=False)
            start = len(tokenizer.encode(prompt, add_special_tokens=False))
            ids = tokenizer.encode(whole, add_special_tokens=False)
            with torch.inference_mode():
                logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            both.append(sum(float(logprobs[i - 1, ids[i]]) for i in range(start, len(ids))))
        sums.append((both[0], both[1]))
    return sums


def test_log_probabilities_are_those_of_the_reference_model(cached: Pipeline) -> None:
    label, made = cached.plan("label").directory, cached.plan("reference").directory
    rows = [*read_rows(label, "pairs-train")]
    stored = [*read_rows(made, "train")]
    fit = fitting(rows, load_tokenizer(ModelConfig(path=str(cached.plan("sft").directory / "model"))), 2048, "rows")
    assert [row["pair"] for row in stored] == [digest(row) for row in fit.data]
    expected = by_hand(cached.config, cached.plan("sft").directory / "model", rows[:5])
    found = [(row["ref_chosen_logps"], row["ref_rejected_logps"]) for row in stored[:5]]
    assert found == [pytest.approx(pair, abs=1e-3) for pair in expected]
    manifest = cached.plan("reference").manifest or {}
    assert manifest["counts"] == {"in": PAIRS + 5, "out": PAIRS + 5, "dropped": {}}
    assert not [path for path in made.iterdir() if path.is_dir()], "what TRL's trainer wants to have is no part of it"


def test_a_sweep_makes_them_once_and_loads_no_reference(cached: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("the reference model was run again")

    monkeypatch.setattr(trainers._Forward, "__call__", never)
    marks = {cached.plan("dpo").fingerprint}
    for change in ("train.dpo.beta=0.5", "train.dpo.learning_rate=1e-4"):
        other = plant(composed(Path(cached.config.output_dir), "train.dpo.max_steps=1", change))
        assert other.plan("reference").fingerprint == cached.plan("reference").fingerprint
        marks.add(other.plan("dpo").fingerprint)
        other.run("dpo")
    assert len(marks) == 3
    for change in ("train.dpo.bf16=true", "train.dpo.max_length=64", "train.dpo.lora.enabled=true"):
        other = Pipeline(composed(Path(cached.config.output_dir), change))
        assert other.plan("reference").fingerprint != cached.plan("reference").fingerprint


def rows_of(pipeline: Pipeline, split: str) -> list[dict[str, Any]]:
    return [*read_rows(pipeline.plan("reference").directory, split)]


def shards_of(pipeline: Pipeline) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in pipeline.plan("reference").directory.glob("*-of-*.jsonl")}


def test_it_is_the_same_wherever_its_shards_are_processed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainers, "SHARD", 10)
    here, there = (plant(composed(tmp_path / name)) for name in ("here", "there"))
    here.run("reference")
    executor = Elsewhere()
    monkeypatch.setattr("judgetrain.pipeline.processes.make_executor", lambda *_: executor)
    there.run("reference")
    assert len(executor.carried) == 2 and max(executor.carried) < 2**16, "how the model is loaded, and no pair"
    assert len(shards_of(here)) == 6 and shards_of(there) == shards_of(here)


@pytest.mark.ray
def test_ray_workers_make_the_same_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Ray itself, where it is installed; a finished shard is not made again."""
    monkeypatch.setattr(trainers, "SHARD", 10)
    here = plant(composed(tmp_path / "here"))
    here.run("reference")
    ray = ("executor=ray", "executor.workers=2")
    there = plant(composed(tmp_path / "there", *ray))
    first = Path("train-00000-of-00005.jsonl"), Path(".train-00000-of-00005.json")
    made, copied = here.plan("reference").directory, there.plan("reference").directory
    copied.mkdir(parents=True)
    for name in first:
        shutil.copy2(made / name, copied / name)
    there.run("reference")
    assert (copied / first[1]).stat().st_mtime_ns == (made / first[1]).stat().st_mtime_ns
    assert shards_of(there) == shards_of(here)


def test_the_pairs_of_a_shard_are_read_without_those_of_all_others(tmp_path: Path) -> None:
    """Each process but the first looks its shard up; of 20,000 shards each would otherwise make 10 million pairs."""
    made = [{"prompt_ids": [i], "chosen_ids": [i, 1], "rejected_ids": [], "pair": str(i)} for i in range(10)]
    data = table(iter(made), tmp_path / "pairs.arrow")
    assert len(Slices(data)) == 10 and Slices(data)[3] == made[3]
    assert Slices(data)[4:6] == made[4:6] and Slices(data)[8:12] == made[8:]


def test_other_pairs_are_no_silent_zero(cached: Pipeline) -> None:
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    row = {
        "prompt": [{"role": "user", "content": "the cat"}],
        "chosen": [{"role": "assistant", "content": "reads"}],
        "rejected": [{"role": "assistant", "content": "gives"}],
    }
    examples = fitting([row], tokenizer, 100, "pairs")
    with pytest.raises(TrainingError, match=r"lacks a pair of the train split.*run again"):
        with_reference(examples, cached.plan("reference").directory, "train")
