"""Keep the answers of paid models on disk, hold spending within limits, and estimate it.

Nothing is paid twice, and no more is spent than allowed. An estimate runs a stage with an engine that answers nothing
real in the model's place, and adds up the tokens.
"""

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from judgetrain.amounts import amount
from judgetrain.artifacts.environment import unresolved
from judgetrain.artifacts.files import held_if_free, read_json, write_text_atomic
from judgetrain.artifacts.fingerprint import fingerprint
from judgetrain.artifacts.stage_run import StageRun, derive_seed
from judgetrain.engines.base import Choice, Completion, Request, Step, cut_at_stop
from judgetrain.engines.config import EngineConfig, LimitsConfig
from judgetrain.errors import EngineError

ANSWERS = "answers"
"""The folder of ``output_dir`` that holds every answer of a paid model."""


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has: four ASCII characters are a token, and so is any other character."""
    ascii_characters = sum(character.isascii() for character in text)
    other_characters = len(text) - ascii_characters
    return math.ceil(ascii_characters / 4) + other_characters


FRAME_TOKENS = 4
"""Tokens that a chat template puts around each message, about."""


def prompt_tokens(request: Request) -> int:
    """Return an upper estimate of the tokens in a request's messages, with those around each message."""
    return sum(counted_tokens(message["content"]) + FRAME_TOKENS for message in request.messages)


def counted_tokens(text: str) -> int:
    """Return an upper estimate of a text's tokens, where nobody reports them: half as many again as estimated."""
    return math.ceil(3 * estimated_tokens(text) / 2)


def writable(text: str) -> str:
    """Return the text with question marks for halves of surrogate pairs, which cut answers may hold and no file can."""
    return text.encode("utf-8", "replace").decode("utf-8")


def answers_of(engine: EngineConfig, home: Path, seed: int) -> "AnswerStore | None":
    """Return the store of an engine's answers if the engine may be paid, else None.

    Args:
        engine: the engine that is asked.
        home: ``output_dir``.
        seed: the run's.
    """
    if not engine.paid:
        return None
    return AnswerStore(home / ANSWERS, seed)


@contextmanager
def spending(
    engines: Iterable[EngineConfig | None], limits: LimitsConfig, key: str, out: StageRun
) -> "Iterator[Budget | None]":
    """Yield the budget of a stage that asks these engines; None if none of them may be paid.

    At the end, however it comes, the manifest's notes say what was spent.

    Args:
        engines: the engines that the stage asks.
        limits: how much may be spent.
        key: the section of the configuration that holds the limits, for messages.
        out: the stage's run.
    """
    # Models that cost nothing need no limits, and then other processes may share the work.
    if not any(engine and engine.paid for engine in engines):
        yield None
        return
    # In the artifact's directory, so that a run that goes on counts from what the last one spent.
    budget = Budget(out.path(".spent.jsonl"), limits.max_requests, limits.max_tokens, key)
    try:
        yield budget
    finally:
        out.note("spent", budget.spent)
        if budget.left_out:
            out.note("refused_parameters", sorted(budget.left_out))


