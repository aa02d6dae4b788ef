"""Judgments sampled by the local decoder beside Transformers' generate, and vLLM where it is installed.

    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.decoding_speed

In the environment for vLLM of docs/scale.md the same command has a row more for each workload.

Judgments of the quickstart's prompts at temperature 1 by the shipped base, as stage tree asks for them: by many
criteria of a few comparisons, of unlike comparisons, and eight of each prompt. Tokens a second of a processor, up to
each end token, in turns. generate has batches of like length, and the faster of its caches. vLLM's prefix cache is
emptied before each turn, since no other arm keeps anything of the turn before. The share of prompt tokens that are
computed, and not shared, stands beside: ours counts padding, vLLM's what it says of each request.
"""

import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from judgetrain.engines.base import Completion, Request
from judgetrain.engines.config import ModelConfig, TransformersEngineConfig, VllmEngineConfig
from judgetrain.engines.lazy_model import make_engine
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.prompting import encode
from judgetrain.engines.vllm_engine import VllmEngine
from tests.benchmarks.common import Figure, in_turns, one_core, program, versions
from tests.benchmarks.workloads import judgments

BATCH = 64
BLOCK = 32
"""Tokens of a block of vLLM's cache. Whole blocks alone are shared; its default on a CPU, 128, is a prompt's length."""
VLLM = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}


class Generate:
    """Transformers' ``generate`` over the same requests; a call keeps how many tokens it made."""

    def __init__(
        self, engine: TransformersEngine, requests: Sequence[Request], cache: str | None, batch: int = BATCH
    ) -> None:
        self.engine = engine
        self.cache = cache
        self.made = 0
        self.batch = batch
        prompts, _ = encode(requests, engine.tokenizer, engine.max_context)
        self.times = len(prompts) // len({*prompts.values()})
        self.prompts = sorted({*prompts.values()}, key=len)
        self.tokens = requests[0].sampling.max_new_tokens

    def __call__(self) -> None:
        """Generate in batches of like length, several of a prompt by ``num_return_sequences``."""
        model = self.engine.model
        ends = self.engine.tokenizer.eos_token_id
        self.made = 0
        size = self.batch // self.times
        for start in range(0, len(self.prompts), size):
            batch = self.prompts[start : start + size]
            width = max(map(len, batch))
            where = model.device
            ids = torch.tensor([[0] * (width - len(prompt)) + [*prompt] for prompt in batch], device=where)
            mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in batch], device=where)
            options = {"do_sample": True, "temperature": 1.0, "top_k": 0, "max_new_tokens": self.tokens}
            with torch.inference_mode():
                generated = model.generate(
                    ids,
                    attention_mask=mask,
                    num_return_sequences=self.times,
                    cache_implementation=self.cache,
                    **options,
                )[:, width:]
            ended = (generated == ends).int().argmax(dim=1) + 1
            whole = ~(generated == ends).any(dim=1)
            self.made += int(torch.where(whole, generated.shape[1], ended).sum())


class Ours:
    """The project's own decoder; a call keeps how many tokens it made, and how many prompt tokens it computed."""

    def __init__(self) -> None:
        self.engine = TransformersEngine(TransformersEngineConfig(model=ModelConfig(path="world"), batch_size=BATCH))
        self.engine.model.register_forward_pre_hook(self._count, with_kwargs=True)
        self.computed = 0

    def __call__(self, requests: Sequence[Request]) -> tuple[int, float]:
        """Return how many tokens were made, and the share of prompt tokens that were computed."""
        self.computed = 0
        completions = self.engine.generate(requests, seed=1)
        return _made(completions), self.computed / sum(each.prompt_tokens for each in completions)

    def _count(self, module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        ids = kwargs["input_ids"]
        # Passes over one column write the next token.
        if ids.shape[1] > 1:
            self.computed += ids.numel()


class Vllm:
    """vLLM with the shipped base, in this process; a call forgets what its cache held."""

    def __init__(self) -> None:
        os.environ.update(VLLM)
        options = {"kv_cache_memory_bytes": 2**29, "enable_prefix_caching": True, "block_size": BLOCK}
        engine = make_engine(VllmEngineConfig(model=ModelConfig(path="world"), vllm=options))
        assert isinstance(engine, VllmEngine)
        self._engine = engine
        self._llm = engine._llm
        self._generate = self._llm.generate
        self._llm.generate = self._watched
        self._outputs: Sequence[Any] = ()

    def __call__(self, requests: Sequence[Request]) -> tuple[int, float]:
        """Return how many tokens were made, and the share of prompt tokens that were computed."""
        self._llm.reset_prefix_cache()
        completions = self._engine.generate(requests, seed=1)
        cached = sum(output.num_cached_tokens or 0 for output in self._outputs)
        return _made(completions), 1 - cached / sum(each.prompt_tokens for each in completions)

    def _watched(self, *args: Any, **kwargs: Any) -> Sequence[Any]:
        self._outputs = self._generate(*args, **kwargs)
        return self._outputs


def _made(completions: Sequence[Completion]) -> int:
    return sum(each.generated_tokens for each in completions)


def figures(comparisons: int = 4, criteria: int = 24, repeats: int = 3) -> list[Figure]:
    """Return figures of every workload: ours beside generate's faster cache, and vLLM where it is installed."""
    one_core()
    ours = Ours()
    vllm = Vllm() if importlib.util.find_spec("vllm") else None
    count = comparisons * criteria
    workloads = {
        f"{criteria} judgments of each of {comparisons} comparisons": judgments(comparisons, criteria, 1),
        f"judgments of {count} comparisons": judgments(count, 1, 1),
        f"8 judgments by each of {count // 8} prompts": judgments(count // 8, 1, 8),
    }
    rows = []
    for name, requests in workloads.items():
        made: dict[str, int] = {}
        shares: dict[str, float] = {}
        caches = {cache or "dynamic": Generate(ours.engine, requests, cache) for cache in (None, "static")}

        def sampled(
            who: str, by: Ours | Vllm, asked: Sequence[Request] = requests, made: dict = made, shares: dict = shares
        ) -> None:
            made[who], shares[who] = by(asked)

        arms: dict[str, Callable[[], None]] = {"ours": lambda: sampled("ours", ours), **caches}
        if vllm:
            arms["vLLM"] = lambda: sampled("vLLM", vllm)
        seconds = in_turns(arms, repeats)
        made |= {cache: each.made for cache, each in caches.items()}
        speeds = {who: [made[who] / each for each in times] for who, times in seconds.items()}
        best = max(caches, key=lambda cache: max(speeds[cache]))
        peer = f"generate of {versions('transformers', 'torch')}, batches of {BATCH} of like length, float32"
        other = next(cache for cache in caches if cache != best)
        computed = f"ours computes {shares['ours']:.0%} of prompt tokens"
        note = f"{best} cache; {other} cache: {max(speeds[other]):.0f}; {computed}"
        rows.append(Figure(name, "tokens/s", speeds["ours"], speeds[best], peer, note))
        if "vLLM" in arms:
            peer = (
                f"{versions('vllm-cpu', 'torch')}, prefix cache in blocks of {BLOCK} tokens, emptied before each turn"
            )
            note = f"{computed}, vLLM {shares['vLLM']:.0%}"
            rows.append(Figure(name, "tokens/s", speeds["ours"], speeds["vLLM"], peer, note))
    return rows


def main() -> None:
    program(__doc__, figures)
    if importlib.util.find_spec("vllm") is None:
        print("vLLM is not installed here: left out.")


if __name__ == "__main__":
    main()
