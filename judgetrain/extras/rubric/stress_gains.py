"""How far responses gain under a rubric and its criteria, and how much of that is truth.

Of n responses to a prompt the one that scores best is taken. What it gains on the mean response is told for the score
that chose it, for the whole rubric, and for the truth. The optimisation that this is stands behind it as its KL
divergence from the writer, log n - (n - 1) / n nats (Gao, Schulman and Hilton 2022, arXiv 2210.10760).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from judgetrain.data.intervals import ENDS, FEWEST, Interval, Resampling, drawn
from judgetrain.extras.rubric.stress_pools import FEWEST as FEWEST_RESPONSES
from judgetrain.extras.rubric.stress_pools import LONGER, WORDS, key_of
from judgetrain.rubrics import Criterion, Rubric

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RESAMPLES = 1000
"""Resamples of prompts, of which intervals are made."""
HALF = 0.5
"""The share of what the whole rubric keeps, below which a criterion is gained without truth; and of what a criterion's
weight says, below which it adds little."""
SAME = 1e-9
"""A combination of criteria varies by less than this share of what the most variable one does: it says nothing."""
EDITED = 0.25
"""Standard deviations of a criterion's scores that an edit may gain."""
WHOLE = ""
"""Names the whole rubric among its criteria."""
TRUTH = "\0truth"
"""Names the truth among scores; no criterion's key holds this sign."""

Mark = Literal["holds", "without truth", "adds little", "by its words", "by length", "not shown", "never separates"]
"""What is said of a criterion."""
LOWERED: tuple[Mark, ...] = ("without truth", "adds little", "by its words", "by length")
"""Marks of criteria whose weight falls."""


