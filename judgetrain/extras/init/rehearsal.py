"""Engines that answer at once in the form that judges learn, and measure on a few requests how long all would take."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.answers import form_text
from judgetrain.engines.base import Choice, Completion, Request, Sampling, Step
from judgetrain.engines.config import EngineConfig, TransformersEngineConfig
from judgetrain.engines.local.batch_state import Row
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.prompting import encode
from judgetrain.judges.prompting.parsing import SCORES, render_criteria
from judgetrain.label.labels import GUIDELINE, judgment, suited
from judgetrain.schema import Verdict, mirror

STEADY = 0.8
"""Share of judgments in which the pretended judge says what it says of the same responses in the other order too."""
AT_LEAST = 2.5
"""Seconds over which a kind of request is measured, where there are so many."""


def reply(request: Request, draw: int) -> str:
    """What a judge that has learned the form might say; ``draw`` decides whether it is steady."""
    slots = request.slots
    if request.step == "criteria":
        return render_criteria([f"{each.name}: {each.asks}" for each in suited(slots["query"])[: int(slots["count"])]])
    if request.step == "guideline":
        return GUIDELINE
    if request.step == "score":
        return f"Score: {1 + derive_seed('score', slots['response']) % 5}"
    if request.step == "judgment":
        first, second = slots["response_a"], slots["response_b"]
        other = slots["criterion"] if derive_seed(slots["criterion"], *sorted((first, second))) % 3 == 0 else ""
        better: Verdict = "A" if derive_seed(other, first) > derive_seed(other, second) else "B"  # criteria differ
        return judgment(better if derive_seed("steady", draw) / 2**31 < STEADY else mirror(better))
    if request.step in _PAIRS:  # the same in both orders, so that there is something to learn
        (first, one), (second, other) = _PAIRS[request.step].items()
        better_first = derive_seed("better", slots[one]) > derive_seed("better", slots[other])
        return f"[[{first if better_first else second}]]"
    return form_text(request)


_PAIRS: dict[Step, dict[str, str]] = {
    "pairwise": {"A": "response_a", "B": "response_b"},
    "preference": {"X": "judgment_x", "Y": "judgment_y"},
}


@dataclass
class Ledger:
    """What a rehearsal has measured.

    ``pending`` are the seconds that answering everything would have taken beyond those that passed. ``lengths``: the
    tokens of what the teacher wrote, by level: judges write as much; where there are none, half of what they may.
    """

    base: str
    batch: int
    budget: float
    lengths: dict[str, list[int]] = field(default_factory=dict)
    pending: float = 0.0
    spent: float = 0.0
    load: float = 0.0
    cut: Counter[str] = field(default_factory=Counter)
    rates: dict[tuple[str, bool], float] = field(default_factory=dict)
    engine: Lasting | None = None

    def loaded(self, config: RehearsedConfig) -> Lasting:
        """The one model that stands for all of a run, whose loading counts each time."""
        if self.engine is None:
            began = time.monotonic()
            plain = TransformersEngineConfig(model=config.model, batch_size=config.batch_size)
            self.engine = Lasting(plain)
            self.load = time.monotonic() - began
        else:
            self.pending += self.load
        return self.engine


class Lasting(TransformersEngine):
    """A model whose texts end where ``max_new_tokens`` says, if ``lasting``: so long as a trained judge's are."""

    lasting = False

    def _row(self, *given: Any) -> Row:
        row = super()._row(*given)
        return replace(row, marks=np.zeros_like(row.marks)) if self.lasting else row


@dataclass
class RehearsedConfig(TransformersEngineConfig):
    """Stands in the place of the engine that runs judges."""

    ledger: Any = field(default=None, metadata={"in_fingerprint": False})

    makes = "judgetrain.extras.init.rehearsal:Rehearsed"


@dataclass
class PretendedConfig(EngineConfig):
    """Stands in the place of a teacher or another model that may be paid for: it answers at once."""

    makes = "judgetrain.extras.init.rehearsal:Pretended"


