"""Training examples in TRL's conversational formats, made from nodes of evaluation trees, and which are left out.

A preference pair teaches that its chosen side is better. What speaks for it are a handful of judgments, so that chance
alone makes many pairs: posterior probabilities say how sure one may be that siblings of a tree differ. Success is net:
judgments that decide rightly less those that decide wrongly; a judgment that sees a tie, or cannot be read, is neither.
Left out are repeats, near-identical texts and, on request, what unbalances the rest.
"""

import functools
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from judgetrain.judges.prompting.parsing import render_criteria
from judgetrain.judges.prompting.prompts import PromptSet, judgment_slots, judgment_step, slots_of
from judgetrain.judges.trees.schema import CriterionNode, GuidelineNode, JudgmentNode
from judgetrain.schema import ORDERS, Comparison, Verdict, mirror

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Prompter:
    """Renders the judge's prompts of one prompt set, as the judge that grew the trees was shown them.

    Args:
        prompts: the set.
        count: the number of criteria asked for.
        reference: whether reference answers are shown.
    """

    prompts: PromptSet
    count: int
    reference: bool = False

    def criteria(self, comparison: Comparison) -> Messages:
        """Return the prompt for a list of criteria."""
        slots = slots_of(comparison, self.reference) | {"count": str(self.count)}
        return list(self.prompts.render("criteria", slots))

    def guideline(self, comparison: Comparison, criterion: str) -> Messages:
        """Return the prompt for a guideline."""
        slots = slots_of(comparison, self.reference) | {"criterion": criterion}
        return list(self.prompts.render("guideline", slots))

    def judgment(self, comparison: Comparison, criterion: str, guideline: str, node: JudgmentNode) -> Messages:
        """Return the judgment prompt, with the responses in the order that the node saw, or the one that it saw."""
        slots = judgment_slots(comparison, node.order, criterion, guideline, self.reference)
        return list(self.prompts.render(judgment_step(node.order), slots))

    def criteria_row(self, comparison: Comparison, criteria: Sequence[CriterionNode]) -> dict[str, Any]:
        """Return a supervised example of a criteria list, in the order given."""
        text = render_criteria([criterion.text for criterion in criteria])
        nodes = [criterion.id for criterion in criteria]
        return sft_row(self.criteria(comparison), text, "criteria", comparison, nodes)

    def guideline_row(self, comparison: Comparison, criterion: CriterionNode, node: GuidelineNode) -> dict[str, Any]:
        """Return a supervised example of a scoring guideline."""
        return sft_row(self.guideline(comparison, criterion.text), node.text, "guideline", comparison, [node.id])

    def judgment_row(
        self, comparison: Comparison, criterion: CriterionNode, guideline: GuidelineNode, node: JudgmentNode
    ) -> dict[str, Any]:
        """Return a supervised example of a judgment; of one response with ``ahead``, its score less the other's."""
        prompt = self.judgment(comparison, criterion.text, guideline.text, node)
        row = sft_row(prompt, node.text, "judgment", comparison, [node.id])
        if node.order not in ORDERS and node.score_a is not None and node.score_b is not None:
            # Stage sft may rank the two responses by it (train.sft.ranking_weight).
            lead_of_a = node.score_a - node.score_b
            row["ahead"] = lead_of_a
            if node.order == "B":
                row["ahead"] = -lead_of_a
        return row


def _answer(text: str) -> Messages:
    """Return a completion as TRL's conversational formats have it."""
    return [{"role": "assistant", "content": text.strip()}]


