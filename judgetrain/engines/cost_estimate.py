"""What an engine is expected to cost, found by asking one that answers nothing real in its place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

from judgetrain.engines.answers import estimated_tokens
from judgetrain.engines.base import Completion, Request, Step, cut_at_stop
from judgetrain.engines.config import EngineConfig, LimitsConfig


@dataclass
class Cost:
    """Calls of one step, and their tokens: ``generated`` as expected, ``at_most`` when every answer is as long as may
    be (and guidelines with it, which judgment prompts repeat)."""

    calls: int = 0
    prompt: int = 0
    prompt_at_most: int = 0
    generated: int = 0
    at_most: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


class Costs(defaultdict[Step, Cost]):
    """Costs by step."""

    def __init__(self) -> None:
        super().__init__(Cost)


@dataclass
class CostProbe(EngineConfig):
    """Stands in an engine's place: its engine answers every request at once, half as long as it may be."""

    name: str = ""
    costs: Costs = field(default_factory=Costs, metadata={"in_fingerprint": False})

    makes = "judgetrain.engines.cost_estimate:Estimator"


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
        cost = self._costs[request.step]
        cost.calls += 1
        cost.prompt += prompt
        cost.prompt_at_most += prompt + (self._guideline if request.step in ("judgment", "score") else 0)
        cost.generated += half
        cost.at_most += longest
        text = _TEXTS[request.step] if request.step in _TEXTS else "word " * (4 * half // 5)
        if request.step == "criteria":
            text = "\n".join(f"{i}. Aspect {i}: what it looks at" for i in range(1, int(request.slots["count"]) + 1))
            text = cut_at_stop(text, request.sampling.stop) or text
        return Completion(text=text, prompt_tokens=prompt, generated_tokens=half, finish_reason="stop")


_TEXTS: Mapping[Step, str] = {"pairwise": "[[A]]", "single_token": "A", "pointwise": "[[5]]", "preference": "[[X]]"}


def described(costs: Mapping[Step, Cost], limits: LimitsConfig, key: str) -> Iterator[str]:
    """An estimate as lines; ``limits`` stand under ``key`` of the configuration."""
    for step, cost in costs.items():
        yield (
            f"  {step}: {cost.calls:,} calls, {cost.prompt:,} prompt tokens, {cost.generated:,} generated "
            f"(at most {cost.prompt_at_most:,} and {cost.at_most:,})"
        )
    calls = sum(c.calls for c in costs.values())
    expected = sum(c.prompt + c.generated for c in costs.values())
    most = sum(c.prompt_at_most + c.at_most for c in costs.values())
    yield f"  all: {calls:,} calls, about {expected:,} tokens, at most {most:,}; tries that fail come on top"
    needed = ("max_requests", limits.max_requests, calls), ("max_tokens", limits.max_tokens, expected)
    for name, limit, number in needed:
        if limit is not None and limit < number:
            yield f"  {key}.{name}={limit:,} does not suffice"
