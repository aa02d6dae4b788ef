"""Charts: everything that is drawn lies inside the frame, at the place that its numbers say."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.evaluate.report.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Point, line_chart, round_ticks

SHARE = st.floats(0, 1)
POINTS = st.lists(st.tuples(st.floats(0.5, 2000), SHARE, SHARE, SHARE), min_size=1, max_size=6)


@given(st.dictionaries(st.text(max_size=5), POINTS, min_size=1, max_size=3), st.sampled_from([0.0, 0.5]), st.booleans())
def test_points_lie_in_the_frame(series: dict[str, list[tuple[float, ...]]], left: float, diagonal: bool) -> None:
    drawn = {
        name: [Point(x, *sorted((a, b, c))[1:2], min(a, b, c), max(a, b, c), "<&\"'>") for x, a, b, c in points]
        for name, points in series.items()
    }
    svg = line_chart("<x>", drawn, left=left, diagonal=diagonal)
    for x, y in re.findall(r'<circle class="c\d" cx="([\d.-]+)" cy="([\d.-]+)"', svg):
        assert LEFT - 0.1 <= float(x) <= WIDTH - RIGHT + 0.1
        assert TOP - 0.1 <= float(y) <= HEIGHT - BOTTOM + 0.1
    assert svg.count("<circle") == sum(map(len, drawn.values())) and svg.count("<polyline") == len(drawn)
    assert ('class="ideal"' in svg) == diagonal
    assert "<x>" not in svg and "<&" not in svg


def test_places_by_hand() -> None:
    svg = line_chart("x", {"a": [Point(0.5, 0.5, 0.5, 0.5, ""), Point(1.0, 1.0, 1.0, 1.0, "")]}, [0.5, 1.0], left=0.5)
    assert f'cx="{LEFT:.1f}" cy="{(TOP + HEIGHT - BOTTOM) / 2:.1f}"' in svg
    assert f'cx="{WIDTH - RIGHT:.1f}" cy="{TOP:.1f}"' in svg


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (0.9, [0, 0.25, 0.5, 0.75]),
        (1.0, [0, 0.25, 0.5, 0.75, 1.0]),
        (0.6, [0, 0.2, 0.4, 0.6]),
        (708, [0, 200, 400, 600]),
    ],
)
def test_ticks_are_round(most: float, ticks: list[float]) -> None:
    assert round_ticks(most) == ticks
