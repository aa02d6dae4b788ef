"""The ProbDiff paper's hypothesis studies: do repeated answers agree, and how far do log-probabilities spread (3.1)?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import Engine, Request, Sampling
from judgetrain.scorers.encode import Messages, Sample
from judgetrain.scorers.prompts import ScorerPrompts, load_scorer_prompts
from judgetrain.scorers.results import TokenStatistics

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer

PAPER = Sampling(temperature=0.7, max_new_tokens=512)

Encode = Callable[[list[str]], ArrayLike]
"""Sentence embeddings ``[texts, size]``, as a sentence-transformers model's ``encode`` gives them."""


def repeated_answers(
    engine: Engine | TokenScorer,
    prompts: Sequence[Messages],
    times: int = 3,
    sampling: Sampling = PAPER,
    *,
    wording: ScorerPrompts | None = None,
    seed: int = 0,
) -> list[list[str]]:
    """Each prompt's answers, ``[prompts][times]``: the first, then those after being asked for the same once more.

    An answer that the engine does not give is an empty text, and ends that prompt's repetitions.
    """
    again = (wording or load_scorer_prompts()).again
    chats: list[Messages] = [tuple(prompt) for prompt in prompts]
    answers: list[list[str]] = [[] for _ in prompts]
    for turn in range(times):
        going = [i for i, done in enumerate(answers) if all(done)]
        written = engine.generate(
            [Request(messages=chats[i], sampling=sampling) for i in going], derive_seed(seed, "again", turn)
        )
        texts = dict(zip(going, (completion.text.strip() for completion in written), strict=True))
        for i, done in enumerate(answers):
            done.append(texts.get(i, ""))
            chats[i] = (*chats[i], {"role": "assistant", "content": done[-1]}, {"role": "user", "content": again})
    return answers


@dataclass(frozen=True)
class Repetition:
    """The first answers against those of one repetition: mean cosine similarity and share of equal texts, over n."""

    repetition: int
    similarity: float
    exact_match: float
    n: int


def repetition_report(answers: Sequence[Sequence[str]], encode: Encode) -> list[Repetition]:
    """One row a repetition (table 1, there in percent); prompts without both answers are left out of a row."""
    result = []
    for turn in range(1, max(map(len, answers), default=0)):
        pairs = [(row[0], row[turn]) for row in answers if row[0] and row[turn]]
        if pairs:
            first, again = (np.asarray(encode(list(side)), dtype=np.float64) for side in zip(*pairs, strict=True))
            norms = np.linalg.norm(first, axis=1) * np.linalg.norm(again, axis=1)
            cosine = (first * again).sum(axis=1) / np.where(norms > 0, norms, 1.0)
            result.append(
                Repetition(turn, float(cosine.mean()), float(np.mean([a == b for a, b in pairs])), len(pairs))
            )
    return result


@dataclass(frozen=True)
class Spread:
    """Mean log-probabilities per token of one prompt's sampled answers, nats, ``[answers]``; unscored ones left out."""

    logprobs: tuple[float, ...]

    @property
    def deviation(self) -> float:
        """Their standard deviation; the paper expects less of it from a better model."""
        return float(np.std(self.logprobs)) if self.logprobs else float("nan")


def logprob_spread(
    scorer: TokenScorer, prompts: Sequence[Messages], samples: int = 100, sampling: Sampling = PAPER, seed: int = 0
) -> list[Spread]:
    """Sample each prompt's answers (the paper: 100) and score each with the model that wrote it (figure 2)."""
    chats = [tuple(prompt) for prompt in prompts for _ in range(samples)]
    written = scorer.generate(
        [Request(messages=chat, sampling=sampling) for chat in chats], derive_seed(seed, "spread")
    )
    results = scorer.statistics([Sample(c, w.text.strip()) for c, w in zip(chats, written, strict=True)])
    rows = [results[i * samples : (i + 1) * samples] for i in range(len(prompts))]
    return [Spread(tuple(r.mean_logprob for r in row if isinstance(r, TokenStatistics))) for row in rows]
