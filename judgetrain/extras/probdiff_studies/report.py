"""The results of stage ``studies`` as tables and plots of a page."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from judgetrain.artifacts.pages import Chart, Point
from judgetrain.evaluate.report.table import Columns, Table, number, percent
from judgetrain.extras.probdiff_studies.comparing import Row
from judgetrain.scorers.probdiff import DELTA

Official = Mapping[str, Mapping[str, float]]
"""Published scores, by their names and models."""


def tables(studies: Mapping[str, Any], official: Official) -> list[Table]:
    """Return the tables that have rows.

    Args:
        studies: the content of ``studies.json``.
        official: published scores of the models.
    """
    all_tables = [
        _ranking(studies, official),
        _official_scores(studies["official"]),
        _groups(studies["by_group"]),
        _outcomes(studies["outcomes"]),
        _duels(studies["duels"]),
        _conflicts(studies["conflicts"]),
        _kappas(studies["kappas"]),
        repeated(studies),
        _deviations(studies),
    ]
    return [table for table in all_tables if table.cells]


def _ranking(studies: Mapping[str, Any], official: Official) -> Table:
    """Return the models from best to worst, each with its published scores and its confidence by threshold."""
    rows = []
    for ranked in studies["ranking"]:
        model = ranked["model"]
        row = {**ranked, **studies["sweep"][model]}
        for score_name, by_model in official.items():
            row[score_name] = by_model.get(model)
        rows.append(row)
    columns = _plain("model", "place", "n")
    for score_name in official:
        columns[score_name] = _number(score_name)
    columns["d"] = lambda row: number(row["mean"], 4)
    # Every model has the same thresholds.
    any_sweep = next(iter(studies["sweep"].values()))
    for delta in any_sweep:
        columns[f"confidence {delta} %"] = _share(delta)
    return Table.of("Models by confidence", rows, columns, f"Places: at {DELTA:g}.")


def _official_scores(rows: Sequence[Row]) -> Table:
    """Return how confidence goes with published scores over the models."""
    columns: Columns = {"official score": itemgetter("score"), **_plain("prompts", "models")}
    columns["Kendall"] = _number("kendall")
    columns["Spearman"] = _number("spearman")
    return Table.of("Beside official scores", rows, columns)


def _groups(rows: Sequence[Row]) -> Table:
    """Return confidence by source and category, a row a model and threshold (the paper: tables 2, 3 and 7)."""
    sizes: dict[str, int] = {}
    for row in rows:
        # Models may lack a score of some prompts: the header has the first one's number.
        sizes.setdefault(row["group"], row["n"])
    cells_of: dict[tuple[float, str], Row] = {}
    # One group is all prompts, which the ranking has.
    if len(sizes) > 1:
        for row in rows:
            names = {"threshold": f"{row['delta']:g}", "model": row["model"]}
            cells = cells_of.setdefault((row["delta"], row["model"]), names)
            group = row["group"]
            cells[f"{group} ({sizes[group]}) %"] = percent(row["confidence"])
    headers = next(iter(cells_of.values()), {})
    return Table.of("Confidence by group", cells_of.values(), _plain(*headers), names=2)


def _outcomes(rows: Sequence[Row]) -> Table:
    """Return how often each model wins against each other by their discrepancies, by threshold."""
    columns = _plain("first", "second")
    columns["threshold"] = lambda row: f"{row['threshold']:g}"
    columns |= _plain("n")
    columns |= _shares("win", "tie", "lose")
    return Table.of("Win, tie, lose", rows, columns, names=2)


def _duels(rows: Sequence[Row]) -> Table:
    """Return how often a judge prefers the run's own model to each other, by group of prompts."""
    columns = _plain("group", "first", "second", "n", "without")
    columns |= _shares("win", "tie", "lose")
    columns["confidence %"] = _share("confidence")
    columns["its confidence %"] = _share("other_confidence")
    return Table.of("Answers judged against each other", rows, columns, names=3)


def _conflicts(conflicts: Mapping[str, Row]) -> Table:
    """Return how often verdicts contradict ProbDiff, by who gave them."""
    rows = [{"who": annotator, **conflict} for annotator, conflict in conflicts.items()]
    columns: Columns = {"verdicts of": itemgetter("who"), "conflict %": _share("degree"), "n": itemgetter("n")}
    columns["no verdict"] = itemgetter("without")
    return Table.of("Conflicts with verdicts", rows, columns)


def _kappas(rows: Sequence[Row]) -> Table:
    """Return the kappa of each two annotators, and the mean of those that are defined if there are several."""
    kappas = [(", ".join(row["of"]), row["kappa"]) for row in rows]
    defined = [kappa for _, kappa in kappas if kappa is not None]
    if len(defined) > 1:
        kappas.append(("mean", sum(defined) / len(defined)))
    columns: Columns = {"annotators": itemgetter(0), "kappa": lambda row: number(row[1], 3)}
    return Table.of("Kappa of annotators", kappas, columns)


def repeated(studies: Mapping[str, Any]) -> Table:
    """Return the table of first answers against those after being asked again (table 1)."""
    columns: Columns = {"answers": lambda row: f"x - x{row['repetition']}", "n": itemgetter("n")}
    columns |= {"similarity %": _share("similarity"), "exact match %": _share("exact_match")}
    return Table.of("Repeated answers", studies["repetition"], columns)


def _deviations(studies: Mapping[str, Any]) -> Table:
    """Return how far the log-probabilities of a prompt's sampled answers spread, for the run's own model."""
    spread = studies["spread"]
    answers = spread["answers"]
    # The run's own model is the first, and the only one that is sampled.
    own_model = next(iter(studies["sweep"]))
    columns: Columns = {"model": lambda _: own_model, "prompts": lambda _: len(answers)}
    columns |= {"answers": lambda _: sum(answers), "deviation": lambda row: number(row["deviation"], 4)}
    rows = []
    if any(answers):
        rows.append(spread)
    return Table.of("Spread of log-probability", rows, columns)


def _plain(*names: str) -> Columns:
    """Return columns that show values as they are, headed by their names."""
    return {name: itemgetter(name) for name in names}


def _share(name: str) -> Callable[[Row], str]:
    """Return a function that returns a row's share in percent, as text."""
    return lambda row: percent(row[name])


def _shares(*names: str) -> Columns:
    """Return columns of shares in percent, headed by their names."""
    return {f"{name} %": _share(name) for name in names}


def _number(name: str) -> Callable[[Row], str]:
    """Return a function that returns a row's number as text."""
    return lambda row: number(row[name])


def charts(model: str, spread: Sequence[Sequence[float]], deviation: float | None) -> list[Chart]:
    """Return the plot of sampled answers' log-probabilities (figure 2), where there are any.

    Args:
        model: its name.
        spread: by prompt, the log-probabilities of its answers (nats a token).
        deviation: the mean standard deviation over prompts; None where there is none.
    """
    series = {}
    for place, logprobs in enumerate(spread):
        series[str(place)] = [Point(answer, logprob) for answer, logprob in enumerate(logprobs)]
    if not any(series.values()):
        return []
    title = f"Sampled answers, a line a prompt; {model}: mean standard deviation {number(deviation, 3)}"
    return [Chart(title=title, x_label="answer; up: log-probability a token, nats", series=series, plain=True)]
