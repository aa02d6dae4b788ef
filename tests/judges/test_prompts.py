"""Prompt sets as data: every slot present, none unknown, user text never read as a template."""

from __future__ import annotations

from pathlib import Path

import pytest

from judgetrain.errors import ConfigError
from judgetrain.judges.prompting.prompts import DIALECTS, PACKAGED, SLOTS, Dialect, load_prompt_set, packaged_sets

SLOT_VALUES = {
    "query": "what {criterion} is {query}?", "context": "", "count": "7", "criterion": "Depth: x", "guideline": "5 if",
    "response_a": "{response_b} $x", "response_b": "B text", "response": "{lowest} it", "judgment": "too {short}",
    "judgment_x": "X {says}", "judgment_y": "Y says", "lowest": "31", "highest": "35",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "dialect"), [(name, dialect) for dialect in DIALECTS for name in packaged_sets(dialect)]
)
def test_packaged_sets_use_every_slot_and_leave_user_text_alone(name: str, dialect: Dialect) -> None:
    prompts = load_prompt_set(name, dialect)
    for step in DIALECTS[dialect]:
        text = "".join(m["content"] for m in prompts.render(step, SLOT_VALUES))
        for slot in SLOTS[step] - {"context_block"}:
            assert SLOT_VALUES[slot] in text
        if "response_a" in SLOTS[step]:
            assert text.index("{response_b} $x") < text.index("B text")
        assert "context_block" not in text


def test_every_dialect_has_a_packaged_set_and_every_packaged_set_a_dialect() -> None:
    found = {dialect: packaged_sets(dialect) for dialect in DIALECTS}
    assert found["branching"] == ["compact", "fennec", "multi_step", "paper"]
    assert found["pointwise"] == ["auto_j_rating", "auto_j_score", "pointwise", "pointwise_5"]
    assert all(found.values())
    assert {name for names in found.values() for name in names} == {p.stem for p in PACKAGED.glob("*.yaml")}


def test_one_file_may_hold_several_dialects(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    pairwise = (PACKAGED / "pairwise.yaml").read_text().split("pairwise:\n", 1)[1]
    path.write_text(f"{(PACKAGED / 'compact.yaml').read_text()}\npairwise:\n{pairwise}")
    for dialect in ("branching", "pairwise"):
        assert set(load_prompt_set(path, dialect).steps) == {"criteria", "guideline", "score", "judgment", "pairwise"}  # type: ignore[arg-type]


def test_context_appears_only_when_there_is_one() -> None:
    prompts = load_prompt_set("compact")
    without = prompts.render("guideline", SLOT_VALUES)[0]["content"]
    with_context = prompts.render("guideline", SLOT_VALUES | {"context": "User: hi"})[0]["content"]
    assert "Context" not in without
    assert "Context: User: hi\nQuery" in with_context


def test_a_judge_carries_its_prompts(tmp_path: Path) -> None:
    original = load_prompt_set("multi_step")
    original.save(tmp_path)
    assert load_prompt_set(tmp_path / "prompts.yaml") == original


@pytest.mark.parametrize(
    ("name", "dialect", "change", "message"),
    [
        ("pointwise", "pointwise", ("scale: [1, 10]", "scale: [10, 1]"), r"first number must be below"),
        ("pointwise", "pointwise", ("scale: [1, 10]", ""), r"needs scale: \[lowest, highest\]"),
        ("pointwise", "pointwise", ("scale: [1, 10]", "scale: [0.5, 10]"), r"two whole numbers"),
        ("pointwise", "pairwise", ("", ""), r"step 'pairwise' needs a 'user'"),
        ("pairwise", "pairwise", ("{response_b}", ""), r"'pairwise' lacks the slot \{response_b\}"),
        ("preference", "preference", ("{judgment_y}", ""), r"'preference' lacks the slot \{judgment_y\}"),
        ("correction", "correction", ("{judgment}", "{judge}"), r"'correction' lacks the slot \{judgment\}"),
        ("correction", "correction", ("{query}", "{query} {count}"), r"unknown slot \{count\}"),
        *(
            ("compact", "branching", change, message)
            for change, message in [
                (("judgment:\n", "pointwise: {user: x}\njudgment:\n"), r"step 'pointwise' lacks the slot"),
                (("Guideline: {guideline}", "Guideline:"), r"judgment.*lacks.*\{guideline\}"),
                (("Response A: {response_a}", "Response A: {response_a} {score}"), r"judgment.*unknown slot \{score\}"),
                (('context: "Context: {context}\\n"', "context: none"), r"fragment 'context'"),
                (('context: "Context: {context}\\n"', "context: 5"), r"fragment 'context'"),
                (("criteria:\n", "criteria:\n  system: null\n"), r"'criteria', 'system': expected"),
                (("criteria:\n", "criteria:\n  sytem: Be kind.\n"), r"'criteria', 'sytem': expected"),
                (("name: compact", "name: [1"), r"not valid YAML"),
                (("guideline:\n  user", "guideline:\n  assistant"), r"'guideline' needs a 'user' template"),
            ]
        ),
    ],
)
def test_a_broken_set_names_file_step_and_slot(
    name: str, dialect: Dialect, change: tuple[str, str], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text((PACKAGED / f"{name}.yaml").read_text().replace(*change))
    with pytest.raises(ConfigError, match=message) as error:
        load_prompt_set(path, dialect)
    assert "mine.yaml" in str(error.value)


def test_an_unknown_set_lists_the_packaged_ones() -> None:
    with pytest.raises(ConfigError, match=r"prompts=nowhere: .*\(compact, fennec, multi_step, paper\)"):
        load_prompt_set("nowhere")
    with pytest.raises(ConfigError, match=r"label\.external\.prompts=nowhere: .*\(preference\)"):
        load_prompt_set("nowhere", "preference", "label.external.prompts")
