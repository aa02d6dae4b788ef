"""An engine's keys are those of its type; what stands elsewhere is refused by its name, or dropped with its type."""

import dataclasses
import math
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hydra.errors import HydraException

from judgetrain.data.config import WorldEngineConfig
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.errors import ConfigError
from judgetrain.keys import validate
from judgetrain.label.config import GivenEngineConfig
from judgetrain.pipeline.compose import asking, overwritten, recipe_overrides
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.key_names import every_key
from judgetrain.pipeline.run import Pipeline
from tests.builders.pipeline import check_stage, composed, configured

MODELS = "responses.models=[{name: a, engine: {%s}}]"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("engine.error_rate=0.1", r"engine\.error_rate: type transformers has no such key; it has type, name, model"),
        ("teacher.engine.batch_size=3", r"teacher\.engine\.batch_size: type world has no such key"),
        ("evaluate.external.base_url=x", r"evaluate\.external\.base_url: type world has no such key"),
        ("label.external.engine.concurrency=3", r"label\.external\.engine\.concurrency: type world has no such key"),
        ("engine.model.pth=x", r"engine\.model\.pth: there is no such key; did you mean engine\.model\.path\?"),
        ("engine.batch_size=many", r"engine\.batch_size: Value 'many' .* could not be converted to Integer"),
        ("engine.batch_size=0", r"engine\.batch_size=0: must be at least 1"),
        ("engine.type=gpt", r"engine\.type='gpt': allowed are transformers, generate, vllm, openai"),
        (MODELS % "type: world, batch_size: 3", r"responses\.models\[0\]\.engine\.batch_size: type world has no such"),
        (MODELS % "type: world, skill: 2", r"responses\.models\[0\]\.engine\.skill=2\.0: must be .*at most 1"),
        (MODELS % "type: nobody", r"responses\.models\[0\]\.engine\.type='nobody': allowed are"),
        ("teacher.engine.type=openai teacher.engine.model.path=m", r"teacher\.engine\.model=.*say teacher\.engine"),
        ("teacher.engine=null", r"teacher\.engine is empty: expected keys and values"),
        ("responses.models=[{name: a, engine: world}]", r"responses\.models\[0\]\.engine='world': expected keys"),
        ("engine.type=[a]", r"engine\.type=\['a'\]: allowed are transformers"),
        ("engine.modle.path=x", r"engine\.modle: type transformers has no such key.*did you mean engine\.model\?"),
        *(
            (f"{stage}.learning_rate={v}", "must be above 0")
            for stage in ("train.initial", "train.sft", "train.dpo", "rl")
            for v in (0, -1)
        ),
        ("train.dpo.beta=0", "must be above 0"),
        ("tree.judgment_sampling.top_p=0", "must be above 0 and at most 1"),
        ("judge.temperature=-1", "at least 0"),
        ("evaluate.branches=[1,0]", "must be at least 1"),
        ("+selfeval.temperatures.math=11", "must be at least 0 and at most 10"),
        ("output_dir=", "must not be empty; leave it out for outputs"),
        ("cluster.encoder=", "must not be empty"),
    ],
)
def test_a_key_that_the_type_does_not_have_and_a_wrong_value_are_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured("recipe=quickstart", *re.split(r" (?=teacher)", override))


