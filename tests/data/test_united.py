"""Rows by several annotators on one response: stage dialogues learns from the label that they give together, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import DialoguesConfig, DialogueSourceConfig
from tests.builders.data import run_dialogues, write_lines

QUERY = "Name a prime."
SHORT = "Seven."
LONG = "Seven is a prime number, and so are eleven and thirteen."


def row(response: str, label: Any, query: str = QUERY, **others: Any) -> dict[str, Any]:
    return {"query": query, "response": response, "label": label, **others}


def stage(directory: Path, rows: list[dict[str, Any]], **source: Any) -> StageRun:
    path = write_lines(directory / "rows.jsonl", rows)
    return run_dialogues(directory, DialoguesConfig([DialogueSourceConfig(name="mine", path=path, **source)]))


def learned(out: StageRun) -> list[dict[str, Any]]:
    """Return the comparisons that the stage leaves for training."""
    return list(read_rows(out.directory, "comparisons"))


@pytest.mark.parametrize(
    ("labels", "score"),
    [
        # Two of three say pass, whoever has the first row.
        (["fail", "pass", "pass"], 2 / 3),
        (["pass", "pass", "fail"], 2 / 3),
        (["pass", "pass"], 1.0),
        # A row of several annotators has as many votes.
        ([["fail", "fail"], "pass"], 1 / 3),
        # Of 1 to 5, 2 and 5 are a quarter and the whole.
        ([2, 5, 5], 0.75),
    ],
)
def test_annotators_with_a_row_each_rate_a_response_together(tmp_path: Path, labels: list[Any], score: float) -> None:
    rows = [row(SHORT, label, id=f"r{number}") for number, label in enumerate(labels)]
    # Another response says that numbers are of 1 to 5.
    rows.append(row(LONG, 1 if labels[0] == 2 else "fail", query="Name another."))
    out = stage(tmp_path, rows)
    first, other = learned(out)
    assert first["id"] == "mine:r0"
    assert first["rating_a"]["score"] == pytest.approx(score)
    assert other["rating_a"]["score"] == 0.0
    assert out.notes["sources"]["mine"]["kept"] == 2
    assert out.notes["sources"]["mine"]["same_response"] == len(labels) - 1


def test_what_a_reader_sees_alike_is_one_response(tmp_path: Path) -> None:
    spellings = ["A café.", "A cafe\u0301.", "  A café.\r\n"]
    rows = [row(text, label) for text, label in zip(spellings, ["fail", "pass", "pass"], strict=True)]
    (only,) = learned(stage(tmp_path, rows))
    assert only["rating_a"]["score"] == pytest.approx(2 / 3)


def test_as_many_for_as_against_are_no_label(tmp_path: Path) -> None:
    tie_in_a_row = row(SHORT, ["pass", "fail"])
    tie_of_rows = [row(SHORT, "pass", query="Name one."), row(SHORT, "fail", query="Name one.")]
    labelled = row(SHORT, "pass", query="Name any.")
    out = stage(tmp_path, [tie_in_a_row, *tie_of_rows, labelled])
    (only,) = learned(out)
    assert only["rating_a"]["score"] == 1.0
    assert out.notes["sources"]["mine"] == {"read": 4, "kept": 1, "no_majority": 2, "same_response": 1}


def test_halfway_on_a_longer_scale_is_a_label(tmp_path: Path) -> None:
    rows = [row(SHORT, [2, 3]), row(LONG, 5, query="Name one."), row(LONG, 1, query="Name any.")]
    scores = [one["rating_a"]["score"] for one in learned(stage(tmp_path, rows))]
    # 2.5 of 1 to 5.
    assert scores == [pytest.approx(0.375), 1.0, 0.0]


def test_a_slip_does_not_pair_a_response_with_itself_or_turn_a_pair(tmp_path: Path) -> None:
    # The first annotator mistook the two; the others agree that the long one is good.
    labels = {SHORT: ["pass", "fail", "fail"], LONG: ["fail", "pass", "pass"]}
    rows = [row(text, of_text[annotator]) for annotator in range(3) for text, of_text in labels.items()]
    (pair,) = learned(stage(tmp_path, rows))
    assert (pair["response_a"], pair["response_b"], pair["label"]) == (SHORT, LONG, "B")
    assert pair["rating_a"]["score"] == pytest.approx(1 / 3)
    assert pair["rating_b"]["score"] == pytest.approx(2 / 3)


def test_labels_by_criterion_are_united_each_by_itself(tmp_path: Path) -> None:
    rows = [
        row(SHORT, {"clear": "pass", "true": "pass"}),
        row(SHORT, {"Clear": "fail", "true": "pass"}),
        row(SHORT, {"clear": "fail"}),
    ]
    (only,) = learned(stage(tmp_path, rows))
    assert only["rating_a"]["by_criterion"] == pytest.approx({"clear": 1 / 3, "true": 1.0})
    assert only["rating_a"]["score"] == pytest.approx(2 / 3)


def test_other_criteria_are_another_question(tmp_path: Path) -> None:
    rows = [row(SHORT, "pass", criteria=["is true"]), row(SHORT, "fail", criteria=["is kind"])]
    scores = [one["rating_a"]["score"] for one in learned(stage(tmp_path, rows))]
    assert scores == [1.0, 0.0]


def test_rows_beyond_the_limit_have_no_vote(tmp_path: Path) -> None:
    rows = [row(SHORT, "pass"), row(LONG, "fail", query="Name one."), row(SHORT, "fail"), row(SHORT, "fail")]
    scores = [one["rating_a"]["score"] for one in learned(stage(tmp_path, rows, limit=2))]
    assert scores == [1.0, 0.0]


def test_a_sample_draws_responses_and_not_their_rows(tmp_path: Path) -> None:
    rows = [row(SHORT, "pass", query=f"Name prime {number}.") for number in range(4) for _ in range(5)]
    out = stage(tmp_path, rows, sample=3)
    assert len(learned(out)) == 3
    assert out.notes["sources"]["mine"] == {"read": 3, "kept": 3}


def test_an_adapters_rows_are_united_too(tmp_path: Path) -> None:
    adapter = tmp_path / "mine.yaml"
    adapter.write_text(
        "kind: single\nfields: {query: q, response: r}\nlabel_columns: [ann, bo]\nlabels: {low: 0, high: 1}\n"
    )
    rows = [
        {"q": QUERY, "r": SHORT, "ann": "low", "bo": "low"},
        {"q": QUERY, "r": SHORT, "ann": "high", "bo": "low"},
        {"q": "Name one.", "r": SHORT, "ann": "high", "bo": "low"},
    ]
    out = stage(tmp_path, rows, adapter=str(adapter))
    (only,) = learned(out)
    assert only["rating_a"]["score"] == 0.25
    assert out.notes["sources"]["mine"] == {"read": 3, "kept": 1, "same_response": 1, "no_majority": 1}
