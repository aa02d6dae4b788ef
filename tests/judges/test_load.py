"""Any judge by its name, in Python, and how it is called."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.fingerprint import ContentHashes
from judgetrain.artifacts.stage_run import RunOptions, StageRun
from judgetrain.artifacts.stages import at
from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.engine import WorldEngine
from judgetrain.engines import lazy_model
from judgetrain.engines.base import Completion, Request, places
from judgetrain.engines.config import WORLD_BASE, EngineConfig, ModelConfig, OpenAIEngineConfig, SamplingConfig
from judgetrain.errors import ConfigError, DataError, EngineError, JudgetrainError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.extras.untrained.scorers import ScorerJudge
from judgetrain.judges import BranchingJudge, Judge, LongerJudge, Message, load_judge
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.factory import Models
from judgetrain.judges.kinds.pairwise import PairwiseJudge
from judgetrain.judges.kinds.pointwise import PointwiseJudge
from judgetrain.judges.method import Method
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.parts import judge_directory
from judgetrain.judges.predictions import Plan, Prediction
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.saved import save_settings
from judgetrain.judges.settings import ModelSettings, check_model, no_judge
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.label.config import TeacherConfig
from judgetrain.pipeline.config import Config
from judgetrain.schema import Comparison
from tests.builders.faulty_server import serving
from tests.builders.judges import SAMPLING
from tests.builders.scripted import ScriptedEngine, comparison, noisy, number

ASKED = "how do i cook apple cake ?", "use exactly three cups of warm water .", "it could be fun ."


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a judge's directory as training writes it, with the weights of the shipped base."""
    directory = tmp_path_factory.mktemp("artifact") / "model"
    shutil.copytree(WORLD_BASE, directory)
    load_prompt_set("compact").save(directory)
    save_settings(
        JudgeConfig(criteria_tokens=24, guideline_tokens=8, judgment_tokens=16, reference=False), directory, criteria=4
    )
    return directory


def test_a_directory_is_a_branching_judge_that_is_asked_as_it_says_but_for_options_and_keys(trained: Path) -> None:
    judge = load_judge(trained, branches=2)
    assert isinstance(judge, BranchingJudge) and isinstance(judge(*ASKED), Prediction)
    assert (judge.options.branches, judge.options.steps.criteria, judge.options.steps.reference) == (2, 4, False)
    judge.close()
    judge = load_judge(f"{trained}+sampled+independent@3", rubric="first", prompts="multi_step")
    assert isinstance(judge, BranchingJudge)
    loaded_options = judge.options
    steps = judge.options.steps
    assert (loaded_options.branches, loaded_options.plan, steps.rubric) == (3, "independent", "first")
    assert steps.judgment_sampling.temperature == 1.0 and judge.prompts.name == "multi_step"
    assert judge.name.endswith("+sampled+independent")


def test_the_artifact_that_holds_it_is_enough_and_so_is_a_name_without_a_slash(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judge_directory(str(trained.parent)) == trained
    monkeypatch.chdir(trained.parent)
    assert isinstance(load_judge("model"), BranchingJudge)
    monkeypatch.chdir(trained)
    assert isinstance(load_judge("."), BranchingJudge)


def test_any_model_is_asked_once_or_read_by_a_scorer() -> None:
    judge = load_judge("pairwise:world", max_new_tokens=3)
    assert isinstance(judge, PairwiseJudge) and judge.sampling.max_new_tokens == 3
    assert judge(*ASKED).consistent is None
    assert isinstance(load_judge(f"pointwise:{WORLD_BASE}"), PointwiseJudge)
    judge = load_judge("scorer:sentprob", model="world")
    assert isinstance(judge, ScorerJudge) and judge(*ASKED).verdict in ("A", "B")


def test_an_endpoint_is_asked_once_or_for_branches() -> None:
    with serving() as server:
        server.reply = lambda text: "[[A]]"
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        engine = OpenAIEngineConfig(model="m", base_url=url, api_key_env="")
        assert load_judge("pairwise:external", engine=engine)(*ASKED).verdict == "inconsistent"
        assert load_judge("pairwise:other", engine=engine)(*ASKED).verdict == "inconsistent"
        assert {request["model"] for request in server.bodies} == {"m", "other"}
        judge = load_judge("external", engine=engine, branches=2)
        assert isinstance(judge, BranchingJudge) and judge(*ASKED).verdict == "unreadable"


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("nowhere", {}, "'nowhere' is no judge; there are a judge's directory, .*longer"),
        ("./nowhere", {}, r"\./nowhere: there is no such directory"),
        ("me/judge", {}, "me/judge: there is no such directory, and of the Hub: HF_HUB_OFFLINE is set"),
        # Where runs leave their judges nobody's name on the Hub is looked for.
        ("outputs/judge", {}, "outputs/judge: there is no such directory; give"),
        ("dpo", {}, "'dpo' is a model of a run: give its directory, as outputs/artifacts/dpo/FINGERPRINT"),
        ("pairwise:base", {}, "'pairwise:base' is a model of a run"),
        ("pairwise:", {}, "'pairwise:' is no judge"),
        ("stored:x", {}, "'stored:x' is no judge"),
        ("external", {}, "'external' needs engine="),
        ("external", {"engine": OpenAIEngineConfig()}, r"engine\.model is empty"),
        ("scorer:sentprob", {}, "name it with model="),
        ("scorer:nothing", {"model": "world"}, "'nothing' is no scorer"),
        ("longer", {"temperature": 1.0}, "'longer' has no setting temperature"),
        ("pairwise:world", {"rubric": "first"}, "rubric: there is no such setting here; there are temperature"),
        ("pairwise:world", {"temperature": -1.0}, r"^temperature=-1\.0"),
    ],
)
def test_what_names_no_judge_is_refused(name: str, how: dict[str, Any], message: str) -> None:
    with pytest.raises(JudgetrainError, match=message):
        load_judge(name, **how)


