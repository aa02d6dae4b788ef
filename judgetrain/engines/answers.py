"""Answers of a paid model on disk, and what they cost: nothing is paid twice, and no more than allowed.

What they are expected to cost is found by asking an engine that answers nothing real in the model's place.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import held_if_free, read_json, write_text_atomic
from judgetrain.artifacts.fingerprint import fingerprint
from judgetrain.artifacts.stage_run import StageRun, derive_seed
from judgetrain.engines.base import Choice, Completion, Request, Step, cut_at_stop
from judgetrain.engines.config import EngineConfig, LimitsConfig
from judgetrain.errors import EngineError

ANSWERS = "answers"
"""The folder of ``output_dir`` that holds every answer of a paid model."""


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has: four ASCII characters a token, one of any other script."""
    ascii_ = sum(c.isascii() for c in text)
    return -(-ascii_ // 4) + len(text) - ascii_


def prompt_tokens(request: Request) -> int:
    """No fewer tokens, as a rule, than a request's messages have, with four for the frame of each."""
    return sum(counted_tokens(m["content"]) + 4 for m in request.messages)


def counted_tokens(text: str) -> int:
    """Tokens of a text where nobody reports them: half as many again as estimated, to be on the safe side."""
    return -(-3 * estimated_tokens(text) // 2)


def writable(text: str) -> str:
    """The text with a question mark for each half of a surrogate pair, which a cut answer may hold and no file can."""
    return text.encode("utf-8", "replace").decode("utf-8")


def answers_of(engine: EngineConfig, home: Path, seed: int) -> "AnswerStore | None":
    """Where the answers of an engine are kept, if it is one that may be paid."""
    return AnswerStore(home / ANSWERS, seed) if engine.paid else None


@contextmanager
def spending(
    engines: Iterable[EngineConfig | None], limits: LimitsConfig, key: str, out: StageRun
) -> "Iterator[Budget | None]":
    """The budget of a stage that asks these engines; None if none of them may be paid.

    ``limits`` stand under ``key`` of the configuration. At the end, however it comes, the manifest says what was spent.
    """
    if not any(engine and engine.paid for engine in engines):
        yield None
        return
    budget = Budget(out.path(".spent.jsonl"), limits.max_requests, limits.max_tokens, key)
    try:
        yield budget
    finally:
        out.note("spent", budget.spent)


class AnswerStore:
    """Answers by the content of their requests: one file each, whole or not at all, shared by all runs.

    A request's content is the server, the model, the messages, the sampling and a seed, which is derived from these and
    the run's seed. The same several times in one call, or at another attempt, gives as many different seeds, and so
    different samples. Neither a key nor what else is secret in an address is part of it.

    Several processes may share the folder: whoever asks for an answer claims it meanwhile (:meth:`claimed`).

    Args:
        directory: where the files lie, in folders by the first two digits of their name.
        seed: of the run; another seed asks for other samples.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory, self._seed = directory, seed

    def contents(
        self,
        model: str,
        requests: Sequence[Request],
        server: str = "",
        parameters: Callable[[Request], Mapping[str, Any]] = lambda request: {},
    ) -> list[dict[str, Any]]:
        """The content of each request of one call, its ``seed`` included.

        ``server``: the address without secrets. ``parameters``: what else is sent with a request.
        """
        seen: Counter[str] = Counter()
        found: list[dict[str, Any]] = []
        for request in requests:
            content = {
                "server": server,
                "model": model,
                "messages": [dict(message) for message in request.messages],
                "sampling": asdict(request.sampling),
                **({"parameters": dict(more)} if (more := parameters(request)) else {}),
            }
            digest = _digest(content)
            again = [request.attempt] if request.attempt else []
            found.append(content | {"seed": derive_seed(self._seed, digest, seen[digest], *again)})
            seen[digest] += 1
        return found

    def get(self, content: Mapping[str, Any]) -> Completion | None:
        """The answer to a request of this content, if there is one (EngineError: it is not what was kept)."""
        path = self._path(content)
        if not path.is_file():
            return None
        stored = read_json(path)
        if not isinstance(stored, dict) or stored.pop("checksum", None) != fingerprint(stored):
            raise EngineError(f"{path} holds a damaged answer: remove it, and the same command asks (and pays) again")
        found = stored["completion"]
        choices = tuple(Choice(c["at"], tuple(c["probabilities"])) for c in found.pop("choices"))
        found["text"] = writable(found["text"])  # it may have been kept as it came
        return Completion(**found, choices=choices)

    def put(self, content: Mapping[str, Any], completion: Completion) -> None:
        """Keep an answer with its request's content (JudgetrainError: the disk is full)."""
        # ASCII: a prompt may hold half of a surrogate pair, which is no UTF-8.
        stored = {"request": content, "completion": asdict(completion)}
        write_text_atomic(self._path(content), json.dumps(stored | {"checksum": fingerprint(stored)}, indent=1))

    def given_up(self, content: Mapping[str, Any]) -> int:
        """Note that a run gave up on a request of this content; how many have done so."""
        path = self._path(content).with_suffix(".failed")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write("x")
        return path.stat().st_size

    @contextmanager
    def claimed(self, content: Mapping[str, Any]) -> Iterator[bool]:
        """Claim an answer that is about to be asked for; gives whether no other process has done so.

        The operating system ends the claim of a process that dies. Claims are few files that stay, each for many
        answers: now and then one waits for another without need.
        """
        place = self._directory / ".claims" / _digest(content)[:3]
        place.mkdir(parents=True, exist_ok=True)
        with held_if_free(place) as free:
            yield free

    def _path(self, content: Mapping[str, Any]) -> Path:
        name = _digest(content)
        return self._directory / name[:2] / f"{name}.json"


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


RAISE = "every answer is kept: raise it and run the same command again, and it goes on where it stopped"


class Budget:
    """What may be sent, and what was: a file of lines that survives a kill, so that the limits hold over restarts.

    A request counts when it is sent, whatever comes of it. From then on it holds its estimated prompt and its whole
    ``max_new_tokens``, until its answer says how many tokens it took. What a try held is spent where the server may
    have charged for it though no answer came: a time-out, a broken answer, a kill.

    Args:
        path: the file of what was spent.
        max_requests: HTTP requests, tries that failed included; None: no limit.
        max_tokens: prompt and generated tokens together; None: no limit.
        key: the part of the configuration that holds the limits, for messages.
    """

    def __init__(
        self, path: Path, max_requests: int | None = None, max_tokens: int | None = None, key: str = "teacher"
    ) -> None:
        self._path, self._max_requests, self._max_tokens, self._key = path, max_requests, max_tokens, key
        self._longest = 0
        self._counts: Counter[str] = Counter(requests=0, prompt_tokens=0, generated_tokens=0)
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            with suppress(ValueError):  # the line that a kill cut
                self._counts.update(json.loads(line))
        if lost := self._counts["held"]:  # by requests that a kill left under way
            self._add(held=-lost, unknown_tokens=lost)

    @property
    def spent(self) -> dict[str, int]:
        """Requests, tokens by kind, and where there are any: ``unknown_tokens``, which may have been charged, and
        ``estimated_tokens``, that part of all which no server reported."""
        always = ("requests", "prompt_tokens", "generated_tokens")
        return {name: n for name, n in self._counts.items() if name != "held" and (n or name in always)}

    @property
    def _tokens(self) -> int:
        return sum(self._counts[name] for name in ("prompt_tokens", "generated_tokens", "unknown_tokens"))

    def waits(self, request: Request) -> bool:
        """Whether a request has to wait for what others hold: they may take less than that."""
        held, limit = self._hold(request), self._max_tokens
        others = self._counts["held"]
        return limit is not None and others > 0 and self._tokens + held <= limit < self._tokens + others + held

    def send(self, request: Request) -> int:
        """Count a request that is about to be sent; gives the tokens that it holds until :meth:`settle` (EngineError:
        it would go beyond a limit; nothing is counted)."""
        held = self._hold(request)
        if self._max_requests is not None and self._counts["requests"] >= self._max_requests:
            raise EngineError(f"{self._key}.max_requests={self._max_requests} requests are sent; {RAISE}")
        if self._max_tokens is not None and self._tokens + self._counts["held"] + held > self._max_tokens:
            guessed = self._counts["estimated_tokens"] + self._counts["unknown_tokens"]
            told = f" ({guessed} of them by estimate, since the server reported none)" if guessed else ""
            spent = f"{self._key}.max_tokens={self._max_tokens}: {self._tokens} are spent{told}"
            raise EngineError(f"{spent}, and the next request may take {held}; {RAISE}")
        self._add(requests=1, held=held)
        return held

    def settle(self, held: int, completion: Completion | None, charged: bool = False) -> None:
        """Free what a request held and count the tokens of its answer; ``charged``: none came, and it may be paid."""
        if completion is None:
            self._add(held=-held, **({"unknown_tokens": held} if charged else {}))
            return
        self._longest = max(self._longest, completion.generated_tokens)
        tokens = {"prompt_tokens": completion.prompt_tokens, "generated_tokens": completion.generated_tokens}
        guessed = {"estimated_tokens": sum(tokens.values())} if completion.estimated else {}
        self._add(held=-held, **tokens, **guessed)

    def _hold(self, request: Request) -> int:
        # Some models think beyond max_new_tokens, which the answers before it tell.
        return prompt_tokens(request) + max(request.sampling.max_new_tokens, self._longest)

    def _add(self, **amounts: int) -> None:
        self._counts.update(amounts)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"\n{json.dumps(amounts)}")


Costs = defaultdict[Step, Counter[str]]
"""By step how many ``calls``, and their tokens: ``prompt`` and ``generated`` as expected, ``prompt_at_most`` and
``at_most`` when every answer is as long as may be (and guidelines with it, which judgment prompts repeat)."""


@dataclass
class CostProbe(EngineConfig):
    """Stands in an engine's place: its engine answers every request at once, half as long as it may be."""

    name: str = ""
    costs: Costs = field(default_factory=lambda: defaultdict(Counter), metadata={"in_fingerprint": False})

    makes = "judgetrain.engines.answers:Estimator"


class Estimator:
    """Answers in the form that each step has, as far as what is asked next depends on it, and adds up the costs."""

    def __init__(self, config: CostProbe) -> None:
        self.name, self._costs = config.name, config.costs
        self._guideline = 0  # tokens that the longest guideline may have beyond the expected

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """An answer to each."""
        return [self._answer(request) for request in requests]

    def close(self) -> None:
        """Nothing to free."""

    def _answer(self, request: Request) -> Completion:
        longest = request.sampling.max_new_tokens
        half = -(-longest // 2)
        prompt = sum(estimated_tokens(m["content"]) + 4 for m in request.messages)
        if request.step == "guideline":
            self._guideline = longest - half
        most = prompt + (self._guideline if request.step in ("judgment", "score") else 0)
        self._costs[request.step].update(calls=1, prompt=prompt, prompt_at_most=most, generated=half, at_most=longest)
        text = form_text(request)
        return Completion(text=text, prompt_tokens=prompt, generated_tokens=half, finish_reason="stop")


def form_text(request: Request) -> str:
    """A text in the form that a request's step has, as far as what is asked next depends on it."""
    if request.step in ("criteria", "rubric"):
        text = "\n".join(f"{i}. Aspect {i}: what it looks at" for i in range(1, int(request.slots["count"]) + 1))
        return cut_at_stop(text, request.sampling.stop) or text
    return _TEXTS.get(request.step, "word " * (4 * -(-request.sampling.max_new_tokens // 2) // 5))


_TEXTS: Mapping[Step, str] = {"pairwise": "[[A]]", "pointwise": "[[5]]", "preference": "[[X]]"}


def described(costs: Mapping[Step, Counter[str]], limits: LimitsConfig, key: str) -> Iterator[str]:
    """An estimate as lines; ``limits`` stand under ``key`` of the configuration."""
    for step, c in costs.items():
        told = f"{c['calls']:,} calls, {c['prompt']:,} prompt tokens, {c['generated']:,} generated"
        yield f"  {step}: {told} (at most {c['prompt_at_most']:,} and {c['at_most']:,})"
    total = sum(costs.values(), Counter[str]())
    expected, most = total["prompt"] + total["generated"], total["prompt_at_most"] + total["at_most"]
    yield f"  all: {total['calls']:,} calls, about {expected:,} tokens, at most {most:,}; tries that fail come on top"
    needed = ("max_requests", limits.max_requests, total["calls"]), ("max_tokens", limits.max_tokens, expected)
    for name, limit, number in needed:
        if limit is not None and limit < number:
            yield f"  {key}.{name}={limit:,} does not suffice"
