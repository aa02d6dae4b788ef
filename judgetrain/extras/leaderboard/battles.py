"""Verdicts on two systems' responses to one prompt, read from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast, get_args

from judgetrain.data.cells import RowError
from judgetrain.data.rows import asked_in, clusters
from judgetrain.judges.base import SHARES, BothOrders
from judgetrain.judging.rows import read_verdicts

Outcome = BothOrders | Literal["missing"]
"""What both orders say together; ``missing``: the row has no verdict at all."""
WINNERS: dict[str, Outcome] = {
    **{name: cast(Outcome, name) for name in get_args(BothOrders)},
    **dict.fromkeys(("a", "model_a", "left"), "A"),
    **dict.fromkeys(("b", "model_b", "right"), "B"),
    **dict.fromkeys(("tie (bothbad)", "both_bad", "bothbad", "draw"), "tie"),
    "tie (inconsistent)": "inconsistent",
    **dict.fromkeys(("", "null", "none", "error"), "missing"),
}
"""How outcomes are written in published rows, in lower case where there are no capitals."""


@dataclass(frozen=True, kw_only=True)
class Battle:
    """One comparison of two systems, whose names are empty where the row could not be read.

    ``prompt``: what rows on one prompt have in common; ``named``: the row says so, else it counts as a prompt of its
    own.
    """

    prompt: tuple[str, ...]
    named: bool = True
    group: str | None = None
    system_a: str
    system_b: str
    outcome: Outcome
    judge: str | None = None

    @property
    def share(self) -> float | None:
        """The first system's part of the comparison, from 0 to 1; None where the row counts for nothing.

        Different verdicts in the two orders are half a win. A verdict that is missing, or could not be read in an
        order, is never replaced.
        """
        return None if self.outcome in ("missing", "unreadable") else SHARES.get(self.outcome, 0.5)


def read_battles(files: Sequence[str | Path], column: str | None = None) -> list[Battle]:
    """The comparisons of files, globs, and directories of stage judge, in order; ``column``: of the prompt."""
    found = list(read_verdicts(files, "leaderboard.files", partial(battle_of, column=column)))
    prompts = clusters([battle.prompt for battle in found])
    return [replace(battle, prompt=prompt) for battle, prompt in zip(found, prompts, strict=True)]


def battle_of(row: Any, place: str, column: str | None = None) -> Battle:
    """A row of stage judge, or one with ``model_a``, ``model_b`` and ``winner``."""
    if not isinstance(row, Mapping):
        raise RowError("no_object", f"expected an object with model_a, model_b and a verdict, found {row!r:.60}")
    a, b = (row.get(name) if isinstance(row.get(name), str) else "" for name in ("model_a", "model_b"))
    if row.get("failure") is None and not (a and b):
        raise RowError("no_systems", f"expected two systems' names in model_a and model_b, found {a!r} and {b!r}")
    if a == b and a:
        raise RowError("one_system", f"model_a and model_b are both {a!r}; expected two systems")
    prompt = asked_in(row, column)
    return Battle(
        prompt=prompt or (place,),
        named=prompt is not None,
        system_a=str(a),
        system_b=str(b),
        outcome=_outcome(row),
        group=None if row.get("group") is None else str(row["group"]),
        judge=row.get("judge") if isinstance(row.get("judge"), str) else None,
    )


def _outcome(row: Mapping[str, Any]) -> Outcome:
    name = next((name for name in ("verdict", "winner") if name in row), None)
    if name is None:
        raise RowError("no_verdict", "expected a verdict or winner (A, B, tie, model_a, model_b), found neither")
    text = "" if row[name] is None else str(row[name]).strip()
    if name == "winner" and text in (row["model_a"], row["model_b"]):
        return "A" if text == row["model_a"] else "B"
    if found := WINNERS.get(text) or WINNERS.get(text.lower()):
        return found
    allowed = "A, B, tie, inconsistent, unreadable, model_a, model_b, a system's name or null"
    raise RowError("no_verdict", f"{name}={row[name]!r}: expected {allowed}")
