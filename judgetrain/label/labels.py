"""Labels of trees: without humans, the ensemble of a tree's branches (branching paper, section 4.4), or given ones.

Of responses that people rated one by one: what of them is judged, and when a judgment of one is right. And a teacher
that writes evaluations by rule from labels that are known (``teacher.engine.type=given``): the data's, or a constructed
pair's better side. It teaches the form of an evaluation and the labels, and no more: all criteria of a comparison get
the one label.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, NoReturn

from judgetrain.engines.base import Completion, Request
from judgetrain.engines.config import EngineConfig
from judgetrain.errors import ConfigError
from judgetrain.judges.prompting.parsing import render_criteria
from judgetrain.judges.prompting.prompts import judgment_slots
from judgetrain.judges.trees.grow import Steer
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, JudgmentNode
from judgetrain.label.config import LabelConfig
from judgetrain.rubrics import HIGHEST, LOWEST, Rubric, label_of_line
from judgetrain.schema import ORDERS, RESPONSES, Comparison, Order, Rating, Verdict, mirror

VERDICTS: tuple[Verdict, ...] = ("A", "B", "tie")
Vote = tuple[Verdict | None, float, dict[str, int]]
"""The verdict, the winner's share of the votes that count, and how many branches say what."""


def vote(verdicts: Iterable[Verdict | None]) -> Vote:
    """Return the majority of the deciding votes.

    A branch that sees no difference (tie) abstains; equally many votes for A and B are a tie. None when no vote
    could be read.
    """
    winner, _, counts = plurality(verdicts)
    if winner is None:
        return None, 0.0, counts
    # Also where both are 0: all that could be read say tie.
    if counts["A"] == counts["B"]:
        return "tie", 0.5, counts

    winner = "B"
    if counts["A"] > counts["B"]:
        winner = "A"
    deciding = counts["A"] + counts["B"]
    return winner, counts[winner] / deciding, counts


def plurality(verdicts: Iterable[Verdict | None]) -> Vote:
    """Return what most readable votes say; a tie is a vote like the others, and where two verdicts lead it is one."""
    votes = Counter(verdicts)
    counts = {"A": votes["A"], "B": votes["B"], "tie": votes["tie"], "unreadable": votes[None]}
    readable = sum(counts[verdict] for verdict in VERDICTS)
    if not readable:
        return None, 0.0, counts
    most = max(counts[verdict] for verdict in VERDICTS)
    leading = [verdict for verdict in VERDICTS if counts[verdict] == most]
    winner: Verdict = "tie"
    if len(leading) == 1:
        winner = leading[0]
    return winner, counts[winner] / readable, counts


MIN_READABLE = 0.5
"""A tree of which fewer judgments could be read has no label: what is left is no sample of its branches."""

HINTS = {
    "too_long": "a prompt and max_new_tokens of its sampling exceed the model's context: lower the one, or leave out "
    "long dialogues with dialogues.max_query_chars",
    "off_frame": "replies leave the prompt's form (docs/prompts.md): choose a model that follows instructions, or "
    "tree.constrained=true",
    "cut_off": "replies ran out of tokens: raise max_new_tokens of tree.judgment_sampling or teacher.sampling",
    "error": "the model gave no answer: look at the server, and run the command again",
    "rated_alone": "what people say of single responses is read with label.source=given",
    "no_given_label": "the comparisons bring none: look at the column of labels and dialogues.sources[].labels",
    "orders_disagree": "the external judge's two orders disagree: choose a stronger one (label.external.engine)",
    "self_inconsistent": "judgments of one prompt differ: lower tree.judgment_sampling.temperature",
    "position_inconsistent": "verdicts follow the order in which responses are shown: teacher.both_orders=true, or "
    "more teacher.comparisons",
}
"""The remedy where too little is left to train on, by the end of the reason that most was lost for
(:func:`judgetrain.errors.causes`)."""


