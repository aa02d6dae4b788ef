"""Answer at once as a judge that has learned the form would, and work out how long the model would take."""

import math
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from judgetrain.amounts import amount
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.answers import form_text
from judgetrain.engines.base import Choice, Completion, Request
from judgetrain.engines.config import TransformersEngineConfig
from judgetrain.engines.local.decoding import Ids, tokens_to_read
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.prompting import encode
from judgetrain.label.labels import judgment
from judgetrain.schema import Verdict

ENOUGH = 2.0
"""Seconds after which no more requests of a kind are asked. Of the first kind there are two batches at least, since one
does not tell what a step and what a token takes."""
FEW = 16
"""Requests asked together; where a batch takes no time, as many as a run asks together."""
COMPUTES = 0.25
"""The least share of the calling thread's work that a thread which computes for it does."""
SHORT = 8
"""Tokens that a trained model is asked for: longer answers take as long a token."""


class Lost:
    """Adds up the seconds for which this process computed nothing since others used the cores, as Linux counts them.

    Besides the calling thread's own waiting it is its sleep while threads that compute for it, as those of a matrix
    product, waited for a core. What the caller slept for another reason, as a GPU or a disk, is not lost.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._second = time.monotonic()
        self._threads = _threads()

    def __call__(self) -> float:
        """Return the seconds that were lost so far; always 0 on other systems than Linux."""
        second = time.monotonic()
        threads = _threads()
        caller = str(threading.get_native_id())
        ran, waited = _since(self._threads, threads, caller)
        slept = max(0.0, second - self._second - ran - waited)
        longest = 0.0
        for thread in threads:
            ran_there, waited_there = _since(self._threads, threads, thread)
            # Threads that hardly compute, as the one that prints lines, hold nobody up.
            if thread != caller and ran_there >= COMPUTES * ran:
                longest = max(longest, waited_there)
        self._seconds += waited + min(slept, longest)
        self._second = second
        self._threads = threads
        return self._seconds


def _threads() -> dict[str, tuple[float, float]]:
    """Return the seconds that each thread of this process ran, and waited for a core, by its number."""
    seconds = {}
    # Threads may end meanwhile; other systems have no such files.
    with suppress(OSError):
        for place in Path("/proc/self/task").iterdir():
            with suppress(OSError):
                ran, waited, _ = (place / "schedstat").read_text().split()
                seconds[place.name] = (int(ran) / 1e9, int(waited) / 1e9)
    return seconds


def _since(
    before: Mapping[str, tuple[float, float]], after: Mapping[str, tuple[float, float]], thread: str
) -> tuple[float, float]:
    """Return the seconds that a thread ran and waited between two looks."""
    ran, waited = after.get(thread, (0.0, 0.0))
    ran_before, waited_before = before.get(thread, (0.0, 0.0))
    return ran - ran_before, waited - waited_before


lost = Lost()
"""Returns the seconds that this process lost to others since it began."""


def now() -> float:
    """Return seconds by a clock that stands still while others use the cores."""
    return time.monotonic() - lost()


def reply(request: Request, draw: int, steady: bool) -> str:
    """Return what a judge that has learned the form might write.

    Args:
        request: what it is asked.
        draw: a random number of this request.
        steady: whether it always says the same of two responses; else it judges by chance, by ``draw``.
    """
    # A judge that reads one response: its frame has a single score.
    if request.step == "score":
        return f"Score: {1 + _pretended_worth(request, 'response', draw, steady) % 5}"
    if request.step in ("judgment", "pairwise"):
        worth_a = _pretended_worth(request, "response_a", draw, steady)
        worth_b = _pretended_worth(request, "response_b", draw, steady)
        better: Verdict = "B"
        if worth_a > worth_b:
            better = "A"
        if request.step == "judgment":
            return judgment(better)
        return f"[[{better}]]"
    if request.step == "response":
        # Equal responses would be dropped, so no two are.
        return form_text(request) + str(draw)
    return form_text(request)


def _pretended_worth(request: Request, slot: str, draw: int, steady: bool) -> int:
    """Return a number for a response: by its text and the criterion where the judge is steady, else by the draw."""
    text = request.slots[slot]
    if not steady:
        return derive_seed(draw, text)
    # The text's own part is the same by every criterion, so that a steady judge's criteria mostly agree; the other part
    # lets them differ.
    return derive_seed(text) + derive_seed(request.slots.get("criterion", ""), text)


RequestKind = tuple[str, bool, bool]
"""A step, whether the model is untrained, and whether a score alone is asked for: such requests take about as long."""


@dataclass
class Ledger:
    """The measurements of a rehearsal.

    Args:
        base: the path of the untrained model.
        batch: requests that a run asks together.
        lengths: tokens of the texts that the teacher wrote, by level: judges write as much. Where there are none, half
            of what they may write is assumed.
        pending: seconds that answering everything would have taken beyond those that passed.
        load: seconds that the model took to load.
        cut: texts that are cut or left out, by the reason.
        seen: batches that were asked: their :meth:`sizes`, and the seconds that they took.
        answers: what was answered, by step, whether the model is untrained, and whether a score alone was asked for.
        spent: likewise the seconds that it took.
        engine: the model.
        steady: how the pretended judge judges (:func:`reply`).
        until: when nothing more is asked but the first request, by ``time.monotonic``.
        late: whether that time came.
    """

    base: str
    batch: int
    lengths: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    pending: float = 0.0
    load: float = 0.0
    cut: Counter[str] = field(default_factory=Counter)
    seen: list[tuple[list[float], float]] = field(default_factory=list)
    answers: dict[RequestKind, list[Completion]] = field(default_factory=lambda: defaultdict(list))
    spent: Counter[RequestKind] = field(default_factory=Counter)
    engine: Any = None
    steady: bool = False
    until: float = math.inf
    late: bool = False

    def sizes(self, requests: Sequence[tuple[Ids, int]]) -> list[float]:
        """Return the steps that a batch takes, the tokens it reads (a beginning that prompts share once) and writes.

        Args:
            requests: each one's prompt and number of new tokens.
        """
        prompts, new_tokens = zip(*requests, strict=True)
        # The engine reads a common beginning once and copies its cache; the reckoning must do likewise.
        tokens_read = tokens_to_read(prompts)
        written = sum(new_tokens)
        # A place in the batch that is free is filled at once, so the steps are those of the longest or of the mean.
        steps = max(max(new_tokens), written / min(self.batch, len(new_tokens)))
        return [steps, tokens_read, written]

    def seconds(self, requests: Sequence[tuple[Ids, int]]) -> float:
        """Return how long requests take, by what a step and a token took of all that was asked.

        Args:
            requests: each one's prompt and number of new tokens.
        """
        from scipy.optimize import nnls

        if not requests:
            return 0.0
        sizes = np.array([sizes for sizes, _ in self.seen])
        seconds = np.array([seconds for _, seconds in self.seen])
        # Divided by its seconds, every batch has the same weight, however long it took.
        # Not below 0: with few batches plain least squares would give a step or a token negative time.
        shares, _ = nnls(sizes / seconds[:, None], np.ones(len(seconds)))
        return float(shares @ self.sizes(requests))


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
        self.name = config.model_name
        self._ledger = config.ledger
        ledger = config.ledger
        if ledger is None:
            return
        self._untrained = config.model.path == ledger.base
        # One model stands for all of a run, but each of them would have to be loaded.
        if ledger.engine is not None:
            ledger.pending += ledger.load
            return
        began = now()
        settings = TransformersEngineConfig(model=config.model, batch_size=config.batch_size)
        ledger.engine = TransformersEngine(settings)
        ledger.load = now() - began

    def close(self) -> None:
        """Leave the model to the next judge."""

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """Return one completion per request, in order."""
        draws = [derive_seed(seed, number) for number in range(len(requests))]
        ledger = self._ledger
        if ledger is None:
            pairs = zip(requests, draws, strict=True)
            return [_completion(reply(request, draw, True), request, 1, 1) for request, draw in pairs]
        step = requests[0].step
        # Completions that are there already are those of prompts that do not fit: the model would not be asked about
        # them.
        prompts, completions = encode(requests, ledger.engine.tokenizer, ledger.engine.max_context)
        for completion in completions.values():
            reason = completion.error
            if completion.finish_reason == "too_long":
                reason = "do not fit into the model's context: try prompts=compact, or a base that reads longer texts"
            ledger.cut[f"{step} prompts {reason}"] += 1

        # What is asked next does not depend on a guideline, so a pretended one does.
        speaks = self._untrained and step != "guideline"
        # A score alone takes one pass of the model, so that judgments in words are no measure of it.
        alone = bool(requests[0].begins)
        kind = (step, speaks, alone)
        spent_before = ledger.spent[kind]
        count = self._ask([(requests[number], prompt) for number, prompt in prompts.items()], seed, kind)
        answers = ledger.answers[kind]
        for place, (number, prompt) in enumerate(prompts.items()):
            tokens = self._length(requests[number], number, speaks)
            # What the base itself wrote, in turn, stands for what it would write to the others.
            if speaks and answers:
                completions[number] = answers[place % len(answers)]
            else:
                text = reply(requests[number], draws[number], ledger.steady)
                completions[number] = _completion(text, requests[number], len(prompt), tokens)
        if not speaks:
            # The model was asked for less than the judge will write, so these requests count as all others do.
            count = 0
            ledger.pending -= ledger.spent[kind] - spent_before
        # Only these are reckoned; the time of those that were asked has passed.
        not_asked = [*prompts][count:]
        ledger.pending += ledger.seconds(
            [(prompts[number], completions[number].generated_tokens) for number in not_asked]
        )
        return [completions[number] for number in range(len(requests))]

    def _length(self, request: Request, number: int, untrained: bool) -> int:
        """Return how many tokens a trained judge would write, and count what would be cut.

        Args:
            request: what it is asked.
            number: of the request; lengths of the teacher's texts are taken in turn.
            untrained: whether the base answers, whose texts are not counted.
        """
        most = request.sampling.max_new_tokens
        # Lengths are known by the teacher's levels, which have no name for a judgment of one response.
        level = request.step
        if request.begins:
            # A score alone, whose length is no text's: the engine stops behind it, and nothing is cut.
            return most
        if level == "score":
            level = "judgment"
        lengths = self._ledger.lengths.get(level)
        tokens = math.ceil(most / 2)
        if lengths:
            tokens = lengths[number % len(lengths)]
        if tokens > most and not untrained:
            reason = (
                f"{request.step} texts are longer than the {amount(most, 'token')} that they may have (judge.*_tokens, "
                "tree.*_sampling)"
            )
            self._ledger.cut[reason] += 1
        return min(tokens, most)

    def _ask(self, requests: Sequence[tuple[Request, Ids]], seed: int, kind: RequestKind) -> int:
        """Ask the model the first requests, one alone at first, and return how many it was asked.

        Args:
            requests: with their prompts.
            seed: of the call.
            kind: of all of them.
        """
        ledger = self._ledger
        answers = ledger.answers[kind]
        count = 0
        # Two batches of a kind are enough to tell a token's time from a step's.
        while count < len(requests) and len(answers) < 2 * ledger.batch:
            ledger.late = time.monotonic() > ledger.until
            enough = ledger.spent[kind] > ENOUGH and len(ledger.seen) > 1
            # One batch is asked in any case, or nothing could be reckoned.
            if ledger.seen and (ledger.late or enough):
                break
            batch = requests[count:][: self._next_size(kind)]
            count += len(batch)
            self._ask_batch(batch, seed, kind)
        return count

    def _next_size(self, kind: RequestKind) -> int:
        """Return how many requests to ask together next."""
        ledger = self._ledger
        _, speaks, _ = kind
        # Requests of this kind take hardly any time: a whole batch is a better measure than its parts.
        if 0 < ledger.spent[kind] < ENOUGH / 10:
            return int(ledger.batch)
        # What a request takes is not known yet; and the untrained base may write to its token limit.
        if speaks or not ledger.seen:
            return 1
        return int(min(FEW, ledger.batch))

    def _ask_batch(self, batch: Sequence[tuple[Request, Ids]], seed: int, kind: RequestKind) -> None:
        """Ask the model, and note what it took."""
        ledger = self._ledger
        _, speaks, _ = kind
        began = now()
        asked_requests = []
        for request, _ in batch:
            if not speaks:
                # What it writes is not used.
                few_tokens = min(SHORT, request.sampling.max_new_tokens)
                request = replace(request, sampling=replace(request.sampling, max_new_tokens=few_tokens))
            asked_requests.append(request)
        completions = ledger.engine.generate(tuple(asked_requests), seed)
        seconds = now() - began
        ledger.answers[kind] += completions
        sizes = ledger.sizes(
            [(prompt, answer.generated_tokens) for (_, prompt), answer in zip(batch, completions, strict=True)]
        )
        ledger.seen.append((sizes, seconds))
        ledger.spent[kind] += seconds


def _completion(text: str, request: Request, prompt: int, tokens: int) -> Completion:
    """Return a pretended answer, with sure probabilities where a score stands.

    Args:
        text: of the answer.
        request: what was asked.
        prompt: tokens of the prompt.
        tokens: of the answer.
    """
    candidates = request.sampling.candidates
    choices = []
    if candidates:
        for match in re.finditer(r"(?<=Score: )[1-5]", text):
            # Judges that read expected scores get the written one, with certainty.
            sure = tuple(float(candidate == match[0]) for candidate in candidates)
            choices.append(Choice(match.start(), sure))
    return Completion(
        text=text, prompt_tokens=prompt, generated_tokens=tokens, finish_reason="stop", choices=tuple(choices)
    )