@dataclass(frozen=True)
class Stressed:
    """The scores of the responses to one prompt.

    Args:
        scores: by each criterion's key, and of the whole rubric under :data:`WHOLE`, each 0 to 1, what is better is
            higher [response].
        truth: what each response is worth [response].
        edited: what an edit of the first response gains on it, by the kind of edit and the criterion it is about: its
            score by that criterion, and its truth. An edit for length is about every criterion.
    """

    scores: Mapping[str, Floats]
    truth: Floats
    edited: Mapping[tuple[str, str], tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What the best of n responses gains on the mean one, in standard deviations of the responses to a prompt.

    Args:
        n: responses that are chosen from.
        kl: divergence from the writer, in nats.
        chooser: of the score that chooses.
        rubric: of the whole rubric's score.
        rubric_interval: of that, 95%, over prompts; None with fewer than ten of them.
        truth: of the truth.
        truth_interval: of that.
    """

    n: int
    kl: float
    chooser: float
    rubric: float
    rubric_interval: Interval | None
    truth: float
    truth_interval: Interval | None


@dataclass(frozen=True, kw_only=True)
class Edited:
    """What an edit gains by a criterion beyond its truth, in standard deviations, with its 95% interval."""

    gain: float
    interval: Interval | None


@dataclass(frozen=True, kw_only=True)
class Added:
    """What a criterion adds to the others.

    Args:
        share: by how much the truth rises with its score while the other criteria's stay, as a share of what its
            weight says. 1 for every criterion of a rubric whose weights are right.
        interval: of that, 95%, over prompts.
    """

    share: float
    interval: Interval | None


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of a criterion, or of a kind's whole rubric.

    Args:
        key: the criterion's; :data:`WHOLE` for the whole rubric.
        gains: by n, rising.
        kept: what of the rubric's gain is truth, at the largest n; None where the rubric gains nothing.
        kept_interval: of that.
        relative: ``kept`` as a share of what the whole rubric keeps; None where that is nothing.
        relative_interval: of that.
        added: what it adds to the other criteria; None for the whole rubric, or where that has no truth to share.
        words: what an answer gains that states the criterion's words.
        longer: what an answer gains that says everything twice.
        mark: what is said of it.
        factor: what its weight is multiplied by.
    """

    key: str
    gains: list[Gain]
    kept: float | None
    kept_interval: Interval | None
    relative: float | None
    relative_interval: Interval | None
    added: Added | None
    words: Edited | None
    longer: Edited | None
    mark: Mark
    factor: float


@dataclass(frozen=True, kw_only=True)
class KindStressed:
    """The figures of a kind of query.

    Args:
        kind: its name; empty for queries of none, and for a rubric without kinds.
        prompts: with responses that were scored.
        responses: to them.
        whole: the figures of the whole rubric.
        criteria: those of its criteria, in their order.
    """

    kind: str
    prompts: int
    responses: int
    whole: Figures
    criteria: list[Figures]


def best_of(n: int, scores: Floats, values: Floats) -> float:
    """Return the mean value of the response that scores best among n of these, over all ways to draw n.

    Args:
        n: responses drawn, without replacement.
        scores: that choose; of equal ones each is as likely [response].
        values: of the responses [response].
    """
    draws = math.comb(len(scores), n)
    expected = 0.0
    count = 0
    reached = 0.0
    for level in np.unique(scores):
        here = scores == level
        count += int(here.sum())
        # The share of draws that hold nothing better.
        within = math.comb(count, n) / draws
        expected += (within - reached) * float(values[here].mean())
        reached = within
    return expected


def divergence(n: int) -> float:
    """Return the KL divergence of the best of n from the writer, in nats."""
    return math.log(n) - (n - 1) / n


def sizes_of(responses: int) -> list[int]:
    """Return the numbers of responses to choose from: 1, 2, 4 and so on, and the largest that there is."""
    sizes = [2**power for power in range(responses.bit_length()) if 2**power < responses]
    return [*sizes, responses]


def figures_of(kind: str, stressed: Sequence[Stressed], rubric: Rubric, seed: int) -> KindStressed:
    """Return the figures of a kind of query.

    Args:
        kind: its name.
        stressed: the prompts of the kind.
        rubric: its criteria.
        seed: of the resamples.
    """
    weights = {key_of(criterion): abs(criterion.weight) for criterion in rubric.criteria}
    choices = _Choices(stressed, weights, Resampling(RESAMPLES, seed))
    whole = choices.figures(WHOLE, None)
    criteria = [choices.figures(key_of(criterion), whole) for criterion in rubric.criteria]
    return KindStressed(
        kind=kind,
        prompts=len(stressed),
        responses=sum(len(one.truth) for one in stressed),
        whole=whole,
        criteria=criteria,
    )


@dataclass(frozen=True)
class _Choices:
    """Chooses among the responses to the prompts of a kind.

    Args:
        prompts: of the kind.
        weights: of the criteria by their keys, all above 0: scores are turned where less is better.
        resampling: of prompts.
    """

    prompts: Sequence[Stressed]
    weights: Mapping[str, float]
    resampling: Resampling

    @cached_property
    def _sizes(self) -> dict[str, float]:
        """Return the standard deviation of each score, and of the truth, among the responses to a prompt."""
        names = [*self.prompts[0].scores, TRUTH]
        sizes = {}
        for name in names:
            sizes[name] = math.sqrt(float(np.mean([np.var(_scores(one, name)) for one in self.prompts])))
        return sizes

    @cached_property
    def _most(self) -> int:
        """Return the most responses that every prompt has: figures for different n are about the same prompts."""
        return min(len(one.truth) for one in self.prompts)

    @cached_property
    def _gained_by_whole(self) -> Floats:
        """Return what the best of :attr:`_most` by the whole rubric gains [prompt, 3]."""
        return self._gained(WHOLE, self._most)

    def figures(self, key: str, whole: Figures | None) -> Figures:
        """Return the figures of a criterion, given those of the whole rubric, or of that itself."""
        gained_of = {n: self._gained(key, n) for n in sizes_of(self._most)}
        gains = [self._gain(n, gained) for n, gained in gained_of.items()]
        kept, kept_interval, relative, relative_interval = self._kept(gained_of[self._most])
        own_size = self._sizes[key]
        words = None
        longer = None
        if key != WHOLE and own_size > 0:
            words = self._edited(WORDS, key, own_size)
            longer = self._edited(LONGER, key, own_size)
        added = self._added.get(key)
        mark = _mark(gains[-1], relative_interval, added, words, longer, whole)
        factor = 1.0
        if whole is not None:
            factor = _factor(mark, gains[-1], relative, added, words, longer)
        return Figures(
            key=key,
            gains=gains,
            kept=kept,
            kept_interval=kept_interval,
            relative=relative,
            relative_interval=relative_interval,
            added=added,
            words=words,
            longer=longer,
            mark=mark,
            factor=factor,
        )

    def _gain(self, n: int, gained: Floats) -> Gain:
        """Return the mean of what the best of n gains at each prompt [prompt, 3]."""
        chooser, rubric, truth = gained.mean(axis=0)
        _, rubric_interval, truth_interval = self._intervals(gained)
        return Gain(
            n=n,
            kl=divergence(n),
            chooser=float(chooser),
            rubric=float(rubric),
            rubric_interval=rubric_interval,
            truth=float(truth),
            truth_interval=truth_interval,
        )

    def _gained(self, key: str, n: int) -> Floats:
        """Return what the best of n by a criterion gains in its own score, the rubric's and the truth [prompt, 3]."""
        rows = []
        for one in self.prompts:
            chosen_by = _scores(one, key)
            row = []
            for name in (key, WHOLE, TRUTH):
                values = _scores(one, name)
                size = self._sizes[name]
                # Where all responses are alike there is nothing to gain.
                gain = best_of(n, chosen_by, values) - float(values.mean())
                row.append(gain / size if size > 0 else 0.0)
            rows.append(row)
        return np.array(rows)

    def _intervals(self, gained: Floats) -> list[Interval | None]:
        """Return the 95% interval of the mean of each column, over prompts [prompt, column]."""
        totals = self._resampled(gained)
        if totals is None:
            return [None] * gained.shape[1]
        return [_ends(column / len(gained)) for column in totals]

    def _resampled(self, columns: Floats) -> Floats | None:
        """Return the sum of each column in each resample of prompts [column, resample]; None of too few prompts."""
        if len(columns) < FEWEST:
            return None
        return drawn(columns, self.resampling)

    def _kept(self, gained_by_one: Floats) -> tuple[float | None, Interval | None, float | None, Interval | None]:
        """Return what of the rubric's gain is truth where a criterion chooses, and that beside the whole rubric's.

        Each with its interval; None where nothing is gained that it could be a share of.

        Args:
            gained_by_one: what the best of :attr:`_most` by the criterion gains [prompt, 3].
        """
        gained = np.column_stack([gained_by_one[:, 1:], self._gained_by_whole[:, 1:]])
        rubric, truth, whole_rubric, whole_truth = gained.sum(axis=0)
        if rubric <= 0:
            return None, None, None, None
        kept = float(truth / rubric)
        whole_kept = float(whole_truth / whole_rubric) if whole_rubric > 0 else 0.0
        relative = kept / whole_kept if whole_kept > 0 else None
        totals = self._resampled(gained)
        if totals is None:
            return kept, None, relative, None
        rubric_totals, truth_totals, whole_rubric_totals, whole_truth_totals = totals
        kept_ends = _ends(_ratio(truth_totals, rubric_totals))
        if relative is None:
            return kept, kept_ends, None, None
        beside = _ratio(truth_totals * whole_rubric_totals, rubric_totals * whole_truth_totals)
        return kept, kept_ends, relative, _ends(beside)

    @cached_property
    def _added(self) -> dict[str, Added]:
        """Return what each criterion adds to the others, by its key; empty where the rubric has no truth to share.

        A least-squares fit of the truth to the criteria's scores, within prompts, says by how much the truth rises with
        each while the others stay. A criterion whose scores follow the others gains by itself, and has nothing here.
        """
        weights = np.array([*self.weights.values()])
        products = np.array([_products(one, [*self.weights]) for one in self.prompts])
        shares = _shares(products.sum(axis=0)[None], weights)[0]
        if not np.isfinite(shares).all():
            return {}
        intervals: list[Interval | None] = [None] * len(weights)
        totals = self._resampled(products)
        if totals is not None:
            intervals = [_ends(column) for column in _shares(totals.T, weights).T]
        added = {}
        for key, share, interval in zip(self.weights, shares, intervals, strict=True):
            added[key] = Added(share=float(share), interval=interval)
        return added

    def _edited(self, kind: str, key: str, size: float) -> Edited | None:
        """Return what an edit gains by a criterion beyond its truth; None where no prompt has it.

        Args:
            kind: of the edit.
            key: of the criterion.
            size: the standard deviation of its scores.
        """
        truth_size = self._sizes[TRUTH]
        gains = []
        for one in self.prompts:
            if (kind, key) in one.edited:
                score, truth = one.edited[kind, key]
                true_gain = truth / truth_size if truth_size > 0 else 0.0
                gains.append(score / size - true_gain)
        if not gains:
            return None
        column = np.array(gains)[:, None]
        (interval,) = self._intervals(column)
        return Edited(gain=float(column.mean()), interval=interval)


def _scores(stressed: Stressed, name: str) -> Floats:
    """Return the scores of a prompt's responses by a criterion, or what they are worth [response]."""
    if name == TRUTH:
        return stressed.truth
    return stressed.scores[name]


def _ratio(upper: Floats, lower: Floats) -> Floats:
    """Return ratios; a share of nothing, or of a loss, is infinite, so that an interval says it is not known."""
    return np.where(lower > 0, upper / np.where(lower > 0, lower, 1.0), np.inf)


def _products(stressed: Stressed, keys: Sequence[str]) -> Floats:
    """Return what a least-squares fit within a prompt needs, summed over its responses.

    Returns:
        The products of the criteria's scores with one another, row by row, and behind them those with the truth, all
        less their means at this prompt [criteria * criteria + criteria].
    """
    scores = np.column_stack([stressed.scores[key] for key in keys])
    scores = scores - scores.mean(axis=0)
    truth = stressed.truth - stressed.truth.mean()
    return np.concatenate([(scores.T @ scores).ravel(), scores.T @ truth])


def _shares(products: Floats, weights: Floats) -> Floats:
    """Return by how much the truth rises with each criterion beside the others, as a share of what its weight says.

    What weights say is how much the truth rises with the weighted sum. A share is infinite where it does not.

    Args:
        products: sums of :func:`_products` [sample, criteria * criteria + criteria].
        weights: of the criteria [criterion].

    Returns:
        Shares [sample, criterion].
    """
    number = len(weights)
    among = products[:, : number * number].reshape(-1, number, number)
    with_truth = products[:, number * number :]
    # Of criteria that always say the same, each has its part.
    slopes = (np.linalg.pinv(among, rcond=SAME, hermitian=True) @ with_truth[:, :, None])[:, :, 0]
    spread = np.einsum("i,sij,j->s", weights, among, weights)
    said_by_sum = np.where(spread > 0, with_truth @ weights / np.where(spread > 0, spread, 1.0), 0.0)
    return _ratio(slopes, said_by_sum[:, None] * weights)


def _ends(values: Floats) -> Interval:
    """Return the ends that 95% of the resamples lie between."""
    low, high = np.percentile(values, ENDS, method="nearest")
    return float(low), float(high)


def _mark(
    gain: Gain,
    relative: Interval | None,
    added: Added | None,
    words: Edited | None,
    longer: Edited | None,
    whole: Figures | None,
) -> Mark:
    """Return what is said of a criterion, or of the whole rubric where ``whole`` is None.

    Args:
        gain: at the largest n.
        relative: what it keeps beside the whole rubric, an interval.
        added: what it adds to the other criteria.
        words: what an edit of its words gains.
        longer: what a longer answer gains.
        whole: the figures of the whole rubric.
    """
    if gain.chooser <= 0:
        return "never separates"
    if words is not None and words.interval is not None and words.interval[0] > EDITED:
        return "by its words"
    if longer is not None and longer.interval is not None and longer.interval[0] > EDITED:
        return "by length"
    if gain.truth_interval is None:
        return "not shown"
    low, high = gain.truth_interval
    # Chosen by it, answers are no better or worse, and that is shown.
    if high <= 0:
        return "without truth"
    if whole is None:
        return "holds" if low > 0 else "not shown"
    if relative is not None and relative[1] < HALF:
        return "without truth"
    if added is not None and added.interval is not None and added.interval[1] < HALF:
        return "adds little"
    if relative is None:
        return "not shown"
    return "holds" if low > 0 and relative[0] >= HALF else "not shown"


def _factor(
    mark: Mark, gain: Gain, relative: float | None, added: Added | None, words: Edited | None, longer: Edited | None
) -> float:
    """Return what a criterion's weight is multiplied by.

    A criterion that is gained without truth counts as much as it keeps beside the whole rubric, and one that adds
    little to the others as much as it adds. One that an edit gains counts less by the share that the edit gains of what
    the best of all responses does. Arguments as of :func:`_mark`.
    """
    if mark == "without truth":
        return min(1.0, max(0.0, relative or 0.0))
    if mark == "adds little" and added is not None:
        return max(0.0, added.share)
    edit = {"by its words": words, "by length": longer}.get(mark)
    if edit is None:
        return 1.0
    return 1.0 - min(1.0, edit.gain / gain.chooser)


def lowered(rubric: Rubric, figures: Sequence[Figures], least: float) -> tuple[Rubric, list[str]]:
    """Return a kind's rubric with the weights that its criteria keep, and the names of those that are left out.

    Where nothing would be left, the rubric stays as it is: no criterion is better than the others.

    Args:
        rubric: the kind's.
        figures: of its criteria, in their order.
        least: the share of the heaviest weight below which a criterion is left out.
    """
    weights = []
    for criterion, one in zip(rubric.criteria, figures, strict=True):
        weights.append(criterion.weight * one.factor)
    heaviest = max(map(abs, weights))
    if heaviest == 0:
        return Rubric(rubric.criteria), []
    kept: list[Criterion] = []
    left_out = []
    for criterion, weight in zip(rubric.criteria, weights, strict=True):
        if abs(weight) < least * heaviest:
            left_out.append(criterion.name or criterion.text)
        else:
            kept.append(_weighing(criterion, weight))
    return Rubric(tuple(kept)), left_out


def _weighing(criterion: Criterion, weight: float) -> Criterion:
    """Return a criterion with another weight, in three digits as stage rubric writes them."""
    if weight == criterion.weight:
        return criterion
    sign = 1 if weight > 0 else -1
    return replace(criterion, weight=sign * max(round(abs(weight), 3), 0.001))


def stressed_of(rows: Iterable[Mapping[str, Any]], rubrics: Mapping[str, Rubric]) -> dict[str, list[Stressed]]:
    """Return the prompts of shards' rows by the kind of their query; responses that could not be read are left out.

    Args:
        rows: as stage stress writes them.
        rubrics: by kind of query.
    """
    by_kind: dict[str, list[Stressed]] = {}
    for row in rows:
        rubric = rubrics[row["kind"]]
        one = _stressed(row, rubric)
        if one is not None:
            by_kind.setdefault(row["kind"], []).append(one)
    return by_kind


def _stressed(row: Mapping[str, Any], rubric: Rubric) -> Stressed | None:
    """Return the scores of a row; None where fewer than two responses could be read."""
    keys = [key_of(criterion) for criterion in rubric.criteria]
    better = [1.0 if criterion.weight > 0 else -1.0 for criterion in rubric.criteria]
    readable = []
    for response in row["responses"]:
        if _is_read(response, keys):
            readable.append(response)
    if len(readable) < FEWEST_RESPONSES:
        return None
    scores: dict[str, Floats] = {WHOLE: np.array([response["value"] for response in readable])}
    for key, sign in zip(keys, better, strict=True):
        # Of what a response must not do, less is better.
        scores[key] = sign * np.array([response["by_criterion"][key] for response in readable])
    edited: dict[tuple[str, str], tuple[float, float]] = {}
    first = row["responses"][0]
    for edit in row["edits"]:
        if not (_is_read(first, keys) and _is_read(edit, keys)):
            continue
        truth = edit["truth"] - first["truth"]
        for key, sign in zip(keys, better, strict=True):
            if edit["criterion"] in ("", key):
                gain = sign * (edit["by_criterion"][key] - first["by_criterion"][key])
                edited[edit["kind"], key] = (gain, truth)
    return Stressed(scores, np.array([response["truth"] for response in readable]), edited)


def _is_read(response: Mapping[str, Any], keys: Sequence[str]) -> bool:
    """Return whether all that is said of a response could be read."""
    if response["value"] is None or response["truth"] is None:
        return False
    return all(response["by_criterion"].get(key) is not None for key in keys)
