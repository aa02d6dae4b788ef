"""Lines of a judge's card, from the rows that evaluations and stress tests leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def own_rows(rows: Sequence[Row], method: str) -> list[Row]:
    """The judge's own rows of ``metrics.json`` that have an agreement."""
    return [row for row in rows if row["method"] == method and row.get("agreement") is not None]


def paired_lines(paired: Sequence[Row], method: str) -> Iterator[dict[str, Any]]:
    """The rows of ``paired.json`` in which the judge stands first, or second: then turned round."""
    for row in paired:
        sides = [f"{row[side]['method']}@{row[side]['branches']}" for side in ("first", "second")]
        names = [row[side]["method"] for side in ("first", "second")]
        difference, ends = row["agreement_difference"], row["agreement_difference_ci"]
        if names[0] != method:
            sides, difference, ends = sides[::-1], -difference, ends and [-ends[1], -ends[0]]
        if method in names and names[0] != names[1]:
            found = {"this": sides[0], "other": sides[1].removesuffix("@0"), "difference": difference, "ends": ends}
            yield {"benchmark": row["benchmark"], **found, "p": row["bootstrap_p"]}
