"""Line charts as SVG text, readable without scripts: on a phone, in the dark, without colour."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 380, 280
LEFT, RIGHT, TOP, BOTTOM = 40, 24, 12, 40
DASHES = ("", "6 3", "2 3", "8 3 2 3")
COLOURS = 6

Place = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Point:
    """A share (0 to 1) with its interval at ``x``; ``mark`` is written beside it, ``tip`` is shown on hovering."""

    x: float
    share: float
    low: float
    high: float
    tip: str
    mark: str = ""


def line_chart(
    x_label: str,
    series: Mapping[str, Sequence[Point]],
    ticks: Sequence[float] | None = None,
    description: str = "",
    left: float = 0.0,
    diagonal: bool = False,
) -> str:
    """An SVG with a line for each series, in percent from 0; ``ticks`` of the x axis, None chooses round ones.

    The x axis begins at ``left``; ``diagonal`` draws the line on which share and x are equal.

    All text is escaped. Colours are the classes ``c0`` to ``c5`` in the order of the series, see :func:`legend`.
    """
    points = [p for line in series.values() for p in line]
    if not points:
        return ""
    right = max(p.x for p in points) if ticks is None else max(*ticks, *(p.x for p in points))
    right = right if right > left else left + 1.0
    top = min(1.0, math.ceil(10 * max(p.high for p in points) - 1e-9) / 10) or 0.1

    def place(x: float, share: float) -> tuple[float, float]:
        return LEFT + (WIDTH - LEFT - RIGHT) * (x - left) / (right - left), HEIGHT - BOTTOM - (
            HEIGHT - BOTTOM - TOP
        ) * share / top

    shapes = _axes(x_label, round_ticks(right) if ticks is None else ticks, top, left, place)
    if diagonal:
        (x1, y1), (x2, y2) = place(left, left), place(min(right, top), min(right, top))
        shapes.append(f'<line class="ideal" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')
    for number, line in enumerate(series.values()):
        shapes += _line(number, line, place)
    label = html.escape(description or x_label, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(shapes)}</svg>'


def legend(names: Sequence[str]) -> str:
    """The names of series with the colour and dashes of their lines."""
    items = (
        f'<span><svg viewBox="0 0 28 8" class="key"><line class="c{i % COLOURS}" x1="0" y1="4" x2="28" y2="4" '
        f'stroke-dasharray="{DASHES[i % len(DASHES)]}"/></svg>{html.escape(name)}</span>'
        for i, name in enumerate(names)
    )
    return f'<p class="legend">{"".join(items)}</p>'


def round_ticks(most: float, about: int = 4) -> list[float]:
    """Round numbers from 0 to ``most``, about so many: steps of 1, 2, 2.5 or 5 times a power of ten."""
    raw = most / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))
    return [round(i * step, 10) for i in range(int(most / step + 1e-9) + 1)]


def _axes(x_label: str, ticks: Sequence[float], top: float, left: float, place: Place) -> list[str]:
    floor, shapes = HEIGHT - BOTTOM, []
    for share in round_ticks(top):
        y = place(left, share)[1]
        shapes.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        shapes.append(f'<text x="{LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{100 * share:.0f}%</text>')
    for tick in ticks:
        x = place(tick, 0)[0]
        shapes.append(f'<text x="{x:.1f}" y="{floor + 16}" text-anchor="middle">{tick:g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    shapes.append(f'<text x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{html.escape(x_label)}</text>')
    return shapes


def _line(number: int, line: Sequence[Point], place: Place) -> list[str]:
    """One series: its intervals, its line, its points with their marks."""
    colour, shapes, path = f"c{number % COLOURS}", [], []
    for point in line:
        x, y = place(point.x, point.share)
        path.append(f"{x:.1f},{y:.1f}")
        low, high = place(point.x, point.low)[1], place(point.x, min(1.0, point.high))[1]
        shapes.append(f'<line class="{colour} bar" x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}"/>')
        tip = html.escape(point.tip)
        shapes.append(f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{tip}</title></circle>')
        if point.mark:
            shapes.append(f'<text x="{x + 6:.1f}" y="{y - 6:.1f}">{html.escape(point.mark)}</text>')
    dashes = DASHES[number % len(DASHES)]
    shapes.append(f'<polyline class="{colour}" points="{" ".join(path)}" stroke-dasharray="{dashes}"/>')
    return shapes
