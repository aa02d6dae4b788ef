"""Panels of a picture side by side, with one title and legend: line charts, and rows of values with intervals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from judgetrain.artifacts.chart import BOTTOM, LEFT, RIGHT, Chart, round_ticks
from judgetrain.artifacts.pages import SHARED, render

TEMPLATE = Path(__file__).with_name("figure.svg.jinja")
PANEL, LINE, MARK = 380, 18, 6
STYLE = (
    "svg .head{font-weight:600;font-size:14px;fill:var(--text)}svg .name{font-weight:600;fill:var(--text)}"
    "svg .ground{fill:var(--page)}svg .wide{stroke-width:2}"
    "svg .ring{fill:none;stroke-width:1.5}svg .drop{stroke-width:1;stroke-dasharray:2 3}"
)
Mark = tuple[float, float, float, str]
"""A value, both ends of its interval, and what is shown on hovering."""


@dataclass(frozen=True, kw_only=True)
class Dots:
    """Rows of named values with their intervals, shares from 0 to ``most``; each series has a colour and a height.

    ``values``: by row, by series in the order of the legend; None where a series has no value there.
    """

    title: str
    x_label: str
    values: dict[str, list[Mark | None]]
    least: float = 0.0
    most: float = 1.0
    chart: None = None
    left, right = 150, PANEL - 24

    @property
    def ticks(self) -> list[float]:
        """Where the x axis is marked."""
        return round_ticks(self.least, self.most)

    @property
    def foot(self) -> int:
        """The lower end of the grid."""
        return 30 + self.row * len(self.values)

    @property
    def row(self) -> int:
        """The height of a row: what all of its marks take, one below another."""
        return MARK * max(map(len, self.values.values())) + MARK

    def place(self, value: float) -> float:
        """Where in the panel a value lies, to a tenth."""
        share = (min(max(value, self.least), self.most) - self.least) / (self.most - self.least)
        return round(self.left + (self.right - self.left) * share, 1)

    @property
    def rows(self) -> Iterator[tuple[str, int, list[tuple[str, float, float, float, float, str]]]]:
        """Name, height and marks of each row."""
        for i, (name, found) in enumerate(self.values.items()):
            middle = (len(found) - 1) / 2
            marks = [(f"c{j}", *at[:3], MARK * (j - middle), at[3]) for j, at in enumerate(found) if at]
            yield name, 26 + self.row // 2 + self.row * i, marks


@dataclass(frozen=True)
class Lines:
    """A line chart as a panel. Points with a ``mark`` are ringed, and it is written below them, clear of the lines."""

    chart: Chart

    @property
    def title(self) -> str:
        """Above the panel."""
        return self.chart.title

    @property
    def bare(self) -> Chart:
        """The chart without its marks."""
        series = {name: [replace(p, mark="") for p in points] for name, points in self.chart.series.items()}
        return replace(self.chart, series=series)

    @property
    def drops(self) -> Iterator[tuple[str, float, float, int, str, str]]:
        """Colour, place, height of the text, which end of it is at the place, and text of each mark."""
        found = [(colour, p) for _, colour, _, points in self.chart.lines for p in points if p.mark]
        for i, (colour, p) in enumerate(found):
            x = self.chart.place_x(p.x)
            side = "end" if x > (LEFT + RIGHT) / 2 else "start"
            yield colour, x, self.chart.place_y(p.y), BOTTOM - 6 - 16 * i, side, p.mark


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A picture: a title, a legend, and panels side by side."""

    title: str
    names: Sequence[str]
    dashes: Sequence[str]
    panels: Sequence[Dots | Lines]

    @property
    def width(self) -> int:
        """Of the picture, in units of its view box."""
        return PANEL * len(self.panels)

    @property
    def head(self) -> int:
        """Where the panels begin: below the title and the lines of the legend."""
        return max(y for *_, y in self.legend) + 14

    @property
    def height(self) -> int:
        """Of the picture."""
        return self.head + max(298 if isinstance(p, Lines) else p.foot + 40 for p in self.panels)

    @property
    def placed(self) -> Iterator[tuple[int, int, Dots | Lines]]:
        """The left and upper end of each panel."""
        return ((PANEL * i, self.head, panel) for i, panel in enumerate(self.panels))

    @property
    def style(self) -> str:
        """The reports' colours and charts, for light and dark grounds."""
        text = (SHARED / "style.css").read_text(encoding="utf-8")
        kept = [line for line in text.splitlines() if line.startswith((":root", "--", "@media (prefers", "svg"))]
        kept = [re.sub(r"^svg\{[^}]*\}", "", line) for line in kept if not line.startswith("svg.")]
        return "".join(kept) + STYLE

    @property
    def legend(self) -> Iterator[tuple[str, str, str, int, int]]:
        """Name, colour, dashes and place of each series."""
        x, y = 12, 42
        for i, (name, dashes) in enumerate(zip(self.names, self.dashes, strict=True)):
            wide = 50 + 7 * len(name)
            if x > 12 and x + wide > self.width:
                x, y = 12, y + LINE
            yield name, f"c{i}", dashes, x, y
            x += wide


def drawn(frame: Frame) -> str:
    """The picture's text."""
    return render(TEMPLATE, frame=frame)


def of_charts(title: str, charts: Sequence[Chart]) -> str:
    """Line charts side by side with one legend: a series that a chart has not comes after those that all have."""
    every = {name: sum(name in chart.series for chart in charts) for chart in charts for name in chart.series}
    order = sorted(every, key=lambda name: -every[name])
    sorted_charts = [replace(c, series={n: c.series[n] for n in order if n in c.series}) for c in charts]
    if any([*chart.series] != order[: len(chart.series)] for chart in sorted_charts):
        raise ValueError(f"{title}: the charts' series cannot share a legend")
    lines = max(sorted_charts, key=lambda chart: len(chart.series)).lines
    names, dashes = [name for name, *_ in lines], [dashes for _, _, dashes, _ in lines]
    panels = [Lines(chart) for chart in sorted_charts]
    return drawn(Frame(title=title, names=names, dashes=dashes, panels=panels))
