"""The recipes of the paper: they compose without network, and hold the numbers that it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from openai.types.shared import chat_model

from judgetrain.engines.config import OpenAIEngineConfig, engines_in
from judgetrain.errors import ConfigError
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.options import recipes
from judgetrain.train.checks import check_shared
from judgetrain.train.distributed import check_distributed
from tests.builders.pipeline import check_stage, composed, configured

SETTINGS = ("paper_ood", "paper_id", "paper_transfer")


def recipe(name: str, *overrides: str) -> Config:
    return configured(f"recipe={name}", *overrides)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_papers_numbers(name: str) -> None:
    """Appendix A.2: learning rates, one epoch, accumulation 32 on each of 8 GPUs, beta, ZeRO-3, bfloat16."""
    config = recipe(name, "train.processes=8")
    stages = (config.train.initial, config.train.sft, config.train.dpo)
    assert [s.learning_rate for s in stages] == [1e-5, 1e-5, 5e-7]
    assert {(s.num_train_epochs, s.global_accumulation_steps / 8, s.bf16) for s in stages} == {(1.0, 32, True)}
    assert config.train.dpo.beta == 0.1
    assert (config.train.distributed, config.train.base.path) == ("zero3", "HuggingFaceH4/zephyr-7b-beta")
    assert (config.tree.criteria, config.tree.guidelines, config.tree.judgments) == (10, 2, 2)
    assert config.teacher.comparisons == 3000
    seven = recipe(name, "train.processes=7")
    for stage in ("initial", "sft", "dpo"):
        check_shared(f"train.{stage}", getattr(config.train, stage), check_distributed(config.train))
        with pytest.raises(ConfigError, match=f"train.{stage}.per_device_train_batch_size=1 .* over 7 .*=7"):
            check_shared(f"train.{stage}", getattr(seven.train, stage), check_distributed(seven.train))


def test_out_of_distribution_draws_seven_thousand_from_a_thousand_clusters() -> None:
    config = recipe("paper_ood")
    assert (config.cluster.n_clusters, config.cluster.sample) == (1000, 7000)
    assert config.cluster.backend == "cuml"
    assert len(config.responses.models) == 5
    assert sum(s.name == "ultrachat" for s in config.dialogues.sources) == 1


def test_in_distribution_uses_the_same_comparisons_for_every_stage() -> None:
    config = recipe("paper_id")
    assert config.teacher.comparisons >= config.cluster.sample == 3000
    assert config.responses.models == []
    assert config.train.dpo.keep_best


def test_transfer_takes_written_evaluations_and_grows_over_auto_js_own_pairs() -> None:
    config = recipe("paper_transfer", "data_dir=DIR")
    assert config.teacher.evaluations == "DIR/ood_evaluations/*.jsonl"
    assert [(s.name, s.format, s.sample, s.limit) for s in config.dialogues.sources] == [
        ("auto_j", "comparison", 2000, None)
    ]
    assert config.responses.models == []
    assert config.cluster.sample >= 2000, "every dialogue is kept"


def test_table_6() -> None:
    """Dialogues of the Initial judge, SFT and DPO: 3k 2k 2k, 3k 1k 1k (of their own), and 3k of the same."""
    ood, transfer, same = (recipe(name, "data_dir=DIR") for name in ("paper_ood", "paper_transfer", "paper_id"))
    left = ood.cluster.sample - ood.teacher.comparisons
    assert (ood.teacher.comparisons, left * ood.label.sft_share, left * (1 - ood.label.sft_share)) == (3000, 2000, 2000)
    assert (transfer.cluster.sample * transfer.label.sft_share) == 1000
    assert same.label.sft_share is None


def test_table_5s_gpteacher_has_four_modules_and_flan_is_drawn() -> None:
    sources = {s.name: s for s in recipe("paper_dialogues").dialogues.sources}
    modules = {s.dataset for s in sources.values() if s.name.startswith("gpteacher")}
    assert modules == {"gpteacher", "gpteacher_roleplay", "gpteacher_code", "gpteacher_toolformer"}
    assert (sources["flan_v2"].sample, sources["flan_v2"].limit) == (74_000, None)


def test_the_pairs_of_gpt4_are_labelled_one_by_one() -> None:
    """Table 2's row: the same stages as paper_ood but for the labels of the pairs."""
    ours, gpt4 = recipe("paper_ood", "data_dir=DIR"), recipe("paper_ood_gpt4", "data_dir=DIR")
    external = gpt4.label.external
    assert (gpt4.label.source, external.prompts) == ("external", "preference")
    assert (external.engine.type, external.engine.model) == ("openai", ours.teacher.engine.model)
    for part in ("dialogues", "cluster", "responses", "teacher", "tree", "train", "judge", "engine"):
        assert getattr(gpt4, part) == getattr(ours, part)
    check_stage("label", gpt4)


def test_every_row_of_a_table_is_asked_alike() -> None:
    for name in ("tables/table1", "tables/table2", "tables/table4"):
        config = recipe(name, "data_dir=DIR")
        judge, ask = config.judge, config.evaluate.pairwise.sampling
        tokens = {judge.criteria_tokens, judge.guideline_tokens, judge.judgment_tokens, ask.max_new_tokens}
        assert (tokens, judge.temperature, ask.temperature) == ({512}, 0.0, 0.0), name


def test_the_scale_study_on_the_quickstart_grows_as_many_trees_in_every_job() -> None:
    """What 1,600 evaluations leave of 1,900: with 400 it would be 1,500, and SFT and DPO of five times as many."""
    params = composed("recipe=sweeps/quickstart_scale", hydra=True).hydra.sweeper.params
    for number in map(int, params["teacher.comparisons"].split(",")):
        config = recipe("sweeps/quickstart_scale", f"teacher.comparisons={number}")
        assert min(config.cluster.sample - number, config.tree.max_comparisons or 10_000) == 300


@pytest.mark.parametrize("name", [*SETTINGS, "tables/table4", "pairs"])
def test_what_is_evaluated_on_is_taken_out_of_training(name: str) -> None:
    config = recipe(name, "data_dir=DIR")
    assert config.dialogues.decontaminate == config.evaluate.benchmarks != []
    other = "evaluate.benchmarks=[{name: mine, source: {path: mine.jsonl, format: comparison}}]"
    assert recipe(name, "data_dir=DIR", other).dialogues == config.dialogues, "another benchmark touches no training"


def withdrawn() -> set[str]:
    """Models whose end the installed package ``openai`` announces, whenever that is."""
    source = Path(chat_model.__file__).read_text(encoding="utf-8").partition("Deprecated values:")[2]
    return set(re.findall(r'"([\w.-]+)"', source))


@pytest.mark.parametrize(
    "overrides", [*([f"recipe={name}"] for name in recipes()), ["teacher=openai", "external=openai"]]
)
def test_no_recipe_or_group_asks_a_model_that_is_gone_or_will_be(overrides: list[str]) -> None:
    asked = {engine.model for engine in engines_in(configured(*overrides)) if isinstance(engine, OpenAIEngineConfig)}
    assert not asked & withdrawn()