def test_a_recipe_that_chooses_the_type_is_told_its_own_wrong_keys_and_not_those_it_builds_on(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("defaults: [quickstart]\nteacher: {engine: {type: openai, model: m, skill: 0.5}}\n")
    with pytest.raises(ConfigError, match=r"teacher\.engine\.skill: type openai has no such key"):
        configured(*recipe_overrides([f"recipe={path}"]))
    path.write_text("defaults: [quickstart]\nteacher: {engine: {type: openai, model: m}}\n")
    assert configured(*recipe_overrides([f"recipe={path}"])).teacher.engine == OpenAIEngineConfig(
        name="annotator", model="m"
    )


@pytest.mark.parametrize(
    "override",
    [
        "verdicts.source.fields={query: ask, response_a: left}",
        "verdicts.source.fields.query=ask",
        "verdicts.source={path: x.csv, fields: {query: ask}}",
    ],
)
def test_the_entries_of_a_mapping_are_the_users_own(override: str) -> None:
    (argument,) = recipe_overrides([override])
    assert configured(argument).verdicts.source.fields["query"] == "ask"


def test_a_place_in_a_list_is_written_as_messages_write_it() -> None:
    parsed = recipe_overrides(["dialogues.sources[0].fields={label: winner}", "dialogues.sources[0].labels.x=A"])
    source = configured(*parsed).dialogues.sources[0]
    assert (source.fields, source.labels) == ({"label": "winner"}, {"x": "A"})


def test_a_key_that_there_is_not_is_none_by_being_in_a_mapping() -> None:
    for override in ("leaderboard={systms: 3}", "verdicts.source={feilds: {a: b}}", "verdicts.sorce.fields={a: b}"):
        with pytest.raises(HydraException, match=r"^Could not override" if "sorce" in override else "^Error merging"):
            configured(*recipe_overrides([override]))


def test_a_recipes_keys_of_another_type_are_dropped_where_the_command_line_chooses_the_type() -> None:
    annotator = WorldEngineConfig(name="annotator", error_rate=0.15, rule=17)
    assert configured("recipe=quickstart").teacher.engine == annotator
    teacher = configured("recipe=quickstart", "teacher=openai").teacher.engine
    assert isinstance(teacher, OpenAIEngineConfig) and teacher.model == "gpt-5.4"
    chosen = configured("recipe=quickstart", "teacher.engine.type=openai", "teacher.engine.model=m")
    assert chosen.teacher.engine == OpenAIEngineConfig(name="annotator", model="m")
    assert isinstance(configured("recipe=quickstart", "teacher=given").teacher.engine, GivenEngineConfig)
    with pytest.raises(ConfigError, match=r"teacher\.engine\.error_rate: type openai has no such key"):
        configured("recipe=quickstart", "teacher=openai", "teacher.engine.error_rate=0.2")
    with pytest.raises(ConfigError, match=r"teacher\.engine\.pth: type openai has no such key"):
        configured("recipe=quickstart", "teacher=openai", "+teacher.engine.pth=x")


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["train=lora"], ["train=lora sets train.sft.learning_rate=0.0001 in place of your recipe's 3e-05; say"]),
        (["train=lora", "train.sft.learning_rate=3e-5"], []),
        (["train=null"], []),
        (["label=paper"], ["label=paper sets label.rule=paper in place of your recipe's evidence; say label.rule="]),
        ([], []),
    ],
)
def test_a_group_that_sets_what_a_user_s_recipe_sets_otherwise_says_so(
    words: list[str], lines: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "# @package _global_\ndefaults: [quickstart]\nlabel: {rule: evidence}\n"
        "train: {sft: {learning_rate: 3.0e-5}, dpo: {learning_rate: 5.0e-6}}\n"
    )
    warnings = list(overwritten(recipe_overrides([f"recipe={path}", *words])))
    assert len(warnings) == len(lines) and all(map(str.startswith, warnings, lines))


def numbers(node: Any, prefix: str = "") -> list[tuple[str, Any, str, str]]:
    """Key, owner, field and type of every number of a configuration, and of every list and mapping of numbers."""
    figures = []
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        kind = str(get_type_hints(type(node))[field.name])
        if dataclasses.is_dataclass(value):
            figures += numbers(value, f"{prefix}{field.name}.")
        elif "int" in kind or "float" in kind:
            figures.append((f"{prefix}{field.name}", node, field.name, kind))
    return figures


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_number_may_be_infinite_or_not_a_number(value: float) -> None:
    config = Config()
    every = numbers(config)
    assert {"train.sft.learning_rate", "judge.temperature"} <= {key for key, *_ in every}
    for key, owner, name, kind in every:
        before = getattr(owner, name)
        setattr(owner, name, [value] if kind.startswith("list") else {"x": value} if kind.startswith("dict") else value)
        with pytest.raises(ConfigError, match=rf"^{key}.*: must be a finite number"):
            validate(config)
        setattr(owner, name, before)
    validate(config)


def test_every_number_has_a_range_but_those_that_need_none() -> None:
    free = {key.name for key in every_key() if ("int" in key.type or "float" in key.type) and not key.allowed}
    # A part of a data set is two numbers, which stage dialogues and stage evaluate check together.
    free = {name for name in free if not name.endswith(".part")}
    assert free == {"studies.official"}, "may have any finite value"


@pytest.mark.parametrize("stage", ["teacher", "tree", "label", "dpo", "selfeval"])
def test_fewer_criteria_concern_only_who_grows_that_many_branches(stage: str) -> None:
    Pipeline(configured("tree.criteria=2", f"stage={stage}")).check(stage)


def test_branches_concern_only_methods_that_have_some() -> None:
    check_stage("evaluate", configured("tree.criteria=2", "evaluate.methods=[longer]"))
    with pytest.raises(ConfigError, match=r"evaluate\.branches=.*1 to tree\.criteria=2"):
        check_stage("evaluate", configured("tree.criteria=2", "evaluate.methods=[longer,dpo]"))


