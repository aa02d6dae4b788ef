"""Methods: every form of their names, what they become in tables and files, and what they change in the asking."""

from __future__ import annotations

from pathlib import Path

import pytest

from judgetrain.judges.method import BASELINE, BRANCHING, TARGETS, Method

ARTIFACT = "outputs/artifacts/dpo/0123456789abcdef/model"


@pytest.mark.parametrize(
    ("text", "kind", "target", "readouts", "name"),
    [
        *[(target, BRANCHING, target, (), target) for target in TARGETS],
        ("dpo+expected", BRANCHING, "dpo", ("expected",), "dpo+expected"),
        ("dpo+expected+constrained", BRANCHING, "dpo", ("expected", "constrained"), "dpo+expected+constrained"),
        ("./mine", BRANCHING, "./mine", (), "mine"),
        ("./a+b", BRANCHING, "./a+b", (), "a+b"),
        ("./mine+parsed", BRANCHING, "./mine", ("parsed",), "mine+parsed"),
        (ARTIFACT, BRANCHING, ARTIFACT, (), "dpo-012345"),
        (f"{ARTIFACT}+constrained", BRANCHING, ARTIFACT, ("constrained",), "dpo-012345+constrained"),
        ("one_step:base", "one_step", "base", (), "one_step:base"),
        ("rating:./models/mine", "rating", "./models/mine", (), "rating:mine"),
        (f"rating:{ARTIFACT}", "rating", ARTIFACT, (), "rating:dpo-012345"),
        ("one_step:base+expected", "one_step", "base+expected", (), "one_step:base+expected"),
        ("scorer:sentprob", "scorer", "sentprob", (), "scorer:sentprob"),
        ("stored:a/b", "stored", "a/b", (), "stored:a/b"),
        ("runs:1/model", BRANCHING, "runs:1/model", (), "model"),
        ("words:20", "words", "20", (), "words:20"),
        ("random", BASELINE, "random", (), "random"),
        ("dpo+sampled", BASELINE, "dpo+sampled", (), "dpo+sampled"),
    ],
)
def test_every_form_of_a_name(text: str, kind: str, target: str, readouts: tuple[str, ...], name: str) -> None:
    method = Method.parse(text)
    assert (method.kind, method.target, method.readouts, method.text) == (kind, target, readouts, text)
    assert method.name == name
    assert method.file_name == name.replace(":", ".")
    assert method.has_branches == (kind == BRANCHING)
    assert method.names_model == (kind in (BRANCHING, "one_step", "rating") and (target in TARGETS or "/" in target))
    assert method.is_directory == (method.names_model and "/" in target)


@pytest.mark.parametrize(
    ("readouts", "changes"),
    [
        ("", {}),
        ("+parsed", {"readout": "parsed"}),
        ("+expected", {"readout": "expected"}),
        ("+constrained", {"constrained": True}),
        ("+expected+constrained", {"readout": "expected", "constrained": True}),
        ("+expected+parsed", {"readout": "parsed"}),
    ],
)
def test_readouts_change_how_a_judge_is_asked(readouts: str, changes: dict[str, object]) -> None:
    assert Method.parse(f"dpo{readouts}").asking == changes


def test_a_link_is_named_by_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "sft-lora").mkdir()
    (tmp_path / "newest").symlink_to(tmp_path / "sft-lora")
    assert Method.parse(f"{tmp_path}/newest").name == "sft-lora"
    assert Method.parse(f"{tmp_path}/sft-lora/").name == "sft-lora"
    (tmp_path / "dpo" / "0123456789abcdef" / "model").mkdir(parents=True)
    for name in ("id-dpo", "ood-dpo"):
        (tmp_path / name).symlink_to(tmp_path / "dpo" / "0123456789abcdef" / "model")
        assert Method.parse(f"{tmp_path}/{name}").name == name, "recipe=tables/table1 has many such links side by side"
