"""An engine that answers at once as a judge which has learned the form, and works out how long the model would take."""

import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.answers import form_text
from judgetrain.engines.base import Choice, Completion, Request
from judgetrain.engines.config import TransformersEngineConfig
from judgetrain.engines.local.decoding import Ids, families
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.prompting import encode
from judgetrain.judges.prompting.parsing import SCORES
from judgetrain.label.labels import judgment
from judgetrain.schema import Verdict

ENOUGH = 2.0
"""Seconds after which no more of a kind are asked; of the first kind two batches tell what a step and a token take."""
FEW = 16
"""Requests asked together, or a run's whole batch where one takes no time."""
SHORT = 8
"""Tokens that a trained model is asked for: longer answers take as long a token."""


def lost() -> float:
    """Seconds that this thread waited for a core which others used, as Linux counts them; elsewhere 0."""
    with suppress(OSError):
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def now() -> float:
    """Seconds by a clock that stands still while others use the cores."""
    return time.monotonic() - lost()


def reply(request: Request, draw: int, steady: bool) -> str:
    """What a judge that has learned the form might say: by chance (``draw``), or always the same of two responses."""
    slots = request.slots

    def worth(response: str) -> int:
        text = slots[response]
        return derive_seed(text) + derive_seed(slots.get("criterion", ""), text) if steady else derive_seed(draw, text)

    if request.step == "score":
        return f"Score: {1 + worth('response') % 5}"
    if request.step in ("judgment", "pairwise"):
        better: Verdict = "A" if worth("response_a") > worth("response_b") else "B"
        return judgment(better) if request.step == "judgment" else f"[[{better}]]"
    return form_text(request) + (str(draw) if request.step == "response" else "")  # no two of which are equal


@dataclass
class Ledger:
    """What a rehearsal has measured.

    ``pending`` are the seconds that answering everything would have taken beyond those that passed. ``lengths``: the
    tokens of what the teacher wrote, by level: judges write as much; where there are none, half of what they may.
    ``seen``: what was asked at a time, as :meth:`sizes`, and the seconds that it took. ``answers`` and ``spent``
    seconds: by step, and whether the model is untrained. ``steady``: how the pretended judge judges (:func:`reply`).
    ``until``: when nothing more is asked but the first request, by ``time.monotonic``; ``late``: whether that came.
    """

    base: str
    batch: int
    lengths: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    pending: float = 0.0
    load: float = 0.0
    cut: Counter[str] = field(default_factory=Counter)
    seen: list[tuple[list[float], float]] = field(default_factory=list)
    answers: dict[tuple[str, bool], list[Completion]] = field(default_factory=lambda: defaultdict(list))
    spent: Counter[tuple[str, bool]] = field(default_factory=Counter)
    engine: Any = None
    steady: bool = False
    until: float = math.inf
    late: bool = False

    def sizes(self, asked: Sequence[tuple[Ids, int]]) -> list[float]:
        """Steps of a batch of such prompts and new tokens, the tokens read (what is shared, once) and those written."""
        prompts, new = zip(*asked, strict=True)
        read = sum(shared + sum(len(p) - shared for p in family) for family, shared in families({*prompts}))
        return [max(max(new), sum(new) / min(self.batch, len(new))), read, sum(new)]

    def seconds(self, asked: Sequence[tuple[Ids, int]]) -> float:
        """How long requests take: by steps and tokens, whose shares were found from all that was asked."""
        from scipy.optimize import nnls

        if not asked:
            return 0.0
        sizes, took = (np.array(column) for column in zip(*self.seen, strict=True))
        return float(nnls(sizes / took[:, None], np.ones(len(took)))[0] @ self.sizes(asked))


@dataclass
class RehearsedConfig(TransformersEngineConfig):
    """Stands in the place of the engine that runs judges; without a ledger, of one that may be paid for."""

    ledger: Any = field(default=None, metadata={"in_fingerprint": False})

    makes = "judgetrain.extras.init.rehearsal:Rehearsed"


