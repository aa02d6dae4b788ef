"""The table of stage selfeval: every score by category."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from judgetrain.scorers import discrepancy
from judgetrain.scorers.config import ScorerConfig, SelfEvalConfig
from judgetrain.scorers.encode import Unscored
from judgetrain.scorers.estimator import Scores, Value
from judgetrain.scorers.methods import assemble, better

ALL = "all"
NONE = "(none)"
BESIDE = [delta for delta in discrepancy.SWEEP if delta != discrepancy.DELTA]
"""Thresholds that are shown beside the one that counts."""
Row = Mapping[str, Any]

EXPLANATION = (
    "Means over the answers that have a score; an arrow says whether more (↑) or less (↓) of it is better. "
    "softmax_combo is normalised over all answers. d: log p(revised) - log p(answer) per token; confidence: share of "
    "answers with d at least the threshold; length: share of revisions whose length changed by more than 20%; "
    "controlled: confidence of d with what length explains taken out."
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
    length_ratio: float | None = None
    cut: int = 0

    def to_row(self) -> dict[str, Any]:
        """A row of ``scores.jsonl``; a score that is missing is its reason."""
        scores = {name: plain(value) for name, value in self.values.items()}
        return {"id": self.id, "category": self.category, "response": self.text, "scores": scores}


def table(answers: Sequence[Answer], config: SelfEvalConfig, settings: ScorerConfig) -> list[dict[str, Any]]:
    """Rows of ``metrics.json``: one a method and category, all answers together first.

    Scores that are computed from others over all answers are put into the answers' ``values``.
    Each has ``category, method, n, unscored {reason: n}, mean, better``; ProbDiff's also ``confidence``, ``sweep``
    {threshold: confidence}, ``cut`` and ``length`` (:class:`~judgetrain.scorers.discrepancy.LengthReport`).
    """
    names = {name for answer in answers for name in answer.values}
    found = {n: Scores(n, [a.values[n] for a in answers], better(n, settings)) for n in names}
    for method in config.methods:
        found[method] = assemble(found, method)
    for answer, value in zip(answers, zip(*(found[m].values for m in config.methods), strict=True), strict=True):
        answer.values.update(zip(config.methods, value, strict=True))
    of = [answer.category or NONE for answer in answers]
    places = {ALL: list(range(len(answers)))}
    if len(set(of)) > 1:
        places |= {category: [i for i, c in enumerate(of) if c == category] for category in sorted(set(of))}
    return [
        _row(category, found[method], [answers[i] for i in chosen], chosen)
        for category, chosen in places.items()
        for method in config.methods
    ]


def _row(category: str, scores: Scores, answers: Sequence[Answer], chosen: Sequence[int]) -> dict[str, Any]:
    values = [scores.values[i] for i in chosen]
    numbers = [None if isinstance(v, Unscored) else v for v in values]
    row: dict[str, Any] = {
        "category": category,
        "method": scores.method,
        "n": sum(v is not None for v in numbers),
        "unscored": dict(Counter(v.reason for v in values if isinstance(v, Unscored))),
        "mean": discrepancy.mean(numbers),
        "better": scores.better,
    }
    if scores.method == "probdiff":
        ratios = [None if x is None else a.length_ratio for x, a in zip(numbers, answers, strict=True)]
        length = discrepancy.length_report(numbers, ratios)
        row |= {
            "confidence": discrepancy.confidence(numbers),
            "sweep": {f"{k:g}": v for k, v in discrepancy.confidence_sweep(numbers).items()},
            "cut": sum(answer.cut for answer in answers),
            "length": None if length is None else {k: v for k, v in vars(length).items() if k != "controlled"},
        }
    return row


def markdown(rows: Sequence[Row], config: SelfEvalConfig, title: str) -> str:
    """The table as Markdown."""
    headers, cells = _cells(rows, config)
    lines = [f"# Self-evaluation: {title}", "", _line(headers), _line(["---"] * len(headers)), *map(_line, cells), ""]
    unscored = {row["method"]: row["unscored"] for row in rows if row["category"] == ALL and row["unscored"]}
    lines += [f"- without {method}: {reasons}" for method, reasons in unscored.items()]
    return "\n".join([*lines, "", EXPLANATION, ""])


def _cells(rows: Sequence[Row], config: SelfEvalConfig) -> tuple[list[str], list[list[str]]]:
    """Headers and cells: a line a category, columns the methods' means and ProbDiff's shares."""
    by: dict[str, dict[str, Row]] = {}
    for row in rows:
        by.setdefault(row["category"], {})[row["method"]] = row
    methods = [m for m in config.methods if m != "probdiff"]
    arrows = {m: "↑" if by[ALL][m]["better"] > 0 else "↓" for m in methods}
    headers = ["category", "n", *(f"{m} {arrows[m]}" for m in methods)]
    if "probdiff" in config.methods:
        headers += ["d ↑", f"confidence {discrepancy.DELTA:g} %", *(f"{delta:g} %" for delta in BESIDE)]
        headers += ["length %", "controlled %"]
    cells = []
    for category, found in by.items():
        first = next(iter(found.values()))
        answers = first["n"] + sum(first["unscored"].values())
        line = [category, str(answers), *(_number(found[m]["mean"]) for m in methods)]
        if "probdiff" in found:
            line += _probdiff(found["probdiff"])
        cells.append(line)
    return headers, cells


def _probdiff(row: Row) -> list[str]:
    sweep = [row["sweep"][f"{delta:g}"] for delta in BESIDE]
    length = row["length"] or {"changed": None, "controlled_confidence": None}
    shares = [row["confidence"], *sweep, length["changed"], length["controlled_confidence"]]
    return [_number(row["mean"]), *("–" if s is None else f"{100 * s:.1f}" for s in shares)]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{0.0 if abs(value) < 1e-9 else value:.4g}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(' '.join(cell.replace('|', chr(92) + '|').split()) for cell in cells)} |"
