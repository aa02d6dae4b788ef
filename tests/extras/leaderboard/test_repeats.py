"""Comparisons that were judged twice, by one judge or by several, count once and are said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judgetrain.extras.leaderboard.ratings import Battles, battle_of, read_battles
from judgetrain.extras.leaderboard.stage import remarks
from judgetrain.extras.leaderboard.standings import Leaderboard, leaderboard
from tests.builders.judging import lines


def row(number: int, verdict: str | None, judge: str = "first", **more: Any) -> dict[str, Any]:
    """Return the verdict on the number-th comparison of two systems."""
    ids = {"id": f"mine:{number}", "question_id": f"p{number}"}
    return {**ids, "model_a": "x", "model_b": "y", "verdict": verdict, "judge": judge, **more}


def board(*files: list[dict[str, Any]], folder: Path) -> Leaderboard:
    """Return the leaderboard of some files."""
    paths = [lines(folder / f"{number}.jsonl", rows) for number, rows in enumerate(files)]
    return leaderboard(read_battles(paths), 0, 20)


FIRST = [row(i, "A" if i < 12 else "B") for i in range(20)]


def test_the_last_verdict_of_a_judge_on_a_comparison_counts(tmp_path: Path) -> None:
    repaired = [row(i, "A") for i in range(10, 20)]
    content = board([*FIRST, *repaired], folder=tmp_path)
    assert (content.counted, content.comparisons, content.outcomes) == (20, 20, {"A": 20})
    assert (content.repeated, content.changed) == (10, 8)
    assert "10 verdicts repeat a comparison" in " ".join(remarks(content))
    twice = board(FIRST, FIRST, folder=tmp_path)
    assert (twice.outcomes, twice.repeated, twice.changed) == ({"A": 12, "B": 8}, 20, 0)
    assert twice.systems == board(FIRST, folder=tmp_path).systems


def test_a_later_row_without_a_verdict_replaces_none(tmp_path: Path) -> None:
    lost: list[dict[str, Any]] = [row(0, None, failure="too_long: x"), row(1, "unreadable"), row(2, "B"), row(2, None)]
    content = board([*FIRST, *lost], folder=tmp_path)
    assert content.outcomes == {"A": 11, "B": 9}
    assert (content.repeated, content.changed) == (4, 1)
    # The other way round the verdict that came later counts.
    repaired = board([row(0, None), row(1, "A"), row(0, "B")], folder=tmp_path)
    assert repaired.outcomes == {"A": 1, "B": 1}


def test_several_judges_are_named_with_how_often_they_agree(tmp_path: Path) -> None:
    second = [row(i, "A", judge="second") for i in range(15)]
    content = board(FIRST, second, folder=tmp_path)
    assert (content.judges, content.counted, content.repeated) == (["first", "second"], 35, 0)
    assert (content.shared, content.agreed) == (15, 12)
    (sentence,) = [line for line in remarks(content) if "judges are mixed" in line]
    assert "first, second; they agree on 12 of the 15 comparisons" in sentence
    assert not any("mixed" in line for line in remarks(board(FIRST, folder=tmp_path)))


@pytest.mark.parametrize(
    "other",
    [{"question_id": "another"}, {"response_a": "another answer"}, {"model_a": "z"}, {"id": "mine:1"}, {"id": None}],
)
def test_what_differs_in_content_is_another_comparison(other: dict[str, Any]) -> None:
    once = Battles([battle_of(row(0, "A")), battle_of({**row(0, "B"), **other})])
    assert (once.repeats.repeated, len(once.games.share)) == (0, 2)


def test_an_id_that_is_written_otherwise_is_the_same(tmp_path: Path) -> None:
    spellings = [row(0, "A", id=3, question_id=3), row(0, "A", id=3.0, question_id="3")]
    battles = Battles(map(battle_of, spellings))
    assert (battles.repeats.repeated, battles.games.prompts) == (1, 1)


def test_a_name_that_is_written_otherwise_is_the_same(tmp_path: Path) -> None:
    """Systems, judges and winners: blanks around a name, and numbers as data frames write them."""
    spelt = [
        {**row(i, None, "first "), "model_a": " 3" if i % 2 else 3.0, "model_b": "y ", "verdict": None}
        for i in range(20)
    ]
    for i, entry in enumerate(spelt):
        del entry["verdict"]
        entry["winner"] = "3" if i < 12 else "y"
    plain = [{**row(i, "A" if i < 12 else "B"), "model_a": "3"} for i in range(20)]
    content = board(plain, spelt, folder=tmp_path)
    assert (content.counted, content.repeated, content.changed) == (20, 20, 0)
    assert content.systems == board(plain, folder=tmp_path).systems


def test_rows_without_an_id_all_count(tmp_path: Path) -> None:
    battles = Battles(battle_of({"model_a": "x", "model_b": "y", "winner": "A", "question_id": 1}) for _ in range(5))
    assert (battles.repeats.repeated, len(battles.games.share), battles.unnamed) == (0, 5, 0)
