"""A judge's answers for people: in the comparison's own order, as text and as data."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from judgetrain.judges.base import Prediction, Reason, Score

_NAMED = re.compile(
    r"(?:(?<=[Rr]esponse )|(?<=[Aa]ssistant )|(?<=[Aa]nswer )|(?<=\[\[))[AB](?![\w-])"
    r"|(?<!\w)[AB](?= is (?:better|worse)\b)|\A[AB]\Z"
)
"""A letter that names a response. Others stay: "vitamin A" is no response."""
_OTHER = {"A": "B", "B": "A"}
_SHOWN = {"AB": "A shown first", "BA": "B shown first", "A": "A by itself", "B": "B by itself"}


def in_own_order(text: str, order: str) -> str:
    """What a judge wrote in an order, with the comparison's own names of the responses; twice is what it wrote."""
    return _NAMED.sub(lambda found: _OTHER[found[0]], text) if order == "BA" else text


def prediction_text(found: Prediction) -> str:
    """The verdict in a line, and the reasons by criterion."""
    head: str = found.verdict
    if found.verdict == "inconsistent":
        head += f": {found.verdict_ab} ({_SHOWN['AB']}), {found.verdict_ba} ({_SHOWN['BA']})"
    elif found.failures and found.verdict == "unreadable":
        head += ": " + ", ".join(f"{n} {reason}" for reason, n in found.failures.items())
    if found.margin is not None:
        head += f" (margin {found.margin:+.2f})"
    return "\n".join([head, *_by_criterion(found.reasons, "AB")])


def score_text(found: Score) -> str:
    """The score in a line, and the reasons by criterion."""
    head = "unreadable" if found.value is None else f"score {found.value:.2f}"
    return "\n".join([head, *_by_criterion(found.reasons, "A")])


def _by_criterion(reasons: tuple[Reason, ...], sides: str) -> Iterator[str]:
    branches: dict[tuple[str, str], list[Reason]] = {}
    for reason in reasons:
        branches.setdefault((reason.criterion, reason.guideline), []).append(reason)
    for (criterion, guideline), found in branches.items():
        yield from (line for line in (criterion and f"- {criterion}", guideline and f"  {guideline}") if line)
        for reason in found:
            scores = zip(sides, (reason.score_a, reason.score_b), strict=False)
            said = ", ".join(f"{side} {score:g}" for side, score in scores if score is not None)
            shown = f"{_SHOWN[reason.order]}: " if len(sides) > 1 else ""
            yield f"  {shown}{reason.failure or said or reason.verdict}"
            yield from (f"    {line}" for line in reason.text.splitlines() if line.strip())


def as_data(found: Prediction | Score) -> dict[str, Any]:
    """All fields as JSON has them; what is not known is None."""
    return {name: _json(value) for name, value in asdict(found).items()}


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