def test_a_pattern_that_matches_several_directories_is_refused_with_two_of_them(tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        (tmp_path / name / "model").mkdir(parents=True)
    message = f"it matches 3 paths, as {tmp_path}/first/model and {tmp_path}/second/model: name one"
    with pytest.raises(EngineError, match=message):
        load_judge(f"{tmp_path}/*/model")


def test_a_judge_is_refused_what_it_cannot_do(trained: Path) -> None:
    for how, message in [
        ({"branches": 5}, "branches=5: allowed are 1 to the 4 criteria"),
        ({"temprature": 1.0}, "temprature: there is no such setting here.*; did you mean temperature\\?"),
        ({"branch": 3}, "branch: there is no such setting here.*; did you mean branches\\?"),
        ({"score": "x"}, r"^score='x'"),
        ({"tie": 5}, r"^tie=5"),
        ({"aggregation": "meen"}, "aggregation='meen': allowed are vote, mean, fitted"),
    ]:
        with pytest.raises(ConfigError, match=message):
            load_judge(trained, **how)
    with pytest.raises(ConfigError, match=r"holds no prompts\.yaml.*pairwise:"):
        load_judge(WORLD_BASE)


judge = LongerJudge()


def test_one_comparison_is_given_as_strings() -> None:
    prediction = judge("Why?", "Because.", "No.")
    assert (prediction.verdict, prediction.comparison_id) == ("A", Comparison.of("Why?", "Because.", "No.").id)
    for prompt in ([{"role": "user", "content": "Why?"}], [Message("user", "Why?")]):
        assert Comparison.of(prompt, "a", "b") == Comparison.of("Why?", "a", "b") != Comparison.of("Why?", "b", "a")


def test_earlier_turns_are_the_dialogue_s_context() -> None:
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Why?"},
    ]
    dialogue = Comparison.of(turns, "a", "b").dialogue
    assert (dialogue.query, dialogue.context) == ("Why?", "User: Hi\nAssistant: Yes?")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("p", ["a"], ["b"]), "expected a prompt and one or two responses, which are texts; found str, list, list"),
        (([{"role": "assistant", "content": "x"}], "a", "b"), "the last message to be the user's, found assistant"),
        (([{"role": "user"}], "a", "b"), "message 0: expected a role and a content"),
        ((None, "b", "c"), "found NoneType"),
        (([5], "b", "c"), "message 0: .* found int"),
        (("q", None, "c"), "found str, NoneType, str"),
    ],
)
def test_what_is_no_comparison_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(DataError, match=message):
        judge(*arguments)


TREE = TreeConfig(criteria=7, guidelines=5, judgment_sampling=SamplingConfig(0.9))
JUDGE = JudgeConfig(score="expected", constrained=True, rubric="first", temperature=0.2, judgment_tokens=99)
HOW: dict[str, Any] = {"score": "expected", "constrained": True, "rubric": "first"}
Made = list[tuple[EngineConfig, str | None, str]]


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings):
    """Settings of a stage whose methods are ``evaluate.methods``."""

    names: list[str] = at("evaluate.methods")

    @property
    def methods(self) -> list[Method]:
        return [Method.parse(text) for text in self.names]


def config_of(*methods: str) -> Config:
    config = Config(prompts="compact", tree=TREE, judge=JUDGE, evaluate=EvaluateConfig(methods=[*methods]))
    config.train.base = ModelConfig(path="the-base")
    config.teacher = TeacherConfig(engine=WorldEngineConfig())
    config.evaluate.external = OpenAIEngineConfig(model="the-external")
    return config


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    calls: Made = []

    def make_engine(config: EngineConfig, model_path: str | None = None, name: str = "", **options: Any) -> Any:
        calls.append((config, model_path, name))
        return ScriptedEngine(noisy)

    monkeypatch.setattr(lazy_model, "make_engine", make_engine)
    return calls


