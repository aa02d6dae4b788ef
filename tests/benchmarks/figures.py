"""The pictures of the docs, drawn from what stages stored: no number in them is typed.

    python -m tests.benchmarks.figures --stress OUTPUTS --guarantees OUTPUTS --robustness OUTPUTS --queue queue.json

Each is written into ``--to`` (docs/figures): ``stress.svg``, ``guarantees.svg``, ``robustness.svg`` and
``labelling.svg``. OUTPUTS is the ``output_dir`` of a run of the recipe of that name, or the directory of one artifact
where there are several; ``queue.json`` is what ``python -m tests.benchmarks.label_queue --to queue.json`` writes. The
same inputs give the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from judgetrain.artifacts.chart import Chart, Point, round_ticks
from judgetrain.artifacts.pages import SHARED, render
from judgetrain.evaluate.guarantees.sections import selective_charts
from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.robustness.record import Attacked

TEMPLATE = Path(__file__).with_name("figure.svg.jinja")
PANEL, LINE, ROW = 380, 18, 24
STYLE = (
    "svg .head{font-weight:600;font-size:14px;fill:var(--text)}svg .name{font-weight:600}"
    "svg .ground{fill:var(--page)}svg .wide{stroke-width:2}"
)


@dataclass(frozen=True, kw_only=True)
class Dots:
    """Rows of named values with their intervals, shares from 0 to ``most``; each series has a colour and a height.

    ``values``: by row, by series in the order of the legend, the value, both ends of its interval, and its tip.
    """

    title: str
    x_label: str
    values: dict[str, list[tuple[float, float, float, str]]]
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
        return 30 + ROW * len(self.values)

    def place(self, value: float) -> float:
        """Where in the panel a value lies, to a tenth."""
        share = (min(max(value, self.least), self.most) - self.least) / (self.most - self.least)
        return round(self.left + (self.right - self.left) * share, 1)

    @property
    def rows(self) -> Iterator[tuple[str, int, list[tuple[str, float, float, float, float, str]]]]:
        """Name, height and marks of each row."""
        for i, (name, found) in enumerate(self.values.items()):
            middle = (len(found) - 1) / 2
            marks = [(f"c{j}", *at[:3], 6 * (j - middle), at[3]) for j, at in enumerate(found)]
            yield name, 38 + ROW * i, marks


@dataclass(frozen=True)
class Lines:
    """A line chart as a panel."""

    chart: Chart

    @property
    def title(self) -> str:
        """Above the panel."""
        return self.chart.title


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
        return "".join(line for line in kept if not line.startswith(("svg{", "svg.map"))) + STYLE

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
    """Line charts of the same series side by side."""
    if not charts:
        raise SystemExit(f"{title}: there is nothing to draw")
    lines = charts[0].lines
    names, dashes = [name for name, *_ in lines], [dashes for _, _, dashes, _ in lines]
    panels = [Lines(chart) for chart in charts]
    return drawn(Frame(title=title, names=names, dashes=dashes, panels=panels))


def stress(directory: Path) -> str:
    """What each proxy thinks that best of n won, and what the gold standard says, over the divergence."""
    path = directory / "stress.json"
    found = _json(path)

    def chart(title: str, name: str) -> Chart:
        series = {
            proxy: [Point(p["kl"], p[name]["mean"], f"best of {p['n']}", tuple(p[name]["interval"])) for p in points]
            for proxy, points in found["curves"].items()
        }
        return Chart(title=title, x_label="divergence from the writer (nats)", series=series, plain=True, marked=True)

    return of_charts(
        f"Best of 1 to {found['samples']} responses by each proxy, {found['prompts']} prompts",
        [
            chart("What the proxy thinks it won (standard deviations)", "proxy_gain"),
            chart("What was won, by the truth (standard deviations)", "gold_gain"),
        ],
    )


def guarantees(directory: Path) -> str:
    """Agreement of what is answered, by the share that is answered and by its cost."""
    rows = [row for row in _rows(directory) if row.guarantees and row.guarantees.selective]
    sides = {row.guarantees.selective.whole for row in rows if row.guarantees and row.guarantees.selective}
    n = max((side.n for side in sides), default=0)
    return of_charts(f"Judges that may abstain, on {n} comparisons that set no threshold", selective_charts(rows))


def robustness(directory: Path) -> str:
    """What attacks did to a judge with each number of branches."""
    rows = [row for row in _rows(directory) if row.robustness]
    if not rows:
        raise SystemExit(f"{directory / 'metrics.json'}: nobody was attacked there (evaluate.robustness)")
    rows.sort(key=lambda row: (row.method, row.branches))
    names = [f"{row.method}, {row.branches} branch{'es' if row.branches > 1 else ''}" for row in rows]

    def panel(title: str, x_label: str, kinds: Sequence[str], of: Callable[[Attacked], Any], **sizes: float) -> Dots:
        values: dict[str, list[tuple[float, float, float, str]]] = {}
        for row, who in zip(rows, names, strict=True):
            for attacked in row.robustness or ():
                if attacked.kind in kinds and attacked.attack:
                    at, (low, high) = of(attacked)
                    tip = f"{who}: {100 * at:.1f}% ({100 * low:.0f} to {100 * high:.0f}) of {attacked.n}"
                    values.setdefault(attacked.attack.replace("_", " "), []).append((at, low, high, tip))
        return Dots(title=title, x_label=x_label, values=values, **sizes)

    def flips(found: Attacked) -> tuple[float, tuple[float, float]]:
        sides = [(found.flips_ab, found.flips_ab_ci), (found.flips_ba, found.flips_ba_ci)]
        at, ends = max((s for s in sides if s[0] is not None and s[1]), key=lambda side: side[0] or 0.0)
        assert at is not None and ends is not None
        return at, (ends[0], ends[1])

    def loses(found: Attacked) -> tuple[float, tuple[float, float]]:
        assert found.loses is not None and found.loses_ci is not None
        return found.loses, (found.loses_ci[0], found.loses_ci[1])

    edits = panel("Verdicts that change", "in the order in which more do", ("rerun", "control", "edit"), flips)
    most = max(high for marks in edits.values.values() for _, _, high, _ in marks)
    edits = panel(
        edits.title, edits.x_label, ("rerun", "control", "edit"), flips, most=round_ticks(0.0, most)[-1] + 0.05
    )
    empty = panel("Answers without content that lose", "in both orders", ("empty",), loses)
    n = {attacked.n for row in rows for attacked in row.robustness or () if attacked.attack}
    title = f"Under attack, {min(n)} comparisons an attack, 95% intervals"
    return drawn(Frame(title=title, names=names, dashes=[""] * len(names), panels=[edits, empty]))


QUEUES = {"chance": "drawn by chance", "branches + orders + margin": "the queue", "as shipped": "the queue as shipped"}
"""What is drawn of the ways to choose comparisons, and what it is called."""


def labelling(path: Path) -> str:
    """Agreement of what is learned from labels of the queue, and from as many drawn by chance."""
    found = _json(path)
    seeds: list[dict[str, list[float]]] = found["seeds"]
    series = {}
    for name, shown in QUEUES.items():
        series[shown] = []
        for number, values in zip(found["numbers"], zip(*(each[name] for each in seeds), strict=True), strict=True):
            mean, spread = fmean(values), stdev(values) if len(values) > 1 else 0.0
            tip = f"{shown}, {number} labels: {mean:.1f}%"
            series[shown].append(Point(number, mean, tip, (mean - spread, mean + spread)))
    chart = Chart(
        title="Agreement on decided pairs, % (± SD over seeds)",
        x_label="labels",
        series=series,
        ticks=found["numbers"],
        plain=True,
        marked=True,
    )
    return of_charts(f"Which comparisons people label, {len(seeds)} seeds", [chart])


def _json(path: Path) -> Any:
    if not path.is_file():
        raise SystemExit(f"{path}: there is no such file")
    return json.loads(path.read_text(encoding="utf-8"))


def _rows(directory: Path) -> list[MetricRow]:
    return [MetricRow.from_row(row) for row in _json(directory / "metrics.json")]


def artifact(outputs: Path, stage: str, name: str) -> Path:
    """The directory of the one finished artifact of a stage; or the directory itself, if it is one.

    Raises:
        SystemExit: there is none, or several.
    """
    if (outputs / name).is_file():
        return outputs
    found = sorted(path.parent for path in outputs.glob(f"artifacts/{stage}/*/{name}"))
    if len(found) != 1:
        several = f"several ({', '.join(path.name for path in found)}): name one" if found else "none"
        raise SystemExit(f"{outputs}/artifacts/{stage}/*/{name}: expected one finished artifact, found {several}")
    return found[0]


PICTURES: dict[str, tuple[Callable[[Path], str], str, str]] = {
    "stress": (stress, "stress", "stress.json"),
    "guarantees": (guarantees, "evaluate", "metrics.json"),
    "robustness": (robustness, "evaluate", "metrics.json"),
}
"""By option: what draws it, the stage whose artifact it is drawn from, and the file there."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write those pictures whose inputs are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in PICTURES:
        parser.add_argument(f"--{name}", type=Path, metavar="OUTPUTS")
    parser.add_argument("--queue", type=Path, metavar="JSON")
    parser.add_argument("--to", type=Path, default=Path("docs/figures"))
    options = parser.parse_args(arguments)
    texts = {
        name: draw(artifact(outputs, stage, file))
        for name, (draw, stage, file) in PICTURES.items()
        if (outputs := getattr(options, name))
    }
    if options.queue:
        texts["labelling"] = labelling(options.queue)
    if not texts:
        parser.error("name what to draw from: --stress, --guarantees, --robustness or --queue")
    options.to.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (options.to / f"{name}.svg").write_text(text, encoding="utf-8")
        print(options.to / f"{name}.svg")


if __name__ == "__main__":
    main()
