"""Baselines: judges that generate nothing, which any judge must beat."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.judges.base import Judge
from judgetrain.judges.kinds.kind import Arguments, Forms, Kind, Parts, Setup, Target, Use, no_arguments, unknown
from judgetrain.judges.method import BASELINE, Method
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import Prediction, verdict_of
from judgetrain.schema import Comparison, Verdict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

    from judgetrain.judges.settings import ModelSettings


FOLDS = 10
"""The number of parts that prompts are put into: each is judged by what was fitted to the others."""

STRENGTH = 0.1
"""Inverse strength of the L2 penalty, on features of unit variance, per 1,000 comparisons: see :func:`fitted`."""

# The usual pattern of scikit-learn leaves out punctuation and words of one letter, which are style.
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
    learns_from_others = True

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """Return the verdicts on many comparisons; nothing is drawn, so that ``seed`` changes nothing."""
        verdicts = [verdict_of(float(margin)) for margin in self._margins(comparisons)]
        predictions = []
        for comparison, verdict in zip(comparisons, verdicts, strict=True):
            failures = {}
            if verdict is None:
                failures["too_few_labels"] = 1
            predictions.append(Prediction.of(comparison, self.name, verdict, verdict, failures=failures))
        return predictions

    def _margins(self, comparisons: Sequence[Comparison]) -> NDArray[np.float64]:
        """Return how far A is ahead [comparisons], log-odds; NaN where the other folds hold too few labels."""
        import numpy as np
        from sklearn.model_selection import GroupKFold

        features = differences(comparisons)
        # 0: a tie, or no label.
        signs = np.array([{"A": 1, "B": -1}.get(comparison.label or "", 0) for comparison in comparisons])
        margins = np.full(len(comparisons), np.nan)
        # As objects: NumPy would pad all texts to the length of the longest.
        dialogues = np.array([repr(comparison.dialogue.messages) for comparison in comparisons], dtype=object)
        prompts = np.unique(dialogues, return_inverse=True)[1]
        folds = min(FOLDS, len(set(prompts)))
        if folds < 2:
            return margins
        # By prompt, as answers to one prompt share words.
        for others, fold in GroupKFold(folds).split(features, groups=prompts):
            decided = others[signs[others] != 0]
            if len(decided) > 1:
                margins[fold] = features[fold] @ fitted(features[decided], signs[decided])
        return margins


def differences(comparisons: Sequence[Comparison]) -> csr_matrix:
    """Return what response A has more of than B: float matrix [comparisons, features], each of unit mean square.

    Features: how often each word and punctuation mark occurs, characters, words, sentences and lines.
    """
    import numpy as np
    from scipy.sparse import csr_matrix, diags, hstack
    from sklearn.feature_extraction.text import CountVectorizer

    texts_a = [str(comparison.response_a) for comparison in comparisons]
    texts_b = [str(comparison.response_b) for comparison in comparisons]
    counter = CountVectorizer(token_pattern=_WORDS)
    # A benchmark of empty answers has no words, without which the counter refuses to count.
    counter.fit([*texts_a, *texts_b, "."])
    words = counter.transform(texts_a).astype(float) - counter.transform(texts_b).astype(float)
    lengths_a = np.array([_lengths(text) for text in texts_a], float)
    lengths_b = np.array([_lengths(text) for text in texts_b], float)
    features = csr_matrix(hstack([words, csr_matrix(lengths_a - lengths_b)]))

    scale = np.sqrt(np.asarray(features.power(2).mean(axis=0)).ravel())
    # A feature in which no pair differs stays 0.
    return csr_matrix(features @ diags(1.0 / np.where(scale > 0, scale, 1.0)))


def fitted(features: csr_matrix, signs: Sequence[int]) -> object:
    """Return the weights of a logistic regression without intercept: float vector [features].

    Args:
        features: float matrix [comparisons, features].
        signs: 1 for A, -1 for B [comparisons].
    """
    import numpy as np
    from scipy.sparse import diags
    from sklearn.linear_model import LogisticRegression

    # Which response was shown first says nothing: each comparison would be learned from both ways round. Without an
    # intercept both have one loss, so each stands once, either way by turns, and counts for two.
    targets = np.where(np.arange(len(signs)) % 2, 1.0, -1.0)
    strength = 2 * STRENGTH * 1000 / features.shape[0]
    model = LogisticRegression(C=strength, fit_intercept=False, solver="liblinear")
    return model.fit(diags(targets * signs) @ features, targets).coef_[0]


def _lengths(text: str) -> list[int]:
    """Return a text's characters, words, sentences and lines."""
    sentences = sum(text.count(mark) for mark in ".!?")
    return [len(text), len(text.split()), sentences, text.count("\n")]


class Baseline(Judge):
    """A judge that looks at one comparison at a time: one verdict per order, at no cost."""

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """Return the verdicts on many comparisons."""
        return [Prediction.of(comparison, self.name, *self.verdicts(comparison, seed)) for comparison in comparisons]

    @abstractmethod
    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        """Return the verdicts of orders AB and BA, both with the comparison's own names of the responses."""


class RandomJudge(Baseline):
    """A fair coin between A and B for each order."""

    name = "random"

    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        """Return two throws of the coin, which follow from the seed and the comparison's id alone."""
        rng = random.Random(derive_seed(seed, "random", comparison.id))
        return rng.choice(("A", "B")), rng.choice(("A", "B"))


class FirstJudge(Baseline):
    """The response shown first, always."""

    name = "first"

    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        """Return A for order AB and B for order BA."""
        return "A", "B"


class LongerJudge(Baseline):
    """The response with more characters; a tie at equal length."""

    name = "longer"

    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        """Return the longer response for both orders."""
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
    # It learns from the labels of the comparisons that it judges.
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
    target=Target(names=tuple(BASELINES)),
    check=check,
    build=build,
    setup=Setup(arguments=arguments),
    ask=None,
)
"""Baselines, by their names (``random``)."""
