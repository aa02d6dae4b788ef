"""What stage judge says at its end: of a preference for a position, and of labels that the rows bring."""

from __future__ import annotations

from judgetrain.judging.summary import Summary


def row(ab: float | None, ba: float | None, asked: str | None = "greedy, expected", branches: int = 1) -> dict:
    told = {"verdict": "A", "failure": None, "failures": {}, "asked": asked, "branches": branches, "label": None}
    told |= {"verdict_ab": "A", "verdict_ba": "A"}
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


def test_agreement_is_said_where_rows_have_labels() -> None:
    plain = row(None, None, None, 0)
    failed = plain | {"label": "A", "verdict": None, "failure": "no_answer"}
    found = summary(plain | {"label": "A"}, plain | {"label": "A"}, plain | {"label": "tie"}, failed, plain)
    assert (found.agreed, found.labelled) == (2, 4), "what was not judged agrees with nothing"
    # Wilson's interval of 2 of 4: (2 + z2/2 -+ z sqrt(4/4 + z2/4)) / (4 + z2), z2 = 3.8415
    assert any("agreement: 2 of 4 labels, 50.0% (95%: 15 to 85;" in str(line) for line in found.told())
    assert not any("agreement" in str(line) for line in summary(plain).told())
