"""Cells that should be texts and are numbers, truth values or nothing: converted in one way, or refused by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from judgetrain.data.cells import RowError
from judgetrain.data.config import SourceConfig
from judgetrain.data.rows.reader import RowReader
from judgetrain.data.rubrics import rubric_of
from judgetrain.data.sources import read_comparisons
from judgetrain.errors import DataError
from judgetrain.extras.judge_reward import JudgeReward
from judgetrain.judges import LongerJudge, Prediction
from judgetrain.judging.items import pairs_of
from judgetrain.messages import reference_text, scalar_text
from judgetrain.schema import Candidates, Comparison
from tests.builders.judging import lines

ROW = {"query": "q", "response_a": "a", "response_b": "b"}
NUMBERS = [
    (42, "42"),
    (42.0, "42"),
    (0, "0"),
    (0.5, "0.5"),
    (True, "True"),
    (False, "False"),
    (np.int64(7), "7"),
    (np.float64(7), "7"),
    (np.bool_(True), "True"),
    (Decimal("1.50"), "1.50"),
]


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_a_number_is_the_text_that_a_table_holds(value: Any, text: str) -> None:
    assert scalar_text(value) == text == reference_text(value)
    for reader in (RowReader(SourceConfig(name="s")), RowReader(SourceConfig(name="s", fields={"reference": "gold"}))):
        row = ROW | {"reference": value, "gold": value}
        assert reader.comparison(row, 1, False).dialogue.reference == text
    assert Comparison.of("q", "a", "b", value).dialogue.reference == text
    assert Candidates.of("q", ["a"], value).dialogue.reference == text


def test_one_table_has_the_same_references_in_every_form_that_has_types(tmp_path: Path) -> None:
    # A hole makes floats of a column of whole numbers.
    frame = pd.DataFrame([ROW | {"reference": number} for number in (42, None, 0)])
    frame.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "rows.parquet")
    frame["reference"] = frame["reference"].astype("Int64").astype("string")
    frame.to_json(tmp_path / "texts.jsonl", orient="records", lines=True)
    for name in ("rows.jsonl", "rows.parquet", "texts.jsonl"):
        source = SourceConfig(name="s", path=str(tmp_path / name))
        read = [comparison.dialogue.reference for comparison in read_comparisons(source, "s", labelled=False)]
        assert read == ["42", None, "0"], name


@pytest.mark.parametrize("nothing", [None, "", "  ", float("nan"), [], np.float64("nan")])
def test_what_holds_nothing_is_no_reference(nothing: Any) -> None:
    assert reference_text(nothing) is None
    assert (
        RowReader(SourceConfig(name="s")).comparison(ROW | {"reference": nothing}, 1, False).dialogue.reference is None
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (["one ", 2], "one\n2"),
        (np.array(["one", "two"], dtype=object), "one\ntwo"),
        ([{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>no</think>yes"}], "yes"),
        ([{"type": "text", "text": "yes"}], "yes"),
    ],
)
def test_lists_and_messages_are_references(value: Any, text: str) -> None:
    assert reference_text(value) == text


def test_a_reference_that_is_none_is_refused_by_row_and_column(tmp_path: Path) -> None:
    path = lines(tmp_path / "f.jsonl", [ROW, ROW | {"reference": {"answer": 42}}])
    with pytest.raises(DataError, match=r"f.jsonl:2: field reference: expected a reference answer: .*'answer': 42"):
        list(read_comparisons(SourceConfig(name="s", path=str(path)), "s", labelled=False))
    with pytest.raises(DataError, match="expected a reference answer"):
        LongerJudge()("q", "a", "b", reference={"answer": 42})  # type: ignore[typeddict-item]


def test_a_column_that_may_hold_anything_is_named_as_unused_where_it_holds_no_answer() -> None:
    reader = RowReader(SourceConfig(name="s"))
    assert reader.dialogue({"query": "q", "answer": {"aliases": ["x"]}}, 1).reference is None
    told: list[str] = []
    reader.tell(told.append)
    assert told == ["s: columns that are not used (rows): answer (1)"]
    assert reader.dialogue({"query": "q", "answer": 7}, 2).reference == "7"


@pytest.mark.parametrize(("value", "query"), [(0, "q\n\n0"), (7.0, "q\n\n7"), (False, "q\n\nFalse"), (None, "q")])
def test_an_input_that_is_a_number_stands_below_its_query(value: Any, query: str, tmp_path: Path) -> None:
    assert RowReader(SourceConfig(name="s")).dialogue({"query": "q", "input": value}, 1).query == query
    rows = [{"instruction": "q", "input": value, "output": "a"}]
    paths = [lines(tmp_path / f"{name}.jsonl", rows) for name in ("one", "two")]
    (item,) = pairs_of([str(path) for path in paths], None, print)
    assert item.comparison.dialogue.query == query


@pytest.mark.parametrize("field", ["query", "response_a", "response_b"])
def test_a_query_or_response_that_is_a_number_is_refused_by_its_column(field: str) -> None:
    with pytest.raises(RowError, match=f"expected text in field {field}, found int"):
        RowReader(SourceConfig(name="s")).comparison(ROW | {field: 42}, 1, False)


def test_categories_and_groups_are_told_apart_as_ids() -> None:
    reader = RowReader(SourceConfig(name="s"))
    read = [reader.comparison(ROW | {"category": value}, 1, False) for value in (3, 3.0, "3", " 3 ")]
    assert {(comparison.group, comparison.dialogue.category) for comparison in read} == {("3", "3")}
    labelled = reader.labelled({"query": "q", "response": "r", "label": "pass", "model_a": 3.0, "group": 3.0}, 1)
    assert (labelled.model, labelled.group) == ("3", "3")


def levels(raw: Any) -> list[tuple[float, str]]:
    return [(level.score, level.text) for level in rubric_of([raw]).criteria[0].scale]


def test_a_description_that_is_a_number_is_one() -> None:
    scale = [{"score": 1, "description": 0}, {"score": 2, "description": 404}, {"score": 3, "description": 3}]
    assert levels({"text": "status", "scale": scale}) == [(1, "0"), (2, "404"), (3, "")]
    # A range is no number, and a name that is one says no more than the score.
    assert levels({"text": "t", "scale": [{"label": "1-2", "score": 0}, {"label": "5", "score": 1}]}) == [
        (0, "1-2"),
        (1, ""),
    ]


@pytest.mark.parametrize("column", ["text", "name", "guideline", "score1_description"])
def test_a_text_of_a_criterion_that_is_a_number_is_refused_by_criterion_and_column(column: str) -> None:
    with pytest.raises(DataError, match=f"criterion 2: {column}: expected a text, found 42"):
        rubric_of(["first", {"text": "t", column: 42}])


def test_a_level_that_nobody_described_keeps_its_place() -> None:
    described = {f"score{score}_description": text for score, text in enumerate(("a", "b", None, "d", "e"), 1)}
    assert levels({"criteria": "c", **described}) == [(1, "a"), (2, "b"), (3, ""), (4, "d"), (5, "e")]
    # Parquet gives a criterion of three levels the columns of one of five.
    filled = {f"score{score}_description": text for score, text in enumerate(("a", "b", "c", None, None), 1)}
    assert levels({"criteria": "c", **filled}) == [(1, "a"), (2, "b"), (3, "c")]
    nothing = {f"score{score}_description": None for score in range(1, 6)}
    assert levels({"criteria": "c", **nothing}) == [(float(score), "") for score in range(1, 6)]


class Seen(LongerJudge):
    """The longer response wins; keeps the references that it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str | None] = []

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        self.references += [comparison.response_b for comparison in comparisons]
        return super().compare_batch(comparisons, seed)


