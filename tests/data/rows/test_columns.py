"""Columns whose names are spelled otherwise than the usual ones."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from judgetrain.data.cells import RowError, preference
from judgetrain.data.config import SourceConfig
from judgetrain.data.prompt_keys import prompt_key
from judgetrain.data.rows.reader import RowReader
from judgetrain.data.sources import read
from judgetrain.errors import DataError
from judgetrain.judges.rows import comparisons_in


@pytest.mark.parametrize(
    "names",
    [
        ("Query", "Response_A", "Response_B", "Label"),
        ("Prompt", "Response A", "Response B", "LABEL"),
        ("Question", "response-a", "Response-B", "label"),
        ("question", "answer_1", "answer_2", "label"),
        ("Instruction", "Output 1", "Output 2", "Label "),
    ],
)
def test_case_blanks_hyphens_and_underscores_do_not_count_in_a_column(names: tuple[str, ...]) -> None:
    row = dict(zip(names, ("Why?", "So.", "Else.", "A"), strict=True))
    reader = RowReader(SourceConfig(name="mine"))
    reader.columns.check(row, labelled=True)
    [from_python] = comparisons_in([row]).items
    for comparison in (reader.comparison(row, 1, labelled=True), from_python):
        assert (comparison.dialogue.query, comparison.response_a, comparison.response_b) == ("Why?", "So.", "Else.")
        assert comparison.label == "A"
    assert reader.columns.unused() == []
    assert prompt_key(row) == ("why?",)


def test_an_exact_name_goes_before_a_looser_one() -> None:
    row = {"Prompt": "Another?", "query": "Why?", "Response A": "No.", "response_a": "", "response_b": "Else."}
    comparison = RowReader(SourceConfig(name="mine")).comparison(row, 1, labelled=False)
    assert (comparison.dialogue.query, comparison.response_a) == ("Why?", "")


def test_columns_that_differ_in_nothing_that_counts_are_refused() -> None:
    row = {"query": "Why?", "Response A": "So.", "RESPONSE_A": "No.", "response_b": "Else."}
    with pytest.raises(RowError, match="the columns 'Response A' and 'RESPONSE_A' differ in nothing that counts"):
        RowReader(SourceConfig(name="mine")).comparison(row, 1, labelled=False)
    with pytest.raises(DataError, match="expected one of them: rename the other"):
        comparisons_in([row])
    # Whoever names the column decides.
    named = SourceConfig(name="mine", fields={"response_a": "RESPONSE_A"})
    assert RowReader(named).comparison(row, 1, labelled=False).response_a == "No."


@pytest.mark.parametrize("label", [{}, {"Label": "A"}])
def test_preferences_may_be_spelled_otherwise(label: Mapping[str, Any]) -> None:
    written = {"Prompt": "Why?", "Chosen": "So.", "Rejected": "Else.", **label}
    usual = {"prompt": "Why?", "chosen": "So.", "rejected": "Else."}
    reader = RowReader(SourceConfig(name="mine"))
    comparison = reader.comparison(preference(written), 1, labelled=True)
    assert comparison == reader.comparison(preference(usual), 1, labelled=True)


@pytest.mark.parametrize(("sign", "reads"), [(";", True), ("\t", True), (",", False)])
@pytest.mark.parametrize(("column", "fields"), [("Label", {}), ("Score", {}), ("note", {"label": "note"})])
def test_a_decimal_comma_is_one_between_semicolons_or_tabs(
    column: str, fields: dict[str, str], sign: str, reads: bool, tmp_path: Path
) -> None:
    path = tmp_path / "mine.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file, delimiter=sign)
        table.writerows([["Query", "Response", column], ["Why?", "3,5", "1,0"], ["How?", "So.", "4,5"]])
    rows = list(read(SourceConfig(name="mine", path=str(path), fields=fields), "data", lambda row, number: row))
    expected = ["1,0", "4,5"]
    if reads:
        expected = ["1.0", "4.5"]
    assert [row[column] for row in rows] == expected
    # A text is left as it is.
    assert rows[0]["Response"] == "3,5"


@pytest.mark.parametrize(
    ("winner", "verdict"), [("model_a", "A"), ("model_b", "B"), ("tie", "tie"), ("gpt", "A"), ("llama", "B")]
)
@pytest.mark.parametrize("column", ["winner", "Winner"])
def test_the_winner_is_the_label_of_two_systems(column: str, winner: str, verdict: str) -> None:
    row = {"prompt": "Why?", "model_a": "gpt", "model_b": "llama", "response_a": "So.", "response_b": "Else."}
    reader = RowReader(SourceConfig(name="mine"))
    assert reader.comparison({**row, column: winner}, 1, labelled=None).label == verdict
    assert reader.columns.unused() == []
    # A column that is called label goes first.
    assert reader.comparison({**row, column: winner, "label": "tie"}, 1, labelled=None).label == "tie"


def test_a_system_that_is_called_as_the_other_column_is_no_label() -> None:
    row = {"query": "Why?", "model_a": "model_b", "model_b": "x", "response_a": "So.", "response_b": "Else."}
    with pytest.raises(RowError, match="label 'model_b' means B by itself, and is the name of the row's model_a"):
        RowReader(SourceConfig(name="mine")).comparison({**row, "winner": "model_b"}, 1, labelled=True)
