"""Metrics of scores of single responses against people's labels, each with an interval over prompts.

What scikit-learn and SciPy have is theirs. A score that could not be read agrees with nothing: it is wrong in shares
and in kappa over two levels, and left out of what is computed from scores (its share stands beside them).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from judgetrain.amounts import agree, amount
from judgetrain.data.intervals import FEWEST, Floats, Interval, Resampling, bootstrap_interval, cluster_index
from judgetrain.data.labelled import Scale, Votes
from judgetrain.evaluate.metrics.intervals import resampled_interval, resampled_items, resamples_interval
from judgetrain.evaluate.metrics.verdicts import correlations

Integers = NDArray[np.int64]
UNREAD = -1
"""The level of a score that could not be read."""
ROUNDED = 12
"""Decimals of scores and labels, which are 0 to 1: what differs in later ones differs by rounding alone."""
BINS = 10
"""Bins of equal width over the scores, 0 to 1, by which calibration is measured."""
LOWEST = {"kappa": -1.0, "pearson": -1.0, "kendall": -1.0, "spearman": -1.0}
"""The least values of metrics that may be below 0."""

Values = dict[str, float | None]


@dataclass(frozen=True)
class Scored:
    """The scores of one method and the labels of the same responses.

    Args:
        labels: of people, 0 to 1 [n].
        scores: of the method, 0 to 1; NaN where it could not be read [n].
        scale: of the labels.
        prompts: that the responses count under [n].
    """

    labels: Floats
    scores: Floats
    scale: Scale
    prompts: Sequence[str]

    @classmethod
    def of(
        cls, labels: Sequence[float | None], scores: Sequence[float | None], scale: Scale, prompts: Sequence[str]
    ) -> "Scored":
        """Return the responses that have a label."""
        places = [place for place, label in enumerate(labels) if label is not None]
        # NumPy makes NaN of None, which stands for a score that could not be read. Equal is equal: means that differ by
        # rounding alone have one rank, whoever made them.
        return cls(
            labels=np.array([labels[place] for place in places], dtype=float).round(ROUNDED),
            scores=np.array([scores[place] for place in places], dtype=float).round(ROUNDED),
            scale=scale,
            prompts=[prompts[place] for place in places],
        )

    @cached_property
    def truth(self) -> Integers:
        """Return the level of each label [n]."""
        return np.array([self.scale.level(label) for label in self.labels.tolist()], dtype=np.int64)

    @cached_property
    def levels(self) -> Integers:
        """Return the level of each score; :data:`UNREAD` where it could not be read [n]."""
        levels = np.full(len(self.scores), UNREAD, dtype=np.int64)
        for place, score in enumerate(self.scores.tolist()):
            if self.read[place]:
                levels[place] = self.scale.level(score)
        return levels

    @cached_property
    def read(self) -> NDArray[np.bool_]:
        """Return whether each score could be read [n]."""
        return ~np.isnan(self.scores)


@dataclass(frozen=True)
class _Items:
    """Responses of a resample; arrays as of :class:`Scored`, and the number of levels."""

    truth: Integers
    levels: Integers
    labels: Floats
    scores: Floats
    n_levels: int

    def only(self, items: Any) -> "_Items":
        """Return some of the responses, by their places or by a mask."""
        return _Items(self.truth[items], self.levels[items], self.labels[items], self.scores[items], self.n_levels)


def metrics_of(scored: Scored, resampling: Resampling) -> dict[str, Any]:
    """Return every metric by its name, and its 95% interval as ``..._ci``; None where it is not defined.

    Over two levels, the better one of which is the positive one: ``agreement`` (accuracy), ``balanced_accuracy``,
    ``sensitivity``, ``specificity``, ``precision``, ``f1``, ``kappa`` (Cohen), ``auroc``, ``brier`` and
    ``calibration_error``. Over more: ``agreement`` and ``within_one`` (the same level, at most one apart),
    ``mean_error`` (mean absolute error, as a share of the scale), ``kappa`` (quadratic), ``pearson``, ``spearman``,
    ``kendall`` (tau-b). For both, ``order_accuracy``: of two responses to one prompt with different labels, whether the
    better one has the higher score (Kim et al.); equal scores are right half the time.

    Args:
        scored: labels and scores; with at least one label.
        resampling: how intervals of means are drawn; of others, which are slow, at most
            :data:`~judgetrain.evaluate.metrics.intervals.SLOW_RESAMPLES` resamples are.
    """
    import sklearn

    # A score that could not be read has the level -1, which is no label's: it agrees with none.
    apart = np.abs(scored.levels - scored.truth)
    agreed = scored.levels == scored.truth
    values: dict[str, Any] = _mean("agreement", agreed, scored, resampling)
    if scored.scale.has_two_levels:
        compute = _of_two_levels
    else:
        # Over two levels every score is at most one level off.
        values |= _mean("within_one", scored.read & (apart <= 1), scored, resampling)
        compute = _of_ordered_levels
    items = _Items(scored.truth, scored.levels, scored.labels, scored.scores, len(scored.scale.scores))
    # Thousands of calls on arrays that were checked when they were made.
    with sklearn.config_context(skip_parameter_validation=True, assume_finite=True):
        values |= _with_intervals(compute, items, scored.prompts, resampling)
    values |= _order_accuracy(scored, resampling)
    return values


def _mean(name: str, right: NDArray[np.bool_], scored: Scored, resampling: Resampling) -> dict[str, Any]:
    """Return the share of what is right, and its interval."""
    return {
        name: float(right.mean()),
        f"{name}_ci": bootstrap_interval(right, resampling.number, resampling.seed, scored.prompts),
    }


def _with_intervals(
    compute: Callable[[_Items], Values], items: _Items, prompts: Sequence[str], resampling: Resampling
) -> dict[str, Any]:
    """Return metrics and their intervals by resamples of whole prompts; None with too few of them."""
    in_resamples: dict[str, list[float]] = {}
    index = cluster_index(prompts, len(items.truth))
    for places in resampled_items(index, resampling):
        for name, value in compute(items.only(places)).items():
            if value is not None:
                in_resamples.setdefault(name, []).append(value)
    values: dict[str, Any] = {}
    for name, value in compute(items).items():
        values[name] = value
        lowest = LOWEST.get(name, 0.0)
        values[f"{name}_ci"] = resamples_interval(in_resamples.get(name, []), int(index.max()) + 1, lowest)
    return values


def _of_two_levels(items: _Items) -> Values:
    """Return the metrics of labels and scores over two levels, but for the share that agrees."""
    from sklearn import metrics

    # Both levels are named, so that a resample without one of them gives NaN and not a figure about the other.
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
        items.truth, items.levels, labels=[0, 1], zero_division=np.nan
    )
    values: dict[str, Any] = {
        # Not balanced_accuracy_score, which warns of scores that could not be read, a level that no label has.
        "balanced_accuracy": np.mean(recall),
        "sensitivity": recall[1],
        "specificity": recall[0],
        "precision": precision[1],
        "f1": f1[1],
        "kappa": None,
        "auroc": None,
        "brier": None,
        "calibration_error": None,
    }
    if _differ(items.truth, items.levels):
        values["kappa"] = metrics.cohen_kappa_score(items.truth, items.levels)
    read = items.only(items.levels != UNREAD)
    if len(read.truth):
        values["brier"] = metrics.brier_score_loss(read.truth, read.scores, pos_label=1)
        values["calibration_error"] = calibration_error(read.truth, read.scores)
    if len(np.unique(read.truth)) == 2:
        values["auroc"] = metrics.roc_auc_score(read.truth, read.scores)
    return {name: _number(value) for name, value in values.items()}


def _of_ordered_levels(items: _Items) -> Values:
    """Return the metrics of labels and scores over three levels or more, but for shares that agree."""
    from sklearn import metrics

    read = items.only(items.levels != UNREAD)
    values: dict[str, Any] = {"mean_error": None, "kappa": None}
    if len(read.truth):
        values["mean_error"] = metrics.mean_absolute_error(read.labels, read.scores)
    if len(read.truth) and _differ(read.truth, read.levels):
        levels = list(range(items.n_levels))
        values["kappa"] = metrics.cohen_kappa_score(read.truth, read.levels, labels=levels, weights="quadratic")
    values |= correlations(read.scores, read.labels)
    return {name: _number(value) for name, value in values.items()}


def _differ(truth: Integers, levels: Integers) -> bool:
    """Return whether kappa is defined: not where both say one level throughout, as chance alone does then."""
    return len(np.unique(np.concatenate([truth, levels]))) > 1


def _number(value: Any) -> float | None:
    """Return a metric as JSON has it; None where it is not defined."""
    if value is None or not np.isfinite(value):
        return None
    return float(value)


def calibration_error(truth: NDArray[Any], scores: Floats) -> float:
    """Return how far scores lie from the share of the better level, on average (expected calibration error).

    Args:
        truth: 1 for the better of two levels, 0 for the other [n].
        scores: 0 to 1 [n].
    """
    from sklearn.calibration import calibration_curve

    shares, means = calibration_curve(truth, scores, n_bins=BINS, pos_label=1)
    # scikit-learn does not tell the bins' sizes: its own rule gives them.
    edges = np.linspace(0.0, 1.0, BINS + 1)
    sizes = np.bincount(np.searchsorted(edges[1:-1], scores), minlength=BINS)
    return float(np.average(np.abs(shares - means), weights=sizes[sizes > 0]))


def _order_accuracy(scored: Scored, resampling: Resampling) -> dict[str, Any]:
    """Return the share of pairs that scores order as labels do, with its interval; None without pairs."""
    # By response, right pairs and all pairs: the first response of a pair carries it, and with it its prompt.
    columns = np.zeros((len(scored.labels), 2))
    # Within a prompt: how good two answers to different questions are is not for a score to say.
    places_of: dict[str, list[int]] = {}
    for place, prompt in enumerate(scored.prompts):
        if scored.read[place]:
            places_of.setdefault(prompt, []).append(place)
    for places in places_of.values():
        for first, second in combinations(places, 2):
            better = np.sign(scored.labels[first] - scored.labels[second])
            if better == 0:
                continue
            # 1 where scores order as labels do, -1 where they do the reverse, and 0 where they are equal.
            order = better * np.sign(scored.scores[first] - scored.scores[second])
            columns[first] += [(1 + order) / 2, 1]
    if not columns[:, 1].any():
        return {"order_accuracy": None, "order_accuracy_ci": None, "n_ordered": 0}
    # A prompt without such a pair says nothing, and is no prompt that could have been drawn.
    has_pairs = {prompt for prompt, (_, pairs) in zip(scored.prompts, columns, strict=True) if pairs}
    mask = np.array([prompt in has_pairs for prompt in scored.prompts])
    prompts = [prompt for prompt in scored.prompts if prompt in has_pairs]
    right, pairs = columns.sum(axis=0)
    return {
        "order_accuracy": float(right / pairs),
        "order_accuracy_ci": resampled_interval(columns[mask], _ratio, prompts, resampling),
        "n_ordered": int(pairs),
    }


def _ratio(totals: Floats) -> Floats:
    """Return the first of two sums over the second [2, ...]; NaN where the second is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(totals[0] / totals[1])


