"""Any judge by its name, in Python, and how it is called."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from judgetrain.engines import model_check
from judgetrain.engines.config import WORLD_BASE, ModelConfig, OpenAIEngineConfig, TransformersEngineConfig
from judgetrain.errors import ConfigError, DataError, EngineError, JudgetrainError
from judgetrain.judges import (
    BranchingJudge,
    LongerJudge,
    Message,
    PairwiseJudge,
    PointwiseJudge,
    ScorerJudge,
    load_judge,
)
from judgetrain.judges.base import Prediction
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.factory import judge_directory
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.schema import Comparison
from tests.builders.faulty_server import serving

ASKED = "how do i cook apple cake ?", "use exactly three cups of warm water .", "it could be fun ."


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A judge's directory as training writes it, with the weights of the shipped base."""
    directory = tmp_path_factory.mktemp("artifact") / "model"
    shutil.copytree(WORLD_BASE, directory)
    load_prompt_set("compact").save(directory)
    JudgeConfig(criteria_tokens=24, guideline_tokens=8, judgment_tokens=16, reference=False).save(directory, criteria=4)
    return directory


def test_a_directory_is_a_branching_judge_that_is_asked_as_it_says(trained: Path) -> None:
    judge = load_judge(trained, branches=2)
    assert isinstance(judge, BranchingJudge)
    assert (judge.options.branches, judge.options.steps.criteria, judge.options.steps.reference) == (2, 4, False)
    assert isinstance(judge(*ASKED), Prediction)
    judge.close()


def test_options_and_keys_change_how_it_is_asked(trained: Path) -> None:
    judge = load_judge(f"{trained}+sampled+independent@3", rubric="first", prompts="multi_step")
    assert isinstance(judge, BranchingJudge)
    asked, steps = judge.options, judge.options.steps
    assert (asked.branches, asked.plan, steps.rubric, steps.judgment_sampling.temperature) == (
        3,
        "independent",
        "first",
        1.0,
    )
    assert judge.prompts.name == "multi_step" and judge.name.endswith("+sampled+independent")


def test_the_artifact_that_holds_it_is_enough_and_so_is_a_name_without_a_slash(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judge_directory(str(trained.parent)) == trained
    monkeypatch.chdir(trained.parent)
    assert isinstance(load_judge("model"), BranchingJudge)
    monkeypatch.chdir(trained)
    assert isinstance(load_judge("."), BranchingJudge)


def test_any_model_is_asked_once() -> None:
    judge = load_judge("pairwise:world", max_new_tokens=3)
    assert isinstance(judge, PairwiseJudge) and judge.sampling.max_new_tokens == 3
    assert judge(*ASKED).consistent is None
    assert isinstance(load_judge(f"pointwise:{WORLD_BASE}"), PointwiseJudge)


def test_a_scorer_reads_the_model_given() -> None:
    judge = load_judge("scorer:sentprob", model="world")
    assert isinstance(judge, ScorerJudge) and judge(*ASKED).verdict in ("A", "B")
    engine = TransformersEngineConfig(model=ModelConfig(path="world"))
    assert load_judge("scorer:sentprob", engine=engine)(*ASKED).margin == judge(*ASKED).margin


def test_baselines() -> None:
    judge = load_judge("longer")
    assert isinstance(judge, LongerJudge) and judge(*ASKED).consistent is True
    assert load_judge("first")(*ASKED).consistent is False


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


def test_a_judge_of_the_hub_is_fetched(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: list[Any] = []

    def download(repo: str, **how: Any) -> str:
        asked.append((repo, how["revision"]))
        return str(trained)

    monkeypatch.setattr(model_check, "check_on_hub", lambda path, revision, file: ["config.json", "prompts.yaml"])
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    judge = load_judge("me/judge", engine=TransformersEngineConfig(model=ModelConfig(revision="v1")))
    assert isinstance(judge, BranchingJudge) and judge.name == "judge" and asked == [("me/judge", "v1")]
    monkeypatch.setattr(model_check, "check_on_hub", lambda path, revision, file: ["config.json"])
    with pytest.raises(EngineError, match=r"me/model: .*holds no prompts\.yaml"):
        load_judge("me/model")


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("nowhere", {}, "'nowhere' is no judge; there are a judge's directory, .*longer"),
        ("./nowhere", {}, r"\./nowhere: there is no such directory"),
        ("me/judge", {}, "me/judge: there is no such directory, and of the Hub: HF_HUB_OFFLINE is set"),
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
        ("pairwise:world", {"temperature": -1.0}, r"sampling\.temperature=-1\.0"),
    ],
)
def test_what_names_no_judge_is_refused(name: str, how: dict[str, Any], message: str) -> None:
    with pytest.raises(JudgetrainError, match=message):
        load_judge(name, **how)


def test_a_judge_is_refused_what_it_cannot_do(trained: Path) -> None:
    for how, message in [
        ({"branches": 5}, "branches=5: allowed are 1 to the 4 criteria"),
        ({"temprature": 1.0}, "temprature: there is no such setting here.*; did you mean temperature\\?"),
        ({"branch": 3}, "branch: there is no such setting here.*; did you mean branches\\?"),
        ({"score": "x"}, r"judge\.score='x'"),
        ({"aggregation": "meen"}, "aggregation='meen': allowed are vote, mean, fitted"),
    ]:
        with pytest.raises(ConfigError, match=message):
            load_judge(trained, **how)
    with pytest.raises(ConfigError, match=r"holds no prompts\.yaml.*pairwise:"):
        load_judge(WORLD_BASE)


judge = LongerJudge()


def test_one_comparison_is_given_as_strings() -> None:
    found = judge("Why?", "Because.", "No.")
    assert (found.verdict, found.comparison_id) == ("A", Comparison.of("Why?", "Because.", "No.").id)


def test_messages_and_strings_are_the_same_prompt() -> None:
    as_messages = [{"role": "user", "content": "Why?"}]
    assert Comparison.of("Why?", "a", "b") == Comparison.of(as_messages, "a", "b")
    assert Comparison.of([Message("user", "Why?")], "a", "b") == Comparison.of("Why?", "a", "b")
    assert Comparison.of("Why?", "a", "b").id != Comparison.of("Why?", "b", "a").id


def test_earlier_turns_are_the_dialogue_s_context() -> None:
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Why?"},
    ]
    dialogue = Comparison.of(turns, "a", "b").dialogue
    assert (dialogue.query, dialogue.context) == ("Why?", "User: Hi\nAssistant: Yes?")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("p", ["a"], ["b"]), "expected a prompt and one or two responses, which are texts; found str, list, list"),
        (([], "a", "b"), "the last message to be the user's, found none at all"),
        (([{"role": "assistant", "content": "x"}], "a", "b"), "the last message to be the user's, found assistant"),
        (([{"role": "user"}], "a", "b"), "message 0: expected a role and a content"),
        ((None, "b", "c"), "found NoneType"),
        ((5, "b", "c"), "found int"),
        (([5], "b", "c"), "message 0: .* found int"),
        (("q", None, "c"), "found str, NoneType, str"),
    ],
)
def test_what_is_no_comparison_is_refused(given: tuple, message: str) -> None:
    with pytest.raises(DataError, match=message):
        judge(*given)
