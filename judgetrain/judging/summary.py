"""What stage ``judge`` ends with: verdicts by their kind and what they cost, or scores by criterion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Self

from judgetrain.judges.checks import too_long_hint
from judgetrain.judging.rows import reason_of

READABLE = ("A", "B", "tie", "inconsistent")


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Numbers of rows by verdict, and by the reason where there is none.

    ``consistency`` is the share of readable verdicts that both orders give, whatever decides between them
    (``judge.aggregation=fitted``); None where there is none. ``failures`` counts rows by their ``failure``,
    ``unreadable`` judgments by reason. ``tokens`` and ``calls`` are those of all rows, both orders; ``spent`` is what a
    paid model was sent, answers that were kept left out. Of the ``labelled`` rows ``agreed`` have the label as their
    verdict.
    """

    judge: str
    rows: int
    verdicts: dict[str, int]
    consistency: float | None
    failures: dict[str, int]
    unreadable: dict[str, int]
    tokens: dict[str, int]
    calls: float
    spent: dict[str, int]
    labelled: int = 0
    agreed: int = 0

    @classmethod
    def of(
        cls,
        rows: Iterable[Mapping[str, Any]],
        judge: str,
        calls: float,
        tokens: Mapping[str, int],
        spent: Mapping[str, int],
    ) -> Self:
        """The summary of the rows."""
        verdicts, failures, unreadable = Counter[str](), Counter[str](), Counter[str]()
        total = labelled = agreed = same = ordered = 0
        for row in rows:
            total += 1
            labelled += row["label"] is not None
            agreed += row["label"] is not None and row["label"] == row["verdict"]
            unreadable.update(row["failures"])
            if row["failure"]:
                failures[reason_of(row["failure"])] += 1
            else:
                verdicts[row["verdict"]] += 1
                shown = row["verdict"] in READABLE and row["plan"] is not None  # in one order and the other
                ordered, same = ordered + shown, same + (shown and row["verdict_ab"] == row["verdict_ba"])
        return cls(
            judge=judge,
            rows=total,
            verdicts={name: verdicts[name] for name in (*READABLE, "unreadable")},
            consistency=same / ordered if ordered else None,
            failures=dict(failures.most_common()),
            unreadable=dict(unreadable.most_common()),
            tokens=dict(tokens),
            calls=calls,
            spent=dict(spent),
            labelled=labelled,
            agreed=agreed,
        )

    def told(self) -> Iterator[Any]:
        """The table and the lines at the stage's end."""
        names = {"A": "A is better", "B": "B is better", "inconsistent": "inconsistent: the orders differ"}
        counts = [(names.get(name, name), n) for name, n in self.verdicts.items()]
        counts += [(f"not judged: {reason}", n) for reason, n in self.failures.items()]
        rows = ((name, str(n), f"{100 * n / self.rows:.1f}") for name, n in counts)
        yield table(f"Verdicts of {self.judge}", ("verdict", "comparisons", "%"), rows)
        if self.consistency is not None:
            yield f"consistency: {100 * self.consistency:.1f}% of the readable verdicts are the same in both orders"
        if self.labelled:
            from scipy.stats import binomtest

            low, high = binomtest(self.agreed, self.labelled).proportion_ci(method="wilson")
            yield (
                f"agreement: {self.agreed} of {self.labelled} labels, {100 * self.agreed / self.labelled:.1f}% "
                f"(95%: {100 * low:.0f} to {100 * high:.0f}; stage=evaluate has the rest)"
            )
        if self.unreadable:
            yield f"judgments not read: {', '.join(f'{n} {reason}' for reason, n in self.unreadable.items())}"
            if told := too_long_hint(self.unreadable):
                yield told
        if self.calls:
            tokens = f"{self.tokens['prompt']} prompt and {self.tokens['generated']} generated tokens"
            yield f"cost: {self.calls:.0f} calls, {tokens} for both orders of {self.rows} comparisons"
        if self.spent:
            yield f"sent to the paid model: {', '.join(f'{n} {name}' for name, n in self.spent.items())}"


def scores_told(rows: Iterable[Mapping[str, Any]], judge: str) -> Iterator[Any]:
    """The table and the lines at the end of scoring: the scores by criterion, and what could not be read."""
    scores: list[float] = []
    by_criterion: dict[str, list[float]] = {}
    unreadable, failures, total = Counter[str](), Counter[str](), 0
    for row in rows:
        total += 1
        unreadable.update(row["failures"])
        failures.update([reason_of(row["failure"])] if row["failure"] else [])
        scores += [] if row["score"] is None else [row["score"]]
        for reason in row["reasons"]:
            if reason["score"] is not None and reason["source"] == "given":
                by_criterion.setdefault(reason["name"] or reason["criterion"], []).append(reason["score"])
    found = [(name, str(len(each)), f"{fmean(each):.2f} of 5") for name, each in by_criterion.items()]
    found += [("all, weighted", str(len(scores)), f"{fmean(scores):.2f} of 1")] if scores else []
    found += [(f"not judged: {name}", str(number), "") for name, number in failures.items()]
    yield table(f"Scores of {judge}", ("criterion", "responses", "mean"), found)
    if len(scores) < total:
        yield f"{total - len(scores)} of {total} responses have no score"
    if unreadable:
        yield f"judgments not read: {', '.join(f'{n} {reason}' for reason, n in unreadable.items())}"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    """A table of the terminal: names on the left, figures on the right."""
    from rich import box
    from rich.table import Table

    found = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    for i, name in enumerate(columns):
        found.add_column(name, justify="right" if i else "left")
    for row in rows:
        found.add_row(*row)
    return found