class AnswerStore:
    """Answers by the content of their requests: one file each, whole or not at all, shared by all runs.

    A request's content is the server, the model, the messages, the sampling and a seed, which is derived from these and
    the run's seed. A request that is repeated in one call, or tried at another attempt, gets another seed each time,
    and so another sample. No secret is part of the content: neither the key nor secrets in the address.

    Several processes may share the folder. The one that asks for an answer claims it meanwhile (:meth:`claimed`).

    Args:
        directory: holds the files, in folders by the first two digits of their names.
        seed: the run's; another seed asks for other samples.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._seed = seed

    def contents(
        self,
        model: str,
        requests: Sequence[Request],
        server: str = "",
        parameters: Callable[[Request], Mapping[str, Any]] = lambda request: {},
    ) -> list[dict[str, Any]]:
        """Return the content of each request of one call, its ``seed`` included.

        Args:
            model: the model's name at the server.
            requests: the requests of the call.
            server: the address without secrets.
            parameters: returns the further parameters that are sent with a request.
        """
        repetitions: Counter[str] = Counter()
        contents: list[dict[str, Any]] = []
        for request in requests:
            content: dict[str, Any] = {
                "server": server,
                "model": model,
                "messages": [dict(message) for message in request.messages],
                "sampling": asdict(request.sampling),
            }
            # Left out where there are none, so that answers from before there were any are found.
            further = parameters(request)
            if further:
                content["parameters"] = dict(further)

            # Equal requests of one call are told apart by how often each has come before.
            digest = _digest(content)
            seed_parts: list[object] = [self._seed, digest, repetitions[digest]]

            # Left out of the seed of first attempts, so that answers from before there were others are found.
            if request.attempt:
                seed_parts.append(request.attempt)
            repetitions[digest] += 1
            contents.append(content | {"seed": derive_seed(*seed_parts)})
        return contents

    def get(self, content: Mapping[str, Any]) -> Completion | None:
        """Return the answer to a request of this content, or None.

        Raises:
            EngineError: the file is damaged.
        """
        path = self._path(content)
        if not path.is_file():
            return None
        stored = read_json(path)
        if not isinstance(stored, dict) or stored.pop("checksum", None) != fingerprint(stored):
            raise EngineError(f"{path} holds a damaged answer: remove it, and the same command asks (and pays) again")

        fields = stored["completion"]
        fields["choices"] = tuple(Choice(row["at"], tuple(row["probabilities"])) for row in fields["choices"])
        # An early version kept texts as they came.
        fields["text"] = writable(fields["text"])
        return Completion(**fields)

    def put(self, content: Mapping[str, Any], completion: Completion) -> None:
        """Keep an answer with its request's content.

        Raises:
            JudgetrainError: the disk is full.
        """
        # The file's name, not this content, is what an answer is found by.
        named = {}
        for name, part in content.items():
            # Messages are the user's texts, in which nothing is replaced.
            if name != "messages":
                part = unresolved(part)
            named[name] = part
        stored = {"request": named, "completion": asdict(completion)}
        # json.dumps writes ASCII: a prompt may hold half of a surrogate pair, which is no UTF-8.
        text = json.dumps(stored | {"checksum": fingerprint(stored)}, indent=1)
        write_text_atomic(self._path(content), text)

    def forget(self, content: Mapping[str, Any]) -> None:
        """Remove the answer to a request of this content, which turned out to be none."""
        self._path(content).unlink(missing_ok=True)

    def given_up(self, content: Mapping[str, Any]) -> int:
        """Note that a run gave up on a request of this content, and return how many runs have done so."""
        # Beside the place of the answer, so that runs of any stage count together.
        path = self._path(content).with_suffix(".failed")
        path.parent.mkdir(parents=True, exist_ok=True)
        # The file has one byte for every run.
        with path.open("a") as file:
            file.write("x")
        return path.stat().st_size

    @contextmanager
    def claimed(self, content: Mapping[str, Any]) -> Iterator[bool]:
        """Claim an answer that is about to be asked for, and yield whether no other process has claimed it.

        The operating system ends the claim of a process that dies. A claim is one of a few files, each of which stands
        for many answers; so a process now and then waits for another without need.
        """
        # Three hex digits: 4,096 files at most, where one for each answer would be millions.
        place = self._directory / ".claims" / _digest(content)[:3]
        place.mkdir(parents=True, exist_ok=True)
        with held_if_free(place) as free:
            yield free

    def _path(self, content: Mapping[str, Any]) -> Path:
        """Return the file of an answer."""
        name = _digest(content)
        return self._directory / name[:2] / f"{name}.json"


def _digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a request's content, in hex."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


COUNTED = ("requests", "prompt_tokens", "generated_tokens")
"""Counts that every budget reports, also where they are 0."""


class Budget:
    """Limits on requests and tokens, with a file of what was spent that survives a kill and restarts.

    A request counts when it is sent, whatever comes of it. From then on it holds its estimated prompt and its whole
    ``max_new_tokens``, until its answer says how many tokens it took. If no answer came although the server may have
    charged for one (a time-out, a broken answer, a kill), the tokens that it held are spent.

    Args:
        path: the file of what was spent, a line of JSON for every change.
        max_requests: the most HTTP requests, tries that failed included; None: no limit.
        max_tokens: the most prompt and generated tokens together; None: no limit.
        key: the section of the configuration that holds the limits, for messages.
    """

    def __init__(
        self, path: Path, max_requests: int | None = None, max_tokens: int | None = None, key: str = "teacher"
    ) -> None:
        self._path = path
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._key = key
        # The most tokens that an answer had so far.
        self._longest = 0
        self.left_out: set[str] = set()
        """Parameters that the server refused and that later requests went without."""
        self._counts = self._earlier_counts()

        # Requests that a kill left under way may have been charged.
        abandoned = self._counts["held"]
        if abandoned:
            self._add(held=-abandoned, unknown_tokens=abandoned)

    def _earlier_counts(self) -> Counter[str]:
        """Return what earlier runs of the stage spent, by kind."""
        counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        if not self._path.exists():
            return counts
        for line in self._path.read_text(encoding="utf-8").splitlines():
            # A kill may have cut a line.
            with suppress(ValueError):
                counts.update(json.loads(line))
        return counts

    @property
    def spent(self) -> dict[str, int]:
        """Return requests and tokens by kind.

        Where there are any, ``unknown_tokens`` may have been charged although no answer came, and ``estimated_tokens``
        are those of all tokens that no server reported.
        """
        spent = {}
        for name, number in self._counts.items():
            if name != "held" and (number or name in COUNTED):
                spent[name] = number
        return spent

    @property
    def _tokens(self) -> int:
        """Return the tokens that count against the limit, without those that requests under way hold."""
        return sum(self._counts[name] for name in ("prompt_tokens", "generated_tokens", "unknown_tokens"))

    def waits(self, request: Request) -> bool:
        """Return whether a request has to wait for others, which may take fewer tokens than they hold."""
        if self._max_tokens is None or self._counts["held"] <= 0:
            return False
        # It fits beside what is spent, but not beside what requests under way may still take.
        needed = self._tokens + self._hold(request)
        return needed <= self._max_tokens < needed + self._counts["held"]

    def send(self, request: Request) -> int:
        """Count a request that is about to be sent, and return the tokens that it holds until :meth:`settle`.

        Raises:
            EngineError: it would go beyond a limit; nothing is counted.
        """
        held = self._hold(request)
        if self._max_requests is not None and self._counts["requests"] >= self._max_requests:
            raise EngineError(
                f"{self._key}.max_requests={self._max_requests}: so many are sent; every answer is kept: raise it and "
                f"run the same command again, and it goes on where it stopped"
            )
        if self._max_tokens is not None and self._tokens + self._counts["held"] + held > self._max_tokens:
            note = ""
            unreported = self._counts["estimated_tokens"] + self._counts["unknown_tokens"]
            if unreported:
                note = f" ({unreported} of them by estimate, since the server reported none)"
            raise EngineError(
                f"{self._key}.max_tokens={self._max_tokens}: {self._tokens} are spent{note}, and the next request may "
                f"take {held}; every answer is kept: raise it and run the same command again, and it goes on where it "
                f"stopped"
            )
        self._add(requests=1, held=held)
        return held

    def settle(self, held: int, completion: Completion | None, charged: bool = False) -> None:
        """Free the tokens that a request held, and count those of its answer.

        Args:
            held: what :meth:`send` returned.
            completion: the answer; None where none came.
            charged: the server may have charged although no answer came.
        """
        amounts = {"held": -held}
        if completion is not None:
            self._longest = max(self._longest, completion.generated_tokens)
            amounts["prompt_tokens"] = completion.prompt_tokens
            amounts["generated_tokens"] = completion.generated_tokens
            if completion.estimated:
                amounts["estimated_tokens"] = completion.prompt_tokens + completion.generated_tokens
        # Nobody knows how many tokens the server counted: all that the request could have taken are taken for spent.
        elif charged:
            amounts["unknown_tokens"] = held
        self._add(**amounts)

    def _hold(self, request: Request) -> int:
        """Return the most tokens that a request may take."""
        # Some models think beyond max_new_tokens, as earlier answers show.
        longest_answer = max(request.sampling.max_new_tokens, self._longest)
        return prompt_tokens(request) + longest_answer

    def _add(self, **amounts: int) -> None:
        """Add to the counts, here and in the file."""
        self._counts.update(amounts)
        # The break comes first, so that a line which a kill has cut spoils no other.
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"\n{json.dumps(amounts)}")


Costs = defaultdict[Step, Counter[str]]
"""The number of ``calls`` and their tokens, by step.