def test_a_path_alone_is_read_whatever_the_recipe_reads(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("defaults: [quickstart]\ncorrect: {source: {path: mine.jsonl}}\n")
    for words in ("correct.source.path=mine.jsonl", "correct.source={path: mine.jsonl}", f"recipe={mine}"):
        config = configured(*recipe_overrides([words]))
        assert (config.correct.source.type, config.correct.source.path) == ("jsonl", "mine.jsonl")
        check_stage("correct", config)
    assert configured("evaluate.benchmarks.0.source.path=x.jsonl").evaluate.benchmarks[0].source.type == "jsonl"


@pytest.mark.parametrize(
    ("stage", "override", "key"),
    [
        ("correct", "correct.source={type: world, path: mine.jsonl}", "correct.source"),
        ("evaluate", "evaluate.benchmarks.0.source={type: world, path: m}", "evaluate.benchmarks[0].source"),
        ("dialogues", "dialogues.sources=[{name: a, type: world, path: m}]", "dialogues.sources[0]"),
    ],
)
def test_a_path_together_with_the_world_is_refused(stage: str, override: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_stage(stage, configured(override))
    assert str(caught.value).startswith(f"{key}.path=") and f"set {key}.type=jsonl" in str(caught.value)


def test_a_recipe_chooses_options_of_groups_under_its_own_keys(tmp_path: Path) -> None:
    # Hydra's experiments do so. The command line wins over both, and ``+recipe=`` and ``--config-dir`` serve too.
    (tmp_path / "recipe").mkdir()
    text = "defaults: [debug, {override /train: lora}]\ntrain: {sft: {learning_rate: 7.0e-4}}\n"
    (tmp_path / "recipe" / "adapted.yaml").write_text(text)
    arguments = recipe_overrides(["--config-dir", str(tmp_path), "+recipe=adapted"])
    assert arguments[2:] == ["recipe=my_adapted"]
    train = configured(*arguments[2:]).train
    assert all(stage.lora for stage in (train.initial, train.sft, train.dpo))
    assert (train.initial.learning_rate, train.sft.learning_rate) == (1e-4, 7e-4)
    assert configured("recipe=my_adapted", "train.sft.lora=false").train.sft.lora is False
    smaller = configured("recipe=my_adapted", "train=qlora").train
    assert all(stage.lora and stage.four_bit for stage in (smaller.initial, smaller.sft, smaller.dpo))
    assert smaller.initial.learning_rate == 1e-4
    (tmp_path / "wrong.yaml").write_text("defaults: [{override /train: qlor}]\n")
    with pytest.raises(ConfigError, match=r"wrong\.yaml: override /train: qlor: expected one of lora, qlora, or null"):
        recipe_overrides([f"recipe={tmp_path / 'wrong.yaml'}"])


def test_a_recipe_may_choose_no_option_and_one_with_defaults_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "none.yaml").write_text("defaults: [debug, {override /train: null}]\n")
    assert recipe_overrides([f"--config-dir={tmp_path}", "+recipe=none"])[1:] == ["recipe=my_none"]
    assert configured("recipe=my_none").train.sft.lora is False
    (tmp_path / "jobs.yaml").write_text("defaults: [debug, {override /sweep: joblib}]\nseed: 5\n")
    assert recipe_overrides([f"recipe={tmp_path / 'jobs.yaml'}"]) == ["recipe=jobs"]
    config = composed("recipe=jobs", hydra=True)
    assert (config.seed, config.hydra.launcher.n_jobs) == (5, 2)
    assert "joblib" in config.hydra.launcher._target_.casefold()


def test_ray_takes_as_many_workers_as_there_is_room_for() -> None:
    assert composed("executor=local").executor.workers == 2, "as the recipe says"
    assert composed("executor=ray").executor.workers is None
    assert composed("executor=ray", "executor.workers=3").executor.workers == 3


def test_a_command_that_asks_repeats_what_says_how_a_judge_is_asked(tmp_path: Path) -> None:
    """The user's own recipe by its path, criteria and judge.*; not what training alone reads."""
    path = tmp_path / "own.yaml"
    path.write_text("defaults: [debug]\n")
    words = [f"recipe={path}", "stage=evaluate", "criteria=rubric.yaml", "judge.reads=one", "train.sft.lora=true"]
    assert asking(recipe_overrides(words)) == (f"recipe={path}", "criteria=rubric.yaml", "judge.reads=one")
    assert configured("recipe=debug", "seed=3").asking == ("recipe=debug",)
