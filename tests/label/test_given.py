"""label.source=given: the data's labels and constructed pairs reach examples, pairs and pages, by the real stages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import (
    DialoguesConfig,
    DialogueSourceConfig,
    ResponseModelConfig,
    ResponsesConfig,
    WorldEngineConfig,
)
from judgetrain.errors import ConfigError, DataError
from judgetrain.judges.config import TreeConfig
from judgetrain.judges.views.tree_page import DIRECTORY
from judgetrain.label.config import LabelConfig
from judgetrain.label.stages import LABEL
from judgetrain.pipeline.config import Config
from judgetrain.schema import Comparison
from tests.builders.data import run_dialogues, run_responses, write_lines
from tests.builders.label import tree_of
from tests.builders.pipeline import check_stage

WORDS = {"1": "A", "2": "B", "0": "tie"}
ROWS = [
    {"id": f"r{i}", "query": f"query {i}", "response_a": f"one {i}", "response_b": f"two {i}", "label": label}
    for i, label in enumerate([1, 2, 0, None, 1, "?"])
]


def source(tmp_path: Path, rows: list[dict[str, Any]] | None = None, **changes: Any) -> DialogueSourceConfig:
    path = write_lines(tmp_path / "votes.jsonl", ROWS if rows is None else rows)
    return DialogueSourceConfig(name="mine", path=path, format="comparison", **changes)


def compared(tmp_path: Path, given: DialogueSourceConfig) -> list[Comparison]:
    """What the stages dialogues and responses make of a source; every dialogue is sampled."""
    read = run_dialogues(tmp_path, DialoguesConfig([given]))
    cluster = StageRun(tmp_path / "cluster", "cluster", 0, Console())
    cluster.write_rows("sample", read_rows(read.directory, "dialogues"))
    inputs = {"cluster": cluster.directory, "dialogues": read.directory}
    out = run_responses(tmp_path / "responses", ResponsesConfig(), inputs)
    return [Comparison.from_row(row) for row in read_rows(out.directory, "comparisons")]


def labelled(directory: Path, comparisons: list[Comparison], config: LabelConfig) -> StageRun:
    """Stage label over trees whose first criterion says A, whose second says B, and whose third sees a tie."""
    trees = StageRun(directory / "tree", "tree", 0, Console())
    shape = tree_of(("AAAA", "AAAB"), ("BBBB", "BBAB"), ("tttt", "ttAt"))
    trees.write_rows("trees", (replace(shape, comparison=c).to_row() for c in comparisons))
    out = StageRun(directory / "label", "label", 3, Console())
    settings = LABEL.settings.of(Config(label=config, prompts="compact", tree=TreeConfig(criteria=3)))
    LABEL.run(settings, {"tree": trees.directory}, out)
    return out


def rows_of(out: StageRun, name: str) -> list[dict[str, Any]]:
    return [row for part in ("train", "heldout") for row in read_rows(out.directory, f"{name}-{part}")]


def test_labels_of_the_data_are_what_is_learned_from_and_rows_without_are_counted(tmp_path: Path) -> None:
    comparisons = compared(tmp_path, source(tmp_path, labels=WORDS))
    assert [c.label for c in comparisons] == ["A", "B", "tie", None, "A", None]
    every = LabelConfig(source="given", min_evidence=0.5, balance=[])
    out = labelled(tmp_path, comparisons, every)
    labels = {row["comparison_id"]: row for row in read_rows(out.directory, "labels")}
    assert [row["verdict"] for row in labels.values()] == ["A", "B", "tie", None, "A", None]
    assert [row["reason"] for row in labels.values()] == [None, None, None, "no_given_label", None, "no_given_label"]
    assert {row["source"] for row in labels.values()} == {"given"}
    assert out.totals()["counts"]["dropped"] == {"no_given_label": 2} and out.notes["yield"]["trees"] == {
        "label_A": 2, "label_B": 1, "label_tie": 1, "no_given_label": 2,
    }  # fmt: skip
    pairs = rows_of(out, "pairs")
    assert {p["comparison_id"] for p in pairs} == {"mine:r0", "mine:r1", "mine:r2", "mine:r4"}
    assert all(p["reward"]["given"] == (0.5 if p["comparison_id"] == "mine:r2" else 1.0) for p in pairs)
    # The same tree under the label A and under B: the criteria lists are led by opposite criteria.
    firsts = {p["comparison_id"]: p["chosen"][0]["content"].split("\n")[0] for p in pairs if p["level"] == "criteria"}
    assert firsts["mine:r0"] != firsts["mine:r1"] and firsts["mine:r0"] == firsts["mine:r4"]
    taught = {row["comparison_id"] for row in rows_of(out, "sft")}
    assert taught == {"mine:r0", "mine:r1", "mine:r2", "mine:r4"}
    assert out.notes["yield"]["ensemble_vs_given"] and "label_vs_truth" not in out.notes["yield"]


def test_the_ensemble_does_not_look_at_them(tmp_path: Path) -> None:
    comparisons = compared(tmp_path, source(tmp_path, labels=WORDS))
    out = labelled(tmp_path, comparisons, LabelConfig())
    bare = labelled(tmp_path / "bare", [replace(c, label=None) for c in comparisons], LabelConfig())
    for name in ("sft", "pairs"):
        assert rows_of(out, name) == rows_of(bare, name)


def test_no_label_at_all_is_said_with_the_remedy(tmp_path: Path) -> None:
    comparisons = [replace(c, label=None) for c in compared(tmp_path, source(tmp_path))]
    with pytest.raises(DataError, match=r"6 no_given_label; the comparisons bring none.*sources\[\]\.labels"):
        labelled(tmp_path, comparisons, LabelConfig(source="given"))


def test_how_a_pair_was_made_reaches_labels_pairs_and_pages(tmp_path: Path) -> None:
    comparisons = compared(tmp_path, source(tmp_path, labels=WORDS))
    made = replace(comparisons[0], made="nearby: an answer to mine:r4")
    out = labelled(tmp_path, [made, comparisons[1]], LabelConfig(source="given"))
    for rows in (list(read_rows(out.directory, "labels")), rows_of(out, "pairs")):
        assert {(row["comparison_id"], row["made"]) for row in rows} == {("mine:r0", made.made), ("mine:r1", "")}
    pages = [(out.directory / DIRECTORY / f"0000{n}.html").read_text() for n in (1, 2)]
    assert "constructed" in pages[0] and "nearby: an answer to mine:r4" in pages[0]
    assert "constructed" not in pages[1]


def settings(sources: list[DialogueSourceConfig], responses: ResponsesConfig | None = None) -> Config:
    config = Config(label=LabelConfig(source="given"), dialogues=DialoguesConfig(sources))
    return replace(config, responses=responses or ResponsesConfig())


WRITER = ResponseModelConfig(name="w", engine=WorldEngineConfig())


def test_without_a_label_nothing_begins(tmp_path: Path) -> None:
    bare = [{k: v for k, v in row.items() if k != "label"} for row in ROWS]
    for given, message in (
        (source(tmp_path, bare), r"no comparison of dialogues\.sources has a label; name its column"),
        (source(tmp_path), r"holds '1', '2', '0', '\?'; say what they mean with 'dialogues\.sources\[0\]\.labels"),
        (source(tmp_path, bare, fields={"label": "winner"}), "has a label; name its column"),
    ):
        write_lines(Path(given.path), bare if "name its" in message else ROWS)
        with pytest.raises(ConfigError, match=message):
            check_stage("label", settings([given]))
    with pytest.raises(ConfigError, match=r"responses\.models answer the dialogues anew.*set responses\.models=\[\]"):
        check_stage("label", settings([source(tmp_path, labels=WORDS)], ResponsesConfig([WRITER])))


def test_labels_that_are_known_let_it_begin(tmp_path: Path) -> None:
    check_stage("label", settings([source(tmp_path, ROWS[3:], labels=WORDS)]))
    check_stage("label", settings([DialogueSourceConfig(name="world", type="world")], ResponsesConfig([WRITER])))
    nearby = ResponsesConfig([WRITER], contrast=["nearby"])
    check_stage("label", settings([DialogueSourceConfig(name="hub", type="hub", path="some/dialogues")], nearby))
