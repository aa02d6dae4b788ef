"""The labels of rows: how good a response is, on which scale, and which two responses make a comparison."""

import json
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data import cells
from judgetrain.data.config import DialoguesConfig, DialogueSourceConfig, ResponsesConfig
from judgetrain.data.dialogues import check_labelled
from judgetrain.errors import ConfigError, DataError
from judgetrain.schema import Comparison
from tests.builders.data import run_dialogues, run_responses, write_lines


def source(tmp_path: Path, rows: list[dict[str, Any]], **named: Any) -> DialogueSourceConfig:
    return DialogueSourceConfig(**{"name": "s", "path": write_lines(tmp_path / "in.jsonl", rows), **named})


def read(tmp_path: Path, rows: list[dict[str, Any]], strict: bool = True, **named: Any) -> StageRun:
    return run_dialogues(tmp_path, DialoguesConfig([source(tmp_path, rows, **named)], strict=strict))


def comparisons(out: StageRun) -> list[Comparison]:
    return [Comparison.from_row(json.loads(json.dumps(row))) for row in read_rows(out.directory, "comparisons")]


def row(response: str, label: Any, query: str = "q", **more: Any) -> dict[str, Any]:
    return {"query": query, "response": response, "label": label, **more}


@pytest.mark.parametrize(
    ("label", "labels", "score"),
    [
        ("pass", {}, 1.0), ("Fail", {}, 0.0), (True, {}, 1.0), (False, {}, 0.0), ("TRUE", {}, 1.0),
        (5, {}, 1.0), ("2", {}, 0.25), (3.5, {}, 0.625), (4.0, {}, 0.75),
        (10, {"1": "0", "10": "1"}, 1.0), (4, {"1": "0", "10": "1"}, 1 / 3), (1, {"0": "0", "1": "1"}, 1.0),
        (True, {"0": "0", "1": "1"}, 1.0), ("fair", {"poor": "0", "fair": "0.5", "good": "1"}, 0.5),
        (2, {"0": "1", "4": "0"}, 0.5),
    ],
)  # fmt: skip
def test_a_label_says_how_good_a_response_is(label: Any, labels: dict[Any, str], score: float, tmp_path: Path) -> None:
    (comparison,) = comparisons(read(tmp_path, [row("an answer", label, rationale="so it is")], labels=labels))
    assert comparison.rating_a is not None and comparison.rating_a.score == pytest.approx(score)
    assert (comparison.rating_a.reason, comparison.alone, comparison.label, comparison.forfeit) == (
        "so it is",
        True,
        None,
        None,
    )


@pytest.mark.parametrize("label", ["fine", "NaN", ["A"], "A"])
def test_a_label_that_the_scale_lacks_is_refused_with_file_row_and_value(label: Any, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"in\.jsonl:2: label .* of one response is not one of pass, .* 1 to 5: say"
    ) as e:
        read(tmp_path, [row("x", 3), row("y", label)])
    assert repr(label[0] if isinstance(label, list) else label) in str(e.value)


