"""A finished judge on a new or corrected benchmark: only stage evaluate is made, and what is wrong is said at once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.pipeline import here

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
TRAINED = [
    *("recipe=debug", "tree.criteria=10", "tree.guidelines=1", "tree.judgments=1", "tree.max_comparisons=6"),
    *("train.sft.max_steps=1", "train.dpo.max_steps=1", "track.tracker=none"),
]
BENCHMARK = "{name: test, source: {name: test, path: test.jsonl, format: comparison}}"


def write(path: Path, queries: list[str], labels: list[str]) -> None:
    rows = [
        {"id": i, "query": q, "response_a": f"first answer {i}", "response_b": f"second {i}", "label": label}
        for i, (q, label) in enumerate(zip(queries, labels, strict=True))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def command(root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    asked = "stage=evaluate", "evaluate.methods=[dpo,random]", "evaluate.branches=[1]"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return here(*TRAINED, *asked, *more)


def manifests(root: Path) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in sorted(root.glob("outputs/artifacts/*/*/manifest.json"))}


def made(before: dict[Path, int], after: dict[Path, int]) -> list[str]:
    """The stages that were made between two looks; nothing that was there is touched."""
    assert before.items() <= after.items()
    return [path.parent.parent.name for path in after.keys() - before.keys()]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("judge")
    write(root / "test.jsonl", ["Write a poem on rain.", "What is a fjord?", "Sort these."], ["A", "B", "C"])
    named = [f"evaluate.benchmarks=[{BENCHMARK}]", f"dialogues.decontaminate=[{BENCHMARK}]"]
    refused = command(root, *named)
    assert refused.returncode == 2 and re.search(r"test\.jsonl:3: .*'C'", refused.stderr), refused.stderr
    assert not (root / "outputs" / "artifacts").exists(), "nothing runs before the labels are read"
    write(root / "test.jsonl", ["Write a poem on rain.", "What is a fjord?", "Sort these."], ["A", "B", "B"])
    done = command(root, *named)
    assert done.returncode == 0, done.stderr + done.stdout
    return root


def test_a_corrected_label_makes_only_evaluate_and_asks_no_judge_again(root: Path) -> None:
    before = manifests(root)
    assert {p.parent.parent.name for p in before} >= {"dialogues", "tree", "dpo", "evaluate"}
    write(root / "test.jsonl", ["Write a poem on rain.", "What is a fjord?", "Sort these."], ["A", "B", "tie"])
    done = command(root, f"evaluate.benchmarks=[{BENCHMARK}]", f"dialogues.decontaminate=[{BENCHMARK}]")
    assert done.returncode == 0, done.stderr
    assert made(before, manifests(root)) == ["evaluate"]
    assert "trees-test-dpo: 1 shards are those of" in done.stdout


def test_the_command_of_the_page_measures_a_finished_judge_as_written(root: Path) -> None:
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = (text for text in blocks if "my_judge" in text)
    write(root / "mine.jsonl", ["How deep is the sea?", "What is red?"], ["A", "B"])
    before = manifests(root)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", block], cwd=root, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert made(before, manifests(root)) == ["evaluate"]
    (evaluation,) = (path.parent for path in manifests(root).keys() - before.keys())
    rows = json.loads((evaluation / "metrics.json").read_text())
    assert {(r["method"], r["branches"]) for r in rows} == {("my_judge", k) for k in (1, 3, 10)} | {("random", 0)}
