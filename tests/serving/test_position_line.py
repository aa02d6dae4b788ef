"""What stage judge says of a preference for a position."""

from __future__ import annotations

from judgetrain.serving.summary import Summary


def row(ab: float | None, ba: float | None, asked: str | None = "greedy, expected", branches: int = 1) -> dict:
    told = {"verdict": "A", "failure": None, "failures": {}, "asked": asked, "branches": branches}
    return told | {"margin_ab": ab, "margin_ba": ba}


def summary(*rows: dict) -> Summary:
    return Summary.of(rows, "dpo", 4, {"prompt": 1, "generated": 1}, {})


def test_it_is_said_in_points_where_scores_are_expected_ones() -> None:
    found = summary(row(2.0, -1.0), row(1.5, 1.25), row(None, 4.0))
    assert found.position_offset == 1.25  # of 2, 1, 1.5 and -1.25
    assert any("ahead by +1.2 points" in str(line) and "judge.position_offset" in str(line) for line in found.told())


def test_it_is_not_said_of_whole_scores_nor_of_letters() -> None:
    for rows in ([row(2.0, -1.0, "greedy")], [row(2.0, -1.0, branches=0)], [row(None, None, None, 0)]):
        found = summary(*rows)
        assert found.position_offset is None
        assert not any("position" in str(line) for line in found.told())
