"""The table of results: on the console, as Markdown and as a self-contained page."""

from __future__ import annotations

import datetime
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from judgetrain.artifacts import write_text_atomic

Row = Mapping[str, Any]

CONTRACT = (
    "Agreement: both orders give the label, over all items. Consistency: both orders give the same readable verdict. "
    "Brackets: 95% bootstrap interval over items. Tokens: generated for one verdict in one order. "
    "Unreadable: judgments without readable scores; they count as wrong."
)
HEADERS = ("method", "branches", "agreement", "consistency", "w/o ties", "first-shown wins", "unreadable", "tokens")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _interval(row: Row, name: str) -> str:
    low_high = row[f"{name}_ci"]
    value = _percent(row[name])
    return value if low_high is None else f"{value} [{100 * low_high[0]:.1f}, {100 * low_high[1]:.1f}]"


def cells(row: Row) -> tuple[str, ...]:
    """One row of the table as text, in the order of :data:`HEADERS`."""
    unreadable = row["parse_failures"] / row["judgments"] if row["judgments"] else None
    return (
        str(row["method"]),
        str(row["branches"]) if row["branches"] else "–",
        _interval(row, "agreement"),
        _interval(row, "consistency"),
        _percent(row["agreement_without_ties"]),
        _percent(row["position_bias"]),
        _percent(unreadable),
        f"{row['generated_tokens']:.0f}",
    )


def _by_benchmark(rows: Sequence[Row]) -> dict[str, list[Row]]:
    result: dict[str, list[Row]] = {}
    for row in rows:
        result.setdefault(f"{row['benchmark']} ({row['split']}, n = {row['n']})", []).append(row)
    return result


def console_table(rows: Sequence[Row]) -> list[Any]:
    """Rich tables, one a benchmark, and the contract below."""
    from rich.table import Table

    tables: list[Any] = []
    for title, part in _by_benchmark(rows).items():
        table = Table(title=title, title_justify="left")
        for i, header in enumerate(HEADERS):
            table.add_column(header, justify="left" if i == 0 else "right", no_wrap=True)
        for row in part:
            table.add_row(*cells(row))
        tables.append(table)
    return [*tables, CONTRACT]


def markdown(rows: Sequence[Row], recipe: str, seed: int) -> str:
    """The tables as Markdown."""
    lines = [f"# Evaluation: recipe {recipe}, seed {seed}", ""]
    for title, part in _by_benchmark(rows).items():
        lines += [f"## {title}", "", f"| {' | '.join(HEADERS)} |", f"| {' | '.join('---' for _ in HEADERS)} |"]
        lines += [f"| {' | '.join(c.replace('|', chr(92) + '|') for c in cells(row))} |" for row in part]
        lines.append("")
    return "\n".join([*lines, CONTRACT, ""])


_STYLE = """
:root{color-scheme:light dark;--line:#8884}
body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:auto;padding:1rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
td:first-child,th:first-child{text-align:left}
svg{max-width:100%;height:auto}svg text{fill:currentColor;font-size:12px}
svg .axis{stroke:currentColor;opacity:.4}small{opacity:.8}
"""
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#66ccee", "#ccbb44")


def write_html(path: Path, rows: Sequence[Row], recipe: str, seed: int) -> None:
    """A page that needs no network: tables, and agreement against tokens and branches."""
    parts = []
    for title, part in _by_benchmark(rows).items():
        head = "".join(f"<th>{html.escape(h)}</th>" for h in HEADERS)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells(row)) + "</tr>" for row in part)
        parts.append(f"<h2>{html.escape(title)}</h2>{curve(part)}")
        parts.append(f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>')
        parts.append(_group_table(part))
    day = datetime.date.today().isoformat()
    write_text_atomic(
        path,
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>judgetrain: {html.escape(recipe)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style></head><body>'
        f"<h1>Evaluation of {html.escape(recipe)}</h1><p>Seed {seed}, {day}.</p>{''.join(parts)}"
        f"<p><small>{html.escape(CONTRACT)}</small></p></body></html>\n",
    )


def _group_table(rows: Sequence[Row]) -> str:
    """Agreement by group, for the largest number of branches of each method."""
    best: dict[str, Row] = {}
    for row in rows:
        if row["groups"] and (row["method"] not in best or row["branches"] > best[row["method"]]["branches"]):
            best[row["method"]] = row
    if not best:
        return ""
    groups = sorted({g for row in best.values() for g in row["groups"]})
    titles = [f"{m}@{row['branches']}" if row["branches"] else m for m, row in best.items()]
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    body = "".join(
        f"<tr><td>{html.escape(g)} (n = {next(iter(best.values()))['groups'][g]['n']})</td>"
        + "".join(f"<td>{_percent(r['groups'][g]['agreement'])}</td>" for r in best.values())
        + "</tr>"
        for g in groups
    )
    return f'<h3>Agreement by group</h3><div class="scroll"><table><tr><th>group</th>{head}</tr>{body}</table></div>'


def curve(rows: Sequence[Row]) -> str:
    """An SVG of agreement (0 to 100%) against generated tokens a verdict, a line for each branching judge."""
    judges: dict[str, list[Row]] = {}
    for row in rows:
        if row["branches"]:
            judges.setdefault(row["method"], []).append(row)
    if not judges:
        return ""
    width, height, left, bottom = 640, 300, 50, 40
    most = max(row["generated_tokens"] for part in judges.values() for row in part) or 1.0
    top = max(row["agreement"] for part in judges.values() for row in part) or 1.0

    def place(row: Row) -> tuple[float, float]:
        x = left + (width - left - 90) * row["generated_tokens"] / most
        return x, (height - bottom) - (height - bottom - 20) * row["agreement"] / top

    shapes = [
        f'<line class="axis" x1="{left}" y1="{height - bottom}" x2="{width - 20}" y2="{height - bottom}"/>',
        f'<line class="axis" x1="{left}" y1="10" x2="{left}" y2="{height - bottom}"/>',
        f'<text x="{left}" y="{height - 8}">0</text><text x="{width - 200}" y="{height - 8}">'
        f"{most:.0f} generated tokens a verdict</text>",
        f'<text x="4" y="24">{100 * top:.0f}%</text><text x="4" y="{height - bottom}">0%</text>',
    ]
    for colour, (name, part) in zip(_COLOURS * 9, judges.items(), strict=False):
        points = [place(row) for row in part]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        shapes.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), row in zip(points, part, strict=True):
            tip = f"{name}, {row['branches']} branches: {_percent(row['agreement'])}%"
            shapes.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{html.escape(tip)}</title></circle>'
            )
        x, y = points[-1]
        shapes.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}">{html.escape(name)}</text>')
    return (
        f'<h3>Agreement and cost</h3><svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="agreement against generated tokens">{"".join(shapes)}</svg>'
    )
