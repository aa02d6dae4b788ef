"""How the branches of a tree become one verdict (``label.vote``; branching paper, section 4.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from judgetrain.judges.trees.schema import EvaluationTree, JudgmentNode
from judgetrain.schema import Verdict

VERDICTS: tuple[Verdict, ...] = ("A", "B", "tie")
Vote = tuple[Verdict | None, float, dict[str, int]]
"""The verdict, the winner's share of the votes that count, and how many branches say what."""


def counted(verdicts: Iterable[Verdict | None]) -> dict[str, int]:
    """How many say A, B and tie, and how many could not be read."""
    votes = Counter(verdicts)
    return {"A": votes["A"], "B": votes["B"], "tie": votes["tie"], "unreadable": votes[None]}


def vote(verdicts: Iterable[Verdict | None]) -> Vote:
    """Majority of the deciding votes.

    A branch that sees no difference (tie) abstains; equally many votes for A and B are a tie. None when no vote
    could be read.
    """
    counts = counted(verdicts)
    if not any(counts[verdict] for verdict in VERDICTS):
        return None, 0.0, counts
    if counts["A"] == counts["B"]:
        return "tie", 0.5, counts
    winner: Verdict = "A" if counts["A"] > counts["B"] else "B"
    return winner, counts[winner] / (counts["A"] + counts["B"]), counts


def plurality(verdicts: Iterable[Verdict | None]) -> Vote:
    """What most readable votes say, where a tie is a vote like the others; where two verdicts lead, a tie."""
    counts = counted(verdicts)
    readable = sum(counts[verdict] for verdict in VERDICTS)
    if not readable:
        return None, 0.0, counts
    most = max(counts[verdict] for verdict in VERDICTS)
    leading = [verdict for verdict in VERDICTS if counts[verdict] == most]
    winner = leading[0] if len(leading) == 1 else "tie"
    return winner, counts[winner] / readable, counts


def mean_score(judgments: Sequence[JudgmentNode]) -> Vote:
    """The response whose mean score over the readable branches is higher; equal means are a tie.

    The share is that of the readable branches that say the same.
    """
    counts = counted(j.verdict for j in judgments)
    margins = [j.margin for j in judgments if j.margin is not None]
    if not margins:
        return None, 0.0, counts
    mean = round(fmean(margins), 9)  # scores that readout=expected gives are no whole numbers
    winner: Verdict = "A" if mean > 0 else "B" if mean < 0 else "tie"
    return winner, counts[winner] / len(margins), counts


VOTES: dict[str, Callable[[EvaluationTree], Vote]] = {
    "deciding": lambda tree: vote(j.verdict for _, _, j in tree.judgments()),
    "plurality": lambda tree: plurality(j.verdict for _, _, j in tree.judgments()),
    "mean_score": lambda tree: mean_score([j for _, _, j in tree.judgments()]),
}
"""By ``label.vote``: from a tree to its verdict."""
