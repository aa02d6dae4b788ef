"""Lists in the cells of a table, as JSON and as data frames write them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from judgetrain.data.cells import RowError, list_in
from judgetrain.judging.items import read_items
from tests.builders.pipeline import configured


@pytest.mark.parametrize("written", [repr, json.dumps])
def test_lists_of_one_text_and_conversations_are_read_in_both_notations(
    written: Callable[[Any], str], tmp_path: Path
) -> None:
    rows = [
        (["Name it's colour."], ["Red"], ["Blue"]),
        (["Name a tool."], [{"role": "assistant", "content": "A saw"}], ["A hammer"]),
    ]
    with (tmp_path / "f.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt", "response_a", "response_b"])
        writer.writerows([written(cell) for cell in row] for row in rows)
    items = read_items(configured("recipe=debug", f"verdicts.source.path={tmp_path}/f.csv").verdicts, None, 1)
    texts = [(i.comparison.dialogue.query, i.comparison.response_a, i.comparison.response_b) for i in items]
    assert texts == [("Name it's colour.", "Red", "Blue"), ("Name a tool.", "A saw", "A hammer")]


@pytest.mark.parametrize("text", ["['a' 'b']", "['a','b'].sort()", "[x for x in y]", "[" * 5000, "[1](link)", "['a'"])
def test_what_is_no_list_stays_a_text(text: str) -> None:
    assert list_in(text) is None


def test_a_key_that_stands_twice_in_a_cell_is_refused_by_row(tmp_path: Path) -> None:
    """Python's reader would take the last one, in silence."""
    with pytest.raises(RowError, match="the key 'content' stands twice"):
        list_in('[{"role": "user", "content": "a", "content": "b"}]')
    with (tmp_path / "f.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt", "response_a", "response_b", "rubric"])
        writer.writerow(["p", "a", "b", '[{"text": "t", "weight": 1, "weight": 9}]'])
        writer.writerow(["p2", "a", "b", '[{"text": "t", "weight": 1}]'])
    rows = read_items(configured("recipe=debug", f"verdicts.source.path={tmp_path}/f.csv").verdicts, None, 1)
    assert "f.csv:2: field criteria: the key 'weight' stands twice in an object" in str(rows[0].failure)
    assert rows[1].failure is None
