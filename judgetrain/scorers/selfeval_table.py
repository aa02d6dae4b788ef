"""The table of stage selfeval: every score by category."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from judgetrain.scorers import probdiff
from judgetrain.scorers.encode import Unscored
from judgetrain.scorers.estimator import Scores, Value
from judgetrain.scorers.methods import assemble, better

ALL = "all"
NONE = "(none)"
Row = Mapping[str, Any]

EXPLANATION = (
    "Means over the answers that have a score; an arrow says whether more (↑) or less (↓) of it is better. "
    "softmax_combo is normalised over all answers. d: log p(revised) - log p(answer) per token; confidence: share of "
    "answers with d at least the threshold."
)


def plain(value: Value) -> float | str:
    """A score as rows have it: the number, or the reason for which there is none."""
    return value.reason if isinstance(value, Unscored) else value


@dataclass(kw_only=True)
class Answer:
    """An answer and its scores by name; ``values`` holds what the passes gave, parts of other scores included."""

    id: str
    category: str | None
    text: str
    values: dict[str, Value] = field(default_factory=dict)
    cut: bool = False

    def to_row(self) -> dict[str, Any]:
        """A row of ``scores.jsonl``; a score that is missing is its reason."""
        scores = {name: plain(value) for name, value in self.values.items()}
        return {"id": self.id, "category": self.category, "response": self.text, "scores": scores}


def table(answers: Sequence[Answer], methods: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of ``metrics.json``: one a method and category, all answers together first.

    Scores that are computed from others over all answers are put into the answers' ``values``.
    Each has ``category, method, n, unscored {reason: n}, mean, better``; ProbDiff's also ``sweep`` {threshold:
    confidence} and ``cut``, the revisions that the limit of tokens ended.
    """
    names = {name for answer in answers for name in answer.values}
    found = {name: Scores(name, [a.values[name] for a in answers], better(name)) for name in names}
    found |= {method: assemble(found, method) for method in methods}
    for i, answer in enumerate(answers):
        answer.values.update({method: found[method].values[i] for method in methods})
    places = {ALL: list(answers)}
    categories = sorted({answer.category or NONE for answer in answers})
    if len(categories) > 1:
        places |= {category: [a for a in answers if (a.category or NONE) == category] for category in categories}
    return [
        _row(category, method, found[method].better, chosen)
        for category, chosen in places.items()
        for method in methods
    ]


def _row(category: str, method: str, sign: int, answers: Sequence[Answer]) -> dict[str, Any]:
    values = [answer.values[method] for answer in answers]
    numbers = [v for v in values if not isinstance(v, Unscored)]
    row: dict[str, Any] = {
        "category": category,
        "method": method,
        "n": len(numbers),
        "unscored": dict(Counter(v.reason for v in values if isinstance(v, Unscored))),
        "mean": probdiff.average(numbers),
        "better": sign,
    }
    if method == "probdiff":
        row["sweep"] = {f"{delta:g}": share for delta, share in probdiff.confidence_sweep(numbers).items()}
        row["cut"] = sum(answer.cut for answer in answers)
    return row


def markdown(rows: Sequence[Row], title: str) -> str:
    """The table as Markdown: a line a category, columns the methods' means and ProbDiff's confidence by threshold."""
    by: dict[str, list[Row]] = {}
    for row in rows:
        by.setdefault(row["category"], []).append(row)
    headers = ["category", "n"]
    for row in by[ALL]:
        headers.append(f"{row['method']} {'↑' if row['better'] > 0 else '↓'}")
        headers += [f"confidence {delta} %" for delta in row.get("sweep", ())]
    lines = [f"# Self-evaluation: {title}", "", _line(headers), _line(["---"] * len(headers))]
    for category, found in by.items():
        cells = [category, str(found[0]["n"] + sum(found[0]["unscored"].values()))]
        for row in found:
            shares = row.get("sweep", {}).values()
            cells += [_number(row["mean"]), *("–" if share is None else f"{100 * share:.1f}" for share in shares)]
        lines.append(_line(cells))
    lines += ["", *(f"- without {row['method']}: {row['unscored']}" for row in by[ALL] if row["unscored"])]
    return "\n".join([*lines, "", EXPLANATION, ""])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{0.0 if abs(value) < 1e-9 else value:.4g}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(' '.join(cell.replace('|', chr(92) + '|').split()) for cell in cells)} |"
