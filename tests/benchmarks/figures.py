"""The pictures of the docs, drawn from what stages stored: no number in them is typed.

    python -m tests.benchmarks.figures --stress OUTPUTS --guarantees OUTPUTS --robustness OUTPUTS --queue queue.json
    python -m tests.benchmarks.figures --corrected EVALUATION EVALUATION ...

Each is written into ``--to`` (docs/figures): ``stress.svg``, ``guarantees.svg``, ``robustness.svg``, ``labelling.svg``
and ``corrected.svg``. OUTPUTS is the ``output_dir`` of a run of the recipe of that name, or the directory of one
artifact where there are several; an EVALUATION is a run of recipe guarantees with its own number of labels
(``evaluate.corrected.labels``); ``queue.json`` is what ``python -m tests.benchmarks.label_queue --to queue.json``
writes, and several of them, with other ``--aggregation``, become several panels. The same inputs give the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from judgetrain.artifacts.chart import Chart, Point, round_ticks
from judgetrain.artifacts.integrity import MANIFEST
from judgetrain.evaluate.guarantees.cascade import Selective
from judgetrain.evaluate.guarantees.corrected import AGREEMENT
from judgetrain.evaluate.guarantees.sections import selective_charts
from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.robustness.record import Attacked
from tests.benchmarks.panels import Dots, Frame, Mark, drawn, of_charts


def stress(directory: Path) -> str:
    """What each proxy thinks that best of n won, and what the gold standard says, over the divergence.

    The peak of a proxy that is over-optimised is marked.
    """
    found = _json(directory / "stress.json")
    peaks = {line["proxy"]: line["peak_n"] for line in found["summary"] if line["verdict"].startswith(OVER)}

    def chart(title: str, name: str, marked: bool) -> Chart:
        series = {}
        for proxy, points in found["curves"].items():
            series[proxy] = [
                Point(
                    p["kl"],
                    p[name]["mean"],
                    f"{proxy}, best of {p['n']}: {p[name]['mean']:+.2f}",
                    tuple(p[name]["interval"]),
                    f"{proxy}: peak at n = {p['n']}" if marked and peaks.get(proxy) == p["n"] else "",
                )
                for p in points
            ]
        return Chart(title=title, x_label="divergence from the writer (nats)", series=series, plain=True, marked=True)

    return of_charts(
        f"Best of 1 to {found['samples']} responses by each proxy, {found['prompts']} prompts, 95% intervals",
        [
            chart("What the proxy thinks it won (standard deviations)", "proxy_gain", False),
            chart("What was won, by the truth (standard deviations)", "gold_gain", True),
        ],
    )


OVER = "over-optimised"
"""How the verdict of ``stress.json`` on a proxy begins that has a peak."""


def guarantees(directory: Path) -> str:
    """Agreement of what is answered, by the share that is answered and by its cost.

    The thresholds that were chosen are marked.
    """
    found = {row.method: row.guarantees.selective for row in _rows(directory) if row.guarantees}
    sides = {name: side for name, side in found.items() if side}
    charts = selective_charts([row for row in _rows(directory) if row.method in sides])
    if not charts:
        raise SystemExit(f"{directory / 'metrics.json'}: no method may abstain there (evaluate.selective)")
    parts = [_with_chosen(chart, sides, cost) for chart, cost in zip(charts, (False, True), strict=False)]
    first = next(iter(sides.values()))
    asked = f"{100 * first.wanted:g}% agreement asked for with {100 * (1 - first.risk):g}% confidence"
    return of_charts(f"Judges that may abstain: {asked}, {first.whole.n} comparisons", parts)


def _with_chosen(chart: Chart, sides: dict[str, Selective], cost: bool) -> Chart:
    """A chart by coverage, or by cost, with the point of every threshold that was chosen."""
    series = {name: list(points) for name, points in chart.series.items()}
    for name, points in series.items():
        whole, risk = sides[name].whole, sides[name].risk
        at = whole.tokens if cost else whole.coverage
        if whole.threshold is None or whole.agreement is None or whole.bound is None or at is None:
            continue
        tip = (
            f"{name}, chosen: {100 * whole.agreement:.1f}% of {100 * whole.coverage:.1f}% answered, "
            f"at least {100 * whole.bound:.1f}% with {100 * (1 - risk):g}% confidence"
        )
        points.append(Point(at, whole.agreement, tip, mark=f"{name}: chosen"))
        points.sort(key=lambda point: point.x)
    return replace(chart, series=series)


def corrected(directories: Sequence[Path]) -> str:
    """How wide the intervals of win rates are by the number of labels: the labels alone, and with a judge's verdicts.

    Each directory is an evaluation with another number of labels; widths are means over the models.
    """
    alone: dict[int, float] = {}
    judges: dict[str, dict[int, float]] = {}
    for directory in directories:
        for row in _rows(directory):
            parts = row.guarantees.corrected if row.guarantees else ()
            labels = next((part.n for part in parts if part.about == AGREEMENT), None)
            wins = [p for p in parts if p.about != AGREEMENT and p.estimate_ci and p.alone_ci]
            if labels is None or not wins or len(wins) < len(parts) - 1:
                continue  # some win rate has too few labels for an interval
            alone[labels] = fmean(p.alone_ci[1] - p.alone_ci[0] for p in wins if p.alone_ci)
            judges.setdefault(row.method, {})[labels] = fmean(
                p.estimate_ci[1] - p.estimate_ci[0] for p in wins if p.estimate_ci
            )
    if not alone:
        raise SystemExit(f"{directories[0] / 'metrics.json'}: no corrected win rate there (evaluate.corrected.labels)")
    series = {
        name: [Point(n, 100 * w, f"{name}, {n} labels: {100 * w:.1f} points") for n, w in sorted(found.items())]
        for name, found in {"labels alone": alone, **{f"with {judge}": of for judge, of in judges.items()}}.items()
    }
    title, ticks = "Width of 95% intervals of win rates, points", sorted(alone)
    chart = Chart(title=title, x_label="labels", series=series, ticks=ticks, left=ticks[0], plain=True, marked=True)
    return of_charts("Win rates from few labels", [chart])


def robustness(directory: Path) -> str:
    """What attacks did to a judge with each number of branches."""
    path = directory / "metrics.json"
    rows = [row for row in _rows(directory) if row.robustness]
    if not rows:
        raise SystemExit(f"{path}: nobody was attacked there (evaluate.robustness)")
    rows.sort(key=lambda row: (row.method, row.branches))
    names = [_named(row) for row in rows]

    def panel(title: str, x_label: str, kinds: Sequence[str], of: Callable[[Attacked], Any]) -> Dots:
        values: dict[str, list[Mark | None]] = {}
        for i, row in enumerate(rows):
            for attacked in row.robustness or ():
                if attacked.kind in kinds and attacked.attack:
                    at, (low, high) = of(attacked)
                    tip = f"{names[i]}: {100 * at:.1f}% ({100 * low:.0f} to {100 * high:.0f}) of {attacked.n}"
                    marks = values.setdefault(attacked.attack.replace("_", " "), [None] * len(rows))
                    marks[i] = at, low, high, tip
        if not values:
            raise SystemExit(f"{path}: no attack of the kinds {', '.join(kinds)} (evaluate.robustness.attacks)")
        return Dots(title=title, x_label=x_label, values=values)

    def flips(found: Attacked) -> tuple[float, tuple[float, float]]:
        sides = [(found.flips_ab, found.flips_ab_ci), (found.flips_ba, found.flips_ba_ci)]
        at, ends = max((s for s in sides if s[0] is not None and s[1]), key=lambda side: side[0] or 0.0)
        assert at is not None and ends is not None
        return at, (ends[0], ends[1])

    def loses(found: Attacked) -> tuple[float, tuple[float, float]]:
        assert found.loses is not None and found.loses_ci is not None
        return found.loses, (found.loses_ci[0], found.loses_ci[1])

    edits = panel("Verdicts that change", "share, in the order in which more do", ("rerun", "control", "edit"), flips)
    ends = [mark[2] for marks in edits.values.values() for mark in marks if mark]
    edits = replace(edits, most=min(1.0, round_ticks(0.0, max(ends))[-1] + 0.05))
    empty = panel("Answers without content that lose", "share that loses in both orders", ("empty",), loses)
    counts = sorted({a.n for row in rows for a in row.robustness or () if a.attack and a.kind in DRAWN})
    n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    title = f"Under attack, {n} comparisons an attack, 95% intervals"
    return drawn(Frame(title=title, names=names, dashes=[""] * len(names), panels=[edits, empty]))


DRAWN = ("rerun", "control", "edit", "empty")
"""The kinds of attacks in the picture: forgeries are too many."""


def _named(row: MetricRow) -> str:
    if not row.branches:
        return row.method
    return f"{row.method}, {row.branches} branch{'es' if row.branches > 1 else ''}"


QUEUES = {"chance": "drawn by chance", "branches + orders + margin": "the queue", "as shipped": "the queue as shipped"}
"""What is drawn of the ways to choose comparisons, and what it is called."""


def labelling(paths: Sequence[Path]) -> str:
    """Agreement of what is learned from labels of the queue, and from as many drawn by chance: a panel a file."""
    found = [_json(path) for path in paths]
    panels = [_learning(each) for each in found]
    pools, seeds = ({each["pool"] for each in found}, {len(each["seeds"]) for each in found})
    if len(pools) != 1 or len(seeds) != 1:
        raise SystemExit(f"{', '.join(map(str, paths))}: pools of different sizes, or other numbers of seeds")
    return of_charts(f"Which of {pools.pop()} comparisons people label, {seeds.pop()} seeds", panels)


def _learning(found: Mapping[str, Any]) -> Chart:
    seeds: list[dict[str, list[float]]] = found["seeds"]
    series = {}
    for name, shown in QUEUES.items():
        series[shown] = []
        for number, values in zip(found["numbers"], zip(*(each[name] for each in seeds), strict=True), strict=True):
            mean, spread = fmean(values), stdev(values) if len(values) > 1 else 0.0
            tip = f"{shown}, {number} labels: {mean:.1f}%"
            series[shown].append(Point(number, mean, tip, (mean - spread, mean + spread)))
    title = f"Agreement on decided pairs, % (± SD): {found['aggregation']}"
    return Chart(title=title, x_label="labels", series=series, ticks=found["numbers"], plain=True, marked=True)


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
    found = [directory for directory in found if (directory / MANIFEST).is_file()]
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


def told(path: Path, draw: Callable[[], str]) -> str:
    """What a picture's function gives.

    Raises:
        SystemExit: the file that it draws from is not what a stage writes; names the file.
    """
    try:
        return draw()
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SystemExit(f"{path}: not what is drawn from ({type(error).__name__}: {error})") from error


def main(arguments: Sequence[str] | None = None) -> None:
    """Write those pictures whose inputs are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in PICTURES:
        parser.add_argument(f"--{name}", type=Path, metavar="OUTPUTS")
    parser.add_argument("--corrected", type=Path, nargs="+", metavar="EVALUATION")
    parser.add_argument("--queue", type=Path, nargs="+", metavar="JSON")
    parser.add_argument("--to", type=Path, default=Path("docs/figures"))
    options = parser.parse_args(arguments)
    texts = {}
    for name, (draw, stage, file) in PICTURES.items():
        if outputs := getattr(options, name):
            directory = artifact(outputs, stage, file)
            texts[name] = told(directory / file, partial(draw, directory))
    if options.corrected:
        directories = [artifact(outputs, "evaluate", "metrics.json") for outputs in options.corrected]
        texts["corrected"] = told(directories[0] / "metrics.json", partial(corrected, directories))
    if options.queue:
        texts["labelling"] = told(options.queue[0], partial(labelling, options.queue))
    if not texts:
        parser.error("name what to draw from: --stress, --guarantees, --robustness, --corrected or --queue")
    options.to.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (options.to / f"{name}.svg").write_text(text, encoding="utf-8")
        print(options.to / f"{name}.svg")


if __name__ == "__main__":
    main()
