"""The report as one self-contained page: no network, no scripts, light and dark, from a phone's width up."""

from __future__ import annotations

import datetime
import html
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from judgetrain.evaluate.chart import Point, legend, line_chart
from judgetrain.evaluate.report import Report, Row, percent

_STYLE = """
:root{color-scheme:light dark;--page:#fff;--text:#1b1f24;--soft:#59636e;--line:#d5dae0;
--c0:#2f6db3;--c1:#c2410c;--c2:#15803d;--c3:#9d2f8a;--c4:#0e7490;--c5:#8a6d00}
@media (prefers-color-scheme:dark){:root{--page:#14171b;--text:#e4e8ee;--soft:#9aa5b1;--line:#343b44;
--c0:#6fa8f0;--c1:#f59357;--c2:#5cc883;--c3:#dd8bcd;--c4:#4fc3d9;--c5:#d9bd4a}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;color:var(--text);background:var(--page);max-width:72rem;margin:auto;
padding:1rem;overflow-wrap:break-word}
h1{font-size:1.6rem;margin:.5rem 0 0}h2{font-size:1.25rem;margin:2.2rem 0 .3rem}h3{font-size:1rem;margin:1.6rem 0 .3rem}
a{color:var(--c0)}.soft{color:var(--soft)}small{color:var(--soft);display:block;margin:.4rem 0;max-width:60rem}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:6px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem;width:100%}
td,th{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{vertical-align:bottom;white-space:normal;font-weight:600}tbody tr:last-child td{border-bottom:0}
td:first-child,th:first-child{text-align:left;position:sticky;left:0;background:var(--page)}
td.text,th.text{text-align:left}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:1rem}
figure{margin:0}figcaption{font-size:.9rem;font-weight:600}
svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);font-size:12px}
svg .grid{stroke:var(--line)}polyline[class]{fill:none;stroke-width:2}.bar{stroke-width:1.5;opacity:.45}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;font-size:.9rem;margin:.4rem 0}
.legend span{display:flex;align-items:center;gap:.4rem}svg.key{width:28px}svg.key line{stroke-width:2}
"""
_STYLE += "".join(f".c{i}{{stroke:var(--c{i});fill:var(--c{i})}}" for i in range(6))


def html_page(report: Report, links: Mapping[str, Sequence[tuple[str, str]]] | None = None) -> str:
    """The page; everything that comes from data or configuration is escaped.

    ``links``: texts and addresses by benchmark; those of the empty name stand at the top.
    """
    links = links or {}
    parts = []
    for benchmark, rows in report.benchmarks().items():
        tables = "".join(_table(*table) for table in report.tables(benchmark))
        parts.append(
            f"<h2>{html.escape(report.title(benchmark))}</h2>{_links(links.get(benchmark))}{_charts(rows)}{tables}"
        )
    recipe, day = html.escape(report.recipe), datetime.date.today().isoformat()
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{recipe}: evaluation</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style></head><body>'
        f'<h1>Evaluation of {recipe}</h1><p class="soft">Seed {report.seed}, {day}. Numbers: metrics.json, '
        f"paired.json, predictions.parquet beside this page.</p>{_links(links.get(''))}{''.join(parts)}</body></html>\n"
    )


def _links(links: Sequence[tuple[str, str]] | None) -> str:
    """A line of links to pages of single trees."""
    found = (f'<a href="{html.escape(quote(address))}">{html.escape(text)}</a>' for text, address in links or ())
    return f"<p>Trees to look at: {', '.join(found)}</p>" if links else ""


def _charts(rows: Sequence[Row]) -> str:
    """Agreement and consistency by branches, and agreement by cost, for the branching judges."""
    judges: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda r: r["branches"]):
        if row["branches"]:
            judges.setdefault(row["method"], []).append(row)
    names = [name for name in dict.fromkeys(r["method"] for r in rows) if name in judges]
    if not names:
        return ""
    counts = sorted({float(r["branches"]) for part in judges.values() for r in part})
    drawn = [
        ("Agreement by branches", "branches", "agreement", "branches", counts),
        ("Agreement by cost", "tokens a verdict", "agreement", "tokens", None),
        ("Consistency by branches", "branches", "consistency", "branches", counts),
    ]
    figures = ""
    for title, label, metric, axis, ticks in drawn:
        series = {name: [_point(r, metric, axis) for r in judges[name]] for name in names}
        chart = line_chart(label, series, ticks, title)
        figures += f"<figure><figcaption>{title}</figcaption>{chart}</figure>"
    note = "Bars: 95% bootstrap intervals over items. By cost: the number of branches stands beside each point."
    return f'{legend(names)}<div class="charts">{figures}</div><small>{note}</small>'


def _point(row: Row, metric: str, axis: str) -> Point:
    low, high = row[f"{metric}_ci"]
    tip = f"{row['method']}, {row['branches']} branches: {percent(row[metric])}%"
    if axis == "tokens":
        return Point(row["generated_tokens"], row[metric], low, high, tip, str(row["branches"]))
    return Point(row["branches"], row[metric], low, high, tip)


def _table(title: str, headers: Sequence[str], cells: Sequence[Sequence[str]], explanation: str) -> str:
    names = 2 if headers[:2] == ("first", "second") else 1
    head = "".join(_cell("th", h, i < names) for i, h in enumerate(headers))
    body = "".join("<tr>" + "".join(_cell("td", c, i < names) for i, c in enumerate(row)) + "</tr>" for row in cells)
    return (
        f'<h3>{html.escape(title)}</h3><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div><small>{html.escape(explanation)}</small>"
    )


def _cell(tag: str, text: str, is_name: bool) -> str:
    return f"<{tag}{' class=' + chr(34) + 'text' + chr(34) if is_name else ''}>{html.escape(text)}</{tag}>"
