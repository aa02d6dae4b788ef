"""From an external judge's replies to labels, and how often it disagrees: with itself, the branches and the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from judgetrain.judges.kinds.asking import Reply, verdicts_in
from judgetrain.label.labels import EnsembleLabel, vote
from judgetrain.schema import Verdict


@dataclass(frozen=True)
class Opinion:
    """What the external judge thinks of one comparison.

    ``orders`` are the answers that it gave to the same question in both orders, None where unreadable. ``preferred``
    are, for each pair of critiques that both orders decide alike, the verdicts of the preferred and the other one.
    ``ensemble`` and ``truth`` are the branches' and the known verdict, to compare with.
    """

    label: EnsembleLabel
    orders: tuple[tuple[str | None, str | None], ...]
    preferred: tuple[tuple[Verdict, Verdict], ...]
    failures: dict[str, int]
    ensemble: Verdict | None = None
    truth: Verdict | None = None


def opinion_of_verdicts(replies: Sequence[Reply], threshold: float) -> Opinion:
    """The opinion that verdicts on the responses give: a label where both orders say the same by majority.

    ``threshold``: no label where the winner's share of all deciding replies is not above it.
    """
    by_order = verdicts_in(replies, "AB"), verdicts_in(replies, "BA")
    (first, _, _), (second, _, _) = map(vote, by_order)
    failed = sum(r.answer is None for r in replies)
    verdict, reason = _agreed([(first, second)])
    if verdict is None:
        _, share, votes = vote([*by_order[0], *by_order[1], *[None] * failed])
        label = EnsembleLabel(None, share, votes, 1 - failed / len(replies), reason, "external")
    else:
        label = _label([*by_order[0], *by_order[1], *[None] * failed], verdict, threshold)
    return Opinion(label, ((first, second),), (), _failures(replies))


def opinion_of_preferences(
    verdicts: Sequence[tuple[Verdict, Verdict]], replies: Sequence[Sequence[Reply]], threshold: float
) -> Opinion:
    """The opinion that preferences between critiques give: those which hold in both orders vote.

    ``verdicts``: for each pair, what critiques X and Y say of the responses; ``replies``: those to each pair.
    """
    orders = tuple((_answer(each, "XY"), _answer(each, "YX")) for each in replies)
    preferred = tuple(
        (pair["XY".index(first)], pair["YX".index(first)])
        for pair, (first, second) in zip(verdicts, orders, strict=True)
        if first is not None and first == second
    )
    votes: list[Verdict | None] = [better for better, _ in preferred]
    votes += [None] * (len(orders) - len(preferred))
    winner = vote(votes)[0]
    if winner is None:
        label = EnsembleLabel(None, 0.0, vote(votes)[2], 0.0, _agreed(orders)[1], "external")
    else:
        label = _label(votes, winner, threshold)
    return Opinion(label, orders, preferred, _failures([r for each in replies for r in each]))


def _agreed(orders: Iterable[tuple[Any, Any]]) -> tuple[Any, str | None]:
    """The first answer that both orders share; else why there is none."""
    reason = "external_unreadable"
    for first, second in orders:
        if first is not None and first == second:
            return first, None
        if first is not None and second is not None:
            reason = "external_orders_disagree"
    return None, reason


def _label(votes: Sequence[Verdict | None], verdict: Verdict, threshold: float) -> EnsembleLabel:
    """A label with the votes behind it, or an abstention where its share is not above the threshold."""
    _, _, counts = vote(votes)
    deciding = counts["A"] + counts["B"]
    share = 0.5 if verdict == "tie" else counts[verdict] / deciding
    readable = 1 - counts["unreadable"] / len(votes)
    if verdict != "tie" and share <= threshold:
        return EnsembleLabel(None, share, counts, readable, "low_vote_share", "external")
    return EnsembleLabel(verdict, share, counts, readable, None, "external")


def _answer(replies: Sequence[Reply], shown: str) -> str | None:
    answers = [str(r.answer) for r in replies if r.shown == shown and r.answer is not None]
    return answers[-1] if answers else None


def _failures(replies: Iterable[Reply]) -> dict[str, int]:
    return dict(Counter(r.failure for r in replies if r.failure))


def disagreement(opinions: Sequence[Opinion]) -> dict[str, Any]:
    """How often the external judge disagrees; each entry has what was compared, and the ``rate`` (0 to 1).

    ``orders``: with itself, when the order is exchanged. ``ensemble``: with the branches' label, where both have one
    (the paper, section 4.4: 20%). ``pairs``: with the branches on which of two critiques is right, where one of them
    says what the branches' label says. ``truth``: of each of the two, where the truth is known and both have a label.
    """
    both = [o for o in opinions if o.label.verdict and o.ensemble]
    known = [o for o in both if o.truth]
    pairs = [(better, o.ensemble) for o in opinions for better, other in o.preferred if o.ensemble in (better, other)]
    asked = [order for o in opinions for order in o.orders]
    return {
        "comparisons": len(opinions),
        "labels": dict(sorted(Counter(o.label.reason or f"label_{o.label.verdict}" for o in opinions).items())),
        "failures": dict(sorted(sum((Counter(o.failures) for o in opinions), Counter[str]()).items())),
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