@pytest.mark.parametrize(
    ("labels", "scores"),
    [
        ([0, 1, 1], [0.0, 1.0, 1.0]), (["1", "0"], [1.0, 0.0]), ([1.0, 0.0], [1.0, 0.0]), ([0, 0], [0.0, 0.0]),
        ([1, 5], [0.0, 1.0]), ([1, 2], [0.0, 0.25]), ([1, "pass", 0], [1.0, 1.0, 0.0]), ([2.5, 4], [0.375, 0.75]),
    ],
)  # fmt: skip
def test_all_numbers_of_a_column_say_what_one_of_them_means(
    labels: list[Any], scores: list[float], tmp_path: Path
) -> None:
    # Each on a query of its own: ratings of one query would make a pair.
    compared = comparisons(read(tmp_path, [row(f"r{i}", label, query=f"q{i}") for i, label in enumerate(labels)]))
    assert [c.rating_a.score for c in compared if c.rating_a] == pytest.approx(scores)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([1, 1, 1], r"its only number, 1, may be the worst of 1 to 5 or the better of 0 and 1"),
        ([1, "pass"], r"its only number, 1, may be"),
        ([3, 6], r"its numbers, 3 to 6, are neither 0 and 1 nor 1 to 5"),
        ([0, 1, 2], r"its numbers, 0 to 2, are neither"),
        ([-1, 1], r"its numbers, -1 to 1, are neither"),
        ([0.5, 1], r"its numbers, 0.5 to 1, are neither"),
        ([3, 0], r"its numbers, 0 to 3, are neither"),
    ],
)
def test_numbers_that_do_not_tell_their_scale_are_read_as_nothing(
    labels: list[Any], reason: str, tmp_path: Path
) -> None:
    rows = [row(f"r{i}", label, query=f"q{i}") for i, label in enumerate(labels)]
    with pytest.raises(DataError, match=rf"in\.jsonl:1: label .* \({reason}.*: say .*, as in labels="):
        read(tmp_path, rows)
    scale = {str(label): str(place / 10) for place, label in enumerate(labels)}
    assert len(comparisons(read(tmp_path, rows, labels=scale))) == len(rows)


def test_a_highest_rating_below_the_scale_s_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read(tmp_path, [row(f"r{i}", label, query=f"q{i}") for i, label in enumerate((1, 2, 3))])
    printed = "".join(capsys.readouterr())
    assert "the highest rating is 3, and ratings are read as 1 to 5" in " ".join(printed.split())
    read(tmp_path, [row(f"r{i}", label, query=f"q{i}") for i, label in enumerate((1, 5))])
    assert "highest rating" not in "".join(capsys.readouterr())


def test_what_cannot_be_a_scale_is_refused_by_its_key(tmp_path: Path) -> None:
    for meaning in ("2", "-1", "nan", "best"):
        with pytest.raises(ConfigError, match=rf"dialogues\.sources\[0\]\.labels\.10='{meaning}'"):
            read(tmp_path, [row("x", 3)], labels={10: meaning})
    with pytest.raises(DataError, match=r"in\.jsonl:1: expected a response, found only white space"):
        read(tmp_path, [row(" ", 3)])


def test_two_labels_of_one_query_make_a_labelled_comparison(tmp_path: Path) -> None:
    rows = [
        row("worst", 1, id=7, model_a="m"),
        row("other query", 2, query="p"),
        row("worst too", 1, id=7),
        row("best", 5, id=7, model_a="n", feedback="clear"),
        row("good", 4, id=7),
        row("lonely", 3, id=7),
        row("lonely", 3, id=8),  # the same words make no pair, and are one response
    ]
    out = read(tmp_path, rows)
    labelled = comparisons(out)
    assert [(c.id, c.response_a, c.response_b, c.label, c.alone) for c in labelled] == [
        ("s:7", "worst", "best", "B", False),
        ("s:7#2", "worst too", "good", "B", False),
        ("s:0000002", "other query", "", None, True),
        ("s:7#3", "lonely", "", None, True),
    ]
    first = labelled[0]
    assert (first.model_a, first.model_b) == ("m", "n")
    assert first.rating_a is not None and first.rating_b is not None
    assert (first.rating_a.score, first.rating_b.score, first.rating_b.reason) == (0.0, 1.0, "clear")
    swapped = first.swapped()
    assert (swapped.label, swapped.rating_a, swapped.rating_b) == ("A", first.rating_b, first.rating_a)
    notes = out.notes["sources"]["s"]
    assert (notes["read"], notes["kept"], notes["same_response"]) == (len(rows), 4, 1)