def prevalence(scored: Scored) -> dict[str, float]:
    """Return the share of labels at each level, by the level's name, the worst first."""
    counts = Counter(scored.truth.tolist())
    n = len(scored.truth)
    return {name: round(counts[level] / n, 6) for level, name in enumerate(scored.scale.names)}


def commonest(scored: Scored) -> int:
    """Return the level that most labels have; of several the better one."""
    # Counted from the best level down, so that argmax finds the better of several.
    counts = np.bincount(scored.truth, minlength=len(scored.scale.scores))
    return len(counts) - 1 - int(np.argmax(counts[::-1]))


@dataclass(frozen=True, kw_only=True)
class People:
    """The agreement of two annotators or more among each other, and the judge's with them.

    Args:
        n: responses with two labels or more.
        annotators: the most labels of one response.
        alpha: Krippendorff's, with the squared difference of scores; 1 is perfect, 0 is chance.
        alpha_ci: its 95% interval.
        person: how often one annotator's label is the level that all others give together.
        person_ci: its 95% interval.
        judge: how often the judge's score is, with the same annotators left out.
        judge_ci: its 95% interval.
        difference: the judge's share less the person's.
        difference_ci: its 95% interval.
    """

    n: int
    annotators: int
    alpha: float | None
    alpha_ci: Interval | None
    person: float | None
    person_ci: Interval | None
    judge: float | None
    judge_ci: Interval | None
    difference: float | None
    difference_ci: Interval | None

    @property
    def sentence(self) -> str:
        """Return the comparison in a sentence."""
        if self.difference is None or self.person is None or self.judge is None:
            return "annotators left out one by one leave no label to agree with"
        shares = f"the others' level is given by the judge in {self.judge:.1%}, by a person in {self.person:.1%}"
        if self.difference_ci is None:
            return f"{shares}; too few prompts to tell them apart"
        low, high = (100 * end for end in self.difference_ci)
        relation = "not told apart from another person"
        if low > 0:
            relation = "agrees more than another person"
        elif high < 0:
            relation = "agrees less than another person"
        return f"{shares} (difference {100 * self.difference:+.1f}, {low:+.1f} to {high:+.1f}): {relation}"


