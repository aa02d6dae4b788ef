"""The tables of a report, each from rows of the result files; numbers become text here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
Cells = tuple[str, ...]

CONTRACT = (
    "Agreement: both orders give the label, over all items, ties included. "
    "Consistency: both orders give the same readable verdict. "
    "Tokens: generated for one verdict in one order. "
    "Unreadable: share of judgments without readable scores. "
    "No verdict: share of verdicts in which no branch could be read; these agree with nothing."
)
CHOSEN = " *: the number of branches was chosen on a development split that is not part of these numbers."
DEFINITIONS = (
    "The same verdicts under other definitions. W/o ties: only items whose label is A or B. Single order: each "
    "order judged alone, mean of the two; AB and BA: that order. Conflict as tie: orders that conflict count as a"
    " tie. Both decide: agreement over the items that label and verdict both give to A or B (MT-Bench's setup 2),"
    " and their number. Every pair: share of prompts of which every pair is right. Kappa: Cohen's, conflicts as "
    "ties, unreadable items left out. A dash: not defined, or the orders are not stored apart."
)
VOTES = (
    "Each person's vote is an item, also where a pair has no majority. Between people: share of equal votes among"
    " pairs of votes on one comparison, with ties and without. Brackets: 95% bootstrap interval, prompts resampled "
    "whole."
)
BIASES = (
    "First wins: share of verdicts for the response shown first, among those that flip with the order (50 is no "
    "bias). Longer wins: share of consistent verdicts for the longer response. Length bias: how much more often "
    "than labels on the same items (0 is no bias)."
)
GLANCE = (
    "Each method once, a branching judge with the number of branches that was chosen for it, else the most. Tokens and "
    "seconds: of one verdict in one order. Variance: share of pairs of branches on one comparison that say different "
    "things. Prefers longer: share of consistent verdicts for the longer response; length bias: how much more often "
    "than labels (0 is no bias). Prefers first: among verdicts that flip with the order (50 is no bias). Parsed: share "
    "of judgments with readable scores."
)
COSTS = (
    "Of one verdict in one order. Seconds are measured with the most branches; for fewer, their share by tokens. "
    "Parsed: share of judgments with readable scores."
)
CALIBRATION = (
    "Margin: mean score of A minus that of B. AUC: chance that an item labelled A has a larger margin than one "
    "labelled B; brackets: 95% bootstrap interval. ECE: expected calibration error of probabilities made of margins by "
    "a logistic curve, fitted on other items; a dash: too few. Items with an A or B label."
)


@dataclass(frozen=True)
class Table:
    """A table as text; the first ``names`` columns are names, the others numbers."""

    title: str
    headers: Cells
    cells: Sequence[Cells]
    explanation: str
    names: int = 1


def percent(value: float | None) -> str:
    """A share as a percentage with one decimal; a dash for None."""
    return "–" if value is None else f"{100 * value:.1f}"


def signed(value: float | None) -> str:
    """A difference of shares in percentage points with its sign; a dash for None."""
    return "–" if value is None else f"{100 * value:+.1f}"


def number(value: float | None, digits: int = 2) -> str:
    """A number; a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


def interval(row: Row, name: str) -> str:
    """A share with its 95% interval, in percent."""
    bounds = row.get(f"{name}_ci")
    return percent(row.get(name)) + (f" [{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]" if bounds else "")


def name_of(row: Row) -> tuple[str, str]:
    """A row's method and number of branches."""
    branches = f"{row['branches']}{' *' if row.get('chosen') else ''}" if row["branches"] else "–"
    return str(row["method"]), branches


def called(row: Row) -> str:
    """A row's method with its number of branches, if it has one, in one word."""
    return f"{row['method']}@{row['branches']}" if row["branches"] else str(row["method"])


def spent(row: Row) -> tuple[str, str, str]:
    """Generated tokens, and the shares of unreadable judgments and verdicts."""
    unreadable = row["parse_failures"] / row["judgments"] if row["judgments"] else None
    return number(row["generated_tokens"], 0), percent(unreadable), percent(row["unreadable_verdicts"] / (2 * row["n"]))