def models(config: Config, tmp_path: Path, *stages: str) -> Models:
    inputs = {name: tmp_path / name / f"{name}0" for name in stages}
    out = StageRun(tmp_path / "out", "evaluate", 1, Console(), RunOptions(home=tmp_path))
    return Models(Settings.of(config), inputs, out)


def placed(directory: Path, criteria: int = 3) -> Path:
    """Return a trained judge's directory, but for its weights."""
    directory.mkdir(parents=True)
    load_prompt_set("multi_step").save(directory)
    save_settings(JudgeConfig(reference=False, temperature=0.9), directory, criteria)
    return directory


@pytest.mark.parametrize(
    ("methods", "unused"),
    [
        (["random", "scorer:sentprob", "stored:x"], {"teacher", "external", "engine", "prompts", "judge", "criteria"}),
        (["initial", "sft", "dpo+expected", "./mine"], {"base", "teacher", "external"}),
        (["pairwise:base"], {"teacher", "external", "prompts", "judge", "criteria"}),
        (["teacher"], {"base", "external", "engine"}),
        (["pairwise:external", "pointwise:teacher"], {"base", "engine", "prompts", "judge", "criteria"}),
        (["base", "teacher", "external"], set()),
    ],
)
def test_a_model_that_no_method_names_is_no_part_of_the_settings(methods: list[str], unused: set[str]) -> None:
    settings = Settings.of(config_of(*methods))
    kinds = {Method.parse(text).kind for text in methods}
    names = ("base", "teacher", "external", "engine", "prompts", "judge", "criteria")
    assert {name for name in names if getattr(settings, name) is None} == unused
    for kind in ("pairwise", "pointwise", "scorer"):
        assert (getattr(settings, kind) is None) == (kind not in kinds)
    assert settings.world is None and settings.judge in (None, JUDGE)


def test_a_trained_judge_is_asked_as_the_run_says_for_its_own_number_of_criteria(made: Made, tmp_path: Path) -> None:
    config = config_of("dpo", "dpo+parsed")
    config.judge = replace(config.judge, aggregation="mean", early_stop=True)
    directory = placed(tmp_path / "dpo" / "dpo0" / "model")
    loaded_models = models(config, tmp_path, "dpo")
    judge = loaded_models.judge(Method.parse("dpo"), 2)
    options = judge.options
    step_options = judge.options.steps
    assert {name: getattr(step_options, name) for name in HOW} == HOW
    assert (step_options.criteria, step_options.judgment_sampling) == (3, SamplingConfig(0.2, 1.0, 99))
    assert judge.prompts.source == load_prompt_set("multi_step").source, "its own, not the run's"
    assert (judge.name, options.branches, options.aggregation, options.early_stop) == ("dpo", 2, "mean", True)
    assert made == [(config.engine, str(directory), "dpo")]
    sampled = loaded_models.judge(Method.parse("dpo+sampled+parsed")).options.steps
    assert (sampled.criteria_sampling.temperature, sampled.score, sampled.constrained) == (1.0, "parsed", True)
    assert sampled.judgment_sampling == SamplingConfig(1.0, 1.0, 99)
    method = f"{directory}+constrained"
    asked_judge = models(config_of(method), tmp_path).judge(Method.parse(method))
    assert (asked_judge.options.steps.criteria, asked_judge.name) == (3, "dpo-dpo0+constrained")


@pytest.mark.parametrize(
    ("target", "score", "constrained"),
    [("base", "expected", True), ("teacher", "parsed", False), ("external", "expected", True)],
)
def test_engines_that_compute_scores_are_asked_for_parsed_ones(
    target: str, score: str, constrained: bool, made: Made, tmp_path: Path
) -> None:
    config = config_of(target)
    judge = models(config, tmp_path).judge(Method.parse(target))
    assert (judge.options.steps.score, judge.options.steps.constrained) == (score, constrained)
    assert (judge.options.steps.criteria, judge.options.steps.rubric) == (7, "first")
    assert judge.prompts.name == load_prompt_set("compact").name
    base = replace(config.engine, model=ModelConfig(path="the-base"))
    engines = {"base": base, "teacher": config.teacher.engine, "external": config.evaluate.external}
    assert [option[0] for option in made] == [engines[target]]


