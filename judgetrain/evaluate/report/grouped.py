"""The tables of a report by scenario: a row a scenario; for coarse groups, a row a method (paper, table 2)."""

from __future__ import annotations

from collections.abc import Sequence

from judgetrain.evaluate.report.sections import Row, Table, called, name_of, one_each, percent


def by_group(rows: Sequence[Row]) -> Table:
    """Agreement by group, every method with its chosen, else its largest, number of branches."""
    shown = [r for r in one_each(rows) if r.get("groups")]
    groups = shown[0]["groups"] if shown else {}
    cells = [
        (g, str(groups[g]["n"]), *(percent(r["groups"].get(g, {}).get("agreement")) for r in shown)) for g in groups
    ]
    headers = ("group", "n", *map(called, shown))
    return Table("Agreement by group", headers, cells, "Agreement in percent, method@branches.")


def by_domain(rows: Sequence[Row]) -> Table:
    """Agreement by domain, every method with every number of branches."""
    shown = [r for r in rows if r.get("domains")]
    sizes = {d: found["n"] for r in shown[:1] for d, found in r["domains"].items()}
    cells = [
        (*name_of(r), *(percent(r["domains"].get(d, {}).get("agreement")) for d in sizes), percent(r["agreement"]))
        for r in shown
    ]
    headers = ("method", "branches", *(f"{d} ({n})" for d, n in sizes.items()), "all")
    return Table("Agreement by domain", headers, cells, "Agreement in percent; in brackets the number of comparisons.")
