"""What is known of how far a method can be relied on, a part of its row of ``metrics.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from judgetrain.evaluate.guarantees.annotators import Person, Replacement
from judgetrain.evaluate.guarantees.cascade import Answers, CurvePoint, InFull, Selective
from judgetrain.evaluate.guarantees.corrected import Corrected


@dataclass(frozen=True, kw_only=True)
class Guarantees:
    """How far a method can be relied on; None or empty where there is nothing to say it by.

    ``selective``: where it answers, with a guarantee. ``corrected``: shares of a partly labelled benchmark, by labels
    and verdicts. ``annotators``: may it replace one of several people?
    """

    selective: Selective | None = None
    corrected: tuple[Corrected, ...] = ()
    annotators: Replacement | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The record as ``metrics.json`` has it."""
        selective, people = row.get("selective"), row.get("annotators")
        return cls(
            selective=_selective(selective) if selective else None,
            corrected=tuple(Corrected(**found) for found in row.get("corrected") or ()),
            annotators=_replacement(people) if people else None,
        )


def _selective(row: Mapping[str, Any]) -> Selective:
    parts = {
        "tiers": tuple(row["tiers"]),
        "whole": _answers(row["whole"]),
        "groups": {name: _answers(found) for name, found in row["groups"].items()},
        "curve": tuple(CurvePoint(**point) for point in row["curve"]),
        "in_full": InFull(**row["in_full"]) if row["in_full"] else None,
    }
    return Selective(**{**row, **parts})


def _answers(row: Mapping[str, Any]) -> Answers:
    return Answers(**{**row, "tiers": tuple(row["tiers"])})


def _replacement(row: Mapping[str, Any]) -> Replacement:
    return Replacement(**{**row, "people": tuple(Person(**person) for person in row["people"])})
