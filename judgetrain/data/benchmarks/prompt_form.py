"""Prompts in Feedback Collection's form, taken apart: the query, the response, a reference, a criterion and its levels.

Prometheus' benchmarks are published as such prompts (arXiv 2310.08491; prometheus-eval/prometheus-eval).
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from judgetrain.amounts import amount
from judgetrain.data.cells import RowError

PARTS = {
    "query": "###The instruction to evaluate:",
    "response": "###Response to evaluate:",
    "reference": "###Reference Answer (Score 5):",
    "rubric": "###Score Rubrics:",
    "end": "###Feedback:",
}
"""The lines that stand before each part, in their order. The reference may be missing."""
_LEVEL = re.compile(r"^Score (\d{1,2}): ?", re.MULTILINE)
"""The beginning of a level's description."""


def parts_of_prompt(prompt: Any, column: str) -> dict[str, str]:
    """Return the parts of a prompt by name: ``query``, ``response``, ``criteria``, ``score1_description``, ...

    Args:
        prompt: the text.
        column: its column, for messages.

    Raises:
        RowError: it is no such prompt; or a line that begins a part stands twice, so that nobody knows where it begins.
    """
    if not isinstance(prompt, str):
        raise RowError("wrong_type", f"expected a prompt in the column {column!r}, found {type(prompt).__name__}")

    # Lines of the form may stand in a response as well: then nobody knows which one begins the part.
    places: dict[str, int] = {}
    for name, line in PARTS.items():
        beginnings = [match.start() for match in re.finditer(rf"^{re.escape(line)}", prompt, re.MULTILINE)]
        if len(beginnings) > 1:
            raise RowError(
                "ambiguous_prompt",
                f"column {column!r}: {line!r} begins {amount(len(beginnings), 'line')} of the prompt, not one",
            )
        if beginnings:
            places[name] = beginnings[0]
        elif name != "reference":
            raise RowError("no_prompt", f"column {column!r}: expected a prompt with the line {line!r}, found none")
    if list(places.values()) != sorted(places.values()):
        raise RowError(
            "no_prompt", f"column {column!r}: the parts of the prompt stand in another order: {', '.join(places)}"
        )

    names = list(places)
    texts: dict[str, str] = {}
    # A part ends where the next one begins; the last line, of the feedback, ends them all.
    for name, following in pairwise(names):
        texts[name] = prompt[places[name] + len(PARTS[name]) : places[following]].strip()
    rubric = texts.pop("rubric")
    return {**texts, **_rubric(rubric, column)}


def _rubric(text: str, column: str) -> dict[str, str]:
    """Return the criterion, which stands in brackets, and the description of each score."""
    # An odd split: what stands before the first level, and then a number and a text a level.
    criterion, *levels = _LEVEL.split(text)
    criterion = criterion.strip()
    if not levels or not criterion.startswith("[") or not criterion.endswith("]"):
        raise RowError(
            "no_prompt", f"column {column!r}: expected [criterion] and lines 'Score 1: ...', found {text[:40]!r}"
        )
    if len(set(levels[::2])) < len(levels[::2]):
        raise RowError("ambiguous_prompt", f"column {column!r}: a line 'Score N:' stands twice in the rubric")
    parts = {"criteria": criterion[1:-1].strip()}
    for number, description in zip(levels[::2], levels[1::2], strict=True):
        parts[f"score{number}_description"] = description.strip()
    return parts


def with_parts(row: Mapping[str, Any], columns: list[str]) -> dict[str, Any]:
    """Return a row with the parts of its prompts as further columns, ``COLUMN.PART``."""
    result = dict(row)
    for column in columns:
        if column not in row:
            raise RowError(
                "missing_field", f"expected the column {column!r} (prompts), found {', '.join(map(str, row))}"
            )
        for name, text in parts_of_prompt(row[column], column).items():
            result[f"{column}.{name}"] = text
    return result
