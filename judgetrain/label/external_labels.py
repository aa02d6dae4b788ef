"""From an external judge's replies to labels, and how often it disagrees: with itself, the branches and the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from judgetrain.judges.kinds.prompted import verdicts_in
from judgetrain.judges.prompting.replies import Reply, failures_of
from judgetrain.label.labels import Label
from judgetrain.label.votes import vote
from judgetrain.schema import Verdict

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ExternalLabel:
    """The external judge's label of one comparison, and what it rests on.

    ``orders`` are the answers that it gave to the same question in both orders, None where unreadable. ``preferred``
    are, for each pair of critiques that both orders decide alike, the verdicts of the preferred and the other one,
    and ``nodes`` their ids.
    ``ensemble`` and ``truth`` are the branches' and the known verdict, to compare with.
    """

    label: Label
    orders: tuple[tuple[str | None, str | None], ...]
    preferred: tuple[tuple[Verdict, Verdict], ...] = ()
    nodes: tuple[tuple[str, str], ...] = ()
    failures: dict[str, int]
    ensemble: Verdict | None = None
    truth: Verdict | None = None


def label_of_verdicts(replies: Sequence[Reply], threshold: float) -> ExternalLabel:
    """The label that verdicts on the responses give, where both orders say the same by majority.

    ``threshold``: no label where the winner's share of all deciding replies is not above it.
    """
    first, second = verdicts_in(replies, "AB"), verdicts_in(replies, "BA")
    orders = ((vote(first)[0], vote(second)[0]),)
    votes = [*first, *second, *[None for r in replies if r.answer is None]]
    label = _label(votes, *_agreed(orders), threshold)
    return ExternalLabel(label=label, orders=orders, failures=dict(failures_of(replies)))


def label_of_preferences(
    verdicts: Sequence[tuple[Verdict, Verdict]],
    replies: Sequence[Sequence[Reply]],
    threshold: float,
    nodes: Sequence[tuple[str, str]] = (),
) -> ExternalLabel:
    """The label that preferences between critiques give: those which hold in both orders vote.

    ``verdicts``: for each pair, what critiques X and Y say of the responses, and ``nodes`` their ids; ``replies``:
    those to each pair.
    """
    orders = tuple((_answer(each, "XY"), _answer(each, "YX")) for each in replies)
    preferred = _decided(verdicts, orders)
    votes = [*[better for better, _ in preferred], *[None] * (len(orders) - len(preferred))]
    label = _label(votes, vote(votes)[0], _agreed(orders)[1], threshold)
    failures = dict(failures_of(r for each in replies for r in each))
    chosen = _decided(nodes, orders) if nodes else ()
    return ExternalLabel(label=label, orders=orders, preferred=preferred, nodes=chosen, failures=failures)


def _decided(pairs: Sequence[tuple[T, T]], orders: Sequence[tuple[str | None, str | None]]) -> tuple[tuple[T, T], ...]:
    """Of the pairs that both orders decide alike: the preferred entry and the other one."""
    return tuple(
        (pair["XY".index(first)], pair["YX".index(first)])
        for pair, (first, second) in zip(pairs, orders, strict=True)
        if first is not None and first == second
    )


def _agreed(orders: Iterable[tuple[Any, Any]]) -> tuple[Any, str | None]:
    """The first answer that both orders share; else why there is none."""
    reason = "external_unreadable"
    for first, second in orders:
        if first is not None and first == second:
            return first, None
        if first is not None and second is not None:
            reason = "external_orders_disagree"
    return None, reason


def _label(votes: Sequence[Verdict | None], verdict: Verdict | None, reason: str | None, threshold: float) -> Label:
    """A label with the votes behind it; none, for ``reason`` or where the winner's share is not above the threshold."""
    _, share, counts = vote(votes)
    if verdict in ("A", "B") and share <= threshold:
        verdict, reason = None, "low_vote_share"
    readable = 1 - counts["unreadable"] / len(votes)
    given = None if verdict else reason
    return Label(verdict=verdict, share=share, votes=counts, readable=readable, reason=given, source="external")


def _answer(replies: Sequence[Reply], shown: str) -> str | None:
    answers = [str(r.answer) for r in replies if r.shown == shown and r.answer is not None]
    return answers[-1] if answers else None


def disagreement(labels: Sequence[ExternalLabel]) -> dict[str, Any]:
    """How often the external judge disagrees; each entry has what was compared, and the ``rate`` (0 to 1).

    ``orders``: with itself, when the order is exchanged. ``ensemble``: with the branches' label, where both have one
    (the paper, section 4.4: 20%). ``pairs``: with the branches on which of two critiques is right, where one of them
    says what the branches' label says. ``truth``: of each of the two, where the truth is known and both have a label.
    """
    both = [o for o in labels if o.label.verdict and o.ensemble]
    known = [o for o in both if o.truth]
    pairs = [(better, o.ensemble) for o in labels for better, other in o.preferred if o.ensemble in (better, other)]
    asked = [order for o in labels for order in o.orders]
    return {
        "comparisons": len(labels),
        "labels": dict(sorted(Counter(o.label.reason or f"label_{o.label.verdict}" for o in labels).items())),
        "failures": dict(sorted(sum((Counter(o.failures) for o in labels), Counter[str]()).items())),
        "orders": _rate([(first, second) for first, second in asked if first is not None and second is not None]),
        "ensemble": _rate([(o.label.verdict, o.ensemble) for o in both]),
        "pairs": _rate(pairs),
        "truth": {
            "external": _rate([(o.label.verdict, o.truth) for o in known]),
            "ensemble": _rate([(o.ensemble, o.truth) for o in known]),
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
    parts = [f"{labelled} of {table['comparisons']} comparisons labelled"]
    for name, what in (("orders", "with itself"), ("ensemble", "with the branches")):
        if table[name]["compared"]:
            parts.append(f"{table[name]['rate']:.1%} of {table[name]['compared']} disagree {what}")
    return ", ".join(parts)