``prompt`` and ``generated`` tokens are expected. ``prompt_at_most`` and ``at_most`` hold if every answer is as long as
allowed, guidelines among them, which judgment prompts repeat.
"""


@dataclass
class CostProbe(EngineConfig):
    """The configuration of an :class:`CostEstimator`, which takes an engine's place; ``costs`` are added up in it."""

    name: str = ""
    costs: Costs = field(default_factory=lambda: defaultdict(Counter), metadata={"in_fingerprint": False})

    makes = "judgetrain.engines.answers:CostEstimator"


class CostEstimator:
    """An engine that answers every request at once, half as long as allowed, and adds up the costs.

    Answers have the form of their step, as far as later requests depend on it.
    """

    continues = False

    def __init__(self, config: CostProbe) -> None:
        self.name = config.name
        self._costs = config.costs
        # How many tokens a guideline may have beyond the expected ones.
        self._guideline_surplus = 0

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """Return an answer to each request."""
        return [self._answer(request) for request in requests]

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _answer(self, request: Request) -> Completion:
        """Return an answer to a request, and add its tokens to the costs."""
        longest = request.sampling.max_new_tokens
        generated = _half(longest)
        prompt = sum(estimated_tokens(message["content"]) + FRAME_TOKENS for message in request.messages)
        prompt_at_most = prompt
        if request.step == "guideline":
            self._guideline_surplus = longest - generated
        elif request.step in ("judgment", "score"):
            # These prompts repeat the guideline.
            prompt_at_most += self._guideline_surplus

        self._costs[request.step].update(
            calls=1, prompt=prompt, prompt_at_most=prompt_at_most, generated=generated, at_most=longest
        )
        text = form_text(request)
        return Completion(text=text, prompt_tokens=prompt, generated_tokens=generated, finish_reason="stop")