def glance(rows: Sequence[Row]) -> Table:
    """The judges side by side: agreement, cost, time, variance, preferences and share parsed."""
    shown = one_each(rows)
    cells = [
        (
            called(r),
            percent(r["agreement"]),
            percent(r["consistency"]),
            number(r["generated_tokens"], 0),
            seconds(r),
            percent(r.get("spread")),
            percent(r["longer_preference"]),
            signed(r.get("length_bias")),
            percent(r["position_bias"]),
            parsed(r),
        )
        for r in shown
    ]
    headers = (
        *("method", "agreement %", "consistency %", "tokens", "seconds", "variance %"),
        *("prefers longer %", "length bias", "prefers first %", "parsed %"),
    )
    return Table("At a glance", headers, cells if len(shown) > 1 else [], GLANCE)


def seconds(row: Row) -> str:
    """Seconds of a verdict; a dash where they are not known."""
    return "–" if row["seconds"] is None else f"{row['seconds']:.3g}"


def parsed(row: Row) -> str:
    """The share of judgments with readable scores; a dash for methods without judgments."""
    return percent(1 - row["parse_failures"] / row["judgments"]) if row["judgments"] else "–"


HEADLINE = ("method", "branches", "agreement %", "consistency %", "tokens", "unreadable %", "no verdict %")


def results(rows: Sequence[Row]) -> Table:
    """The headline."""
    cells = [(*name_of(r), interval(r, "agreement"), interval(r, "consistency"), *spent(r)) for r in rows]
    chosen_note = CHOSEN if any(r.get("chosen") for r in rows) else ""
    return Table("Results", HEADLINE, cells, f"{CONTRACT} Brackets: 95% bootstrap interval {over(rows)}.{chosen_note}")


def over(rows: Sequence[Row]) -> str:
    """What is resampled for the intervals of a benchmark's rows."""
    for row in rows:
        if row.get("n_prompts", row["n"]) < row["n"]:
            return f"over the {row['n_prompts']} prompts that the {row['n']} comparisons share, each resampled whole"
    return "over comparisons"


def definitions(rows: Sequence[Row]) -> Table:
    """Agreement under every other definition, each under its own name."""
    names = {
        "agreement w/o ties %": "agreement_wo_tie",
        "consistency w/o ties %": "consistency_wo_tie",
        "single order %": "single_order_accuracy",
        "AB %": "accuracy_ab",
        "BA %": "accuracy_ba",
        "conflict as tie %": "conflict_as_tie",
        "both decide %": "agreement_decided",
        "n both decide": "n_decided",
        "every pair %": "prompt_agreement",
        "kappa": "kappa",
    }
    shown = {h: n for h, n in names.items() if n != "prompt_agreement" or any(r.get(n) is not None for r in rows)}

    def cell(row: Row, header: str) -> str:
        value = row.get(shown[header])
        return percent(value) if header.endswith("%") else number(value, 0 if header.startswith("n ") else 2)

    cells = [(*name_of(r), *(cell(r, header) for header in shown)) for r in rows]
    return Table("Definitions", ("method", "branches", *shown), cells, DEFINITIONS)


def votes(rows: Sequence[Row]) -> Table:
    """Agreement with single votes."""
    cells = []
    for row in rows:
        found = row.get("votes")
        if found:
            people = f"{percent(found['between_people'])} / {percent(found['between_people_decided'])}"
            as_tie, decided = interval(found, "conflict_as_tie"), percent(found["agreement_decided"])
            counts = str(found["n"]), str(found["n_decided"])
            cells.append((*name_of(row), counts[0], interval(found, "agreement"), as_tie, decided, counts[1], people))
    headers = ("method", "branches", "votes", "agreement %", "conflict as tie %", "both decide %", "n both decide")
    return Table("Agreement per vote", (*headers, "between people %"), cells, VOTES)


