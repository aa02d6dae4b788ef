"""The tables of a report that set methods against each other on the same comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from judgetrain.evaluate.metrics.paired import PairedComparison
from judgetrain.evaluate.report.sections import Table, signed

Row = Mapping[str, Any]
PAIRED = (
    "Differences in agreement on the same items; brackets: 95% paired bootstrap interval, and beside it the p of the "
    "same resamples; McNemar p: exact, takes comparisons as independent. Neither is corrected for the number of rows."
)
EXAMPLES = (
    "Comparisons on which methods differ, the most divided first; verdicts as AB/BA, in the comparison's own order, ?: "
    "unreadable. Whole evaluations: trees-BENCHMARK-METHOD-*.jsonl beside this report, by the same id."
)


def differences(paired: Sequence[PairedComparison]) -> Table:
    """Paired differences in agreement."""
    cells = []
    for row in paired:
        difference, ends = signed(row.agreement_difference), row.agreement_difference_ci
        if ends:
            difference += f" [{signed(ends[0])}, {signed(ends[1])}]"
        cells.append((str(row.first), str(row.second), difference, _p(row.bootstrap_p), _p(row.mcnemar_p)))
    headers = ("first", "second", "difference", "bootstrap p", "McNemar p")
    return Table("Differences", headers, cells, PAIRED, names=2)


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def overlap(pairs: Sequence[Row]) -> Table:
    """How many comparisons two methods get right together, alone or not at all."""
    counts = ("both_right", "only_first", "only_second", "both_wrong")
    cells = [(str(p["first"]), str(p["second"]), *(str(p[name]) for name in counts)) for p in pairs]
    headers = ("first", "second", *(name.replace("_", " ") for name in counts))
    explanation = "Comparisons on which each method is right (agreement) or not."
    return Table("Disagreements", headers, cells, explanation, names=2)


def examples(found: Sequence[Row]) -> Table:
    """Comparisons on which methods differ."""
    methods = list(found[0]["verdicts"]) if found else []
    cells = [
        (
            str(r["id"]),
            str(r["query"]),
            str(r["label"]),
            *("/".join(v or "?" for v in r["verdicts"][m]) for m in methods),
        )
        for r in found
    ]
    return Table("Where methods differ", ("comparison", "query", "label", *methods), cells, EXAMPLES, names=2)
