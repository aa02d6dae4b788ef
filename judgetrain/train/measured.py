"""Lines of a judge's card, from the rows that evaluations and stress tests leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def own_rows(rows: Sequence[Row], method: str) -> list[Row]:
    """The judge's own rows of ``metrics.json`` that have an agreement."""
    return [row for row in rows if row["method"] == method and row.get("agreement") is not None]


def attack_lines(rows: Sequence[Row], method: str) -> Iterator[dict[str, Any]]:
    """What each attack did to the judge; of the forgeries, some sixty texts, what they come to together."""
    for row in own_rows(rows, method):
        for attack in row.get("robustness") or ():
            if attack["kind"] != "forgery" or not attack["attack"]:
                yield {**attack, "benchmark": row["benchmark"], "branches": row["branches"]}


def told_lines(rows: Sequence[Row], method: str, part: str) -> Iterator[dict[str, str]]:
    """By benchmark the sentence that an evaluation says of a part of its ``guarantees``.

    ``selective``: where the judge may answer alone; ``annotators``: whether it may replace a person.
    """
    for row in own_rows(rows, method):
        if found := (row.get("guarantees") or {}).get(part):
            yield {"benchmark": row["benchmark"], "told": found["told"]}


def corrected_lines(rows: Sequence[Row], method: str) -> Iterator[dict[str, str]]:
    """What the judge's verdicts are worth beside labels: its agreement, and every model's win rate."""
    for row in own_rows(rows, method):
        for each in (row.get("guarantees") or {}).get("corrected") or ():
            ends = each.get("estimate_ci")
            value = f"{each['estimate']:.3f} [{ends[0]:.3f}, {ends[1]:.3f}]; " if ends else ""
            about = each["about"] if each["about"] == "agreement" else f"win rate of {each['about']}"
            yield {"benchmark": f"{row['benchmark']}, {about}", "told": f"{value}{each['told']}"}


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
