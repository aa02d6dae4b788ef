"""Scores as rewards, in the form that TRL's trainers call: ``(prompts, completions, **columns) -> list[float]``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from judgetrain import messages
from judgetrain.engines.config import ModelConfig
from judgetrain.errors import DataError
from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.encode import Messages, Sample
from judgetrain.scorers.methods import OF_RESPONSES, check_scorers, score
from judgetrain.thoughts import opening_in

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer

log = logging.getLogger(__name__)

Text = str | Sequence[Mapping[str, Any]]
"""A prompt or completion as TRL hands it over: text, or chat messages.

The content of a message may be a list of parts of text. Of several messages, as an agent's, all that came after the
user's last one is the completion: texts, calls of tools and what they answered. What the model thought is left out.
"""


class ScorerReward:
    """Rewards completions with a score by a fixed model; higher is better.

    Give it to ``GRPOTrainer(reward_funcs=[ScorerReward("sentprob_mean", "path/to/model")])`` or to any trainer that
    calls rewards the same way. The model is loaded at the first call. It is not the model that is trained, whose
    probabilities change. ``softmax_combo`` normalises over the completions of a call.

    A completion without a score (as an empty one) gets the lowest of the call, or 0 if no completion has a score. They
    are logged by reason.

    Args:
        method: a scorer of given responses, as ``sentprob_mean``, ``softmax_combo`` or ``probdiff``.
        model: a directory, Hub id, ``world``, a :class:`ModelConfig`, or a scorer that is loaded already.
        settings: how the score is computed; references come from a column ``reference``.
        seed: the seed of scores that sample.

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
        self.method = method
        # TRL calls the columns of its logs by the function's name.
        self.__name__ = f"scorer_{method}"
        self._model = model
        self._scorer: TokenScorer | None = None
        if not isinstance(model, (str, ModelConfig)):
            self._scorer = model
        self._settings = settings or ScorerConfig()
        self._seed = seed

    @property
    def scorer(self) -> TokenScorer:
        """Return the scorer, loaded when it is first needed."""
        if self._scorer is None:
            # Slow to import, and needed at the first call alone.
            from judgetrain.scorers.statistics import TokenScorer

            assert isinstance(self._model, (str, ModelConfig))
            self._scorer = TokenScorer.from_pretrained(self._model)
        return self._scorer

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Any) -> list[float]:
        """Return one reward for each completion. Of ``columns`` only ``reference`` is read.

        Raises:
            DataError: a message of a prompt or completion is no text.
            EngineError: the model cannot be loaded or read.
        """
        # TRL hands over all columns of the data set; this is the only one that scores read.
        references = columns.get("reference") or [None] * len(completions)
        samples = []
        for row, (prompt, completion, value) in enumerate(zip(prompts, completions, references, strict=True)):
            try:
                reference = messages.reference_text(value)
            except DataError as error:
                raise DataError(f"row {row}, column reference: {error}") from error
            begun = [{"role": "assistant", "content": _opening(prompt)}]
            samples.append(Sample(_chat(prompt), text_of(continued(begun, completion)), reference))
        scores = score(self.scorer, samples, [self.method], self._settings, self._seed)[self.method]
        # In silence, a reward that fails for most completions would look like one that teaches nothing.
        if scores.unscored:
            log.warning("%s: completions without a score: %s", self.__name__, dict(scores.unscored))
        # The lowest, so that a completion without a score never pays.
        least = min((value for value in scores.oriented if value is not None), default=0.0)
        rewards = []
        for value in scores.oriented:
            if value is None:
                value = least
            rewards.append(value)
        return rewards


def _chat(prompt: Text) -> Messages:
    """Return a prompt as messages of text; a text is the user's.

    Raises:
        DataError: a message has no text, as a picture has none.
    """
    if isinstance(prompt, str):
        return ({"role": "user", "content": prompt},)
    return tuple({"role": role, "content": text} for role, text in messages.role_texts(prompt))


def text_of(completion: Text) -> str:
    """Return what a reader is shown of a completion (:func:`judgetrain.messages.replied`).

    Raises:
        DataError: it is no completion, or a message holds a part that is no text.
    """
    return messages.shown_text(completion)


def _opening(prompt: Text) -> str:
    """Return the tag with which a prompt opens the completion's reasoning; empty if it opens none."""
    if isinstance(prompt, str):
        return opening_in(prompt)
    _, begun = messages.at_query(prompt)
    if not begun:
        return ""
    # A call of a tool has no text.
    text = messages.text_of(begun[-1].get("content"))
    if not isinstance(text, str):
        return ""
    return opening_in(text)


def continued(begun: Sequence[Mapping[str, Any]], completion: Text) -> Text:
    """Return a completion behind the messages that begin it; where the last of these is a text, it goes on."""
    turns: Sequence[Mapping[str, Any]]
    if isinstance(completion, str):
        turns = [{"role": "assistant", "content": completion}]
    else:
        turns = completion
    if not begun or not turns:
        return [*begun, *turns]
    last = begun[-1]
    first = turns[0]
    # A call of a tool, or what it answered, is over: what follows is a message of its own.
    if not messages.goes_on(last) or first.get("role") != "assistant":
        return [*begun, *turns]
    texts = [messages.text_of(message.get("content")) or "" for message in (last, first)]
    return [*begun[:-1], {**first, "content": "".join(texts)}, *turns[1:]]
