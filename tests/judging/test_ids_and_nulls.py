"""One id for one thing, and answers that are null, in files, systems' answers and verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judgetrain.data.benchmarks.benchmark import selected
from judgetrain.data.cells import RowError, id_text, turn_number
from judgetrain.data.config import SourceConfig
from judgetrain.data.prompt_keys import prompt_key
from judgetrain.data.rows.reader import RowReader
from judgetrain.errors import DataError
from judgetrain.extras.leaderboard.ratings import read_battles
from judgetrain.judging.items import JudgedRow, pairs_of, read_items
from tests.builders.judging import lines
from tests.builders.pipeline import configured

SPELLINGS = [3, 3.0, "3", "3.0", " 3 ", "3 "]


def test_spellings_of_one_id_are_one_id() -> None:
    assert {id_text(spelling) for spelling in SPELLINGS} == {"3"}
    assert len({id_text(other) for other in (3, 30, "03", "3.5", 3.5, "3.0.0", "v3.0", "-3", "3.00")}) == 8
    assert {prompt_key({"question_id": spelling}) for spelling in SPELLINGS} == {("3",)}
    assert {prompt_key({"turn_of": spelling}, "turn_of") for spelling in SPELLINGS} == {("3",)}


@pytest.mark.parametrize("written", [1.2345678901234568e17, 2.0**53, "1.23457E+17", "1.2345678901234568e+17", "1E+15"])
def test_an_id_that_lost_its_digits_is_refused(written: object, tmp_path: Path) -> None:
    """123456789012345678 and 123456789012345679 are one float, and in Excel thousands of ids are one text."""
    with pytest.raises(RowError, match="is a number that lost its last digits in a spreadsheet or data frame"):
        id_text(written)
    row = {"query": "q", "response_a": "a", "response_b": "b"}
    read, refused = source_items(lines(tmp_path / "f.jsonl", [row, row | {"id": written}]))
    assert read.failure is None and "lost its last digits" in str(refused.failure)
    with pytest.raises(DataError, match=r"g\.jsonl:1: the id .* lost its last digits"):
        list(
            read_battles(
                [lines(tmp_path / "g.jsonl", [{"uid": written, "model_a": "x", "model_b": "y", "winner": "A"}])]
            )
        )


@pytest.mark.parametrize(
    "written", [123456789012345678, "123456789012345678", 2.0**53 - 1, "1e5", "12e45", "1.5e-7", "1e+05", "1.23e+08"]
)
def test_a_long_number_is_an_id(written: object) -> None:
    """R writes 100000 as 1e+05, and 123000000 as 1.23e+08, which have lost nothing."""
    assert id_text(written) == str(written).removesuffix(".0")


def test_turns_and_cells_that_choose_rows_are_compared_as_ids() -> None:
    assert {turn_number(spelling) for spelling in SPELLINGS} == {3}
    for other in (0, -1, 1.5, "x", "", [1], "9" * 5000):
        with pytest.raises(RowError, match="expected the number of a turn, from 1"):
            turn_number(other)
    for spelling in SPELLINGS:
        assert selected({"turn": spelling}, {"turn": "3"}) and selected({"turn": 3}, {"turn": str(spelling)})
        assert not selected({"turn": spelling}, {"turn": "30"})


def paired(
    folder: Path, first: list[dict[str, Any]], second: list[dict[str, Any]]
) -> tuple[list[JudgedRow], list[str]]:
    """Return the pairs of two systems, ``one`` and ``two``, and what was said of them."""
    paths = [lines(folder / "one.jsonl", first), lines(folder / "two.jsonl", second)]
    lines_told: list[str] = []
    return pairs_of([str(path) for path in paths], None, lines_told.append), lines_told


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_systems_meet_under_one_id_however_it_is_written(spelling: Any, tmp_path: Path) -> None:
    first = [{"question_id": 3, "instruction": "q", "output": "a"}]
    second = [{"question_id": spelling, "instruction": "q", "output": "b"}]
    (item,) = paired(tmp_path, first, second)[0]
    assert (item.failure, item.comparison.response_a, item.comparison.response_b) == (None, "a", "b")


def source_items(path: Path) -> list[JudgedRow]:
    return read_items(configured("recipe=debug", f"verdicts.source.path={path}").verdicts, None, 1)


def test_a_row_has_the_id_of_its_cell_in_any_spelling(tmp_path: Path) -> None:
    rows = [{"id": spelling, "query": "q", "response_a": "a", "response_b": "b"} for spelling in SPELLINGS[:2]]
    items = source_items(lines(tmp_path / "f.jsonl", rows))
    assert [item.comparison.id for item in items] == ["f:3", "f:3#2"]
    blank = source_items(lines(tmp_path / "g.jsonl", [{**rows[0], "id": " "}]))
    assert blank[0].comparison.id == "g:0000001", "blanks are no id"


@pytest.mark.parametrize("silence", [None, ""])
def test_an_answer_that_is_null_is_an_empty_one(silence: str | None, tmp_path: Path) -> None:
    first = [{"instruction": f"q{i}", "output": "a"} for i in range(3)]
    second = [{"instruction": f"q{i}", "output": silence if i else "b"} for i in range(3)]
    items, lines_told = paired(tmp_path, first, second)
    assert [item.failure for item in items] == [None] * 3 and lines_told == []
    assert [item.comparison.forfeit for item in items] == [None, "A", "A"]


@pytest.mark.parametrize("content", [None, "", {"answer": None}])
def test_an_answer_that_is_null_at_the_end_of_a_conversation_is_an_empty_one(content: Any, tmp_path: Path) -> None:
    def conversation(answer: Any) -> list[dict[str, Any]]:
        return [{"uid": 1, "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": answer}]}]

    (item,) = paired(tmp_path, conversation("a"), conversation(content))[0]
    assert (item.failure, item.comparison.forfeit) == (None, "A")


def test_a_response_that_is_null_loses_and_a_column_that_is_missing_is_a_fault(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"query": "q", "response_a": "a", "response_b": "b"},
        {"query": "q", "response_a": None, "response_b": "b"},
        {"query": "q", "response_a": "a", "response_b": [{"role": "assistant", "content": None}]},
        {"query": "q", "response_a": "a"},
        {"query": None, "response_a": "a", "response_b": "b"},
    ]
    items = source_items(lines(tmp_path / "f.jsonl", rows))
    assert [item.comparison.forfeit for item in items[:3]] == [None, "B", "A"]
    assert [bool(item.failure) for item in items] == [False, False, False, True, True]
    assert all("missing_field" in str(item.failure) for item in items[3:])


def swapped(label: str, **more: Any) -> dict[str, Any]:
    """Return a row whose systems have the names of the sides, the other way round."""
    return {"query": "q", "response_a": "x", "response_b": "y", "model_a": "B", "model_b": "A", "label": label, **more}


@pytest.mark.parametrize("label", ["A", "B"])
def test_a_label_that_is_a_side_and_the_other_sides_name_is_not_guessed(label: str) -> None:
    reader = RowReader(SourceConfig(name="mine"), "data")
    with pytest.raises(RowError, match=rf"label '{label}' means {label} by itself, and is the name of the row's model"):
        reader.comparison(swapped(label), 1, labelled=True)
    assert reader.labels.known_verdict(swapped(label)) is None
    (message,) = reader.labels.messages()
    assert message.startswith("1 label has two meanings and is not used") and "data.labels={A: A, B: B" in message

    # Who says what labels mean has said it, and nothing is unclear where both mean the same.
    told = RowReader(SourceConfig(name="mine", labels={"A": "A", "B": "B"}), "data")
    assert told.comparison(swapped(label), 1, labelled=True).label == label
    same = swapped(label, model_a="A", model_b="B")
    assert reader.comparison(same, 1, labelled=True).label == label
    assert reader.comparison(swapped("tie", model_a="tie2"), 1, labelled=True).label == "tie"


def test_a_system_without_a_row_is_named(tmp_path: Path) -> None:
    first = [{"instruction": f"q{i}", "output": "a"} for i in range(3)]
    _, lines_told = paired(tmp_path, first, first[:1])
    assert lines_told == ["systems: two has no row for 2 of 3 prompts, which it is not judged on"]
