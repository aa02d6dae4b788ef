"""Scores as rewards, in the form that TRL's trainers call: ``(prompts, completions, **columns) -> list[float]``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from judgetrain.engines.config import ModelConfig
from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.encode import Messages, Sample
from judgetrain.scorers.methods import OF_RESPONSES, check_scorers, score

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer

log = logging.getLogger(__name__)

Text = str | Sequence[Mapping[str, Any]]
"""A prompt or completion as TRL hands it over: text, or chat messages (a call of a tool has no ``content``)."""


class ScorerReward:
    """A reward function that scores completions with a fixed model; higher is better.

    Give it to ``GRPOTrainer(reward_funcs=[ScorerReward("sentprob_mean", "path/to/model")])`` or to any trainer that
    calls rewards the same way. The model is loaded at the first call and is not the one that is trained, whose
    probabilities move with it. ``softmax_combo`` normalises over the completions of a call. A completion that has no
    score (as an empty one) gets the lowest of the call, so that having none never pays, and 0 where no completion has
    one; they are logged by reason.

    Args:
        method: a scorer of given responses, as ``sentprob_mean``, ``softmax_combo`` or ``probdiff``.
        model: a directory, Hub id, ``world``, a :class:`ModelConfig`, or a scorer that is loaded already.
        settings: how the score is computed; references come from a column ``reference``.
        seed: of scores that sample.

    Raises:
        ConfigError: no such scorer, or one that does not score a given response.
    """

    def __init__(
        self,
        method: str,
        model: str | ModelConfig | TokenScorer,
        *,
        settings: ScorerConfig | None = None,
        seed: int = 0,
    ) -> None:
        check_scorers([method], OF_RESPONSES, "method")
        self.method, self.__name__ = method, f"scorer_{method}"
        self._model, self._scorer = model, None if isinstance(model, (str, ModelConfig)) else model
        self._settings, self._seed = settings or ScorerConfig(), seed

    @property
    def scorer(self) -> TokenScorer:
        """The scorer, loaded when it is first needed."""
        if self._scorer is None:
            from judgetrain.scorers.statistics import TokenScorer

            assert isinstance(self._model, (str, ModelConfig))
            self._scorer = TokenScorer.from_pretrained(self._model)
        return self._scorer

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Any) -> list[float]:
        """One reward for each completion. Of ``columns`` only ``reference`` is read.

        Raises:
            EngineError: the model cannot be loaded or read.
        """
        references = columns.get("reference") or [None] * len(completions)
        samples = [
            Sample(_chat(prompt), text_of(completion), reference)
            for prompt, completion, reference in zip(prompts, completions, references, strict=True)
        ]
        scores = score(self.scorer, samples, [self.method], self._settings, self._seed)[self.method]
        if scores.unscored:
            log.warning("%s: completions without a score: %s", self.__name__, dict(scores.unscored))
        least = min((value for value in scores.oriented if value is not None), default=0.0)
        return [least if value is None else value for value in scores.oriented]


def _chat(prompt: Text) -> Messages:
    """A prompt as messages; a text is the user's."""
    return ({"role": "user", "content": prompt},) if isinstance(prompt, str) else tuple(prompt)


def text_of(completion: Text) -> str:
    """The text of a completion; of several messages, all of it."""
    return completion if isinstance(completion, str) else "".join(m.get("content") or "" for m in completion)
