"""What stage stress chooses among: each response to a prompt once, worth what all its labels say together."""

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.losses import Losses
from judgetrain.data.config import SourceConfig
from judgetrain.extras.rubric.stress_pools import Pool, _of_rows
from judgetrain.judging.config import VerdictsConfig
from judgetrain.judging.items import read_items
from tests.builders.data import write_lines

Row = dict[str, Any]


def pools_in(directory: Path, rows: Sequence[Row], labelled: bool = True) -> tuple[list[Pool], Losses, list[object]]:
    """Return the prompts of a file with these rows, what is left out, and the sentences that are said.

    Args:
        directory: for the file.
        rows: of the file.
        labelled: whether labels say what responses are worth.
    """
    path = write_lines(directory / "rows.jsonl", rows)
    items = read_items(VerdictsConfig(source=SourceConfig(name="mine", path=path)), None, 0)
    losses = Losses()
    said: list[object] = []
    return list(_of_rows(items, labelled, losses, said.append)), losses, said


def pool_in(directory: Path, rows: Sequence[Row], labelled: bool = True) -> Pool:
    """Return the only prompt of a file with these rows."""
    pools, _, _ = pools_in(directory, rows, labelled)
    (pool,) = pools
    return pool


def one(response: str, label: Any, query: str = "q") -> Row:
    return {"query": query, "response": response, "label": label}


def two(response_a: str, response_b: str, label: str | None, query: str = "q") -> Row:
    return {"query": query, "response_a": response_a, "response_b": response_b, "label": label}


def worths_in(pool: Pool) -> dict[str, float]:
    """Return what each response is worth, each of which stands once."""
    assert len(set(pool.responses)) == len(pool.responses) == len(pool.truth)
    return dict(zip(pool.responses, pool.truth, strict=True))


def test_annotators_rows_on_a_response_are_one_response(tmp_path: Path) -> None:
    rows = []
    for text, labels in (("good", ("pass", "pass", "fail")), ("bad", ("fail", "fail", "pass"))):
        rows += [one(text + end, label) for label, end in zip(labels, ("", "\n", " "), strict=True)]
    (pool,), _, said = pools_in(tmp_path, rows)
    assert worths_in(pool) == pytest.approx({"good": 2 / 3, "bad": 1 / 3})
    assert len(said) == 1
    assert "2 responses stand in several rows with labels, 6 in all" in str(said[0])


def test_ratings_of_a_response_are_worth_their_mean(tmp_path: Path) -> None:
    rows = [one("x", 1), one("y", 5), one("x", 4), one("x", 4)]
    pool = pool_in(tmp_path, rows)
    # A mean of 3 on a scale of 1 to 5.
    assert worths_in(pool) == pytest.approx({"x": 0.5, "y": 1.0})


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([two("x", "y", label) for label in "AAB"], {"x": 1.0, "y": 0.0}),
        ([two("x", "y", "B"), two("y", "x", "A"), two("x", "y", "A")], {"x": 0.0, "y": 1.0}),
        ([two("x", "y", "tie"), two("y", "x", "tie"), two("x", "y", "A")], {"x": 0.5, "y": 0.5}),
    ],
)
def test_annotators_rows_on_a_pair_are_one_pair(rows: list[Row], expected: dict[str, float], tmp_path: Path) -> None:
    pool = pool_in(tmp_path, rows)
    assert worths_in(pool) == expected


def test_a_response_in_several_pairs_is_worth_the_share_of_them_that_it_wins(tmp_path: Path) -> None:
    # Against y as most of three rows say, against z as a tie, and against u as it is said once.
    rows = [two("x", "y", label) for label in "ABA"] + [two("z", "x", "tie"), two("u", "x", "A"), two("y", "z", "A")]
    pool = pool_in(tmp_path, rows)
    expected = {"x": (1 + 0.5 + 0) / 3, "y": (0 + 1) / 2, "z": (0.5 + 0) / 2, "u": 1.0}
    assert worths_in(pool) == pytest.approx(expected)


def test_spellings_of_a_prompt_and_of_a_response_are_one(tmp_path: Path) -> None:
    query = "Où?\nEt quand?"
    rows = [
        two("Café", "Là.", "A", query),
        two(" Là.\n", unicodedata.normalize("NFD", "Café"), "A", unicodedata.normalize("NFD", query) + "\n"),
        two("Café", "Là.\r\n", "A", query.replace("\n", "\r\n")),
    ]
    pool = pool_in(tmp_path, rows)
    assert worths_in(pool) == {"Café": 1.0, "Là.": 0.0}
    pool = pool_in(tmp_path, rows, labelled=False)
    assert (pool.responses, pool.truth) == (("Café", "Là."), ())


def test_what_no_label_tells_of_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = [two("x", "y", "A"), two("y", "x", "A"), two("u", "v", "A"), two("u", "v", None), two("x", " x", "B")]
    (pool,), losses, _ = pools_in(tmp_path, rows)
    assert worths_in(pool) == {"u": 1.0, "v": 0.0}
    assert losses == {"no_label": 1, "equal_responses": 1, "no_majority": 2}
    pools, losses, _ = pools_in(tmp_path, [one("x", "pass"), one("x", "fail"), one("y", "pass")])
    assert pools == []
    assert losses == {"no_majority": 1, "one_response": 1}


def test_another_judge_values_responses_without_a_label_too(tmp_path: Path) -> None:
    rows = [two("x", "y", None), two("x", "x ", "A"), two("z", "x", "B")]
    pool = pool_in(tmp_path, rows, labelled=False)
    assert (pool.responses, pool.truth) == (("x", "y", "z"), ())