class Rehearsed:
    """Has the model answer some of the requests, and answers all of them as a judge that has learned the form.

    The untrained base speaks for itself: whether it keeps to the form decides what is asked next.
    """

    def __init__(self, config: RehearsedConfig) -> None:
        self.name, self._ledger = config.model_name, config.ledger
        if (ledger := config.ledger) is None:
            return
        self._untrained = config.model.path == ledger.base
        if ledger.engine is None:  # one model stands for all of a run, whose loading counts each time
            began = now()
            settings = TransformersEngineConfig(model=config.model, batch_size=config.batch_size)
            ledger.engine = TransformersEngine(settings)
            ledger.load = now() - began
        else:
            ledger.pending += ledger.load

    def close(self) -> None:
        """The model stays for the next judge."""

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request, in order."""
        ledger, draws = self._ledger, [derive_seed(seed, i) for i in range(len(requests))]
        if ledger is None:
            return [_completion(reply(r, draw, True), r, 1, 1) for r, draw in zip(requests, draws, strict=True)]
        fits, done = encode(requests, ledger.engine.tokenizer, ledger.engine.max_context)
        for completion in done.values():
            long = "do not fit into the model's context: try prompts=compact, or a base that reads longer texts"
            why = long if completion.finish_reason == "too_long" else completion.error
            ledger.cut[f"{requests[0].step} prompts {why}"] += 1
        own_words = self._untrained and requests[0].step != "guideline"  # on which what is asked next does not depend
        kind = requests[0].step, own_words
        before = ledger.spent[kind]
        asked = self._asked([(requests[i], prompt) for i, prompt in fits.items()], seed, kind)
        for n, (i, prompt) in enumerate(fits.items()):
            own, length = ledger.answers[kind], self._length(requests[i], i, own_words)
            said = reply(requests[i], draws[i], ledger.steady)
            pretended = _completion(said, requests[i], len(prompt), length)
            done[i] = own[n % len(own)] if own_words and own else pretended
        if not own_words:  # which was asked for less than it will write: its time counts as all others'
            asked, ledger.pending = 0, ledger.pending - ledger.spent[kind] + before
        ledger.pending += ledger.seconds([(fits[i], done[i].generated_tokens) for i in [*fits][asked:]])
        return [done[i] for i in range(len(requests))]

    def _length(self, request: Request, number: int, untrained: bool) -> int:
        """As long a text as a trained judge writes; what would be cut is counted."""
        most = request.sampling.max_new_tokens
        known = self._ledger.lengths.get("judgment" if request.step == "score" else request.step)
        tokens = known[number % len(known)] if known else -(-most // 2)
        if tokens > most and not untrained:
            told = f"{request.step} texts are longer than the {most} tokens that they may have"
            self._ledger.cut[f"{told} (judge.*_tokens, tree.*_sampling)"] += 1
        return min(tokens, most)

    def _asked(self, asking: Sequence[tuple[Request, Ids]], seed: int, kind: tuple[str, bool]) -> int:
        """How many of the requests, the first ones, the model was asked: first one alone."""
        ledger, asked = self._ledger, 0
        found = ledger.answers[kind]
        while asked < len(asking) and len(found) < 2 * ledger.batch:
            ledger.late = time.monotonic() > ledger.until
            if ledger.seen and (ledger.late or (ledger.spent[kind] > ENOUGH and len(ledger.seen) > 1)):
                break
            few = 1 if kind[1] or not ledger.seen else min(FEW, ledger.batch)
            size = ledger.batch if 0 < ledger.spent[kind] < ENOUGH / 10 else few
            began, (part, prompts) = now(), zip(*asking[asked:][:size], strict=True)
            if not kind[1]:  # what it writes is not used
                short = (replace(r.sampling, max_new_tokens=min(SHORT, r.sampling.max_new_tokens)) for r in part)
                part = tuple(replace(each, sampling=sampling) for each, sampling in zip(part, short, strict=True))
            found += ledger.engine.generate(part, seed)
            took, asked = now() - began, asked + len(part)
            written = [each.generated_tokens for each in found[-len(part) :]]
            ledger.seen.append((ledger.sizes([*zip(prompts, written, strict=True)]), took))
            ledger.spent[kind] += took
        return asked


def _completion(text: str, request: Request, prompt: int, tokens: int) -> Completion:
    """A pretended answer, with sure probabilities where a score stands."""
    wanted = request.sampling.candidates
    sure = {score: tuple(float(each == score) for each in wanted) for score in SCORES}
    places = re.finditer(r"(?<=Score: )[1-5]", text) if wanted else ()
    choices = tuple(Choice(found.start(), sure[found[0]]) for found in places)
    return Completion(text=text, prompt_tokens=prompt, generated_tokens=tokens, finish_reason="stop", choices=choices)
