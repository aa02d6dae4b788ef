"""A stage reads what its settings object holds and nothing else, and its fingerprint follows that object."""

import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import pytest

from judgetrain.artifacts.stages import Stage
from judgetrain.data.config import VOCABULARY
from judgetrain.engines.config import WORLD_BASE
from judgetrain.errors import ConfigError
from judgetrain.judges.prompting.prompts import prompt_file
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.scorers import encode as scorer_prompts
from tests.builders.pipeline import configured, marks

composed = cache(configured)


@cache
def marked(*overrides: str) -> dict[str, str]:
    """Return the fingerprint of every stage under a command line."""
    return marks(composed(*overrides))


@pytest.mark.parametrize("stage", STAGES.values(), ids=lambda stage: stage.name)
def test_a_stage_is_given_its_settings_its_inputs_and_a_place_to_write(stage: Stage[Any]) -> None:
    module, name = stage.code.split(":")
    run = getattr(import_module(module), name)
    settings, *others = inspect.signature(run).parameters
    assert others == ["inputs", "out"]
    takes = typing.get_type_hints(run)[settings]
    assert stage.settings in (takes, *typing.get_args(takes))
    assert all(upstream in STAGES for upstream in stage.inputs(stage.settings.of(Config())))


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of an annotated type, as far as settings have types."""
    origin = typing.get_origin(hint)
    parts = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is list:
        return isinstance(value, list) and all(fits(entry, parts[0]) for entry in value)
    return isinstance(value, hint)


@pytest.mark.parametrize("recipe", ["debug", "selfeval", "paper_ood"])
@pytest.mark.parametrize("stage", STAGES.values(), ids=lambda stage: stage.name)
def test_every_setting_is_a_key_that_exists_and_has_its_type(stage: Stage[Any], recipe: str) -> None:
    config = composed(f"recipe={recipe}")
    hints = typing.get_type_hints(stage.settings)
    values = stage.settings.of(config)
    for field in dataclasses.fields(stage.settings):
        assert fits(attrgetter(field.metadata["key"])(config), hints[field.name]), field.metadata["key"]
        assert fits(getattr(values, field.name), hints[field.name]), field.name


def downstream(config: Config, stages: set[str]) -> set[str]:
    """Stages with all that are made from them."""
    for name, stage in STAGES.items():  # inputs come first
        if stages & {*stage.inputs(stage.settings.of(config))}:
            stages = stages | {name}
    return stages


LISTED = "evaluate.methods=[sft,'pairwise:external','pointwise:external',external]"
OPENAI = "teacher=openai"
SIGNALS = "label.signals=[probdiff]"
TREE = (
    *("judgments=3", "guidelines=3", "score=expected", "constrained=true", "criteria_sampling.temperature=0.5"),
    *("guideline_sampling.top_p=0.5", "judgment_sampling.max_new_tokens=50"),
)
SAMPLED = [f"evaluate.{kind}.sampling.temperature=0.3" for kind in ("pairwise", "pointwise")]
JUDGE = ("temperature=0.5", "judgment_tokens=50", "score=expected", "constrained=true", "rubric=first")
CASES: list[tuple[list[str], str, set[str]]] = [
    # What is asked for, not what it is called or how fast it answers.
    *(([], key, set()) for key in ("engine.name=mine", "teacher.engine.name=mine", "engine.batch_size=3")),
    ([], "teacher.engine.error_rate=0.3", {"teacher"}),
    ([OPENAI], "teacher.engine.concurrency=5", set()),
    ([OPENAI], "teacher.engine.base_url=http://there/v1", {"teacher"}),
    ([OPENAI], "teacher.engine.base_url=HTTPS://api.openai.com:443/v1/", set()),
    ([OPENAI], "teacher.engine.json_schema=true", {"teacher"}),
    ([OPENAI], "teacher.engine.model=other", {"teacher"}),
    (["engine={type: openai, model: m}"], "engine.json_schema=true", {"tree", "evaluate", "correct", "judge"}),
    # How a judge is asked is no part of its weights.
    *(
        ([], f"judge.{key}", {"evaluate", "correct", "judge", *(["rl"] if key.startswith("tie") else [])})
        for key in JUDGE
    ),
    (["studies.judge=base"], "judge.temperature=0.5", {"evaluate", "correct", "judge", "studies"}),
    (["evaluate.methods=[random]", "verdicts.judge=random"], "judge.temperature=0.5", {"correct"}),
    # How trees are sampled is no part of how a judge is asked.
    *(([], f"tree.{key}", {"tree"}) for key in TREE),
    # What has no use beside the other settings.
    *(([], f"train.{stage}.eval_steps=7", set()) for stage in ("initial", "sft", "dpo")),
    (["train.dpo.keep_best=true"], "train.dpo.eval_steps=7", {"dpo"}),
    *(([], key, set()) for key in ("evaluate.external.error_rate=0.3", *SAMPLED)),
    *(([LISTED], key, {"evaluate"}) for key in ("evaluate.external.error_rate=0.3", *SAMPLED)),
    ([f"scenarios.queries.path={VOCABULARY}"], "scenarios.queries.format=turns", {"scenarios"}),
    ([], "label.external.sampling.top_p=0.5", set()),
    (["label.source=external"], "label.external.sampling.top_p=0.5", {"label"}),
    ([], "label.rule=paper", {"label"}),
    (["label.source=given"], "label.rule=paper", {"label"}),
    ([], SIGNALS, {"label"}),
    ([], "scorer.revision_prompt=simple", {"selfeval", "studies"}),
    (["label.signals=[softmax_combo]"], "scorer.revision_prompt=simple", {"label", "selfeval", "studies"}),
    (["evaluate.methods=[random]"], "scorer.max_new_tokens=5", {"selfeval", "studies"}),
    (["evaluate.methods=['scorer:sentprob']"], "scorer.max_new_tokens=5", {"evaluate", "selfeval", "studies"}),
    ([f"train.{s}.global_accumulation_steps=2" for s in ("initial", "sft", "dpo")], "train.distributed=ddp", set()),
    # What is read.
    ([], "seed=3", set(STAGES)),
    ([], "dialogues.near_dedup=true", {"dialogues"}),
    ([], "train.dpo.beta=0.2", {"dpo"}),
    ([], "train.initial.learning_rate=0.5", {"initial"}),
    ([], "train.base.dtype=bfloat16", {"initial", "reference", "selfeval", "studies"}),
    ([], "cluster.n_clusters=3", {"cluster"}),
    ([], "dialogues.world.eval_comparisons=30", {"evaluate", "correct", "judge", "scenarios"}),
    # The rule of the generated world is part of all that is made by it or labelled by it.
    ([], "dialogues.world.rule=5", {"dialogues", "evaluate", "correct", "judge", "scenarios"}),
    (["dialogues.world.rule=5"], "teacher.engine.rule=6", {"teacher"}),
    ([], "label.given=30", {"label"}),
    (["label.rule=paper"], "label.given=30", {"label"}),
    ([], "evaluate.bootstrap=30", {"evaluate"}),
    ([], "correct.sampling.temperature=0.2", {"correct"}),
    ([], "verdicts.judge=dpo@2", {"judge", "export"}),
    ([], "verdicts.max_requests=9", set()),
    (["verdicts.judge=random"], "judge.aggregation=vote", {"evaluate", "correct"}),
    (["verdicts.judge=pairwise:external"], "evaluate.pairwise.sampling.temperature=0.3", {"judge"}),
    (["verdicts.judge=scorer:probdiff"], "scorer.revision_prompt=simple", {"judge", "selfeval", "studies"}),
    ([], "selfeval.limit=3", {"selfeval"}),
    # What is said, kept and shown.
    *(([], k, set()) for k in ("recipe_name=x", "track.tracker=none", "hub=a/b", "objective=world/dpo@1/agreement")),
]


def named(value: object) -> str:
    """Return the name of a case: its change or key."""
    return value if isinstance(value, str) else ""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an ``output_dir`` that all cases share."""
    return f"output_dir={tmp_path_factory.mktemp('home')}"


