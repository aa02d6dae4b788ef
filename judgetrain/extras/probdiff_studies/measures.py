"""Study the ProbDiff paper's hypotheses: do repeated answers agree, and how far do log-probabilities spread (3.1)?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import Completion, Engine, Request, Sampling
from judgetrain.scorers.encode import Messages, Sample, TokenStatistics
from judgetrain.scorers.probdiff import average

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer

Encode = Callable[[list[str]], ArrayLike]
"""Sentence embeddings ``[texts, size]``, as a sentence-transformers model's ``encode`` gives them."""


@dataclass(frozen=True)
class Repetition:
    """A repeated request for an answer: how many ``times`` in all, and the words of the user's turn that ask."""

    times: int
    words: str


def repeated_answers(
    engine: Engine | TokenScorer, prompts: Sequence[Messages], repetition: Repetition, sampling: Sampling, seed: int = 0
) -> tuple[list[list[str]], list[Completion]]:
    """Return each prompt's answers, ``[prompts][times]``: the first one, then those after being asked again.

    Beside them all completions, which say what they cost.

    An answer that the engine does not give is an empty text, and ends that prompt's repetitions.
    """
    chats: list[Messages] = [tuple(prompt) for prompt in prompts]
    answers: list[list[str]] = [[] for _ in prompts]
    all_completions: list[Completion] = []
    for turn in range(repetition.times):
        # A prompt whose answer did not come is asked no more.
        places = [place for place, earlier in enumerate(answers) if all(earlier)]
        requests = [Request(messages=chats[place], sampling=sampling) for place in places]
        completions = engine.generate(requests, derive_seed(seed, "again", turn))
        all_completions += completions
        texts = [completion.text.strip() for completion in completions]
        text_of = dict(zip(places, texts, strict=True))
        for place, of_prompt in enumerate(answers):
            answer = text_of.get(place, "")
            of_prompt.append(answer)
            # The model sees all its earlier answers when it is asked again, as in the paper's table 1.
            reply = {"role": "assistant", "content": answer}
            chats[place] = (*chats[place], reply, {"role": "user", "content": repetition.words})
    return answers, all_completions


def repetition_report(answers: Sequence[Sequence[str]], encode: Encode) -> list[dict[str, Any]]:
    """Compare the first answers with those of each ``repetition`` (table 1, there in percent).

    Mean cosine ``similarity`` and share of equal texts (``exact_match``), over the ``n`` prompts that have both.
    """
    result = []
    for turn in range(1, max(map(len, answers), default=0)):
        # Always with the first answer, so that later rows show how far answers wander.
        pairs = [(of_prompt[0], of_prompt[turn]) for of_prompt in answers if of_prompt[0] and of_prompt[turn]]
        if not pairs:
            continue
        first = np.asarray(encode([text for text, _ in pairs]), dtype=np.float64)
        repeated = np.asarray(encode([text for _, text in pairs]), dtype=np.float64)
        exact = float(np.mean([text == other for text, other in pairs]))
        norms = np.linalg.norm(first, axis=1) * np.linalg.norm(repeated, axis=1)

        # A text without a known word has a vector of zeros, which is like no other.
        cosines = (first * repeated).sum(axis=1) / np.where(norms > 0, norms, 1.0)
        similarity = float(cosines.mean())
        result.append({"repetition": turn, "similarity": similarity, "exact_match": exact, "n": len(pairs)})
    return result


def logprob_spread(
    scorer: TokenScorer, prompts: Sequence[Messages], samples: int, sampling: Sampling, seed: int = 0
) -> list[list[float]]:
    """Return mean log-probabilities per token, nats, of each prompt's sampled answers, by their own model (figure 2).

    Answers without a score are left out.
    """
    # Each prompt as often as it is sampled, so that one call decodes all of them together.
    chats = []
    for prompt in prompts:
        chats.extend([tuple(prompt)] * samples)
    requests = [Request(messages=chat, sampling=sampling) for chat in chats]
    completions = scorer.generate(requests, derive_seed(seed, "spread"))
    answers = []
    for chat, completion in zip(chats, completions, strict=True):
        answers.append(Sample(chat, completion.text.strip()))
    results = scorer.statistics(answers)
    spread = []
    for place in range(len(prompts)):
        of_prompt = results[place * samples : (place + 1) * samples]
        spread.append([result.mean_logprob for result in of_prompt if isinstance(result, TokenStatistics)])
    return spread


def deviations(spread: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return each prompt's standard deviation of answers, and their mean, which is less for a better model (paper)."""
    by_prompt: list[float | None] = []
    for logprobs in spread:
        deviation = None
        if logprobs:
            deviation = float(np.std(logprobs))
        by_prompt.append(deviation)
    return {"deviation": average(by_prompt), "deviations": by_prompt, "answers": list(map(len, spread))}
