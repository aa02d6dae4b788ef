"""HTML pages from Jinja2 templates: self-contained (no network, no scripts), light and dark, from a phone's width up.

Every room has its templates beside its code; all extend ``base.html`` of this room, which holds the one stylesheet.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import cycle
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

SHARED = Path(__file__).with_name("templates")
"""The folder of the templates that every room uses."""


@cache
def _environment(room: Path) -> Environment:
    """Return Jinja2's environment for the templates in a room's folder."""
    return Environment(
        loader=FileSystemLoader([room, SHARED]),
        # True stands for every template; by default it depends on what a template's name ends in.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: Path, **values: Any) -> str:
    """Return the text of a template filled with values, all of them escaped.

    Raises:
        jinja2.UndefinedError: the template names a value that is missing.
    """
    text = _environment(template.parent).get_template(template.name).render(values)
    # Half surrogates, which no file can hold, become question marks.
    return text.encode("utf-8", "replace").decode("utf-8")


# The edges of the axes' field in the picture, which is 380 wide and 280 high.
LEFT = 40
RIGHT = 356
TOP = 12
BOTTOM = 240
LINE = 14.0
"""The least distance between two names at the ends of lines."""


@dataclass(frozen=True)
class Point:
    """A point of a line; ``ends`` are those of its interval, and ``tip`` is shown on hovering."""

    x: float
    y: float
    tip: str = ""
    ends: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A line chart of several series, in the colours ``c0`` to ``c5`` of the stylesheet.

    Args:
        title: stands above the chart.
        x_label: stands below the x axis.
        series: the points of every line, by the line's name.
        ticks: where the x axis is marked; None: at round numbers.
        plain: values are plain numbers, and the y axis runs from the least to the largest. Otherwise they are shares,
            shown in percent from 0 on. Points of plain values are marked only if they have tips.
        names: stand below the x axis at 0, 1, 2 and so on, in place of numbers.
    """

    title: str
    x_label: str
    series: Mapping[str, Sequence[Point]]
    ticks: Sequence[float] | None = None
    plain: bool = False
    names: Sequence[str] = ()

    @cached_property
    def lines(self) -> list[tuple[str, str, str, Sequence[Point]]]:
        """Return the name, colour, dashes and points of every series."""
        colours = cycle(("c0", "c1", "c2", "c3", "c4", "c5"))
        dashes = cycle(("", "6 3", "2 3", "8 3 2 3"))
        return [(name, next(colours), next(dashes), points) for name, points in self.series.items()]

    @property
    def ends(self) -> list[tuple[str, str, float, float]]:
        """Return the name, colour, x and y of the text at the end of each line; texts are moved apart downwards."""
        last_points = []
        for name, colour, _, points in self.lines:
            if points:
                last_points.append((self.place_y(points[-1].y), points[-1].x, name, colour))

        texts: list[tuple[str, str, float, float]] = []
        # From the top down, since y runs down in a picture.
        for y, x, name, colour in sorted(last_points):
            if texts:
                y = max(y, texts[-1][3] + LINE)
            texts.append((name, colour, self.place_x(x), y))
        return texts

    @property
    def thin(self) -> bool:
        """Return whether lines are drawn without marks at their points."""
        return self.plain and not any(point.tip for point in self._points)

    @property
    def _points(self) -> list[Point]:
        """Return the points of all series."""
        return [point for points in self.series.values() for point in points]

    @cached_property
    def x_span(self) -> tuple[float, float]:
        """Return the ends of the x axis."""
        # Room for the first name, which stands centred below 0.
        start = -0.3 if self.names else 0.0
        end = max([start, *(self.ticks or ()), *(point.x for point in self._points)])
        if end == start:
            # Of a single place there is no width to divide by.
            end = start + 1.0
        return start, end

    @cached_property
    def y_span(self) -> tuple[float, float]:
        """Return the ends of the y axis."""
        values = []
        for point in self._points:
            # Intervals are drawn as well, and must not stand outside the axes.
            values += [point.y, *(point.ends or ())]
        low = min(values)
        high = max(values)
        if self.plain and high > low:
            return low, high
        if self.plain:
            # Of a single value there is no height to divide by.
            return low, low + 1.0

        # Shares: up to the next tenth, and one tenth at least.
        # Without the tolerance, 0.3 (which is 0.30000000000000004 as a sum of tenths) would make an axis up to 40 %.
        top = min(1.0, math.ceil(10 * high - 1e-9) / 10)
        return 0.0, top or 0.1

    @property
    def x_ticks(self) -> Sequence[float]:
        """Return the marked values of the x axis."""
        if self.names:
            return range(len(self.names))
        if self.ticks is not None:
            return self.ticks
        return round_ticks(*self.x_span)

    @property
    def y_ticks(self) -> Sequence[float]:
        """Return the marked values of the y axis."""
        return round_ticks(*self.y_span)

    def place_x(self, x: float) -> float:
        """Return the place of an x value in the picture, to a tenth."""
        low, high = self.x_span
        return round(LEFT + (RIGHT - LEFT) * (x - low) / (high - low), 1)

    def place_y(self, y: float) -> float:
        """Return the place of a y value in the picture, to a tenth."""
        low, high = self.y_span
        # A picture's y runs down. An interval may reach above the axis, which ends at 100 %.
        return round(BOTTOM - (BOTTOM - TOP) * (min(y, high) - low) / (high - low), 1)


def round_ticks(least: float, most: float, about: int = 4) -> list[float]:
    """Return round numbers from ``least`` to ``most``, about ``about`` of them.

    Their distance is 1, 2, 2.5 or 5 times a power of ten.
    """
    exact_step = (most - least) / about
    power = 10.0 ** math.floor(math.log10(exact_step))
    # The small tolerances keep a step that is round itself, which division puts a little off.
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= exact_step * (1 - 1e-9))
    first = math.ceil(least / step - 1e-9)
    last = math.floor(most / step + 1e-9)
    return [round(index * step, 10) for index in range(first, last + 1)]
