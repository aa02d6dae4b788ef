"""What stage ``judge`` ends with: how many verdicts there are, of which kind, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from judgetrain.judges.checks import too_long_hint

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
                failures[str(row["failure"]).partition(":")[0]] += 1
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
        from rich import box
        from rich.table import Table

        table = Table(title=f"Verdicts of {self.judge}", box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
        for name in ("verdict", "comparisons", "%"):
            table.add_column(name, justify="left" if name == "verdict" else "right")
        names = {"A": "A is better", "B": "B is better", "inconsistent": "inconsistent: the orders differ"}
        counts = [(names.get(name, name), n) for name, n in self.verdicts.items()]
        for name, n in [*counts, *((f"not judged: {reason}", n) for reason, n in self.failures.items())]:
            table.add_row(name, str(n), f"{100 * n / self.rows:.1f}")
        yield table
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
