"""The recipes of the paper: they compose without network, and hold the numbers that it prints."""

from __future__ import annotations

import pytest

from judgetrain.compose import typed
from judgetrain.config import Config, TeacherConfig
from judgetrain.dialogues.schema import Comparison, Dialogue, Message
from judgetrain.errors import ConfigError, DataError
from judgetrain.train.distributed import check_distributed
from judgetrain.tree.teach import divided
from tests.test_sweep import composed

SETTINGS = ("paper_ood", "paper_id", "paper_transfer")


def recipe(name: str, *overrides: str) -> Config:
    return typed(composed(f"recipe={name}", *overrides))


@pytest.mark.parametrize("name", SETTINGS)
def test_the_papers_numbers(name: str) -> None:
    """Appendix A.2: learning rates, one epoch, accumulation 32 on each of 8 GPUs, beta, ZeRO-3, bfloat16, TF32."""
    config = recipe(name, "train.processes=8")
    stages = (config.train.initial, config.train.sft, config.train.dpo)
    assert [s.learning_rate for s in stages] == [1e-5, 1e-5, 5e-7]
    assert {(s.epochs, s.accumulation / 8, s.bf16, s.tf32) for s in stages} == {(1.0, 32, True, True)}
    assert config.train.dpo.beta == 0.1
    assert config.train.dpo.loss_type == "sigmoid"
    assert (config.train.distributed, config.train.base.path) == ("zero3", "HuggingFaceH4/zephyr-7b-beta")
    assert (config.tree.criteria, config.tree.guidelines, config.tree.judgments) == (10, 2, 2)
    assert config.teacher.comparisons == 3000
    seven = recipe(name, "train.processes=7")
    for stage in ("initial", "sft", "dpo"):
        check_distributed(config.train, stage)
        with pytest.raises(ConfigError, match=f"train.{stage}.accumulation=256 .* over 7 processes"):
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


def test_transfer_keeps_the_teacher_and_the_trees_apart() -> None:
    config = recipe("paper_transfer")
    comparisons = [
        Comparison(f"c{i}", Dialogue(f"d{i}", source, (Message("user", f"q{i}"),)), "a", "b", "m", "n")
        for i, source in enumerate(["ood"] * 4 + ["auto_j"] * 3)
    ]
    taught, remaining = divided(comparisons, config.teacher, 3)
    assert {c.dialogue.source for c in taught} == {"ood"} and len(taught) == 4
    assert {c.dialogue.source for c in remaining} == {"auto_j"} and len(remaining) == 3
    few, rest = divided(comparisons, TeacherConfig(comparisons=2, sources=["ood"]), 3)
    assert few == taught[:2] and rest == remaining, "what the teacher has no use for grows no tree"
    with pytest.raises(DataError, match=r"teacher.sources=\['other'\]: 0 of 7"):
        divided(comparisons, TeacherConfig(sources=["other"]), 3)


def test_data_scale_is_table_4() -> None:
    params = composed("recipe=sweeps/data_scale", hydra=True).hydra.sweeper.params
    assert dict(params) == {"teacher.comparisons": "1000,2000,3000"}
    config = recipe("sweeps/data_scale", "teacher.comparisons=1000")
    assert (config.stage, config.objective, config.evaluate.branches) == (
        "evaluate",
        "eval_p/initial@10/agreement",
        [10],
    )
