"""Baselines: judges that generate nothing, which any judge must beat."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.judges.base import Judge, Prediction, verdict_of
from judgetrain.judges.config import JudgeOptions
from judgetrain.judges.kinds.kind import Arguments, Forms, Kind, Parts, Use, no_arguments, unknown
from judgetrain.judges.method import BASELINE, Method
from judgetrain.schema import Comparison, Verdict

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from judgetrain.judges.settings import ModelSettings


FOLDS = 10
"""Into how many parts the prompts fall: each is judged by what was fitted to the others."""

STRENGTH = 0.1
"""Inverse strength of the L2 penalty, on features of unit variance, per 1,000 comparisons: see :func:`fitted`."""

_WORDS = r"\w+|[^\w\s]"


class SurfaceJudge(Judge):
    """The floor of surface statistics: a logistic regression on differences of word counts and lengths.

    A judge that is not clearly above it may be reading style. It sees labels, which no other method does: each verdict
    comes from a regression that was fitted to the labels of the other prompts of the same comparisons, so that it is
    what such a rule can reach on any benchmark, with nothing held back for training.

    Comparisons of one prompt stand in one fold. Ties and comparisons without a label are judged, but not learned from.
    Exchanging the responses exchanges the verdict. Where the other folds hold fewer than two decided comparisons there
    is no verdict, and ``failures`` says so.
    """

    name = "surface"

    def compare_all(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """The verdicts on many comparisons; nothing is drawn, ``seed`` has no use."""
        import numpy as np
        from sklearn.model_selection import GroupKFold

        features = differences(comparisons)
        signs = np.array([{"A": 1, "B": -1}.get(c.label or "", 0) for c in comparisons])
        margins = np.full(len(comparisons), np.nan)
        asked = np.array([repr(c.dialogue.messages) for c in comparisons], dtype=object)  # else all are padded
        prompts = np.unique(asked, return_inverse=True)[1]
        if (folds := min(FOLDS, len(set(prompts)))) > 1:
            for others, fold in GroupKFold(folds).split(features, groups=prompts):
                learned = others[signs[others] != 0]
                if len(learned) > 1:
                    margins[fold] = features[fold] @ fitted(features[learned], signs[learned])
        verdicts = [verdict_of(float(margin)) for margin in margins]
        failures = [{} if verdict else {"too_few_labels": 1} for verdict in verdicts]
        said = zip(comparisons, verdicts, failures, strict=True)
        return [Prediction.of(c, self.name, verdict, verdict, failures=failure) for c, verdict, failure in said]


def differences(comparisons: Sequence[Comparison]) -> csr_matrix:
    """What response A has more of than B: float matrix [comparisons, features], each of unit mean square.

    Features: how often each word and punctuation mark occurs, characters, words, sentences and lines.
    """
    import numpy as np
    from scipy.sparse import csr_matrix, diags, hstack
    from sklearn.feature_extraction.text import CountVectorizer

    first, second = ([str(getattr(c, side)) for c in comparisons] for side in ("response_a", "response_b"))
    counter = CountVectorizer(token_pattern=_WORDS)
    counter.fit([*first, *second, "."])  # a benchmark of empty answers has no words
    lengths = [[_lengths(text) for text in side] for side in (first, second)]
    words = counter.transform(first).astype(float) - counter.transform(second).astype(float)
    found = csr_matrix(hstack([words, csr_matrix(np.array(lengths[0], float) - np.array(lengths[1], float))]))
    scale = np.sqrt(np.asarray(found.power(2).mean(axis=0)).ravel())
    return csr_matrix(found @ diags(1.0 / np.where(scale > 0, scale, 1.0)))


def fitted(features: csr_matrix, signs: Sequence[int]) -> object:
    """The weights of a logistic regression without intercept: float vector [features]; ``signs``: 1 for A, -1 for B.

    Each comparison is learned from both ways round, as nothing of the order in which responses were given is a
    statistic of their texts. Without intercept both have one loss: each stands once, either way by turns, for two.
    """
    import numpy as np
    from scipy.sparse import diags
    from sklearn.linear_model import LogisticRegression

    targets = np.where(np.arange(len(signs)) % 2, 1.0, -1.0)
    strength = 2 * STRENGTH * 1000 / features.shape[0]
    model = LogisticRegression(C=strength, fit_intercept=False, solver="liblinear")
    return model.fit(diags(targets * signs) @ features, targets).coef_[0]


def _lengths(text: str) -> list[int]:
    return [len(text), len(text.split()), sum(text.count(mark) for mark in ".!?"), text.count("\n")]


class Baseline(Judge):
    """A judge that looks at one comparison at a time: one verdict per order, at no cost."""

    def compare_all(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        return [Prediction.of(c, self.name, *self.verdicts(c, seed)) for c in comparisons]

    @abstractmethod
    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        """The verdicts with the responses as they are and exchanged, both in the comparison's own order."""


class RandomJudge(Baseline):
    """A fair coin between A and B for each order."""

    name = "random"

    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        rng = random.Random(derive_seed(seed, "random", comparison.id))
        return rng.choice(("A", "B")), rng.choice(("A", "B"))


class FirstJudge(Baseline):
    """Always the response shown first."""

    name = "first"

    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        return "A", "B"


class LongerJudge(Baseline):
    """The response with more characters; a tie at equal length."""

    name = "longer"

    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        return comparison.longer, comparison.longer


BASELINES: dict[str, type[Judge]] = {
    judge.name: judge for judge in (RandomJudge, FirstJudge, LongerJudge, SurfaceJudge)
}


def build(method: Method, options: JudgeOptions, parts: Parts) -> Judge:
    """Return the baseline of this name (ConfigError: there is none)."""
    if method.target not in BASELINES:
        raise unknown(method)
    return BASELINES[method.target]()


def check(settings: ModelSettings, method: Method, use: Use) -> None:
    """Refuse a name that is no baseline, and one that learns from labels where there are none."""
    if method.target not in BASELINES:
        raise unknown(method, use)
    if method.target == SurfaceJudge.name and not use.labelled:
        raise unknown(method, use)


def arguments(method: Method, directory: Path | None, call: Arguments) -> JudgeOptions:
    """Return the defaults (ConfigError: there is no such baseline, or the caller sets something)."""
    if method.target not in BASELINES:
        raise unknown(method)
    return no_arguments(method, directory, call)


KIND = Kind(
    name=BASELINE,
    forms=Forms(
        evaluate=", ".join(BASELINES),
        unlabelled=", ".join(name for name in BASELINES if name != SurfaceJudge.name),
        python=", ".join(BASELINES),
    ),
    names=tuple(BASELINES),
    check=check,
    arguments=arguments,
    build=build,
    ask=None,
)
"""Baselines, by their names (``random``)."""
