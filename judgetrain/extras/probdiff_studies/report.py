"""The results of stage ``studies`` as tables and plots of a page."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from judgetrain.artifacts.pages import Chart, Point
from judgetrain.evaluate.report.table import Columns, Table, number, percent
from judgetrain.extras.probdiff_studies.comparing import Row
from judgetrain.scorers.probdiff import DELTA


def tables(found: Mapping[str, Any], official: Mapping[str, Mapping[str, float]]) -> list[Table]:
    """Return the tables of ``studies.json`` that have rows; ``official`` holds published scores by name and model."""
    kappas = [(", ".join(row["of"]), row["kappa"]) for row in found["kappas"]]
    known = [kappa for _, kappa in kappas if kappa is not None]
    kappas += [("mean", sum(known) / len(known))] if len(known) > 1 else []
    agreed: Columns = {"annotators": itemgetter(0), "kappa": lambda row: number(row[1], 3)}
    beside: Columns = {"official score": itemgetter("score"), **_plain("prompts", "models")}
    beside |= {"Kendall": _number("kendall"), "Spearman": _number("spearman")}
    outcomes: Columns = {**_plain("first", "second"), "threshold": lambda row: f"{row['threshold']:g}", **_plain("n")}
    duels: Columns = {**_plain("group", "first", "second", "n", "without"), **_shares("win", "tie", "lose")}
    duels |= {"confidence %": _share("confidence"), "its confidence %": _share("other_confidence")}
    conflicts: Columns = {"verdicts of": itemgetter("who"), "conflict %": _share("degree"), "n": itemgetter("n")}
    every = [
        _ranked(found, official),
        Table.of("Beside official scores", found["official"], beside),
        _grouped(found["by_group"]),
        Table.of("Win, tie, lose", found["outcomes"], outcomes | _shares("win", "tie", "lose"), names=2),
        Table.of("Answers judged against each other", found["duels"], duels, names=3),
        Table.of(
            "Conflicts with verdicts",
            [{"who": who, **row} for who, row in found["conflicts"].items()],
            conflicts | {"no verdict": itemgetter("without")},
        ),
        Table.of("Kappa of annotators", kappas, agreed),
        repeated(found),
        _deviations(found),
    ]
    return [table for table in every if table.cells]


def repeated(found: Mapping[str, Any]) -> Table:
    """Return the table of first answers against those after being asked again (table 1)."""
    columns: Columns = {"answers": lambda row: f"x - x{row['repetition']}", "n": itemgetter("n")}
    columns |= {"similarity %": _share("similarity"), "exact match %": _share("exact_match")}
    return Table.of("Repeated answers", found["repetition"], columns)


def _plain(*names: str) -> Columns:
    return {name: itemgetter(name) for name in names}


def _share(name: str) -> Callable[[Row], str]:
    return lambda row: percent(row[name])


def _shares(*names: str) -> Columns:
    return {f"{name} %": _share(name) for name in names}


def _number(name: str) -> Callable[[Row], str]:
    return lambda row: number(row[name])


def _ranked(found: Mapping[str, Any], official: Mapping[str, Mapping[str, float]]) -> Table:
    rows = [
        {**row, **found["sweep"][row["model"]], **{name: given.get(row["model"]) for name, given in official.items()}}
        for row in found["ranking"]
    ]
    columns = {**_plain("model", "place", "n"), **{name: _number(name) for name in official}}
    columns["d"] = lambda row: number(row["mean"], 4)
    columns |= {f"confidence {delta} %": _share(delta) for delta in next(iter(found["sweep"].values()))}
    return Table.of("Models by confidence", rows, columns, f"Places: at {DELTA:g}.")


def _grouped(rows: Sequence[Row]) -> Table:
    """Confidence by source and category, a row a model and threshold (the paper: tables 2, 3 and 7)."""
    lines: dict[tuple[float, str], Row] = {}
    sizes = {row["group"]: row["n"] for row in reversed(rows)}
    for row in rows if len(sizes) > 1 else ():
        threshold = {"threshold": f"{row['delta']:g}", "model": row["model"]}
        cells = lines.setdefault((row["delta"], row["model"]), threshold)
        cells[f"{row['group']} ({sizes[row['group']]}) %"] = percent(row["confidence"])
    return Table.of("Confidence by group", lines.values(), _plain(*next(iter(lines.values()), ())), names=2)


def _deviations(found: Mapping[str, Any]) -> Table:
    answers = found["spread"]["answers"]
    columns: Columns = {"model": lambda _: next(iter(found["sweep"])), "prompts": lambda _: len(answers)}
    columns |= {"answers": lambda _: sum(answers), "deviation": lambda row: number(row["deviation"], 4)}
    return Table.of("Spread of log-probability", [found["spread"]] if sum(answers) else (), columns)


def charts(model: str, spread: Sequence[Sequence[float]], deviation: float | None) -> list[Chart]:
    """Return the plot of sampled answers' log-probabilities (figure 2), where there are any."""
    lines = {str(i): [Point(n, x) for n, x in enumerate(logprobs)] for i, logprobs in enumerate(spread)}
    title = f"Sampled answers, a line a prompt; {model}: mean standard deviation {number(deviation, 3)}"
    chart = Chart(title=title, x_label="answer; up: log-probability a token, nats", series=lines, plain=True)
    return [chart] if any(lines.values()) else []
