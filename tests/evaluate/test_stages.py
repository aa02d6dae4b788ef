"""What the stages of this room take as inputs, refuse before anything runs, and say of themselves in manifests."""

from pathlib import Path

import pytest

from judgetrain.artifacts.fingerprint import by_key
from judgetrain.errors import ConfigError
from judgetrain.evaluate.stages import EVALUATE, EvaluateSettings
from judgetrain.judges.method import BRANCHING, Method
from judgetrain.train.stages import ReferenceSettings
from tests.builders.pipeline import check_stage, configured


def test_stored_verdicts_of_a_judges_name_need_no_judge(tmp_path: Path) -> None:
    stored = f"stored.verdicts=[{{name: dpo, benchmark: world, source: {{path: '{tmp_path}/v.jsonl'}}}}]"
    config = configured("recipe=quickstart", "evaluate.methods=[stored:dpo,random]", stored)
    assert list(EVALUATE.inputs(EVALUATE.settings.of(config))) == []
    assert EvaluateSettings.of(config).engine is None


def test_every_stored_entry_is_about_a_benchmark(tmp_path: Path) -> None:
    stored = f"stored.verdicts=[{{name: x, benchmark: nowhere, source: {{path: '{tmp_path}/v.jsonl'}}}}]"
    with pytest.raises(ConfigError, match=r"stored\.verdicts\[0\]\.benchmark='nowhere': no such one; there are world"):
        check_stage("evaluate", configured("recipe=quickstart", "evaluate.methods=[random]", stored))


@pytest.mark.parametrize("judge", ["stored:base", "scorer:base", "foo:base", "dpo", "random"])
def test_revisions_are_judged_by_models_that_are_there(judge: str) -> None:
    with pytest.raises(ConfigError, match=r"studies\.judge="):
        check_stage("studies", configured("recipe=quickstart", f"studies.judge={judge}"))


def test_a_branching_judge_of_revisions_has_branches() -> None:
    with pytest.raises(ConfigError, match=r"evaluate\.branches=\[50\]: allowed are 1 to tree\.criteria=10"):
        check_stage("studies", configured("recipe=quickstart", "studies.judge=base", "evaluate.branches=[50]"))


def test_manifests_say_what_is_set_and_nothing_that_is_not_read() -> None:
    config = configured("recipe=quickstart", "train.base.path=gpt2", "train.dpo.beta=0.7", "train.dpo.max_length=99")
    settings = by_key(ReferenceSettings.of(config))
    assert settings["train.base"] == {"dtype": "auto", "attn_implementation": None}
    assert settings["train.dpo"]["max_length"] == 99 and "beta" not in settings["train.dpo"]
    assert settings["train.dpo.lora"] is False
    shown = by_key(EvaluateSettings.of(config))
    assert shown["judge"]["retries"] == 1 and shown["tree.criteria"] == 10


def test_the_quickstart_asks_greedily_and_its_trees_are_sampled() -> None:
    config = configured("recipe=quickstart")
    ways = [Method.parse(text) for text in config.evaluate.methods if Method.parse(text).kind == BRANCHING]
    assert [method.text for method in ways] == ["initial+vote", "sft", "dpo", "dpo+given@1"]
    assert config.judge.temperature == 0.0
    assert config.tree.judgment_sampling.temperature > 0, "trees are sampled"