@dataclass(frozen=True, kw_only=True)
class Label:
    """The verdict on a comparison.

    Args:
        verdict: None where there is no label.
        share: the winner's share of the votes that decide (A and B; tie votes abstain), 0.5 for a tie; by
            ``label.rule=paper`` that of all readable votes.
        votes: how many branches say what.
        readable: the share of the votes that could be read.
        reason: why there is no label; None where there is one.
        source: ``ensemble`` (the branches), ``external`` (a judge), ``given`` (the data) or ``reward`` (a tie that
            scores decide).
    """

    verdict: Verdict | None
    share: float
    votes: dict[str, int]
    readable: float
    reason: str | None = None
    source: str = "ensemble"

    @property
    def deciding_share(self) -> float:
        """Return the share of the readable votes that are no tie, 0 where none could be read."""
        deciding = self.votes["A"] + self.votes["B"]
        return deciding / max(1, deciding + self.votes["tie"])

    def to_row(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return asdict(self) | {"deciding_share": self.deciding_share}


def accepts(verdict: Verdict | None, label: Verdict, rule: str) -> bool:
    """Return whether a branch's verdict is in keeping with the label.

    A tie on one criterion does not contradict a label A or B: that criterion may simply not tell the responses
    apart. By the paper's rule only the label itself will do.
    """
    if verdict == label:
        return True
    return rule == "evidence" and verdict == "tie"


def given_label(tree: EvaluationTree, config: LabelConfig) -> Label:
    """Return the label that the comparison brings, or an abstention with its reason.

    Reasons: ``no_given_label``; ``too_few_readable`` branches; ``rated_alone``, a response that people rated by itself,
    where their labels are not to be read.
    """
    ensemble = ensemble_label(tree, config)
    # A label would not help: there are too few branches to make an example of.
    if ensemble.reason == "too_few_readable":
        return ensemble
    verdict = tree.comparison.label
    reason = None
    if verdict is None:
        reason = "no_given_label"
    if tree.comparison.alone and config.source != "given":
        verdict = None
        reason = "rated_alone"

    # The label is one vote, of which a tie decides nothing.
    votes = []
    if verdict is not None:
        votes.append(verdict)
    _, _, counts = vote(votes)
    shares = {None: 0.0, "tie": 0.5, "A": 1.0, "B": 1.0}
    return Label(
        verdict=verdict, share=shares[verdict], votes=counts, readable=ensemble.readable, reason=reason, source="given"
    )


def ensemble_label(tree: EvaluationTree, config: LabelConfig) -> Label:
    """Return the label of a tree by ``label.rule``, or an abstention: ``too_few_readable`` branches."""
    count = vote
    if config.rule == "paper":
        # By its letter a tie is a vote like the others.
        count = plurality
    verdict, share, votes = count(judgment.verdict for _, _, judgment in tree.judgments())
    readable = 1 - votes["unreadable"] / max(1, sum(votes.values()))
    if readable < MIN_READABLE or verdict is None:
        return Label(verdict=None, share=share, votes=votes, readable=readable, reason="too_few_readable")
    return Label(verdict=verdict, share=share, votes=votes, readable=readable)


ALONE: Order = "A"
"""The order of a judgment that is shown one response by itself."""
WITHIN = {True: (HIGHEST - LOWEST) / 2, False: 1.0}
"""The distance from the rating within which a score is right: at an end of the scale (pass, fail) half the scale, else
a level. At just that distance it is neither right nor wrong."""


UNLABELLED = "no_label"
"""Why a judgment teaches nothing whose criterion nobody labelled."""


def level_of(score: float) -> float:
    """Return the level that a rating's score (0 to 1) says, on the scale of judgments."""
    return LOWEST + (HIGHEST - LOWEST) * score


def judged(comparisons: Sequence[Comparison], orders: Sequence[Order]) -> list[Comparison]:
    """Return those that judgments in these orders can be about: no response alone where they are shown two."""
    return [comparison for comparison in comparisons if ALONE in orders or not comparison.alone]


def each_in(orders: Sequence[Order]) -> Steer:
    """Return a steer that grows complete trees, but of a response that stands alone with judgments of it alone."""

    def steer(tree: EvaluationTree) -> dict[int, Sequence[Order]]:
        shown: Sequence[Order] = orders
        if tree.comparison.alone:
            shown = [order for order in orders if order == ALONE]
        # Criteria with a guideline were judged in an earlier round.
        return {criterion.rank: shown for criterion in tree.criteria if not criterion.guidelines}

    return steer


def by_rating(tree: EvaluationTree) -> EvaluationTree:
    """Return the tree as labels and pairs are made of it: of a rated response, with label A for what is right.

    The scores of its judgments are then how near they are to the rating, and how near is near enough: the verdict is A
    where a judgment is right, B where it is wrong, and the nearer of two is the better one. Other trees stay.

    A criterion that people labelled by itself is held to that label. Where they labelled single criteria alone, the
    judgments of the others say nothing.
    """
    rating = tree.comparison.rating_a
    if not tree.comparison.alone or rating is None:
        return tree
    criteria = []
    for criterion in tree.criteria:
        guidelines = []
        for guideline in criterion.guidelines:
            judgments = tuple(_placed(judgment, criterion, rating) for judgment in guideline.judgments)
            guidelines.append(replace(guideline, judgments=judgments))
        criteria.append(replace(criterion, guidelines=tuple(guidelines)))
    # What is right is called A: whoever makes labels and pairs then needs no rule of its own for ratings.
    return replace(tree, comparison=replace(tree.comparison, label="A"), criteria=tuple(criteria))


def _placed(judgment: JudgmentNode, criterion: CriterionNode, rating: Rating) -> JudgmentNode:
    """Return a judgment with its distance from the rating as score, and the allowed one as the other's."""
    if judgment.score_a is None:
        return judgment
    score = rating.by(criterion.text)
    if score is None:
        return replace(judgment, score_a=None, score_b=None, failure=UNLABELLED)
    due = level_of(score)
    if judgment.inverted and rating.of_criterion(criterion.text) is None:
        # By a criterion that says what should not be, a good response has a low level.
        due = LOWEST + HIGHEST - due
    distance = abs(judgment.score_a - due)
    # An end of the scale may be a pass or a fail, which is half of it; a rating between the ends is its level.
    is_end_of_scale = score in (0.0, 1.0)
    # The nearer has the higher score: A is ahead where the distance is less than what is allowed.
    return replace(judgment, score_a=-distance, score_b=-WITHIN[is_end_of_scale], inverted=False)


def taught_rubric(comparison: Comparison, by_criteria: bool) -> Rubric | None:
    """Return the criteria of a comparison's rubric by which its known labels can be taught; None where there are none.

    Args:
        comparison: with its rubric and what people say of its responses.
        by_criteria: a label of the whole is taught under every criterion (``teacher.engine.by_criteria``); False: only
            criteria that people labelled by themselves are.
    """
    if comparison.rubric is None:
        return None
    whole_is_taught = by_criteria and not _has_criteria_alone(comparison)
    ratings = [rating for rating in (comparison.rating_a, comparison.rating_b) if rating is not None]
    taught = []
    for criterion in comparison.rubric.criteria:
        # Of a pair whose label people gave there is no rating, and so no label of one criterion.
        is_by_itself = bool(ratings) and all(rating.of_criterion(criterion.line) is not None for rating in ratings)
        if whole_is_taught or is_by_itself:
            taught.append(criterion)
    return Rubric(tuple(taught)) if taught else None


def label_under(comparison: Comparison, line: str) -> Verdict | None:
    """Return which of two responses is better by the criterion of this line, as far as people say; else as a whole.

    None where people labelled single criteria alone, and not this one, and where there is no label.
    """
    rating_a = comparison.rating_a
    rating_b = comparison.rating_b
    if rating_a is not None and rating_b is not None:
        score_a = rating_a.of_criterion(line)
        score_b = rating_b.of_criterion(line)
        if score_a is not None and score_b is not None:
            return _label_by(score_a, score_b)
    return None if _has_criteria_alone(comparison) else comparison.label


ShownTexts = tuple[str, str, str, str]
"""The texts of a judgment's slots: the dialogue before the query, the query, and the responses in the order shown."""

# The scores are always the same ones, so that a small model's uncertainty stands between two digits.
BETTER = 4
WORSE = 2
EQUAL = 3

SCORES = {"A": (BETTER, WORSE), "B": (WORSE, BETTER), "tie": (EQUAL, EQUAL)}


def no_engine(config: EngineConfig) -> NoReturn:
    """Raise ConfigError: stage teacher gives the labels itself, and no other may ask this type of engine."""
    raise ConfigError(f"{config.model_name}: knows training labels alone; leave teacher out of evaluate.methods")


class Aspect(NamedTuple):
    """A criterion broad enough that a preference of the whole response speaks of it.

    Args:
        name: of the criterion.
        asks: what it asks of a response.
        when: a pattern of the queries that it suits; empty: it suits all.
    """

    name: str
    asks: str
    when: str = ""


ASPECTS = (
    Aspect("Accuracy", "is it right", r"\b(what|who|when|where|which|how (many|much)|calculate|solve|classify)\b|\d"),
    Aspect("Writing", "does it read well", r"\b(write|story|poem|e-?mail|letter|rewrite|essay|title|headline|tweet)\b"),
    Aspect("Completeness", "is all there that was asked for", r"\b(explain|describe|list|compare|steps|plan|ideas)\b"),
    Aspect("Helpfulness", "does it do what was asked"),
    Aspect("Clarity", "is it easy to follow"),
    Aspect("Relevance", "does it keep to the question"),
)
GUIDELINE = f"{BETTER} to the better response, {WORSE} to the other, {EQUAL} to both if they are equal."


class KnownLabels:
    """An engine that writes the known labels of comparisons as evaluations; nothing else can be judged.

    It names criteria that suit a query. A response that stands in several pairs has the mean of their scores, as a
    whole number; one that people rated, its rating, by a criterion that they labelled the label. Where they labelled
    single criteria alone, nothing is known by the others. Token counts are words.
    """

    name = "given"
    continues = False

    def __init__(self, comparisons: Sequence[Comparison]) -> None:
        self._texts: dict[ShownTexts, str] = {}
        self._texts_by_criterion: dict[ShownTexts, dict[str, str]] = {}
        # Of a comparison that stands twice the first label counts; of a response alone, the mean of all its pairs.
        scores_of: dict[ShownTexts, list[int]] = {}
        for comparison in comparisons:
            # AB and BA show both responses, A and B one of them by itself.
            for order in (*ORDERS, *RESPONSES):
                shown = _shown(judgment_slots(comparison, order, "", ""))
                self._learn_criteria(shown, comparison, order)
                if not _has_criteria_alone(comparison):
                    self._learn_whole(shown, comparison, order, scores_of)
        for shown, scores in scores_of.items():
            # Halves go away from the middle: 2.5 to 2, 3.5 to 4.
            self._texts.setdefault(shown, f"Score: {round(sum(scores) / len(scores))}")

    def _learn_whole(
        self, shown: ShownTexts, comparison: Comparison, order: Order, scores_of: dict[ShownTexts, list[int]]
    ) -> None:
        """Keep what is known of the responses that an order shows, as a whole.

        Args:
            shown: their texts.
            comparison: of them.
            order: that is shown.
            scores_of: the scores of a response alone in all its pairs, to which this one's is added.
        """
        rating = {"A": comparison.rating_a, "B": comparison.rating_b}.get(order)
        if rating:
            self._texts.setdefault(shown, rated(rating.score, rating.reason))
        elif comparison.label is not None:
            # The label as it stands to what is shown: in BA, and of B alone, the sides change places.
            label = comparison.label
            if order in ("BA", "B"):
                label = mirror(label)
            if order in ORDERS:
                self._texts.setdefault(shown, judgment(label))
            else:
                score_of_shown, _ = SCORES[label]
                scores_of.setdefault(shown, []).append(score_of_shown)

    def _learn_criteria(self, shown: ShownTexts, comparison: Comparison, order: Order) -> None:
        """Keep what is known by single criteria of the responses that an order shows."""
        rating_a = comparison.rating_a
        rating_b = comparison.rating_b
        texts = self._texts_by_criterion.setdefault(shown, {})
        if order in ORDERS:
            if rating_a is None or rating_b is None:
                return
            for name in rating_a.by_criterion.keys() & rating_b.by_criterion.keys():
                label = _label_by(rating_a.by_criterion[name], rating_b.by_criterion[name])
                if order == "BA":
                    label = mirror(label)
                texts.setdefault(name, judgment(label))
            return
        rating = rating_a
        if order == "B":
            rating = rating_b
        if rating is None:
            return
        for name, score in rating.by_criterion.items():
            texts.setdefault(name, rated(score))

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """Return one completion per request; nothing is drawn."""
        return [self._complete(request) for request in requests]

    def close(self) -> None:
        """Free nothing: there is no model."""

    def _complete(self, request: Request) -> Completion:
        """Return what is written for a request, or an error where no label is known."""
        text = self._text(request)
        if text is None:
            return Completion(finish_reason="error", error="a comparison without a label")
        prompt = " ".join(message["content"] for message in request.messages)
        return Completion(
            text=text, prompt_tokens=len(prompt.split()), generated_tokens=len(text.split()), finish_reason="stop"
        )

    def _text(self, request: Request) -> str | None:
        """Return what is written at a request's step; None where no label is known."""
        slots = request.slots
        if request.step == "criteria":
            # As many as the prompt asks for, so that the judge learns to name so many.
            aspects = suited(slots["query"])[: int(slots["count"])]
            return render_criteria([f"{aspect.name}: {aspect.asks}" for aspect in aspects])
        if request.step == "guideline":
            return GUIDELINE
        shown = _shown(slots)
        texts = self._texts_by_criterion.get(shown, {})
        label = label_of_line(slots["criterion"], texts)
        if label is not None:
            return texts[label]
        return self._texts.get(shown)


def _has_criteria_alone(comparison: Comparison) -> bool:
    """Return whether people labelled a comparison's responses by single criteria, and none as a whole."""
    return any(rating is not None and not rating.whole for rating in (comparison.rating_a, comparison.rating_b))


def _label_by(score_a: float, score_b: float) -> Verdict:
    """Return which of two responses has the higher score, or a tie."""
    if score_a == score_b:
        return "tie"
    return "A" if score_a > score_b else "B"


def _shown(slots: Mapping[str, str]) -> ShownTexts:
    """Return the texts by which a judgment is known, whatever the criterion and the prompt's words."""
    # A prompt that shows one response has a slot of that name alone.
    first = slots.get("response_a", slots.get("response", ""))
    second = slots.get("response_b", "")
    return slots["context"], slots["query"], first, second


def suited(query: str) -> list[Aspect]:
    """Return the aspects, those that suit the query first, then the ones of every query, then the others."""

    def rank(aspect: Aspect) -> int:
        if not aspect.when:
            return 1
        if re.search(aspect.when, query.casefold()):
            return 0
        return 2

    return sorted(ASPECTS, key=rank)


def rated(score: float, reason: str | None = None) -> str:
    """Return a judgment of one response that says its score (0 to 1), and why where people say it."""
    said = f"Score: {round(level_of(score))}"
    # A frame's analysis is one line.
    analysis = " ".join((reason or "").split())
    if not analysis:
        return said
    return f"{said}\nAnalysis: {analysis}"


def judgment(label: Verdict) -> str:
    """Return a short judgment that says the label, of the responses as shown.

    The verdict's letter comes first: a small model learns to copy the letter that stands before the better response
    sooner than which of two digits to give the first one (docs/results/training_choices.md).
    """
    score_a, score_b = SCORES[label]
    outcome = f"{label} is better"
    if label == "tie":
        outcome = "both are equal"
    return f"Comparison: {outcome}.\nResponse A Score: {score_a}\nResponse B Score: {score_b}"
