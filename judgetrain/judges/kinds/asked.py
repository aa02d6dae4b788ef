"""Judges that are asked once: the pairwise one-step judge and the single rating (branching paper, section 5.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

from judgetrain.engines.base import Engine
from judgetrain.engines.config import EngineConfig, ModelConfig, SamplingConfig, TransformersEngineConfig
from judgetrain.judges.base import Cost, Prediction
from judgetrain.judges.kinds.asking import Reply, ask_ratings, ask_verdicts, verdicts_in
from judgetrain.judges.prompting.prompts import Dialect, PromptSet, load_prompt_set
from judgetrain.schema import Comparison, Verdict

DEFAULT_SEED = 0
GREEDY = SamplingConfig(temperature=0.0, max_new_tokens=512)


class AskedJudge:
    """What judges that are asked once have in common.

    Args:
        engine: generates the text.
        prompts: a set of the judge's :attr:`dialect`; None takes the packaged one of this name.
        sampling: of the reply; greedy by default.
        name: the method's name in predictions; None takes the dialect's.
    """

    dialect: ClassVar[Dialect]

    def __init__(
        self,
        engine: Engine,
        prompts: PromptSet | None = None,
        sampling: SamplingConfig = GREEDY,
        name: str | None = None,
    ) -> None:
        self.engine, self.sampling = engine, sampling
        self.prompts = prompts or load_prompt_set(self.dialect, self.dialect)
        self.name = name or self.dialect

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        engine: EngineConfig | None = None,
        prompts: str | Path | None = None,
        sampling: SamplingConfig = GREEDY,
    ) -> Self:
        """A judge from any model directory; ``prompts`` names another set than the packaged one.

        Raises:
            EngineError: the model cannot be loaded.
            ConfigError: the prompt set lacks the step that this judge needs.
        """
        from judgetrain.engines.registry import make_engine

        config = engine or TransformersEngineConfig(model=ModelConfig(path=str(path)))
        loaded = load_prompt_set(prompts or cls.dialect, cls.dialect)
        made = make_engine(config, model_path=str(path), name=Path(path).name)
        return cls(made, loaded, sampling, f"{cls.dialect}:{Path(path).name}")

    def compare(self, comparison: Comparison) -> Prediction:
        """The verdict on one comparison."""
        return self.compare_all([comparison], DEFAULT_SEED)[0]

    def compare_all(self, comparisons: Sequence[Comparison], seed: int) -> list[Prediction]:
        """The verdicts on many comparisons, all of them one batch."""
        asked = self.ask(comparisons, seed)
        return [self.prediction(c.id, replies) for c, replies in zip(comparisons, asked, strict=True)]

    def ask(self, comparisons: Sequence[Comparison], seed: int) -> list[list[Reply]]:
        """The replies that each comparison's prediction is made of."""
        raise TypeError("AskedJudge is a base class")

    def prediction(self, comparison_id: str, replies: Sequence[Reply]) -> Prediction:
        """The prediction that some replies give."""
        return prediction_of(self.dialect, self.name, comparison_id, replies)

    def close(self) -> None:
        """Free the model."""
        self.engine.close()


class OneStepJudge(AskedJudge):
    """Shows both responses and asks which is better (``[[A]]``, ``[[B]]``, ``[[C]]``), once in each order."""

    dialect = "one_step"

    def ask(self, comparisons: Sequence[Comparison], seed: int) -> list[list[Reply]]:
        """Two replies a comparison, one in each order."""
        return ask_verdicts(comparisons, self.engine, self.prompts, self.sampling, seed)


class SingleRatingJudge(AskedJudge):
    """Rates each response by itself (``[[7]]``); the higher rating wins, equal ones are a tie.

    It sees no order: each response is rated once, both verdicts are the same, and its consistency of 100% (less what
    cannot be read) says nothing. A verdict costs both ratings.
    """

    dialect = "rating"

    def ask(self, comparisons: Sequence[Comparison], seed: int) -> list[list[Reply]]:
        """Two replies a comparison, one for each response."""
        return ask_ratings(comparisons, self.engine, self.prompts, self.sampling, seed)


ASKED: dict[str, type[AskedJudge]] = {judge.dialect: judge for judge in (OneStepJudge, SingleRatingJudge)}
"""Judges that are asked once, by the prefix of their methods' names (``one_step:base``)."""


def prediction_of(dialect: str, method: str, comparison_id: str, replies: Sequence[Reply]) -> Prediction:
    """The prediction of a ``one_step`` or ``rating`` judge from its replies on one comparison.

    ``branches`` is 0, as for every method without. The margin of ratings is on the set's scale; one step gives none.
    """
    failures = Counter(r.failure for r in replies if r.failure)
    verdicts: tuple[Verdict | None, Verdict | None]
    margin: float | None = None
    if dialect == "one_step":
        first, second = (verdicts_in(replies, order) for order in ("AB", "BA"))
        verdicts = (first[-1] if first else None, second[-1] if second else None)
        cost = _cost(replies, 0.5)
    else:
        ratings = {r.shown: float(r.answer) for r in replies if r.answer is not None}
        margin = ratings["A"] - ratings["B"] if len(ratings) == 2 else None
        verdict: Verdict | None = None if margin is None else "tie" if margin == 0 else "A" if margin > 0 else "B"
        verdicts, cost = (verdict, verdict), _cost(replies, 1.0)
    return Prediction(comparison_id, method, 0, *verdicts, margin, cost, len(replies), dict(failures))


def _cost(replies: Sequence[Reply], share: float) -> Cost:
    """What one verdict costs; ``share``: how much of the replies one verdict takes."""
    prompt, generated = (sum(getattr(r, f"{kind}_tokens") for r in replies) for kind in ("prompt", "generated"))
    return Cost(share * prompt, share * generated, share * len(replies))
