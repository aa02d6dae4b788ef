"""The ablation's tables on artifacts whose figures can be counted by hand."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from judgetrain.artifacts.files import write_json_atomic, write_rows_atomic
from judgetrain.data.config import WorldConfig
from judgetrain.data.world import train_dialogues, true_verdict
from judgetrain.data.world.language import load_language
from tests.benchmarks import reward_ablation
from tests.benchmarks.quickstart_claims import Seed
from tests.benchmarks.reward_ablation import label_fates, share, tables, upstream
from tests.builders.label import tree_of

RICH, POOR = "a response", "no ."


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Trees of four queries, a label artifact and an evaluation for each of two settings."""
    names = list(load_language().properties)[:2]
    trees = []
    for index, dialogue in enumerate(train_dialogues(WorldConfig(train_dialogues=8), 3)[:4]):
        tree = tree_of(("AAAA",), ("AABt",), index=index)
        criteria = tuple(replace(c, text=f"{n}: x") for c, n in zip(tree.criteria, names, strict=True))
        comparison = replace(tree.comparison, dialogue=dialogue, response_a=RICH, response_b=POOR)
        trees.append(replace(tree, comparison=comparison, criteria=criteria))
    root = tmp_path / "artifacts"
    write_rows_atomic(root / "tree" / "t" / "trees.jsonl", (t.to_row() for t in trees))
    write_json_atomic(root / "tree" / "t" / "manifest.json", {"stage": "tree", "upstream": {}})
    truths = [true_verdict(t.comparison.dialogue.query, RICH, POOR) for t in trees]
    for mark in ("one", "two"):
        labels = [{"comparison_id": t.comparison.id, "verdict": "A"} for t in trees[1:]]
        labels.append({"comparison_id": trees[0].comparison.id, "verdict": None})
        directory = root / "label" / mark
        write_rows_atomic(directory / "labels.jsonl", labels)
        write_rows_atomic(directory / "pairs-train.jsonl", [])
        write_json_atomic(directory / "manifest.json", {"stage": "label", "upstream": {"tree": "t"}})
        write_json_atomic(
            root / "dpo" / mark / "manifest.json", {"stage": "dpo", "upstream": {"sft": mark, "label": mark}}
        )
        write_json_atomic(root / "sft" / mark / "manifest.json", {"stage": "sft", "upstream": {"label": mark}})
        write_json_atomic(root / "evaluate" / mark / "manifest.json", {"stage": "evaluate", "upstream": {"dpo": mark}})
        rows = [
            {"benchmark": "w", "method": "dpo", "branches": k, "n": 7, "agreement": k / 100, "consistency": 0.5,
             "agreement_ci": [0.0, 0.5], "consistency_ci": [0.25, 0.75]}
            for k in (10, 1, 3)
        ]  # fmt: skip
        write_json_atomic(root / "evaluate" / mark / "metrics.json", rows)
    scores = [
        {"node": j.id, "level": "judgment", "sentprob": float(j.verdict == "A"), "probdiff": "no_revision"}
        for t in trees
        for _, _, j in t.judgments()
    ]
    for signal, score in (("glassbox", "sentprob"), ("probdiff", "probdiff")):
        rows = [{name: row[name] for name in ("node", "level", score)} for row in scores]
        write_rows_atomic(root / "label" / "two" / f"branch-scores-{signal}-00000-of-00001.jsonl", rows)
    (tmp_path / "truths.json").write_text(json.dumps(truths))
    return tmp_path


def test_every_table_by_hand(output: Path) -> None:
    done = {"ensemble": output / "artifacts/evaluate/one", "+ both": output / "artifacts/evaluate/two"}
    assert upstream(done["+ both"], "label", output).name == "two"
    assert upstream(done["+ both"], "tree", output).name == "t"
    printed = tables(done, output)
    truths = json.loads((output / "truths.json").read_text())[1:]
    right, n = truths.count("A"), sum(t != "tie" for t in truths)
    assert f"| ensemble | {share(right, n)} | {share(0, 0)} | {share(0, 0)} | {share(0, 0)} |" in printed
    figures = " | ".join(f"{k}.0 (0.0–50.0) | 50.0 (25.0–75.0)" for k in (1, 3, 10))
    assert f"| + both | {figures} |" in printed, "in order of k"
    assert "| sentprob | 32 | " in printed, "read with the most signals, of four trees with eight judgments"
    assert "| probdiff |" not in printed, "no judgment has that score"


def test_labels_by_hand(output: Path) -> None:
    rows = [{"comparison_id": "x", "verdict": None}]
    assert label_fates(rows, {}) == {}
    assert share(3, 4) == "75.0 (30.1–95.4; 4)"


def test_settings_over_seeds_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    right = {"one": [True, False, False, False], "two": [True, True, True, False]}

    def fake(directory: Path, benchmark: str | None, seed: int) -> Seed:
        share = sum(right[directory.name]) / 4
        rows = {("dpo", 1): {"agreement": share + (seed - 2) / 100, "consistency": 0.5}}
        return Seed(rows=rows, right={("dpo", 1): right[directory.name]})

    monkeypatch.setattr(reward_ablation, "load", fake)
    printed = reward_ablation.over_seeds({"a": [Path("one")] * 3, "b": [Path("two")] * 3}, [1, 2, 3])
    assert "| a | 25.0 ± 1.0 | – | 50.0 ± 0.0 |" in printed
    # 6 of 12 are gained, none lost: twice the chance of six heads in six throws.
    assert "| b | 75.0 ± 1.0 | +50.0 (" in printed and f"p {2 / 2**6:.2g})" in printed
    assert "n = 12." in printed


def test_the_settings_asked_for_are_run_with_what_they_share(
    output: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def fake(recipe: str, seed: int, directory: Path, overrides: list[str]) -> Path:
        asked.append((recipe, seed, overrides))
        return output / "artifacts/evaluate/one"

    monkeypatch.setattr(reward_ablation, "run", fake)
    monkeypatch.setattr(sys, "argv", ["x", "--seed", "3", f"--output={output}", "--only", "ensemble", "external judge"])
    reward_ablation.command("", reward_ablation.SETTINGS, reward_ablation.SHARED, reward_ablation.tables)
    assert [a[:2] for a in asked] == [("quickstart", 3)] * 2
    assert [a[2][len(reward_ablation.SHARED) :] for a in asked] == [[], ["label.source=external"]]
    assert all("evaluate.branches=[1,3,10]" in a[2] for a in asked)
    assert "seed 3; n = 7 held-out comparisons" in capsys.readouterr().out
