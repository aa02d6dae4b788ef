"""From an external judge's replies to labels and preferences, and how often it disagrees: with itself, the branches
and the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from judgetrain.judges.kinds.prompted import verdicts_in
from judgetrain.judges.prompting.replies import Reply, failures_of
from judgetrain.label.labels import Label, vote
from judgetrain.schema import Verdict


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """Two critiques by one criterion and guideline, in one order, with different verdicts.

    ``slots`` show them as X and Y; ``verdicts`` are theirs, in the comparison's own order.
    """

    nodes: tuple[str, str]
    verdicts: tuple[Verdict, Verdict]
    slots: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class External:
    """What the external judge says of one comparison.

    ``orders`` are the answers that it gave to the same question in both orders, None where unreadable. ``label`` is
    that of its verdicts on the responses. Where it compares critiques there is none: ``preferred`` are then the
    verdicts of the preferred and the other critique of each pair that both orders decide alike, ``nodes`` their ids.
    ``ensemble`` and ``truth`` are the branches' and the known verdict, to compare with.
    """

    orders: tuple[tuple[str | None, str | None], ...]
    failures: dict[str, int]
    label: Label | None = None
    preferred: tuple[tuple[Verdict, Verdict], ...] = ()
    nodes: tuple[tuple[str, str], ...] = ()
    ensemble: Verdict | None = None
    truth: Verdict | None = None


def label_of_verdicts(replies: Sequence[Reply]) -> External:
    """The label that verdicts on the responses give, where both orders say the same."""
    first, second = verdicts_in(replies, "AB"), verdicts_in(replies, "BA")
    order_ab, order_ba = vote(first)[0], vote(second)[0]
    agreed = order_ab if order_ab == order_ba else None
    votes = [*first, *second, *[None for r in replies if r.answer is None]]
    _, share, counts = vote(votes)
    reason = "external_unreadable" if None in (order_ab, order_ba) else "external_orders_disagree"
    label = Label(
        verdict=agreed,
        share=share,
        votes=counts,
        readable=1 - counts["unreadable"] / len(votes),
        reason=None if agreed else reason,
        source="external",
    )
    return External(label=label, orders=((order_ab, order_ba),), failures=dict(failures_of(replies)))


def preferences(conflicts: Sequence[Conflict], replies: Sequence[Sequence[Reply]]) -> External:
    """Which critiques are preferred in both orders; ``replies``: those to each conflict."""
    orders = tuple((_answer(each, "XY"), _answer(each, "YX")) for each in replies)
    held = [(c, first) for c, (first, second) in zip(conflicts, orders, strict=True) if first and first == second]
    return External(
        orders=orders,
        failures=dict(failures_of(r for each in replies for r in each)),
        preferred=tuple(c.verdicts if better == "X" else c.verdicts[::-1] for c, better in held),
        nodes=tuple(c.nodes if better == "X" else c.nodes[::-1] for c, better in held),
    )


def _answer(replies: Sequence[Reply], shown: str) -> str | None:
    answers = [str(r.answer) for r in replies if r.shown == shown and r.answer is not None]
    return answers[-1] if answers else None


def disagreement(said: Sequence[External]) -> dict[str, Any]:
    """How often the external judge disagrees; each entry has what was compared, and the ``rate`` (0 to 1).

    ``orders``: with itself, when the order is exchanged. ``ensemble``: with the branches' label, where both have one
    (the paper, section 4.4: 20%). ``pairs``: with the branches on which of two critiques is right, where one of them
    says what the branches' label says. ``truth``: of each of the two, where the truth is known and both have a label.
    """
    labels = [(o, o.label) for o in said if o.label]
    both = [(label.verdict, o.ensemble, o.truth) for o, label in labels if label.verdict and o.ensemble]
    pairs = [(better, o.ensemble) for o in said for better, other in o.preferred if o.ensemble in (better, other)]
    asked = [order for o in said for order in o.orders]
    return {
        "comparisons": len(said),
        "labels": dict(sorted(Counter(label.reason or f"label_{label.verdict}" for _, label in labels).items())),
        "failures": dict(sorted(sum((Counter(o.failures) for o in said), Counter[str]()).items())),
        "orders": _rate([(first, second) for first, second in asked if first is not None and second is not None]),
        "ensemble": _rate([(external, ensemble) for external, ensemble, _ in both]),
        "pairs": _rate(pairs),
        "truth": {
            "external": _rate([(external, truth) for external, _, truth in both if truth]),
            "ensemble": _rate([(ensemble, truth) for _, ensemble, truth in both if truth]),
        },
    }


def _rate(compared: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    different = sum(first != second for first, second in compared)
    return {
        "compared": len(compared),
        "disagree": different,
        "rate": round(different / len(compared), 6) if compared else None,
    }


def summary(table: dict[str, Any]) -> str:
    """The table in one line."""
    labelled = sum(n for reason, n in table["labels"].items() if reason.startswith("label_"))
    parts = [f"{labelled} of {table['comparisons']} comparisons labelled"] if table["labels"] else []
    for name, what in (("orders", "with itself"), ("ensemble", "with the branches"), ("pairs", "on critiques")):
        if table[name]["compared"]:
            parts.append(f"{table[name]['rate']:.1%} of {table[name]['compared']} disagree {what}")
    return ", ".join(parts)
