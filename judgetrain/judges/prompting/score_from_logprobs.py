"""From a judgment's completion to scores: read off the text, or expected under the model's own probabilities."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from judgetrain.engines.base import Completion, Sampling, Step
from judgetrain.judges.config import StepsConfig
from judgetrain.judges.prompting.frames import FRAME
from judgetrain.judges.prompting.parsing import ParsedJudgment, parse_judgment
from judgetrain.judges.prompting.prompts import PromptSet
from judgetrain.rubrics import HIGHEST, LOWEST

SCORES = tuple(str(score) for score in range(int(LOWEST), int(HIGHEST) + 1))
"""The score tokens whose probabilities the expected score weighs."""
SIDES = ("A", "B")
"""The letters whose probabilities are weighed where a judgment says who is better before it scores."""
_WHOLE = {float(score) for score in SCORES}
_SAID = re.compile(r"(?<!\w)(?P<side>[AB]) is better\b")


def judgment_sampling(asking: StepsConfig, prompts: PromptSet, step: Step = "judgment") -> Sampling:
    """How to sample a judgment so that it can be read as ``asking`` says."""
    limits = asking.judgment_sampling
    return replace(
        Sampling.of(limits),
        pattern=prompts.judgment_frame(step, limits.max_new_tokens) if asking.constrained else "",
        candidates=(*SCORES, *SIDES) if asking.score == "expected" else (),
    )


def read_judgment(
    completion: Completion, asking: StepsConfig, material: Iterable[str] = (), frame: str = FRAME, responses: int = 2
) -> ParsedJudgment:
    """The scores in the order shown, or why there are none.

    With ``score=expected`` a score is the mean of 1 to 5 weighted by the probabilities of their tokens at its
    position, a real number, so that fewer judgments are ties. A judgment that says who is better before it scores
    ("Comparison: A is better.") has its doubt in that letter, from which its scores follow: they are mixed with the
    same scores exchanged, by the letters' probabilities. Reasons are those of :func:`parse_judgment`; ``cut_off``, a
    reply that did not reach its normal end; and ``no_probabilities``, an engine that reported none for a score.

    ``material``: the texts that are judged; ``frame``: the prompt set's.
    """
    if completion.finish_reason != "stop":
        return ParsedJudgment(None, None, "cut_off")
    parsed = parse_judgment(completion.text, material, frame, responses)
    if parsed.places is None or asking.score == "parsed":
        return parsed
    chances = {choice.at: choice.probabilities for choice in completion.choices}
    at_scores = [chances.get(place) for place in parsed.places]
    whole = {parsed.first, parsed.second} <= {*_WHOLE, None}  # a digit of 3.5 says nothing of the rest
    found = [_mean(each) for each in at_scores if each is not None]
    if len(found) < responses or not whole:
        return ParsedJudgment(None, None, "no_probabilities")
    if responses == 1:
        return ParsedJudgment(found[0], None, places=parsed.places)
    own, other = found
    sure = _sure(completion.text[: min(parsed.places)], chances, "A" if own > other else "B")
    return ParsedJudgment(_mixed(own, other, sure), _mixed(other, own, sure), places=parsed.places)


def _mixed(score: float, exchanged: float, sure: float) -> float:
    return round(sure * score + (1.0 - sure) * exchanged, 6)


def _sure(before: str, chances: Mapping[int, tuple[float, ...]], better: str) -> float:
    """The probability of the letter that says the better one before the scores; 1 where none is said, or another."""
    said = _SAID.search(before)
    letters = chances.get(said.start(), ())[len(SCORES) :] if said and said["side"] == better else ()
    return letters[SIDES.index(better)] / total if (total := math.fsum(letters)) > 0.0 else 1.0


def _mean(chances: tuple[float, ...]) -> float:
    digits = chances[: len(SCORES)]
    return round(math.fsum(int(s) * p for s, p in zip(SCORES, digits, strict=True)) / math.fsum(digits), 6)
