"""A finished judge on a corrected benchmark: only stage evaluate is made, and what is wrong is said at once."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.builders.pipeline import here

TRAINED = [
    *("recipe=debug", "tree.guidelines=1", "tree.judgments=1", "tree.max_comparisons=6", "track.tracker=none"),
    *(f"train.{stage}.max_steps={steps}" for stage, steps in (("initial", 4), ("sft", 1), ("dpo", 1))),
]
QUERIES = ["Write a poem on rain.", "What is a fjord?", "Sort these."]
BENCHMARK = "{name: test, source: {name: test, path: test.jsonl, format: comparison}}"


def write(path: Path, queries: list[str], labels: list[str]) -> None:
    rows = [
        {"id": i, "query": q, "response_a": f"first answer {i}", "response_b": f"second {i}", "label": label}
        for i, (q, label) in enumerate(zip(queries, labels, strict=True))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def command(root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = "stage=evaluate", "evaluate.methods=[dpo,random]", "evaluate.branches=[1]"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return here(*TRAINED, *words, *more)


def manifests(root: Path) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in sorted(root.glob("outputs/artifacts/*/*/manifest.json"))}


def test_a_corrected_label_makes_only_evaluate_and_asks_no_judge_again(tmp_path: Path) -> None:
    write(tmp_path / "test.jsonl", QUERIES, ["A", "B", "C"])
    named = [f"evaluate.benchmarks=[{BENCHMARK}]", f"dialogues.decontaminate=[{BENCHMARK}]"]
    refused = command(tmp_path, *named)
    assert refused.returncode == 2 and re.search(r"test\.jsonl:3: .*'C'", refused.stderr), refused.stderr
    assert not (tmp_path / "outputs" / "artifacts").exists(), "nothing runs before the labels are read"
    write(tmp_path / "test.jsonl", QUERIES, ["A", "B", "B"])
    done = command(tmp_path, *named)
    assert done.returncode == 0, done.stderr + done.stdout
    before = manifests(tmp_path)
    assert {p.parent.parent.name for p in before} >= {"dialogues", "tree", "dpo", "evaluate"}
    write(tmp_path / "test.jsonl", QUERIES, ["A", "B", "tie"])
    done = command(tmp_path, *named)
    assert done.returncode == 0, done.stderr
    after = manifests(tmp_path)
    assert before.items() <= after.items(), "nothing that was there is touched"
    assert [path.parent.parent.name for path in after.keys() - before.keys()] == ["evaluate"]
    assert "trees-test-dpo: 1 shard is taken from" in done.stdout
