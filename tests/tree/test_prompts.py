"""Prompt sets as data: every slot present, none unknown, user text never read as a template."""

from __future__ import annotations

from pathlib import Path

import pytest

from judgetrain.errors import ConfigError
from judgetrain.tree.prompts import PACKAGED, SLOTS, load_prompt_set

SLOT_VALUES = {
    "query": "what {criterion} is {query}?", "context": "", "count": "7", "criterion": "Depth: x", "guideline": "5 if",
    "response_a": "{response_b} $x", "response_b": "B text",
}  # fmt: skip


@pytest.mark.parametrize("name", [p.stem for p in PACKAGED.glob("*.yaml")])
def test_packaged_sets_use_every_slot_and_leave_user_text_alone(name: str) -> None:
    prompts = load_prompt_set(name)
    for step in SLOTS:
        text = "".join(m["content"] for m in prompts.render(step, SLOT_VALUES))
        assert SLOT_VALUES["query"] in text
        if step == "judgment":
            assert text.index("{response_b} $x") < text.index("B text")
        assert "context_block" not in text


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
    ("change", "message"),
    [
        (("{criterion}\n    Response", "{criterion}\n    Response"), None),
        (("Guideline: {guideline}", "Guideline:"), r"judgment.*lacks.*\{guideline\}"),
        (("Response A: {response_a}", "Response A: {response_a} {score}"), r"judgment.*unknown slot \{score\}"),
        (('context: "Context: {context}\\n"', "context: none"), r"fragment 'context'"),
        (("criteria:\n", "criteria:\n  system: null\n"), r"'criteria', 'system': expected"),
        (("criteria:\n", "criteria:\n  sytem: Be kind.\n"), r"'criteria', 'sytem': expected"),
        (('context: "Context: {context}\\n"', "context: 5"), r"fragment 'context'"),
        (("name: compact", "name: [1"), r"not valid YAML"),
        (("guideline:\n  user", "guideline:\n  assistant"), r"'guideline' needs a 'user' template"),
    ],
)
def test_a_broken_set_names_file_step_and_slot(change: tuple[str, str], message: str | None, tmp_path: Path) -> None:
    source = (PACKAGED / "compact.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(source.replace(*change))
    if message is None:
        load_prompt_set(path)
        return
    with pytest.raises(ConfigError, match=message) as error:
        load_prompt_set(path)
    assert "mine.yaml" in str(error.value)


def test_an_unknown_set_lists_the_packaged_ones() -> None:
    with pytest.raises(ConfigError, match=r"compact, multi_step"):
        load_prompt_set("nowhere")
