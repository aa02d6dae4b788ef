"""The recipes of the paper: they compose without network, and hold the numbers that it prints."""

from __future__ import annotations

import pytest

from judgetrain.errors import ConfigError
from judgetrain.pipeline.config import Config
from judgetrain.train.distributed import check_distributed
from tests.builders.pipeline import composed, configured

SETTINGS = ("paper_ood", "paper_id", "paper_transfer")


def recipe(name: str, *overrides: str) -> Config:
    return configured(f"recipe={name}", *overrides)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_papers_numbers(name: str) -> None:
    """Appendix A.2: learning rates, one epoch, accumulation 32 on each of 8 GPUs, beta, ZeRO-3, bfloat16, TF32."""
    config = recipe(name, "train.processes=8")
    stages = (config.train.initial, config.train.sft, config.train.dpo)
    assert [s.learning_rate for s in stages] == [1e-5, 1e-5, 5e-7]
    assert {(s.num_train_epochs, s.global_accumulation_steps / 8, s.bf16, s.tf32) for s in stages} == {
        (1.0, 32, True, True)
    }
    assert config.train.dpo.beta == 0.1
    assert config.train.dpo.loss_type == "sigmoid"
    assert (config.train.distributed, config.train.base.path) == ("zero3", "HuggingFaceH4/zephyr-7b-beta")
    assert (config.tree.criteria, config.tree.guidelines, config.tree.judgments) == (10, 2, 2)
    assert config.teacher.comparisons == 3000
    seven = recipe(name, "train.processes=7")
    for stage in ("initial", "sft", "dpo"):
        check_distributed(config.train, stage)
        with pytest.raises(ConfigError, match=f"train.{stage}.global_accumulation_steps=256 .* over 7 processes"):
            check_distributed(seven.train, stage)


def test_out_of_distribution_draws_seven_thousand_from_a_thousand_clusters() -> None:
    config = recipe("paper_ood")
    assert (config.cluster.n_clusters, config.cluster.max_iter, config.cluster.sample) == (1000, 300, 7000)
    assert config.cluster.backend == "cuml"
    assert len(config.responses.models) == 5
    assert sum(s.name == "ultrachat" for s in config.dialogues.sources) == 1


def test_in_distribution_uses_the_same_comparisons_for_every_stage() -> None:
    config = recipe("paper_id")
    assert config.teacher.comparisons >= config.cluster.sample == 3000
    assert config.responses.models == []
    assert config.train.dpo.stop.watched


def test_transfer_takes_written_evaluations_and_grows_over_other_dialogues() -> None:
    config = recipe("paper_transfer", "data_dir=DIR")
    assert config.teacher.evaluations == "DIR/ood_evaluations/*.jsonl"
    assert [(s.name, s.limit) for s in config.dialogues.sources] == [("auto_j", 2000)]
    assert config.responses.models == recipe("paper_ood").responses.models
    assert config.cluster.sample >= 2000, "every dialogue is kept"


def test_data_scale_is_table_4() -> None:
    params = composed("recipe=sweeps/data_scale", hydra=True).hydra.sweeper.params
    assert dict(params) == {"teacher.comparisons": "1000,2000,3000"}
    config = recipe("sweeps/data_scale", "teacher.comparisons=1000")
    assert (config.stage, config.objective, config.evaluate.branches) == (
        "evaluate",
        "eval_p/initial@10/agreement",
        [10],
    )


@pytest.mark.parametrize("name", [*SETTINGS, "tables/table4", "pairs"])
def test_what_is_evaluated_on_is_taken_out_of_training(name: str) -> None:
    config = recipe(name, "data_dir=DIR")
    assert config.dialogues.decontaminate == config.evaluate.benchmarks != []
    other = "evaluate.benchmarks=[{name: mine, source: {path: mine.jsonl, format: comparison}}]"
    assert recipe(name, "data_dir=DIR", other).dialogues == config.dialogues, "another benchmark touches no training"