_TEXTS: Mapping[Step, str] = {"pairwise": "[[A]]", "pointwise": "[[5]]", "preference": "[[X]]"}
"""The least answer that can be read, by the step of its request."""


def form_text(request: Request) -> str:
    """Return a text in the form of a request's step, as far as later requests depend on it."""
    if request.step in ("criteria", "rubric"):
        count = int(request.slots["count"])
        text = "\n".join(f"{number}. Aspect {number}: what it looks at" for number in range(1, count + 1))
        return cut_at_stop(text, request.sampling.stop) or text
    if request.step in _TEXTS:
        return _TEXTS[request.step]
    # Four characters make a token, and a word has five with its blank.
    words = 4 * _half(request.sampling.max_new_tokens) // 5
    return "word " * words


def _half(number: int) -> int:
    """Return half of a number, rounded up."""
    return math.ceil(number / 2)


def described(costs: Mapping[Step, Counter[str]], limits: LimitsConfig, key: str) -> Iterator[str]:
    """Yield the lines that show an estimate.

    Args:
        costs: the estimate.
        limits: how much may be spent; a limit that does not suffice gets a line.
        key: the section of the configuration that holds the limits.
    """
    for step, cost in costs.items():
        yield (
            f"  {step}: {amount(cost['calls'], 'call')}, {cost['prompt']:,} prompt tokens, {cost['generated']:,} "
            "generated "
            f"(at most {cost['prompt_at_most']:,} and {cost['at_most']:,})"
        )

    total = sum(costs.values(), Counter[str]())
    expected = total["prompt"] + total["generated"]
    most = total["prompt_at_most"] + total["at_most"]
    yield (
        f"  all: {amount(total['calls'], 'call')}, about {amount(expected, 'token')}, at most {most:,}; tries that "
        "fail come on top"
    )

    if limits.max_requests is not None and limits.max_requests < total["calls"]:
        yield f"  {key}.max_requests={limits.max_requests:,} does not suffice"
    if limits.max_tokens is not None and limits.max_tokens < expected:
        yield f"  {key}.max_tokens={limits.max_tokens:,} does not suffice"