class Pretended:
    """Answers in a teacher's place. Token counts are words."""

    name = "pretended"

    def __init__(self, config: EngineConfig) -> None:
        pass

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request; nothing is drawn."""
        return [
            Completion(text=_own(each, derive_seed(seed, i)), generated_tokens=1, finish_reason="stop")
            for i, each in enumerate(requests)
        ]

    def close(self) -> None:
        """Nothing to free."""


def _own(request: Request, draw: int) -> str:
    """A reply, of which no two are equal where it is a response."""
    return reply(request, draw) + (f"{draw}" if request.step == "response" else "")


class Rehearsed:
    """Measures the model on some of the requests, and answers all of them as a judge that has learned the form.

    The untrained base speaks for itself: whether it keeps to the form decides what is asked next.
    """

    def __init__(self, config: RehearsedConfig) -> None:
        self.name, self._ledger = config.model_name, config.ledger
        self._untrained = config.model.path == self._ledger.base
        self._engine = self._ledger.loaded(config)

    def close(self) -> None:
        """The model stays for the next judge."""

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request, in order."""
        engine, ledger = self._engine, self._ledger
        fits, done = encode(requests, engine.tokenizer, engine.max_context)
        for completion in done.values():
            why = "do not fit into the model's context" if completion.finish_reason == "too_long" else completion.error
            ledger.cut[f"{requests[0].step} prompts {why}"] += 1
        if self._untrained:
            own = self._measured([requests[i] for i in fits], seed)
            return [done.get(i) or own[i % len(own)] for i in range(len(requests))]
        forced = [replace(requests[i], sampling=self._sampling(requests[i], i)) for i in fits]
        engine.lasting = True
        try:
            self._measured(forced, seed)
        finally:
            engine.lasting = False
        tokens = {i: (len(fits[i]), each.sampling.max_new_tokens) for i, each in zip(fits, forced, strict=True)}
        return [
            done.get(i) or _completion(each, reply(each, derive_seed(seed, i)), *tokens[i])
            for i, each in enumerate(requests)
        ]

    def _sampling(self, request: Request, number: int) -> Sampling:
        """As long a text as a trained judge writes; what would be cut is counted."""
        most = request.sampling.max_new_tokens
        known = self._ledger.lengths.get("judgment" if request.step == "score" else request.step)
        tokens = known[number % len(known)] if known else -(-most // 2)
        if tokens > most:
            self._ledger.cut[f"{request.step} texts are longer than the {most} tokens that they may have"] += 1
        return replace(request.sampling, max_new_tokens=min(tokens, most), stop=(), pattern="")

    def _measured(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """The model's own answers to the first requests; what the others would take is noted."""
        ledger, found, size = self._ledger, list[Completion](), min(4, self._ledger.batch)
        if not requests:
            return found
        kind = requests[0].step, self._untrained
        began = time.monotonic()
        while len(found) < len(requests) and (kind not in ledger.rates or ledger.spent < ledger.budget or not found):
            if kind in ledger.rates and (time.monotonic() - began > AT_LEAST or (ledger.spent >= ledger.budget)):
                break
            before, part = time.monotonic(), requests[len(found) : len(found) + size]
            found += self._engine.generate(part, seed)
            took = time.monotonic() - before
            ledger.spent += took
            ledger.rates[kind] = took / len(part)
            size = min(2 * size, 2 * ledger.batch)
        ledger.pending += ledger.rates[kind] * (len(requests) - len(found))
        return found


def _completion(request: Request, text: str, prompt: int, tokens: int) -> Completion:
    """A pretended answer, with sure probabilities where a score stands."""
    wanted = request.sampling.candidates
    sure = {score: tuple(float(each == score) for each in wanted) for score in SCORES}
    places = re.finditer(r"(?<=Score: )[1-5]", text) if wanted else ()
    choices = tuple(Choice(found.start(), sure[found[0]]) for found in places)
    return Completion(text=text, prompt_tokens=prompt, generated_tokens=tokens, finish_reason="stop", choices=choices)
