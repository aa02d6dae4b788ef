"""``/v1/systemone`` as its clients expect it: named questions about a state, a probability for every answer.

A question is a criterion with a scale, by which the judge reads the state as a response. ``noul`` has the levels no and
yes, ``score`` those that it describes. Of a ``choice`` each option is read as a response to the state; exactly one is
right, so that an option's probability is in proportion to the odds of its own judgment.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from judgetrain.extras.server.config import LIMITS
from judgetrain.extras.server.schema import FieldError, Strict, Text
from judgetrain.judges.predictions import Cost, Score
from judgetrain.rubrics import HIGHEST, LOWEST, Criterion, Level, Rubric, share
from judgetrain.schema import Candidates
from judgetrain.thoughts import shown

Content = Text | dict[str, Any] | list[Any]
"""A text, or JSON that is shown as it is."""
OPTIONS = 255
"""Options of a choice at most."""
SURE = 1e-6
"""The least and, from 1, the most that an option's own judgment counts, for its odds to be finite."""
QUERIES = ("query", "prompt")
"""The keys of a state that is an object with a ``response``: what it responds to."""


def _at_most(most: int) -> BeforeValidator:
    """Return what refuses an object of more entries before these are looked at, so that each is not a fault of its own.

    Args:
        most: entries.
    """

    def check(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > most:
            raise ValueError(f"at most {most} with their options in one request, found {len(value)}")
        return value

    return BeforeValidator(check)


class Sides(Strict):
    """The meanings of a yes and of a no."""

    true: Content | None = None
    false: Content | None = None


class NoulIn(Strict):
    """A question with the answers yes and no."""

    type: Literal["noul"]
    instructions: Content | None = None
    criteria: Sides | Text | None = None


class ChoiceIn(Strict):
    """A question whose answer is one of its options, each with a description or null."""

    type: Literal["choice"]
    instructions: Content | None = None
    criteria: Annotated[dict[Text, Content | None], Field(min_length=2, max_length=OPTIONS), _at_most(OPTIONS)]


class ScoreIn(Strict):
    """A question whose answer is a level, the lowest first."""

    type: Literal["score"]
    instructions: Content | None = None
    criteria: Annotated[list[Content], Field(min_length=2, max_length=10)]


Question = Annotated[NoulIn | ChoiceIn | ScoreIn, Field(discriminator="type")]


class DecisionsIn(Strict):
    """Named questions about a state; ``model`` is whatever the client calls the judge."""

    model: Text | None = None
    state: Content
    questions: Annotated[dict[Text, Question], Field(min_length=1), _at_most(LIMITS.queue)]


class NoulOut(BaseModel):
    """The probability of yes."""

    type: Literal["noul"] = "noul"
    noul: float


class ChoiceOut(BaseModel):
    """The likeliest option, and the probability of each."""

    type: Literal["choice"] = "choice"
    choice: str
    confidence: float
    probabilities: dict[str, float]


class LevelsOut(BaseModel):
    """The expected level, counted from 0, and the probability of each."""

    type: Literal["score"] = "score"
    score: float
    confidence: float
    probabilities: dict[str, float]
    legend: dict[str, Any]


class UsageOut(BaseModel):
    """Tokens that the judge's model read and wrote."""

    input_tokens: int
    output_tokens: int


class DecisionsOut(BaseModel):
    """Answers by the questions' names; ``confidence`` is 0 where all answers are as likely, and 1 for certainty."""

    model: str
    answers: dict[str, NoulOut | ChoiceOut | LevelsOut]
    usage: UsageOut


def number_of_judgments(request: DecisionsIn) -> int:
    """Return how many responses are judged for a request: one a question, and of a choice one an option."""
    number = 0
    for question in request.questions.values():
        if isinstance(question, ChoiceIn):
            number += len(question.criteria)
        else:
            number += 1
    return number


def candidates_of(request: DecisionsIn) -> dict[str, list[Candidates]]:
    """Return the responses that are judged for each question: the state, or each option of a choice.

    Raises:
        FieldError: the state, a question or a level says nothing.
    """
    query, response = _parts_of_state(request.state)
    # Once for all questions, since the state may be long.
    answer = shown(response)
    candidates = {}
    for name, question in request.questions.items():
        if isinstance(question, ChoiceIn):
            candidates[name] = _options_of(name, question, query, response)
        else:
            candidates[name] = [_state_of(name, question, query, answer)]
    return candidates


def _options_of(name: str, question: ChoiceIn, query: str | None, response: str) -> list[Candidates]:
    """Return each option of a choice as a response to the state and the question.

    Args:
        name: of the question.
        question: with its options.
        query: of the state; None: it tells none.
        response: of the state.

    Raises:
        FieldError: the question or an option says nothing.
    """
    field = f"questions.{name}"
    instructions = _text(question.instructions)
    if not instructions:
        raise FieldError("expected what is to be chosen, found nothing", f"{field}.instructions")
    rubric = _rubric(name, f"It is the right answer to: {instructions}", ("no", "yes"))
    state = response
    if query is not None:
        state = f"{query}\n\n{response}"
    texts = []
    for option, description in question.criteria.items():
        text = option
        if description:
            text = f"{option}: {_text(description)}"
        if not text.strip():
            raise FieldError("expected an option, found an empty name", f"{field}.criteria")
        texts.append(text)
    # The state is prepared once for all options, since it may be long.
    together = Candidates.of(f"{state}\n\n{instructions}", texts, rubric=rubric)
    return [replace(together, responses=(response,)) for response in together.responses]


def _state_of(name: str, question: NoulIn | ScoreIn, query: str | None, answer: str) -> Candidates:
    """Return the state as a response, judged by the question.

    Args:
        name: of the question.
        question: about the state.
        query: of the state; None: it tells none.
        answer: what a reader is shown of the state's response.

    Raises:
        FieldError: the question or a level says nothing.
    """
    field = f"questions.{name}"
    instructions = _text(question.instructions)
    levels = _levels_of(question)
    # A question may consist of what its best level says.
    text = instructions or levels[-1]
    if not instructions and isinstance(question, NoulIn) and question.criteria is None:
        raise FieldError("expected a question, found neither instructions nor criteria", f"{field}.instructions")
    if isinstance(question, ScoreIn) and not all(level.strip() for level in levels):
        raise FieldError("expected a description of each level, found an empty one", f"{field}.criteria")
    rubric = _rubric(name, text, levels)
    if query is None:
        # A state that tells no query is read as a response to the question itself.
        query = text
    # Put in by itself: ``of`` would look through the state for thoughts once a question.
    return replace(Candidates.of(query, [""], rubric=rubric), responses=(answer,))


def _parts_of_state(state: Content) -> tuple[str | None, str]:
    """Return the query and the response in a state; without both it is a response to nothing (None)."""
    if isinstance(state, dict) and isinstance(state.get("response"), str):
        # Exactly these two keys: with further ones the object is a state of its own, all of which is shown.
        for key in QUERIES:
            if set(state) == {key, "response"} and isinstance(state[key], str) and state[key].strip():
                return state[key], _not_blank(state["response"])
    return None, _not_blank(_text(state))


def _not_blank(text: str) -> str:
    """Return a state's text (FieldError: it says nothing)."""
    if not text.strip():
        raise FieldError("expected what the questions are about, found only white space", "state")
    return text


def _text(content: Content | None) -> str:
    """Return content as text: JSON that is no text is written with a line a value."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    try:
        text = json.dumps(content, ensure_ascii=False, indent=1)
        text.encode()
    except (ValueError, RecursionError) as error:
        raise FieldError(f"it cannot be shown as text ({error})", "state") from error
    return text


def _levels_of(question: NoulIn | ScoreIn) -> list[str]:
    """Return the descriptions of a question's levels, the lowest first."""
    if isinstance(question, ScoreIn):
        return [_text(level) for level in question.criteria]
    criteria = question.criteria
    if isinstance(criteria, Sides):
        return [_text(criteria.false) or "no", _text(criteria.true) or "yes"]
    return ["no", criteria or "yes"]


def _rubric(name: str, text: str, levels: Sequence[str]) -> Rubric:
    """Return the rubric of one criterion with these levels."""
    scale = tuple(Level(float(place), level) for place, level in enumerate(levels))
    return Rubric((Criterion(text=text, name=name, scale=scale),))


def decisions_of(request: DecisionsIn, answers: Mapping[str, Sequence[Score]], judge: str) -> DecisionsOut:
    """Return the answers to a request.

    Args:
        request: the questions.
        answers: by question the scores of what :func:`candidates_of` returned.
        judge: the judge's name.
    """
    decided: dict[str, NoulOut | ChoiceOut | LevelsOut] = {}
    cost = Cost()
    for name, question in request.questions.items():
        scores = answers[name]
        cost = sum((score.cost for score in scores), cost)
        if isinstance(question, ChoiceIn):
            odds = [_odds(level_probabilities(score, 2)[1]) for score in scores]
            probabilities = dict(zip(question.criteria, _shares(odds), strict=True))
            choice = max(probabilities, key=lambda option: probabilities[option])
            decided[name] = ChoiceOut(
                choice=choice, confidence=confidence_of(list(probabilities.values())), probabilities=probabilities
            )
        elif isinstance(question, NoulIn):
            decided[name] = NoulOut(noul=level_probabilities(scores[0], 2)[1])
        else:
            by_level = level_probabilities(scores[0], len(question.criteria))
            decided[name] = LevelsOut(
                score=math.fsum(place * chance for place, chance in enumerate(by_level)),
                confidence=confidence_of(by_level),
                probabilities={str(place): chance for place, chance in enumerate(by_level)},
                legend={str(place): level for place, level in enumerate(question.criteria)},
            )
    usage = UsageOut(**_usage(cost))
    return DecisionsOut(model=judge, answers=decided, usage=usage)


def _usage(cost: Cost) -> dict[str, int]:
    """Return whole tokens by the names of the answer."""
    tokens = cost.tokens
    return {"input_tokens": tokens["prompt_tokens"], "output_tokens": tokens["generated_tokens"]}


def level_probabilities(score: Score, levels: int) -> list[float]:
    """Return the probability of each of so many levels by a judgment; they sum to 1.

    The judge writes 1 for the lowest level and 5 for the highest; a score between two levels is divided between them,
    so that the expected level is the judge's. Without probabilities of the scores the one that was written is certain.
    """
    # One criterion has one judgment of a response; a score without a value was refused before.
    (reason,) = (reason for reason in score.reasons if reason.score_a is not None)
    assert reason.score_a is not None
    weighed = {reason.score_a: 1.0}
    if reason.levels is not None:
        weighed = {LOWEST + place: chance for place, chance in enumerate(reason.levels)}
    probabilities = [0.0] * levels
    for written, chance in weighed.items():
        place = share(min(max(written, LOWEST), HIGHEST)) * (levels - 1)
        # At the highest score the last two levels are the ones around it.
        below = min(int(place), levels - 2)
        probabilities[below] += chance * (below + 1 - place)
        probabilities[below + 1] += chance * (place - below)
    return _shares(probabilities)


def _odds(probability: float) -> float:
    """Return the odds of a probability, finite ones."""
    held = min(max(probability, SURE), 1 - SURE)
    return held / (1 - held)


def _shares(weights: Sequence[float]) -> list[float]:
    """Return weights as shares of their sum."""
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def confidence_of(probabilities: Sequence[float]) -> float:
    """Return how far the likeliest of n answers is above chance: (n p - 1) / (n - 1), 0 to 1."""
    n = len(probabilities)
    return max(0.0, (n * max(probabilities) - 1) / (n - 1))
