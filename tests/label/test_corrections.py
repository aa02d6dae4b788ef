"""Correction pairs among the SFT examples: asked as stage correct asks, and learned as the corrected response."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

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

NONE = {"judgment": "It names none."}
ROWS = [NONE | {"query": f"Name river {i}.", "response": f"Blue {i}.", "corrected": f"Rhine {i}."} for i in range(40)]


def labelled(directory: Path, rows: list[dict[str, Any]], **benchmark: Any) -> tuple[StageRun, dict[str, list[Any]]]:
    """The stage with correction rows, and its correction examples by split."""
    trees = StageRun(directory / "tree", "tree", 0, Console())
    trees.write_rows("trees", (t.to_row() for t in TREES[:6]))
    config = Config(prompts="compact", tree=TreeConfig(criteria=4), label=LabelConfig(holdout=0.3, **ANY_EVIDENCE))
    if rows:
        config.label.corrections = SourceConfig(path=write_lines(directory / "c.jsonl", rows))
    if benchmark:
        config.dialogues.decontaminate = [BenchmarkConfig("b", SourceConfig(**benchmark))]
    out = StageRun(directory / "out", "label", 0, Console())
    label_stage.run(LabelSettings.of(config), {"tree": directory / "tree"}, out)
    split = ("sft-train", "sft-heldout")
    return out, {n: [r for r in read_rows(out.directory, n) if r["level"] == "correction"] for n in split}


def said(split: dict[str, list[Any]]) -> dict[str, str]:
    """The prompts of the examples by what they teach."""
    taken = [row for rows in split.values() for row in rows]
    return {row["completion"][0]["content"]: row["prompt"][-1]["content"] for row in taken}


def test_they_are_examples_of_their_own_level(tmp_path: Path) -> None:
    without, _ = labelled(tmp_path / "a", [])
    out, split = labelled(tmp_path / "b", ROWS)
    found = said(split)
    assert sum(map(len, split.values())) == len(ROWS) and 0 < len(split["sft-heldout"]) < 25, "a share is held out"
    before, after = (len(list(read_rows(run.directory, "sft-train"))) for run in (without, out))
    assert after == before + len(split["sft-train"])
    for row in ROWS:
        prompt = found[row["corrected"]]
        assert row["response"] in prompt and row["judgment"] in prompt and row["corrected"] not in prompt
    assert out.notes["yield"]["corrections"] == {"taken": len(ROWS)}


def test_rows_that_hold_a_benchmark_s_query_are_left_out_and_counted(tmp_path: Path) -> None:
    held = [{"query": ROWS[i]["query"], "response_a": "x", "response_b": "y", "label": "A"} for i in (3, 8)]
    benchmark = {"name": "b", "path": write_lines(tmp_path / "b.jsonl", held), "format": "comparison"}
    out, split = labelled(tmp_path, ROWS, **benchmark)
    assert {*said(split)} == {row["corrected"] for i, row in enumerate(ROWS) if i not in (3, 8)}
    assert out.totals()["counts"]["dropped"]["corrections:contaminated"] == 2


def test_what_stage_correct_wrote_is_taken_as_it_is(tmp_path: Path) -> None:
    """Its rows call the judgment evaluation, and have no corrected response where the old one was good enough."""
    made = [
        Correction(f"c{i}", "A", "m", row["query"], row["response"], 2.0, row["judgment"], row["corrected"])
        for i, row in enumerate(ROWS)
    ]
    made[5] = replace(made[5], score=4.0, corrected=None)
    out, split = labelled(tmp_path, [asdict(c) for c in made])
    assert {*said(split)} == {r["corrected"] for r in ROWS} - {ROWS[5]["corrected"]}
    assert all("It names none." in prompt for prompt in said(split).values())
    assert out.totals()["counts"]["dropped"]["corrections:not_corrected"] == 1


def test_a_row_without_a_judgment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"c\.jsonl:2: expected text in the columns .*: judgment has none"):
        labelled(tmp_path, [ROWS[0], {**ROWS[1], "judgment": " "}])