@pytest.mark.parametrize(("words", "change", "readers"), CASES, ids=named)
def test_a_key_touches_the_stages_that_read_it(words: list[str], change: str, readers: set[str], home: str) -> None:
    where = ("recipe=debug", "verdicts.judge=dpo", home, *words)
    before = marked(*where)
    after = marked(*where, change)
    changed = {name for name in STAGES if before[name] != after[name]}
    if "judge" in readers:
        # These ask as stage judge does.
        readers = readers | {"calibrate", "stress"}
    assert changed == downstream(composed(*where, change), readers)


def test_what_decides_pairs_alone_leaves_the_sft_judge_where_it_is(home: str) -> None:
    # Its examples are the same, and so are the stages that start from it.
    before = marked("recipe=debug", home)
    for change in ("max_pairs_per_level=1", "min_evidence=0.6", "balance=[]", "levels=[criteria,guideline]"):
        after = marked("recipe=debug", home, f"label.{change}")
        same = {name for name in STAGES if before[name] == after[name]}
        assert "sft" in same and same.isdisjoint({"label", "reference", "dpo", "evaluate"})


SCORER_PROMPTS = Path(scorer_prompts.__file__).parent / "prompt_sets" / "default.yaml"
FILES: list[tuple[str, Path, list[str], set[str]]] = [
    ("prompts", prompt_file("compact"), [], {"teacher", "initial", "tree", "label"}),
    ("scorer.prompts", SCORER_PROMPTS, [], {"selfeval", "studies"}),
    ("scorer.prompts", SCORER_PROMPTS, [SIGNALS], {"label", "selfeval", "studies"}),
    ("evaluate.pairwise.prompts", prompt_file("pairwise"), [], set()),
    ("evaluate.pairwise.prompts", prompt_file("pairwise"), [LISTED], {"evaluate"}),
    ("correct.prompts", prompt_file("correction"), [], {"correct"}),
    ("label.external.prompts", prompt_file("pairwise"), [], set()),
    ("label.external.prompts", prompt_file("pairwise"), ["label.source=external"], {"label"}),
    ("teacher.evaluations", VOCABULARY, [], {"teacher"}),
    ("train.base.path", WORLD_BASE / "config.json", [], {"initial", "selfeval", "studies"}),
]


