"""A teacher that writes evaluations by rule from labels that are known: ``teacher.engine.type=given``.

The label is the data's (``label`` of a comparison, a constructed pair's better side). It teaches the form of an
evaluation and the labels, and no more: all criteria of a comparison get the one label.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

from judgetrain.engines.base import Completion, Request
from judgetrain.engines.config import EngineConfig
from judgetrain.errors import ConfigError
from judgetrain.judges.prompting.parsing import render_criteria
from judgetrain.judges.prompting.prompts import judgment_slots
from judgetrain.label.labels import level_of
from judgetrain.schema import ORDERS, RESPONSES, Comparison, Rating, Verdict, mirror

Shown = tuple[str, str, str, str]
"""Of a judgment's slots: the dialogue before the query, the query, and the responses in the order shown."""

BETTER, WORSE, EQUAL = 4, 2, 3
"""The scores: always the same ones, so that a small model's uncertainty stands between two digits."""

SCORES = {"A": (BETTER, WORSE), "B": (WORSE, BETTER), "tie": (EQUAL, EQUAL)}


def no_engine(config: EngineConfig) -> NoReturn:
    """Stage teacher gives the labels itself; asked by any other stage, this type of engine has none.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(
        f"{config.model_name}: knows the labels of training data, and can judge nothing else; leave the method teacher "
        "out of evaluate.methods"
    )


class Aspect(NamedTuple):
    """A criterion broad enough that a preference of the whole response speaks of it; ``when``: queries it suits."""

    name: str
    asks: str
    when: str = ""


ASPECTS = (
    Aspect("Accuracy", "is it right", r"\b(what|who|when|where|which|how (many|much)|calculate|solve|classify)\b|\d"),
    Aspect("Writing", "does it read well", r"\b(write|story|poem|e-?mail|letter|rewrite|essay|title|headline|tweet)\b"),
    Aspect("Completeness", "is all there that was asked for", r"\b(explain|describe|list|compare|steps|plan|ideas)\b"),
    Aspect("Helpfulness", "does it do what was asked"),
    Aspect("Clarity", "is it easy to follow"),
    Aspect("Relevance", "does it keep to the question"),
)
GUIDELINE = f"{BETTER} to the better response, {WORSE} to the other, {EQUAL} to both if they are equal."


class KnownLabels:
    """Writes the criteria that suit a query, and judgments that say the known label. Token counts are words.

    Args:
        comparisons: those with a label; nothing else can be judged.
    """

    name = "given"

    def __init__(self, comparisons: Sequence[Comparison]) -> None:
        self._texts: dict[Shown, str] = {}
        for comparison in comparisons:
            ratings = {"A": comparison.rating_a, "B": comparison.rating_b}
            for order in (*ORDERS, *RESPONSES):  # a response that stands in several pairs keeps its first label
                if rating := ratings.get(order):
                    text = rated(rating)
                elif comparison.label is None:
                    continue
                else:
                    label = comparison.label if order in ("AB", "A") else mirror(comparison.label)
                    text = judgment(label) if order in ORDERS else f"Score: {SCORES[label][0]}"
                self._texts.setdefault(_shown(judgment_slots(comparison, order, "", "")), text)

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request; nothing is drawn."""
        return [self._complete(request) for request in requests]

    def close(self) -> None:
        """Nothing to free."""

    def _complete(self, request: Request) -> Completion:
        slots = request.slots
        if request.step == "criteria":
            text = render_criteria([f"{a.name}: {a.asks}" for a in suited(slots["query"])[: int(slots["count"])]])
        elif request.step == "guideline":
            text = GUIDELINE
        elif (known := self._texts.get(_shown(slots))) is not None:
            text = known
        else:
            return Completion(finish_reason="error", error="a comparison without a label")
        prompt = " ".join(message["content"] for message in request.messages)
        read, written = len(prompt.split()), len(text.split())
        return Completion(text=text, prompt_tokens=read, generated_tokens=written, finish_reason="stop")


def _shown(slots: Mapping[str, str]) -> Shown:
    first, second = slots.get("response_a", slots.get("response", "")), slots.get("response_b", "")
    return slots["context"], slots["query"], first, second


def suited(query: str) -> list[Aspect]:
    """The aspects, those that suit the query first, then the ones of every query, then the others."""

    def rank(aspect: Aspect) -> int:
        return 1 if not aspect.when else 0 if re.search(aspect.when, query.casefold()) else 2

    return sorted(ASPECTS, key=rank)


def rated(rating: Rating) -> str:
    """A judgment of one response that says its rating, and why where people say it."""
    reason = " ".join((rating.reason or "").split())
    return f"Score: {round(level_of(rating))}" + (f"\nAnalysis: {reason}" if reason else "")


def judgment(label: Verdict) -> str:
    """A short judgment that says the label, of the responses as shown.

    The verdict's letter comes first: a small model learns to copy the letter that stands before the better response
    sooner than which of two digits to give the first one (docs/real_text.md).
    """
    scores = SCORES[label]
    said = "both are equal" if label == "tie" else f"{label} is better"
    return f"Comparison: {said}.\nResponse A Score: {scores[0]}\nResponse B Score: {scores[1]}"