def sft_row(
    prompt: Messages, completion: str, level: str, comparison: Comparison, nodes: Sequence[str]
) -> dict[str, Any]:
    """Return a supervised example: ``prompt``, ``completion``, its level, and the ids of the nodes it came from."""
    return {
        "prompt": prompt,
        "completion": _answer(completion),
        "level": level,
        "comparison_id": comparison.id,
        "nodes": list(nodes),
    }


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A preference between two completions of one prompt, with the ids of the nodes behind each side."""

    prompt: Messages
    chosen: str
    rejected: str
    level: str
    margin: float
    comparison_id: str
    chosen_nodes: tuple[str, ...]
    rejected_nodes: tuple[str, ...]
    chosen_verdict: Verdict | None = None
    """The verdict of a judgment pair's chosen side."""
    rejected_verdict: Verdict | None = None
    """The verdict of a judgment pair's rejected side; None: it could not be read, or there is none."""
    reward: dict[str, float] = field(default_factory=dict)
    made: str = ""
    """The way in which the comparison was constructed, where it was (``responses.contrast``)."""

    @classmethod
    def from_parts(cls, parts: dict[str, Any]) -> "Pair":
        """Return the pair of its fields, as JSON has them."""
        # JSON has no tuples.
        nodes = {name: tuple(parts[name]) for name in ("chosen_nodes", "rejected_nodes")}
        return cls(**parts | nodes)

    def to_row(self) -> dict[str, Any]:
        """Return a row in TRL's conversational preference format."""
        return {
            "prompt": self.prompt,
            "chosen": _answer(self.chosen),
            "rejected": _answer(self.rejected),
            "level": self.level,
            "margin": self.margin,
            "comparison_id": self.comparison_id,
            "nodes": {"chosen": list(self.chosen_nodes), "rejected": list(self.rejected_nodes)},
            "reward": self.reward,
            "made": self.made,
        }


PRIOR = 0.5
"""Pseudo-counts of each outcome (Jeffreys)."""

DRAWS = 20_000
"""Draws from each posterior: a probability is off by 0.002 at most at 0.9."""


class Outcomes(NamedTuple):
    """Counts of judgments that were right, wrong, and neither."""

    right: int
    wrong: int
    neither: int

    @property
    def net(self) -> float:
        """Return right less wrong ones as a share of all, from -1 to 1; 0 of none."""
        return (self.right - self.wrong) / max(1, sum(self))


def independent(judgments: Iterable[JudgmentNode]) -> list[JudgmentNode]:
    """Return the judgments that are separate evidence: those of response B by itself repeat their siblings of A."""
    # A judgment of one response holds its sibling's score of the other one, so that each pair stands twice.
    return [judgment for judgment in judgments if judgment.order != "B"]


def against_label(judgments: Iterable[JudgmentNode], label: Verdict) -> Outcomes:
    """Return how judgments stand to a label A or B: ties are neither right nor wrong."""
    # As counts, so that equal outcomes of many criteria share one posterior (better is cached).
    verdicts = Counter(judgment.verdict for judgment in independent(judgments))
    other_side = mirror(label)
    return Outcomes(verdicts[label], verdicts[other_side], verdicts["tie"] + verdicts[None])


def against_consensus(judgments: Iterable[JudgmentNode], consensus: Verdict) -> Outcomes:
    """Return how judgments stand to the verdict that their criterion's agree on: any other verdict is wrong."""
    verdicts = Counter(judgment.verdict for judgment in independent(judgments))
    wrong = verdicts.total() - verdicts[consensus] - verdicts[None]
    return Outcomes(verdicts[consensus], wrong, verdicts[None])


@functools.cache
def better(first: Outcomes, second: Outcomes) -> float:
    """Return the probability that the first kind of judgments has the higher net success, given their outcomes.

    Each outcome's chance has a Dirichlet posterior; the two are independent.
    """
    import numpy as np

    # A seed of its own, so that equal outcomes give the same probability in every run and every process.
    rng = np.random.default_rng(0)
    nets = []
    for outcomes in (first, second):
        # For each draw the chances of right, wrong and neither [DRAWS, 3]; net success is the first less the second.
        chances = rng.dirichlet([count + PRIOR for count in outcomes], DRAWS)
        nets.append(chances[:, 0] - chances[:, 1])
    return float(np.mean(nets[0] > nets[1]))


def above_zero(outcomes: Outcomes) -> float:
    """Return the probability that judgments of this kind are more often right than wrong."""
    return _mostly(outcomes.right, outcomes.wrong)


def _mostly(right: int, wrong: int) -> float:
    """Return the posterior probability that more than half of such judgments are right."""
    from scipy.special import betaincc

    # SciPy's ``beta.sf`` gives the same to the last bit, but its checks of arguments take 50 times as long.
    return float(betaincc(right + PRIOR, wrong + PRIOR, 0.5))