def people_of(
    votes: Sequence[Votes], scores: Sequence[float | None], scale: Scale, prompts: Sequence[str], resampling: Resampling
) -> People | None:
    """Return how people agree with each other, and the judge with them; None without a response of two labels.

    Args:
        votes: labels of each response [n].
        scores: of the judge, 0 to 1; None where it could not be read [n].
        scale: of the labels.
        prompts: that the responses count under [n].
        resampling: how intervals are drawn.
    """
    places = [place for place, of_response in enumerate(votes) if len(of_response) > 1]
    if not places:
        return None
    labels = [votes[place] for place in places]
    clusters = [prompts[place] for place in places]
    # Sums by response, from which a resample's figures follow without computing any response again.
    spreads = np.array([_spread(of_response) for of_response in labels])
    left_out = np.array([_left_out(votes[place], scores[place], scale) for place in places])
    counted = left_out[:, 2] > 0

    def share(columns: list[int], statistic: Callable[[Floats], Floats], lowest: float) -> tuple[Any, Any]:
        """Return a share of labels left out, and its interval."""
        of_counted = [cluster for cluster, counts in zip(clusters, counted, strict=True) if counts]
        sums = left_out[counted][:, columns]
        if not len(sums):
            return None, None
        value = _number(statistic(sums.sum(axis=0)))
        return value, resampled_interval(sums, statistic, of_counted, resampling, lowest)

    person, person_ci = share([0, 2], _ratio, 0.0)
    judge, judge_ci = share([1, 2], _ratio, 0.0)
    difference, difference_ci = share([1, 0, 2], _difference, -1.0)
    return People(
        n=len(places),
        annotators=max(map(len, labels)),
        alpha=_number(_alpha(spreads.sum(axis=0))),
        alpha_ci=resampled_interval(spreads, _alpha, clusters, resampling, -1.0),
        person=person,
        person_ci=person_ci,
        judge=judge,
        judge_ci=judge_ci,
        difference=difference,
        difference_ci=difference_ci,
    )