def test_pairs_and_rated_responses_stand_in_one_file_and_reach_stage_responses(tmp_path: Path) -> None:
    rows = [
        {"query": "a", "response_a": "x", "response_b": "y", "label": "B"},
        row("lonely", "pass", query="b"),
        {"query": "c", "response": "unrated"},
        {"query": "d", "response": "unrated", "label": None},
    ]
    out = read(tmp_path, rows)
    assert [(c.response_a, c.label, c.alone) for c in comparisons(out)] == [("x", "B", False), ("lonely", None, True)]
    assert len(list(read_rows(out.directory, "dialogues"))) == 4
    sample = StageRun(tmp_path / "cluster", "cluster", 0, out.console)
    sample.write_rows("sample", read_rows(out.directory, "dialogues"))
    inputs = {"dialogues": out.directory, "cluster": sample.directory}
    stage_run = run_responses(tmp_path / "responses", ResponsesConfig(), inputs)
    assert sorted(c.alone for c in comparisons(stage_run)) == [False, True]


def test_a_rated_response_is_a_label_to_learn_from_unless_its_column_is_another_field_s(tmp_path: Path) -> None:
    rows = [row("x", 3)]
    check_labelled([source(tmp_path, rows)], ResponsesConfig())
    assert comparisons(read(tmp_path, rows, fields={"reference": "response"})) == []
    with pytest.raises(ConfigError, match="no comparison"):
        check_labelled([source(tmp_path, rows, fields={"reference": "response"})], ResponsesConfig())


def test_what_waits_too_long_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "WAITING", 2)
    rows = [row(f"r{i}", 1, query=f"q{i}") for i in range(4)] + [row("better", 5, query=f"q{i}") for i in (3, 2, 1, 0)]
    waiting = comparisons(read(tmp_path, rows))
    assert len(waiting) == 6 and sum(c.label == "B" for c in waiting) == 2


def test_a_label_that_means_none_is_as_an_empty_cell(tmp_path: Path) -> None:
    texts = {"response_a": "one answer", "response_b": "another answer"}
    rows = [
        texts | {"query": "first?", "label": "A"},
        texts | {"query": "second?", "label": "oops"},
        row("an answer", "pass", "third?"),
        row("an answer", ["pass", "oops", "pass", "fail"], "fourth?"),
    ]
    out = comparisons(read(tmp_path, rows, labels={"oops": "none"}))
    assert [comparison.label for comparison in out] == ["A", None, None, None]
    # Of four annotators three said something: 1, 1 and 0.
    scores = [comparison.rating_a.score for comparison in out if comparison.rating_a]
    assert scores == [1.0, pytest.approx(2 / 3)]


@pytest.mark.parametrize(
    ("label", "expected"), [("gpt", "A"), ("llama", "B"), ("tie", "tie"), ("A", "A"), ("other", None)]
)
def test_a_label_may_name_the_system_of_a_response(label: str, expected: str | None, tmp_path: Path) -> None:
    texts = {"query": "q?", "response_a": "one answer", "response_b": "another answer"}
    systems = {"model_a": "gpt", "model_b": "llama"}
    (comparison,) = comparisons(read(tmp_path, [texts | systems | {"label": label}]))
    assert comparison.label == expected


def test_a_name_that_both_systems_have_says_nothing(tmp_path: Path) -> None:
    texts = {"query": "q?", "response_a": "one answer", "response_b": "another answer"}
    (comparison,) = comparisons(read(tmp_path, [texts | {"model_a": "gpt", "model_b": "gpt", "label": "gpt"}]))
    assert comparison.label is None


def test_labels_of_two_columns_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where people rated half of the rows, the others' score may be a model's."""
    rows = [row("a", 5, score=1), row("b", None, "q2", score=2), {**row("c", 1, "q3"), "score": 4}]
    assert len(comparisons(read(tmp_path / "both", rows))) == 3
    text = capsys.readouterr().out.replace("\n          ", " ")
    assert "the labels of 2 responses are those of label, and of 1 response without one those of score" in text
    read(tmp_path / "label", rows, fields={"score": ""})
    assert "those of score" not in capsys.readouterr().out
    read(tmp_path / "score", [row("a", None, score=1), row("b", None, "q2", score=5)])
    assert "those of score" not in capsys.readouterr().out
