"""Methods by their names, and what is checked of their lengths before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from judgetrain.errors import ConfigError
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.method import BASELINE, BRANCHING, TARGETS, Method
from judgetrain.judges.settings import check_lengths, too_long_hint
from judgetrain.judging.rows import Summary

ARTIFACT = "outputs/artifacts/dpo/0123456789abcdef/model"


@pytest.mark.parametrize(
    ("text", "kind", "target", "options", "name"),
    [
        *[(target, BRANCHING, target, (), target) for target in TARGETS],
        ("dpo+expected", BRANCHING, "dpo", ("expected",), "dpo+expected"),
        ("dpo+expected+constrained", BRANCHING, "dpo", ("expected", "constrained"), "dpo+expected+constrained"),
        ("./mine", BRANCHING, "./mine", (), "mine"),
        ("./mine/", BRANCHING, "./mine/", (), "mine"),
        ("/judges/a.b", BRANCHING, "/judges/a.b", (), "a.b"),
        ("a/pairwise:b", BRANCHING, "a/pairwise:b", (), "pairwise:b"),
        ("./a+b", BRANCHING, "./a+b", (), "a+b"),
        ("dpo+sampled", BRANCHING, "dpo", ("sampled",), "dpo+sampled"),
        ("dpo+greedy+expected", BRANCHING, "dpo", ("greedy", "expected"), "dpo+greedy+expected"),
        ("./mine+parsed", BRANCHING, "./mine", ("parsed",), "mine+parsed"),
        (ARTIFACT, BRANCHING, ARTIFACT, (), "dpo-012345"),
        (f"{ARTIFACT}+constrained", BRANCHING, ARTIFACT, ("constrained",), "dpo-012345+constrained"),
        ("pairwise:base", "pairwise", "base", (), "pairwise:base"),
        ("pointwise:./models/mine", "pointwise", "./models/mine", (), "pointwise:mine"),
        (f"pointwise:{ARTIFACT}", "pointwise", ARTIFACT, (), "pointwise:dpo-012345"),
        ("pairwise:base+expected", "pairwise", "base+expected", (), "pairwise:base+expected"),
        ("scorer:sentprob", "scorer", "sentprob", (), "scorer:sentprob"),
        ("stored:a/b", "stored", "a/b", (), "stored:a/b"),
        ("runs:1/model", BRANCHING, "runs:1/model", (), "model"),
        ("words:20", "words", "20", (), "words:20"),
        ("random", BASELINE, "random", (), "random"),
        ("dpo+hot", BASELINE, "dpo+hot", (), "dpo+hot"),
    ],
)
def test_every_form_of_a_name(text: str, kind: str, target: str, options: tuple[str, ...], name: str) -> None:
    method = Method.parse(text)
    assert (method.kind, method.target, method.options, method.text) == (kind, target, options, text)
    assert method.name == name
    assert method.file_name == name.replace(":", ".")
    assert method.has_branches == (kind == BRANCHING)
    assert method.names_model == (kind in (BRANCHING, "pairwise", "pointwise") and (target in TARGETS or "/" in target))
    assert method.is_directory == (method.names_model and "/" in target)


@pytest.mark.parametrize(
    ("text", "target", "name", "numbers"),
    [
        ("dpo", "dpo", "dpo", [1, 3, 10]),
        ("dpo@3", "dpo", "dpo", [1, 3]),
        ("dpo+sampled+independent@1", "dpo", "dpo+sampled+independent", [1]),
        ("./a@b", "./a@b", "a@b", [1, 3, 10]),
        ("./mine+sampled@5", "./mine", "mine+sampled", [1, 3]),
    ],
)
def test_a_method_may_be_asked_with_fewer_branches(text: str, target: str, name: str, numbers: list[int]) -> None:
    method = Method.parse(text)
    assert (method.kind, method.target, method.name, method.branches([1, 3, 10])) == (BRANCHING, target, name, numbers)
    assert method.branches([9]) == ([9] if method.most is None else [method.most]), "its own where all are larger"


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ("", {}),
        ("+parsed", {"score": "parsed"}),
        ("+expected", {"score": "expected"}),
        ("+constrained", {"constrained": True}),
        ("+expected+constrained", {"score": "expected", "constrained": True}),
        ("+expected+parsed", {"score": "parsed"}),
        ("+greedy", {"temperature": 0.0}),
        ("+sampled", {"temperature": 1.0}),
        ("+independent", {"plan": "independent"}),
        ("+sampled+shared", {"temperature": 1.0, "plan": "shared"}),
        ("+sampled+expected", {"temperature": 1.0, "score": "expected"}),
    ],
)
def test_options_change_how_a_judge_is_asked(options: str, changes: dict[str, object]) -> None:
    method = Method.parse(f"dpo{options}")
    assert method.changes == changes and {*method.changes} - {*method.asking} <= {"plan"}


def test_a_link_is_named_by_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "sft-lora").mkdir()
    (tmp_path / "newest").symlink_to(tmp_path / "sft-lora")
    assert Method.parse(f"{tmp_path}/newest").name == "sft-lora"
    assert Method.parse(f"{tmp_path}/sft-lora/").name == "sft-lora"
    (tmp_path / "dpo" / "0123456789abcdef" / "model").mkdir(parents=True)
    for name in ("id-dpo", "ood-dpo"):
        (tmp_path / name).symlink_to(tmp_path / "dpo" / "0123456789abcdef" / "model")
        assert Method.parse(f"{tmp_path}/{name}").name == name, "recipe=tables/table1 has many such links side by side"


def test_answers_as_long_as_the_context_are_refused_with_what_to_set() -> None:
    message = (
        "judge.criteria_tokens=512 judge.judgment_tokens=600: the model of dpo has a context of 512 tokens, which "
        "leaves none for a prompt: lower them, for example judge.criteria_tokens=128 judge.judgment_tokens=128"
    )
    with pytest.raises(ConfigError) as error:
        check_lengths(JudgeConfig(guideline_tokens=511, judgment_tokens=600), "world", "dpo")
    assert str(error.value) == message
    check_lengths(JudgeConfig(criteria_tokens=128, guideline_tokens=128, judgment_tokens=128), "world", "dpo")


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        ({"max_position_embeddings": 512}, True),
        ({"text_config": {"max_position_embeddings": 512}, "max_position_embeddings": 4096}, True),
        ({"n_positions": 256}, True),
        ({"max_position_embeddings": 513}, False),
        ({"vocab_size": 3}, False),
        (None, False),
    ],
)
def test_the_models_own_configuration_says_its_context(tmp_path: Path, content: object, refused: bool) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(json.dumps(content))
    if refused:
        with pytest.raises(ConfigError, match=r"judge\.criteria_tokens=512 judge\.guideline_tokens=512"):
            check_lengths(JudgeConfig(), str(tmp_path), "./mine")
    else:
        check_lengths(JudgeConfig(), str(tmp_path), "./mine")


def test_a_hint_names_what_to_lower_for_each_step_and_nothing_else() -> None:
    told = too_long_hint({"criteria:too_long": 12, "judgment:no_scores": 3, "judgment:too_long": 2})
    assert told is not None and "12 criteria:too_long, 2 judgment:too_long" in told
    assert told.endswith("lower judge.criteria_tokens and judge.judgment_tokens")
    assert too_long_hint({"judgment:no_scores": 3}) is None
    row = {"verdict": "unreadable", "label": None, "failure": "too_long", "branches": 0}
    summary = Summary.of([row | {"failures": {"criteria:too_long": 1}}], "dpo", 1, {"prompt": 1, "generated": 0}, {})
    assert any("lower judge.criteria_tokens" in str(line) for line in summary.told()), "stage judge says it at its end"
