"""``recipe=pairs`` on sixty rows of one's own: it ends with a judge, or says why before anything runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from tests.builders.engines import tiny_llama, word_tokenizer
from tests.builders.pipeline import here
from tests.pipeline.test_docs import commands

PAGE = Path(__file__).parents[2] / "docs" / "own_data.md"
SHORT = ["judge.criteria_tokens=120", "judge.guideline_tokens=60", "judge.judgment_tokens=80", "robustness.sample=1"]
"""Texts that fit beside a prompt into the 512 tokens that the world's base reads, and one attack of each kind."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mine")
    rows = [
        {"query": c.dialogue.query, "response_a": c.response_a, "response_b": c.response_b, "label": c.label}
        for c in eval_comparisons(WorldConfig(eval_comparisons=68), seed=4)
    ]
    for name, part in (("train", rows[:60]), ("test", rows[60:])):
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    return directory


def in_a_minute(data: Path, model: str) -> list[str]:
    """Return the page's command for a short look, as written but for the two words that stand for the user's own."""
    matching = [words for words in commands(PAGE) if "teacher.comparisons=20" in words]
    assert len(matching) == 1, "the page has one such command"
    return [word.replace("DIR", str(data)).replace("MODEL", model) for word in matching[0]]


def test_the_page_s_short_look_ends_with_the_table_of_all_judges(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = here(*in_a_minute(data, "world"), *SHORT, "train.sft.min_steps=4", "tree.constrained=true")
    assert done.returncode == 0, done.stderr + done.stdout
    assert re.search(r"teacher: 20 read, 20 made, [\d,]+ tokens", done.stdout + done.stderr), (
        "nothing that the teacher wrote was dropped"
    )
    evaluated = next((tmp_path / "outputs/artifacts/evaluate").iterdir())
    rows = json.loads((evaluated / "metrics.json").read_text())
    assert {row["method"] for row in rows} >= {"base", "initial", "sft", "dpo", "longer", "surface"}
    examples = next((tmp_path / "outputs/artifacts/teacher").iterdir())
    texts = [row["completion"][0]["content"] for row in read_rows(examples, "examples") if row["level"] == "judgment"]
    assert texts and all(re.search(r"^Response A Score: [234]\nResponse B Score: [234]$", text, re.M) for text in texts)


def test_a_model_that_learns_no_form_ends_with_the_judge_before_and_the_reason(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tokenizer = word_tokenizer()
    tokenizer.save_pretrained(tmp_path / "model")
    tiny_llama(len(tokenizer), max_position_embeddings=2048).save_pretrained(tmp_path / "model")
    short = ["train.initial.min_steps=1", "train.initial.max_steps=1", "tree.guidelines=1", *SHORT]
    done = here(*in_a_minute(data, str(tmp_path / "model")), *short)
    assert done.returncode == 0, done.stderr + done.stdout
    printed = done.stdout + done.stderr
    assert re.search(r"evaluate: stage label came to nothing, .* no branch of \d+ trees survived", printed)
    rows = json.loads((next((tmp_path / "outputs/artifacts/evaluate").iterdir()) / "metrics.json").read_text())
    assert {row["method"] for row in rows} == {"base", "initial", "random", "first", "longer", "surface"}
