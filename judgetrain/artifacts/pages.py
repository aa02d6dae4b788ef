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


@cache
def _environment(room: Path) -> Environment:
    return Environment(
        loader=FileSystemLoader([room, SHARED]),
        autoescape=True,  # of every template, whatever its name ends in
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: Path, **values: Any) -> str:
    """The text of a template with these values, all of them escaped (jinja2.UndefinedError: one is not given).

    Half surrogates, which no file can hold, become question marks.
    """
    text = _environment(template.parent).get_template(template.name).render(values)
    return text.encode("utf-8", "replace").decode("utf-8")


LEFT, RIGHT, TOP, BOTTOM = 40, 356, 12, 240
"""The field of the axes in the picture of 380 by 280."""
LINE = 14.0
"""Between two names at the ends of lines."""


@dataclass(frozen=True)
class Point:
    """A value at ``x``, with the ``ends`` of its interval; ``tip`` is shown on hovering."""

    x: float
    y: float
    tip: str = ""
    ends: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A line for each series, in the colours ``c0`` to ``c5`` of the stylesheet; values are shares, shown in percent.

    The x axis has ``ticks`` (None: round numbers). ``plain``: values are no shares, and the y axis holds them all;
    points are then marked only if they have tips. ``names`` stand below the x axis at 0, 1, 2 and so on, in place of
    numbers.
    """

    title: str
    x_label: str
    series: Mapping[str, Sequence[Point]]
    ticks: Sequence[float] | None = None
    plain: bool = False
    names: Sequence[str] = ()

    @cached_property
    def lines(self) -> list[tuple[str, str, str, Sequence[Point]]]:
        """Name, colour, dashes and points of every series."""
        dashes = cycle(("", "6 3", "2 3", "8 3 2 3"))
        return [(n, f"c{i % 6}", d, s) for i, ((n, s), d) in enumerate(zip(self.series.items(), dashes, strict=False))]

    @property
    def ends(self) -> list[tuple[str, str, float, float]]:
        """Name, colour and place of what is written where each line ends: beside it, and below what stands there."""
        found: list[tuple[str, str, float, float]] = []
        last = [(self.place_y(line[-1].y), line[-1].x, name, colour) for name, colour, _, line in self.lines if line]
        for y, x, name, colour in sorted(last):
            y = max([y, *(below + LINE for *_, below in found)])
            found.append((name, colour, self.place_x(x), y))
        return found

    @property
    def thin(self) -> bool:
        """Whether lines are drawn without their points."""
        return self.plain and not any(p.tip for line in self.series.values() for p in line)

    @cached_property
    def x_span(self) -> tuple[float, float]:
        """The ends of the x axis."""
        left = -0.3 if self.names else 0.0
        right = max(left, *(self.ticks or ()), *(p.x for line in self.series.values() for p in line))
        return left, right if right > left else left + 1.0

    @cached_property
    def y_span(self) -> tuple[float, float]:
        """The ends of the y axis."""
        values = [y for line in self.series.values() for p in line for y in (p.y, *(p.ends or ()))]
        low, high = min(values), max(values)
        if self.plain:
            return low, high if high > low else low + 1.0
        return 0.0, min(1.0, math.ceil(10 * high - 1e-9) / 10) or 0.1

    @property
    def x_ticks(self) -> Sequence[float]:
        """Where the x axis is marked."""
        if self.names:
            return range(len(self.names))
        return round_ticks(*self.x_span) if self.ticks is None else self.ticks

    @property
    def y_ticks(self) -> Sequence[float]:
        """Where the y axis is marked."""
        return round_ticks(*self.y_span)

    def place_x(self, x: float) -> float:
        """Where in the picture a value of the x axis lies, to a tenth."""
        low, high = self.x_span
        return round(LEFT + (RIGHT - LEFT) * (x - low) / (high - low), 1)

    def place_y(self, y: float) -> float:
        """Where in the picture a value of the y axis lies, to a tenth."""
        low, high = self.y_span
        return round(BOTTOM - (BOTTOM - TOP) * (min(y, high) - low) / (high - low), 1)


def round_ticks(least: float, most: float, about: int = 4) -> list[float]:
    """Round numbers from ``least`` to ``most``, about so many: steps of 1, 2, 2.5 or 5 times a power of ten."""
    raw = (most - least) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))
    ends = math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9)
    return [round(i * step, 10) for i in range(ends[0], ends[1] + 1)]
