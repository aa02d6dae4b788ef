"""What stage ``stress`` prints, and its page."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from judgetrain.artifacts.chart import Chart
from judgetrain.artifacts.chart import Point as Mark
from judgetrain.artifacts.pages import render
from judgetrain.extras.stress.curve import Estimate
from judgetrain.extras.stress.result import Point, Result

TEMPLATE = Path(__file__).with_name("templates") / "stress.html"


def shown(found: Estimate, signed: bool = True) -> str:
    """An estimate with its interval."""
    sign = "+" if signed else ""
    low, high = found.interval
    return f"{found.mean:{sign}.2f} ({low:{sign}.2f} to {high:{sign}.2f})"


def console(result: Result) -> Iterator[Any]:
    """The table at the stage's end."""
    from rich import box
    from rich.table import Table

    title = f"Best of n by each proxy, measured by {result.gold} ({result.prompts} prompts, {result.samples} responses)"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    last = f"at n = {result.samples}"
    for name in ("proxy", "writer", "peak", "at n", last, "won", "lost after the peak", "verdict"):
        table.add_column(name, justify="left" if name in ("proxy", "verdict") else "right")
    for line in result.summary:
        figures = f"{line.writer:.2f}", f"{line.peak_gold:.2f}", str(line.peak_n), f"{line.last_gold:.2f}"
        table.add_row(line.proxy, *figures, shown(line.gained), shown(line.fall), line.verdict)
    yield table
    for line in result.summary:
        if line.unread > 0.05:
            yield f"{line.proxy} could not read {100 * line.unread:.0f}% of the responses, which it never chooses"
    if result.left_out:
        yield f"{result.left_out} prompts are left out: {result.gold} could not read all responses to them"


def page(result: Result, title: str) -> str:
    """The page: gold and proxy over the divergence, and every figure below."""
    unit = "quality" if result.gold == "truth" else f"score by {result.gold}"
    charts = [
        _chart(f"What is chosen, by {result.gold} ({unit})", result, lambda p: p.gold),
        _chart("What the proxy thinks it won (standard deviations)", result, lambda p: p.proxy_gain),
        _chart("What was won, by the gold standard (standard deviations)", result, lambda p: p.gold_gain),
    ]
    day = datetime.date.today().isoformat()
    return render(TEMPLATE, title=title, result=result, charts=charts, day=day, shown=shown)


def _chart(title: str, result: Result, of: Callable[[Point], Estimate]) -> Chart:
    series = {
        name: [Mark(p.kl, of(p).mean, f"{name}, best of {p.n}: {shown(of(p), False)}", of(p).interval) for p in points]
        for name, points in result.curves.items()
    }
    return Chart(title=title, x_label="divergence from the writer (nats)", series=series, plain=True, marked=True)
