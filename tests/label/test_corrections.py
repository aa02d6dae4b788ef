"""Correction pairs among the SFT examples: asked as stage correct asks, and learned as the corrected response."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.errors import DataError
from judgetrain.extras.correct.correction import Correction
from judgetrain.judges.config import TreeConfig
from judgetrain.label import stage as label_stage
from judgetrain.label.config import LabelConfig
from judgetrain.label.stages import LabelSettings
from judgetrain.pipeline.config import Config
from tests.builders.data import write_lines
from tests.builders.label import ANY_EVIDENCE
from tests.label.test_label import TREES

ROWS = [
    {
        "query": f"Name river {i}.",
        "response": f"Blue {i}.",
        "judgment": "It names none.",
        "corrected": f"The Rhine {i}.",
    }
    for i in range(40)
]


def run(directory: Path, config: Config) -> StageRun:
    trees = StageRun(directory / "tree", "tree", 0, Console())
    trees.write_rows("trees", (t.to_row() for t in TREES[:6]))
    out = StageRun(directory / "out", "label", 0, Console())
    label_stage.run(LabelSettings.of(config), {"tree": directory / "tree"}, out)
    return out


def test_they_are_examples_of_their_own_level(tmp_path: Path) -> None:
    config = Config(prompts="compact", tree=TreeConfig(criteria=4), label=LabelConfig(holdout=0.3, **ANY_EVIDENCE))
    without = len(list(read_rows(run(tmp_path / "a", config).directory, "sft-train")))
    config.label.corrections = SourceConfig(path=write_lines(tmp_path / "c.jsonl", ROWS))
    out = run(tmp_path / "b", config)
    split = {
        n: [r for r in read_rows(out.directory, n) if r["level"] == "correction"] for n in ("sft-train", "sft-heldout")
    }
    taken = [row for rows in split.values() for row in rows]
    assert len(taken) == len(ROWS) and 0 < len(split["sft-heldout"]) < 25, "a share is held out"
    assert len(list(read_rows(out.directory, "sft-train"))) == without + len(split["sft-train"])
    found = {row["completion"][0]["content"]: row["prompt"][-1]["content"] for row in taken}
    for row in ROWS:
        prompt = found[row["corrected"]]
        assert row["response"] in prompt and row["judgment"] in prompt and row["corrected"] not in prompt
    assert out.notes["yield"]["corrections"] == {"taken": len(ROWS)}


def test_rows_that_hold_a_benchmark_s_query_are_left_out_and_counted(tmp_path: Path) -> None:
    held = [{"query": ROWS[i]["query"], "response_a": "x", "response_b": "y", "label": "A"} for i in (3, 8)]
    source = SourceConfig(name="b", path=write_lines(tmp_path / "b.jsonl", held), format="comparison")
    config = Config(prompts="compact", tree=TreeConfig(criteria=4), label=LabelConfig(holdout=0.3, **ANY_EVIDENCE))
    config.label.corrections = SourceConfig(path=write_lines(tmp_path / "c.jsonl", ROWS))
    config.dialogues.decontaminate = [BenchmarkConfig("b", source)]
    out = run(tmp_path, config)
    taught = [
        r for n in ("sft-train", "sft-heldout") for r in read_rows(out.directory, n) if r["level"] == "correction"
    ]
    said = {r["completion"][0]["content"] for r in taught}
    assert said == {row["corrected"] for i, row in enumerate(ROWS) if i not in (3, 8)}
    assert out.totals()["counts"]["dropped"]["corrections:contaminated"] == 2


def test_what_stage_correct_wrote_is_taken_as_it_is(tmp_path: Path) -> None:
    """Its rows call the judgment evaluation, and have no corrected response where the old one was good enough."""
    made = [
        Correction(f"c{i}", "A", "m", row["query"], row["response"], 2.0, row["judgment"], row["corrected"])
        for i, row in enumerate(ROWS)
    ]
    made[5] = replace(made[5], score=4.0, corrected=None)
    config = Config(prompts="compact", tree=TreeConfig(criteria=4), label=LabelConfig(holdout=0.3, **ANY_EVIDENCE))
    config.label.corrections = SourceConfig(path=write_lines(tmp_path / "c.jsonl", [asdict(c) for c in made]))
    out = run(tmp_path, config)
    rows = [r for n in ("sft-train", "sft-heldout") for r in read_rows(out.directory, n) if r["level"] == "correction"]
    assert {r["completion"][0]["content"] for r in rows} == {r["corrected"] for r in ROWS} - {ROWS[5]["corrected"]}
    assert all("It names none." in r["prompt"][-1]["content"] for r in rows)
    assert out.totals()["counts"]["dropped"]["corrections:not_corrected"] == 1


def test_a_row_without_a_judgment_is_refused(tmp_path: Path) -> None:
    config = Config(prompts="compact", tree=TreeConfig(criteria=4), label=LabelConfig(**ANY_EVIDENCE))
    wrong = [ROWS[0], {**ROWS[1], "judgment": " "}]
    config.label.corrections = SourceConfig(path=write_lines(tmp_path / "c.jsonl", wrong))
    with pytest.raises(DataError, match=r"c\.jsonl:2: expected text in the columns .*: judgment has none"):
        run(tmp_path, config)