def test_rewards_compare_with_numbers_and_never_with_nothing() -> None:
    judge = Seen()
    reward = JudgeReward(judge, "anchor", reference="answer")
    answers = [1234, None, "", 1234.0, float("nan")]
    assert reward(["q"] * 5, ["12345"] * 5, answer=answers) == [1.0, None, None, 1.0, None]
    assert set(judge.references) == {"1234"}
    with pytest.raises(DataError, match="row 1, column answer: expected a reference answer"):
        reward(["q"] * 2, ["a"] * 2, answer=["x", {"y": 1}])


def test_numbers_in_json_and_in_texts_are_one_reference() -> None:
    by_form = {
        RowReader(SourceConfig(name="s")).comparison(json.loads(text), 1, False).dialogue.reference
        for text in (json.dumps(ROW | {"reference": 42}), json.dumps(ROW | {"reference": "42"}))
    }
    assert by_form == {"42"}


@pytest.mark.parametrize(
    ("cells", "query"),
    [
        ({"instruction": "Add.", "input": None}, "Add.\n"),
        ({"instruction": "Add.", "input": float("nan")}, "Add.\n"),
        ({"instruction": "Add.", "input": ""}, "Add.\n"),
        ({"instruction": "Add.", "input": 3.0}, "Add.\n3"),
        ({"instruction": "Add.", "input": "{instruction}"}, "Add.\n{instruction}"),
    ],
)
def test_what_stands_in_braces_is_the_text_that_a_table_holds(cells: dict[str, Any], query: str) -> None:
    """Nobody asked for "None" or "nan" in a question."""
    reader = RowReader(SourceConfig(name="s", fields={"query": "{instruction}\n{input}"}))
    row = {"response_a": "a", "response_b": "b"} | cells
    assert reader.comparison(row, 1, labelled=False).dialogue.query.strip("\n") == query.strip("\n"), "and once"


def test_a_query_that_is_read_from_a_column_called_input_is_said_once() -> None:
    row = {"response_a": "a", "response_b": "b", "input": "Add.", "context": "1 and 2"}
    for fields, query in (({"query": "input"}, "Add."), ({"query": "input", "input": "context"}, "Add.\n\n1 and 2")):
        reader = RowReader(SourceConfig(name="s", fields=fields))
        assert reader.comparison(row, 1, labelled=False).dialogue.query == query


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"instruction": "Add.", "input": ["x"]}, r"expected text or a number in column 'input' \(field query\)"),
        ({"instruction": None, "input": None}, "expected text in field query, found nothing"),
    ],
)
def test_what_is_no_text_in_braces_is_refused(cells: dict[str, Any], message: str) -> None:
    reader = RowReader(SourceConfig(name="s", fields={"query": "{instruction}\n{input}"}))
    with pytest.raises(RowError, match=message):
        reader.comparison({"response_a": "a", "response_b": "b"} | cells, 1, labelled=False)


@pytest.mark.parametrize("column", ["output", "answer"])
def test_a_column_that_is_no_reference_beside_responses_is_told(column: str) -> None:
    """The judge never sees it: whoever meant a reference has to hear that."""
    reader = RowReader(SourceConfig(name="s"))
    pair = {"query": "q", "response_a": "a", "response_b": "b", column: "c"}
    assert reader.comparison(pair, 1, labelled=False).dialogue.reference is None
    assert reader.labelled({"query": "q", "response": "a", "label": "pass", column: "c"}, 2).dialogue.reference is None
    told: list[str] = []
    reader.tell(told.append)
    assert told == [f"s: columns that are not used (rows): {column} (2)"]

    named = RowReader(SourceConfig(name="s", fields={"reference": column}))
    assert named.comparison(pair, 1, labelled=False).dialogue.reference == "c"
    named.tell(told.append)
    assert len(told) == 1
