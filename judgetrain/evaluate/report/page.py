"""The report as one self-contained page: no network, no scripts, light and dark, from a phone's width up."""

from __future__ import annotations

import datetime
import html
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from judgetrain.evaluate.report.chart import legend
from judgetrain.evaluate.report.figures import RELIABILITY, figures
from judgetrain.evaluate.report.report import Report
from judgetrain.evaluate.report.sections import Rows, Table

LONG = 16
"""Tables with more rows are folded."""

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
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:6px;background-repeat:no-repeat;background-image:
linear-gradient(to left,var(--page) 50%,transparent),linear-gradient(to left,var(--line),transparent);
background-position:right;background-size:3rem 100%,1rem 100%;background-attachment:local,scroll}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem;width:100%}
td,th{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{vertical-align:bottom;white-space:normal;font-weight:600}tbody tr:last-child td{border-bottom:0}
td:first-child,th:first-child{text-align:left;position:sticky;left:0;background:var(--page)}
td.text,th.text{text-align:left}td.text{white-space:normal;min-width:7rem;max-width:24rem}
nav{font-size:.9rem}a{color:var(--c0)}details{margin:1.6rem 0 .3rem}summary{font-weight:600;cursor:pointer}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:1rem}
figure{margin:0}figcaption{font-size:.9rem;font-weight:600}
svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);font-size:12px}
svg .grid{stroke:var(--line)}
svg .ideal{stroke:var(--soft);stroke-dasharray:4 4}
polyline[class]{fill:none;stroke-width:2}.bar{stroke-width:1.5;opacity:.45}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;font-size:.9rem;margin:.4rem 0}
.legend span{display:flex;align-items:center;gap:.4rem}svg.key{width:28px}svg.key line{stroke-width:2}
"""
_STYLE += "".join(f".c{i}{{stroke:var(--c{i});fill:var(--c{i})}}" for i in range(6))


def html_page(report: Report, links: Mapping[str, Sequence[tuple[str, str]]] | None = None) -> str:
    """The page; everything that comes from data or configuration is escaped.

    ``links``: texts and addresses by benchmark; those of the empty name stand at the top.
    """
    links = links or {}
    parts, places = [], []
    for number, (benchmark, rows) in enumerate(report.benchmarks().items()):
        title = html.escape(report.title(benchmark))
        tables = "".join(map(table_html, report.tables(benchmark)))
        charts = _charts([row for row in rows if row.agreement is not None])
        places.append(f'<a href="#b{number}">{html.escape(benchmark)}</a>')
        parts.append(f'<h2 id="b{number}">{title}</h2>{_links(links.get(benchmark))}{charts}{tables}')
    closing = "".join(map(table_html, report.closing()))
    if closing:
        places.append('<a href="#from">where it comes from</a>')
        parts.append(f'<h2 id="from">Where it comes from</h2>{closing}')
    navigation = f"<nav>{' · '.join(places)}</nav>" if len(places) > 1 else ""
    day = datetime.date.today().isoformat()
    seed = "" if report.seed is None else f"Seed {report.seed}, "
    line = f"{seed}{day}. Numbers: metrics.json, paired.json and summary.json beside this page."
    body = f"{navigation}{_links(links.get(''))}{''.join(parts)}"
    return document(f"{report.recipe}: evaluation", f"Evaluation of {report.recipe}", line, body)


def document(title: str, heading: str, line: str, body: str) -> str:
    """A whole page in the reports' style: title and heading are escaped, ``line`` and ``body`` are HTML already."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style></head><body>'
        f'<h1>{html.escape(heading)}</h1><p class="soft">{line}</p>{body}</body></html>\n'
    )


def _links(links: Sequence[tuple[str, str]] | None) -> str:
    """A line of links to pages of single trees."""
    found = (f'<a href="{html.escape(quote(address))}">{html.escape(text)}</a>' for text, address in links or ())
    return f"<p>Trees to look at: {', '.join(found)}</p>" if links else ""


def figure_pages(rows: Rows) -> dict[str, str]:
    """The figures of a benchmark's metric rows by title, each a page of its own (for a tracker)."""
    names, charts = figures(rows)
    return {
        title: f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}'
        f"</style></head><body>{legend(names)}{figure(title, chart)}</body></html>\n"
        for title, chart in charts.items()
    }


def _charts(rows: Rows) -> str:
    names, charts = figures(rows)
    if not charts:
        return ""
    note = "Bars: 95% bootstrap intervals. By cost: the number of branches stands beside each point."
    if RELIABILITY in charts:
        note += " Right by confidence: bins of equally many items; on the diagonal, confidence is what it says."
    shown = "".join(figure(title, chart) for title, chart in charts.items())
    return f'{legend(names)}<div class="charts">{shown}</div><small>{note}</small>'


def figure(title: str, chart: str) -> str:
    """A chart under its title."""
    return f"<figure><figcaption>{title}</figcaption>{chart}</figure>"


def table_html(table: Table) -> str:
    """A table with its explanation; a long one is folded."""
    names = table.names
    head = "".join(_cell("th", h, i < names) for i, h in enumerate(table.headers))
    body = "".join(
        "<tr>" + "".join(_cell("td", c, i < names) for i, c in enumerate(row)) + "</tr>" for row in table.cells
    )
    title, note = html.escape(table.title, quote=True), html.escape(table.explanation)
    rows = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    # Wide tables scroll by touch, mouse and keyboard.
    inner = f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table>{rows}</table></div>'
    inner += f"<small>{note}</small>"
    if len(table.cells) > LONG:
        return f"<details><summary>{title} ({len(table.cells)} rows)</summary>{inner}</details>"
    return f"<h3>{title}</h3>{inner}"


def _cell(tag: str, text: str, is_name: bool) -> str:
    return f"<{tag}{' class=' + chr(34) + 'text' + chr(34) if is_name else ''}>{html.escape(text)}</{tag}>"