def consensus(judgments: Sequence[JudgmentNode], sure: float) -> Verdict | None:
    """Return the verdict that readable judgments agree on, in each order and with probability ``sure``.

    In order AB and in BA, where both responses are shown, no other verdict is more frequent, and the posterior
    probability that more than half of such judgments give it is at least ``sure``; else None.
    """
    evidence = independent(judgments)
    orders = [judgment.order for judgment in evidence]
    if any(order in ORDERS for order in orders):
        # An order without a judgment counts, too: what one order says may be a leaning to the first response.
        orders = [*ORDERS, *orders]
    by_order = {order: Counter[Verdict]() for order in orders}
    for judgment in evidence:
        if judgment.verdict:
            by_order[judgment.order][judgment.verdict] += 1
    total = sum(by_order.values(), Counter[Verdict]())
    if not total:
        return None
    verdict, count = total.most_common(1)[0]
    for verdicts in by_order.values():
        # A verdict that only one order gives may be a leaning to a place, however frequent it is.
        if not verdicts[verdict] or verdicts[verdict] < max(verdicts.values()):
            return None
    has_majority = 2 * count > total.total()
    is_sure = _mostly(count, total.total() - count) >= sure
    if has_majority and is_sure:
        return verdict
    return None


_Sides = tuple[bool | None, ...]
"""On which side of each trait a pair is; None: on neither."""
_Kind = tuple[bool, bool]
"""True for each of the chosen and the rejected side that decides, where places are evened out."""


def near_identical(first: str, second: str) -> str | None:
    """Return why two texts teach no difference, or None.

    ``score_digits_only``: they differ in numbers alone; ``near_identical``: in case, punctuation and spacing at most.
    """
    if _words(first) == _words(second):
        return "near_identical"
    if _words(_NUMBER.sub("", first)) == _words(_NUMBER.sub("", second)):
        return "score_digits_only"
    return None


_NUMBER = re.compile(r"\d+(?:[.,]\d+)?")


def _words(text: str) -> list[str]:
    """Return the words of a text, whatever their case."""
    return re.findall(r"\w+", text.casefold())


