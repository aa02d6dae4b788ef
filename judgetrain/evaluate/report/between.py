"""The tables of a report that set methods against each other on the same comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from judgetrain.evaluate.report.sections import Row, Table, called, signed

PAIRED = (
    "Differences in agreement on the same items; brackets: 95% paired bootstrap interval, and beside it the p of the "
    "same resamples; McNemar p: exact, takes comparisons as independent. Neither is corrected for the number of rows."
)
EXAMPLES = (
    "Comparisons on which methods differ, the most divided first; verdicts as AB/BA, in the comparison's own order, ?: "
    "unreadable. Whole evaluations: trees-BENCHMARK-METHOD-*.jsonl beside this report, by the same id."
)


def differences(paired: Sequence[Row]) -> Table:
    """Paired differences in agreement."""
    cells = []
    for row in paired:
        sides = [called(row[side]) for side in ("first", "second")]
        difference, bounds = signed(row["agreement_difference"]), row["agreement_difference_ci"]
        if bounds:
            difference += f" [{signed(bounds[0])}, {signed(bounds[1])}]"
        cells.append((*sides, difference, *(_p(row.get(name)) for name in ("bootstrap_p", "mcnemar_p"))))
    headers = ("first", "second", "difference", "bootstrap p", "McNemar p")
    return Table("Differences", headers, cells, PAIRED, names=2)


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def overlap(pairs: Sequence[Row]) -> Table:
    """How many comparisons two methods get right together, alone or not at all."""
    counts = ("both_right", "only_first", "only_second", "both_wrong")
    cells = [(str(p["first"]), str(p["second"]), *(str(p[name]) for name in counts)) for p in pairs]
    headers = ("first", "second", *(name.replace("_", " ") for name in counts))
    return Table(
        "Disagreements", headers, cells, "Comparisons on which each method is right (agreement) or not.", names=2
    )


def examples(found: Sequence[Row]) -> Table:
    """Comparisons on which methods differ."""
    methods = list(found[0]["verdicts"]) if found else []

    def verdicts(row: Row, method: str) -> str:
        return "/".join(v or "?" for v in row["verdicts"][method])

    cells = [(str(r["id"]), str(r["query"]), str(r["label"]), *(verdicts(r, m) for m in methods)) for r in found]
    return Table("Where methods differ", ("comparison", "query", "label", *methods), cells, EXAMPLES, names=2)