def biases(rows: Sequence[Row]) -> Table:
    """What verdicts follow besides quality."""
    headers = ("method", "branches", "first wins %", "longer wins %", "length bias")
    cells = [
        (*name_of(r), percent(r["position_bias"]), percent(r["longer_preference"]), signed(r.get("length_bias")))
        for r in rows
    ]
    return Table("Biases", headers, cells, BIASES)


def costs(rows: Sequence[Row]) -> Table:
    """What a verdict takes."""
    headers = ("method", "branches", "prompt tokens", "generated tokens", "calls", "seconds", "parsed %")
    cells = []
    for r in rows:
        tokens = number(r["prompt_tokens"], 0), number(r["generated_tokens"], 0)
        cells.append((*name_of(r), *tokens, number(r.get("calls"), 1), seconds(r), parsed(r)))
    return Table("Cost", headers, cells, COSTS)


def calibration(rows: Sequence[Row]) -> Table:
    """Whether larger margins are surer."""
    cells = [
        (*name_of(r), str(c["n"]) if c else "–", _bounded(r, "auc", 2), number(c["ece"] if c else None, 3))
        for r in rows
        for c in [r.get("calibration")]
        if r.get("auc") is not None
    ]
    return Table("Calibration of margins", ("method", "branches", "n", "AUC", "ECE"), cells, CALIBRATION)


def one_each(rows: Sequence[Row]) -> list[Row]:
    """Each method once: with the number of branches that was chosen for it, else with the largest."""
    best: dict[str, Row] = {}
    for row in rows:
        current = best.get(row["method"], row)
        if row.get("chosen") or (not current.get("chosen") and row["branches"] >= current["branches"]):
            best[row["method"]] = row
    return list(best.values())


def chosen(choices: Sequence[Row]) -> Table:
    """How the number of branches was chosen."""
    counts = sorted({int(k) for c in choices for k in c["agreement"]})
    cells = [
        (
            str(c["method"]),
            str(c["branches"]),
            str(c["n"]),
            *(percent({int(k): v for k, v in c["agreement"].items()}.get(k)) for k in counts),
        )
        for c in choices
    ]
    headers = ("method", "chosen", "n", *(f"{k} %" for k in counts))
    explanation = (
        "Agreement on the development split by number of branches; the best is chosen, of equals the smallest."
    )
    return Table("Choice of branches", headers, cells, explanation)


def ratings(rows: Sequence[Row]) -> Table:
    """Correlations of scores with ratings, or of margins with labels."""
    columns = ("pearson", "kendall", "spearman")
    cells = [(str(r["method"]), str(r["n"]), *(_bounded(r, c, 3) for c in columns)) for r in rows]
    explanation = (
        "Pearson's r, Kendall's tau-b and Spearman's rho with the benchmark's ratings; for comparisons, of margins "
        "with labels (A 1, tie 0, B -1). Brackets: 95% bootstrap interval, prompts resampled whole."
    )
    return Table("Correlations", ("method", "n", "Pearson", "Kendall", "Spearman"), cells, explanation)


def _bounded(row: Row, name: str, digits: int) -> str:
    """A number with its interval."""
    bounds = row.get(f"{name}_ci")
    return number(row.get(name), digits) + (f" [{bounds[0]:.{digits}f}, {bounds[1]:.{digits}f}]" if bounds else "")


def over_seeds(rows: Sequence[Row]) -> Table:
    """Means over runs that differ in nothing but their seed."""
    cells = [
        (
            *name_of(r),
            str(r["seeds"]),
            *(f"{percent(r[m])} ± {percent(r[f'{m}_std'])}" for m in ("agreement", "consistency")),
        )
        for r in rows
    ]
    headers = ("method", "branches", "seeds", "agreement %", "consistency %")
    return Table(
        "Over seeds", headers, cells, "Mean ± sample standard deviation over runs that differ only in the seed."
    )