def repeats(pairs: Iterable[Pair]) -> set[int]:
    """Return indices of the pairs that have the prompt of an earlier one, and its sides word by word.

    Case, punctuation and spacing of the sides make no difference; of the prompt, which is a question, they do.
    """
    seen: set[bytes] = set()
    repeated: set[int] = set()
    for index, pair in enumerate(pairs):
        texts = repr((pair.prompt, _words(pair.chosen), _words(pair.rejected)))
        # Digests, since there may be millions of pairs; half of a surrogate pair in a text must not end the run.
        key = blake2b(texts.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key in seen:
            repeated.add(index)
        seen.add(key)
    return repeated


def surplus(pairs: Sequence[Pair], by: Collection[str], rng: random.Random) -> set[int]:
    """Return indices of pairs to be left out, so that at each level both sides of every trait have as many.

    With several traits, each combination and its opposite (AB that decides, BA that says tie) are evened out. Pairs on
    neither side of a trait (no order) are kept as far as the other traits allow.

    Args:
        pairs: of all levels.
        by: the traits. ``order``: chosen judged in order AB or BA. ``verdict``: the chosen judgment decides or says
            tie. ``place``: what is taught speaks for the response shown first or second (a chosen verdict for it, or a
            rejected one for the other beside a chosen tie), evened out apart for pairs that decide on both sides, on
            the chosen and on the rejected one.
        rng: draws those that are left out.
    """
    names = [name for name in _TRAITS if name in by]
    # Pairs are read from disk: once here, and once more level by level.
    indices_by_level: dict[str, list[int]] = {}
    for index, pair in enumerate(pairs):
        indices_by_level.setdefault(pair.level, []).append(index)
    left_out: set[int] = set()
    for _, indices in sorted(indices_by_level.items()):
        left_out |= _surplus_of_level(pairs, indices, names, rng)
    return left_out


def _surplus_of_level(
    pairs: Sequence[Pair], indices: Sequence[int], names: Sequence[str], rng: random.Random
) -> set[int]:
    """Return indices of one level's pairs to be left out; see :func:`surplus`.

    Args:
        pairs: of all levels.
        indices: of the level's pairs.
        names: of the traits.
        rng: draws those that are left out.
    """
    cells: dict[tuple[_Kind, _Sides], list[int]] = {}
    for index in indices:
        pair = pairs[index]
        kind = (False, False)
        if "place" in names:
            kind = (pair.chosen_verdict in ("A", "B"), pair.rejected_verdict in ("A", "B"))
        sides = tuple(_TRAITS[name](pair) for name in names)
        cells.setdefault((kind, sides), []).append(index)
    kinds = sorted({kind for kind, _ in cells})
    left_out: set[int] = set()
    # All combinations in one order, whatever the pairs: what is drawn for a seed does not depend on their order.
    for sides in itertools.product((True, False, None), repeat=len(names)):
        opposite = tuple(None if side is None else not side for side in sides)
        for kind in kinds:
            here = cells.get((kind, sides), [])
            # Only the larger of two opposite cells loses pairs: as many as it has more.
            more = len(here) - len(cells.get((kind, opposite), ()))
            if more > 0:
                left_out.update(rng.sample(here, more))
    return left_out


def _longer(pair: Pair) -> bool | None:
    """Return whether the chosen side is the longer one; None where both are as long."""
    chosen = len(pair.chosen.strip())
    rejected = len(pair.rejected.strip())
    if chosen == rejected:
        return None
    return chosen > rejected


def _order(pair: Pair) -> bool | None:
    """Return whether a judgment pair saw the responses in order AB; None where there is no order."""
    if pair.level != "judgment":
        return None
    # The id of a judgment ends in the order and its number under the guideline.
    order = re.search(r"/(AB|BA)\d+$", pair.chosen_nodes[0])
    if order is None:
        return None
    return order[1] == "AB"


def _decides(pair: Pair) -> bool | None:
    """Return whether the chosen judgment is no tie.

    None where it has no verdict, and of one response, whose judgment says a score and no verdict.
    """
    reads_one = re.search(r"/[AB]\d+$", pair.chosen_nodes[0])
    if reads_one or pair.chosen_verdict is None:
        return None
    return pair.chosen_verdict != "tie"


def _first(pair: Pair) -> bool | None:
    """Return whether a pair speaks for the response shown first; None where it speaks for no place."""
    order_is_ab = _order(pair)
    side: Verdict | None = None
    if pair.chosen_verdict in ("A", "B"):
        side = pair.chosen_verdict
    elif pair.chosen_verdict and pair.rejected_verdict:
        # A tie that is preferred to a verdict speaks for the other response.
        side = mirror(pair.rejected_verdict)
    if order_is_ab is None or side not in ("A", "B"):
        return None
    return order_is_ab == (side == "A")


_TRAITS: dict[str, Callable[[Pair], bool | None]] = {"order": _order, "verdict": _decides, "place": _first}


def leanings(pairs: Iterable[Pair]) -> dict[str, dict[str, Any]]:
    """Return what a judge could learn from the pairs besides quality, by level: shares, near 0.5 where that is nothing.

    ``chosen_longer``: of the pairs of unequal length, those whose chosen side is the longer; ``order_ab``: of the
    judgment pairs, those in order AB; ``decides``: those whose chosen side is no tie; ``first``: of those that speak
    for a place, those for the response shown first. A share is None where no pair is on either side.
    """
    traits = {"chosen_longer": _longer, "order_ab": _order, "decides": _decides, "first": _first}
    by_level: dict[str, dict[str, list[bool]]] = {}
    for pair in pairs:
        sides_of = by_level.setdefault(pair.level, {name: [] for name in traits})
        for name, trait in traits.items():
            side = trait(pair)
            if side is not None:
                sides_of[name].append(side)
    table: dict[str, dict[str, Any]] = {}
    for level, sides_of in sorted(by_level.items()):
        shares: dict[str, float | None] = {}
        for name, sides in sides_of.items():
            shares[name] = None
            if sides:
                shares[name] = round(sum(sides) / len(sides), 3)
        table[level] = shares
    return table