def _difference(totals: Floats) -> Floats:
    """Return the difference of two sums over a third [3, ...]."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((totals[0] - totals[1]) / totals[2])


def _left_out(votes: Votes, score: float | None, scale: Scale) -> list[float]:
    """Return of how many labels left out the person, and the judge, gives the others' level; and how many there are.

    A label whose others give no level together, as they tie, is none of them.
    """
    by_person = 0
    by_judge = 0
    count = 0
    for place, vote in enumerate(votes):
        # A person is held against all others, and the judge against the same others: neither sees the vote left out.
        others = scale.label([*votes[:place], *votes[place + 1 :]])
        if others is None:
            continue
        count += 1
        level = scale.level(others)
        by_person += scale.level(vote) == level
        by_judge += score is not None and scale.level(score) == level
    return [float(by_person), float(by_judge), float(count)]


def _spread(votes: Votes) -> list[float]:
    """Return the sums that :func:`_alpha` needs of one response: m times the variance, m, and both moments."""
    values = np.asarray(votes, dtype=float)
    return [len(values) * values.var(ddof=1), len(values), values.sum(), (values**2).sum()]


def _alpha(totals: Floats) -> Floats:
    """Return Krippendorff's alpha with interval distances, out of sums over responses [4, ...].

    It is 1 less the disagreement within responses over that of any two labels (Krippendorff 2011, "Computing
    Krippendorff's Alpha-Reliability"); pairs of labels of one response have a squared difference of twice its variance.
    NaN where all labels are the same.
    """
    within, n, first, second = totals
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = (second - first**2 / n) / (n - 1)
        # What is left of equal labels by rounding is no variance.
        variance = np.where(variance > 1e-12, variance, np.nan)
        return np.asarray(1 - within / n / variance)


def label_sentences(name: str, scored: Scored) -> list[str]:
    """Return lines about labels that few conclusions can be drawn from; none where all is well.

    Args:
        name: of the benchmark, and the criterion.
        scored: the labels, and any method's scores.
    """
    lines = []
    n = len(scored.truth)
    levels = np.unique(scored.truth)
    if len(levels) == 1:
        only = scored.scale.names[int(levels[0])]
        lines.append(
            f"{name}: all {amount(n, 'label')} are {only}, so that whoever always says so is right; label others, too"
        )
    n_prompts = len(set(scored.prompts))
    if n_prompts < FEWEST:
        lines.append(
            f"{name}: {amount(n, 'label')} on {amount(n_prompts, 'prompt')} {agree(n_prompts, 'are')} too few "
            f"for intervals, which need {FEWEST} prompts"
        )
    return lines