def test_any_directory_may_be_asked_once_and_only_a_judges_grows_branches(made: Made, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    method = Method.parse(f"pointwise:{tmp_path}/plain")
    loaded_models = models(config_of(method.text, f"{tmp_path}/plain"), tmp_path)
    judge = loaded_models.judge(method)
    assert (judge.name, judge.dialect) == ("pointwise:plain", "pointwise")
    with pytest.raises(ConfigError, match=r"plain/judge\.json is missing .*: this is not a trained judge"):
        loaded_models.judge(Method.parse(f"{tmp_path}/plain"))
    with pytest.raises(ConfigError, match="nowhere is no directory"):
        loaded_models.engine(Method.parse(f"pairwise:{tmp_path}/nowhere"))


@pytest.mark.parametrize("inside", ["model", "artifacts/dpo/0123/model"])
def test_of_a_directory_that_holds_a_judge_deeper_its_place_is_told(inside: str, tmp_path: Path) -> None:
    for stage in (inside, inside.replace("dpo", "sft")):
        (tmp_path / stage).mkdir(parents=True, exist_ok=True)
        (tmp_path / stage / "prompts.yaml").write_text("")
    assert no_judge(tmp_path).endswith(f"; did you mean {tmp_path}/{inside}?")


def test_the_stages_of_named_judges_are_the_inputs_in_the_pipelines_order() -> None:
    methods = "dpo", "random", "pairwise:initial", "base", "./sft", "dpo+expected"
    assert Settings.of(config_of(*methods)).judges == ["initial", "dpo"]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("base", r"train\.base\.path is empty"),
        ("teacher+expected", r"teacher\.engine\.type=world: gives no probabilities"),
    ],
)
def test_a_method_that_cannot_be_is_refused(method: str, expected: str) -> None:
    config = config_of(method)
    check_model(Settings.of(config_of("teacher")), Method.parse("teacher"), "evaluate.methods")
    config.train.base = ModelConfig()
    with pytest.raises(ConfigError, match=expected):
        check_model(Settings.of(config), Method.parse(method), "evaluate.methods")


def test_a_judge_on_the_hub_is_loaded_from_its_cache_and_known_by_its_commit(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    place = placed(tmp_path / "hub" / "models--me--judge" / "snapshots" / ("a" * 40))
    (place.parents[1] / "refs").mkdir()
    (place.parents[1] / "refs" / "main").write_text("a" * 40)
    method = Method.parse("me/judge")
    loaded_models = models(config_of("me/judge"), tmp_path)
    assert method.on_hub and not Method.parse("./me/judge").on_hub
    assert loaded_models.judge(method, 2).options.steps.criteria == 3 and made[0][1] == str(place)
    assert loaded_models.identity(method, ContentHashes(None)) == ["me/judge", "a" * 40]


ROWS = eval_comparisons(WorldConfig(eval_comparisons=30), seed=5)
AT_ONE = SamplingConfig(temperature=1.0)


class Drawing(ScriptedEngine):
    """Answers by seed and place alone, as the random numbers of a real engine do."""

    def __init__(self) -> None:
        super().__init__(noisy)

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        drawn = [number(seed, place) for place in places(requests)]
        drawn_requests = zip(drawn, requests, strict=True)
        texts = [f"[[{'ABC'[n % 3] if r.step == 'pairwise' else 1 + n % 10}]]" for n, r in drawn_requests]
        return [Completion(text=text, finish_reason="stop") for text in texts]


def branching(plan: Plan, early_stop: bool = False) -> Judge:
    engine = WorldEngine(WorldEngineConfig(error_rate=0.4))
    return BranchingJudge(
        engine, load_prompt_set("compact"), JudgeOptions(branches=3, steps=SAMPLING, early_stop=early_stop, plan=plan)
    )


@pytest.mark.parametrize(
    "judge",
    [
        branching("shared"),
        branching("independent"),
        branching("shared", early_stop=True),
        PairwiseJudge(Drawing(), sampling=AT_ONE),
        PointwiseJudge(Drawing(), sampling=AT_ONE),
    ],
    ids=["shared", "independent", "early_stop", "pairwise", "pointwise"],
)
def test_what_is_sampled_for_a_row_depends_on_the_row_alone(judge: Judge) -> None:
    together = judge.compare_batch(ROWS, 3)
    assert [judge.compare_batch([row], 3)[0] for row in ROWS] == together
    assert judge.compare_batch(ROWS[::-1], 3) == together[::-1]
    assert judge.compare_batch(ROWS, 4) != together, "another seed samples anew"
    assert len({(p.verdict, p.margin) for p in together}) > 2, "rows do not share random numbers"


def test_a_row_s_number_follows_from_its_texts() -> None:
    one = Comparison.of("Why?", "a", "b")
    same = replace(one, id="other", model_a="m", label="A")
    assert one.number == same.number < 2**40
    different = [one, one.swapped(), Comparison.of("Why", "a", "b"), Comparison.of("Why?", "ab", ""), comparison(1)]
    assert len({other.number for other in different}) == len(different)