@pytest.mark.parametrize(("key", "source", "words", "readers"), FILES, ids=named)
def test_where_a_file_lies_changes_nothing_and_what_it_holds_does(
    key: str, source: Path, words: list[str], readers: set[str], tmp_path: Path, home: str
) -> None:
    def of(place: str, more: bytes = b"") -> Mapping[str, str]:
        file = tmp_path / place / source.name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(source.read_bytes() + more)
        path = file.parent if key == "train.base.path" else file
        return marks(configured("recipe=debug", home, *words, f"{key}={path}"))

    here = of("here")
    elsewhere = of("there")
    other = of("there", b"\n# another\n")
    assert here == elsewhere
    changed = {name for name in STAGES if here[name] != other[name]}
    assert changed == downstream(composed("recipe=debug", home, *words), readers)


def test_what_an_earlier_format_wrote_is_made_anew_with_all_that_came_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed("recipe=debug")
    now = marks(config)
    earlier_format = dataclasses.replace(STAGES["label"], format=1)
    monkeypatch.setattr("judgetrain.label.stages.LABEL", earlier_format)
    before = marks(config)
    changed = {name for name in STAGES if before[name] != now[name]}
    assert {"sft", "dpo"} < changed == downstream(config, {"label"})


def test_adapters_count_with_the_base_that_they_name(tmp_path: Path, home: str) -> None:
    for name, base in (("adapters", "merged"), ("merged", "base")):
        (tmp_path / name).mkdir()
        config = {"base_model_name_or_path": str(tmp_path / base)}
        (tmp_path / name / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "base").mkdir()

    def of(weights: str) -> Mapping[str, str]:
        (tmp_path / "base" / "model.safetensors").write_text(weights)
        where = f"train.base.path={tmp_path / 'adapters'}", f"evaluate.methods=['pairwise:{tmp_path / 'merged'}']"
        return marks(configured("recipe=debug", home, *where))

    one = of("1")
    two = of("2")
    assert {"initial", "evaluate"} <= {name for name in STAGES if one[name] != two[name]}
    adapter_file = tmp_path / "merged" / "adapter_config.json"
    for base in (str(tmp_path / "merged"), str(tmp_path / "adapters"), 7):
        adapter_file.write_text(json.dumps({"base_model_name_or_path": base}))
        assert of("1") == of("2") != one, f"{base}: adapters of each other have no base"


def test_weights_put_beside_a_judge_count_where_it_is_asked_by_them(tmp_path: Path) -> None:
    where = "recipe=debug", f"output_dir={tmp_path}", "verdicts.judge=sft", "evaluate.methods=[dpo]"
    fitted = *where, "judge.aggregation=fitted"
    before = [marks(configured(*words)) for words in (fitted, where)]
    for stage in ("sft", "dpo"):
        place = tmp_path / "artifacts" / stage / before[0][stage] / "model"
        place.mkdir(parents=True)
        (place / "fitted.json").write_text(stage)
    after = [marks(configured(*words)) for words in (fitted, where)]
    changed = {name for name in STAGES if before[0][name] != after[0][name]}
    assert {"evaluate", "judge", "correct"} <= changed <= {*STAGES} - {"sft", "dpo"} and before[1] == after[1]
    (place / "fitted.json").unlink()
    (place / "fitted.json").symlink_to("/proc/self/mem")  # which nobody reads from its beginning
    with pytest.raises(ConfigError, match=r"dpo/model/fitted.json='.*': cannot be read \(Input/output error\)"):
        Pipeline(configured(*fitted)).plan("evaluate")


def test_an_encoder_counts_by_what_its_files_hold(tmp_path: Path, home: str) -> None:
    def of(weights: str) -> Mapping[str, str]:
        (tmp_path / "weights").write_text(weights)
        return marks(configured("recipe=debug", home, f"cluster.encoder=static:{tmp_path}"))

    one = of("1")
    two = of("2")
    assert {"cluster", "dialogues"} - {name for name in STAGES if one[name] == two[name]} == {"cluster"}
