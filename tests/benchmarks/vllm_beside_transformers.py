"""A judge's greedy answers and tokens a second, by vLLM and by the Transformers engine, on this machine.

    python -m tests.benchmarks.vllm_beside_transformers JUDGE --prompts 200

JUDGE is a judge's ``model`` directory, or a model that is asked as one (``world``). Prints the share of prompts on
which both wrote the same text, for each that differs where they part and how sure the model was there, and tokens a
second. Needs an environment with vLLM (docs/scale.md).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from judgetrain.data.config import WorldConfig
from judgetrain.data.world.splits import eval_comparisons
from judgetrain.engines.base import Completion, Engine, Request, Sampling
from judgetrain.engines.config import EngineConfig, ModelConfig, TransformersEngineConfig, VllmEngineConfig
from judgetrain.engines.registry import make_engine
from judgetrain.judges.prompting.prompts import FILE, load_prompt_set
from judgetrain.label.examples import Prompter
from tests.benchmarks.common import parser_of


def asked(judge: str, number: int, tokens: int) -> list[Request]:
    """The judge's first prompt, for its criteria, about comparisons of the world."""
    own = Path(judge) / FILE
    prompter = Prompter(load_prompt_set(own if own.is_file() else "multi_step"), 3)
    limits = Sampling(temperature=0.0, max_new_tokens=tokens)
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=number), 17)
    return [Request(messages=tuple(prompter.criteria(c)), sampling=limits) for c in comparisons]


def timed(config: EngineConfig, requests: Sequence[Request]) -> tuple[list[Completion], float]:
    """The answers, and tokens a second after a first call that warms up."""
    engine: Engine = make_engine(config)
    try:
        engine.generate(requests[:8], 1)
        started = time.perf_counter()
        done = engine.generate(requests, 1)
        return done, sum(c.generated_tokens for c in done) / (time.perf_counter() - started)
    finally:
        engine.close()


def margins(model: ModelConfig, requests: Sequence[Request], texts: Sequence[str]) -> list[float]:
    """How much likelier the model finds the token after a text than the second likeliest, nats."""
    import torch

    from judgetrain.engines.local.transformers_engine import TransformersEngine
    from judgetrain.engines.prompting import encode

    engine = TransformersEngine(TransformersEngineConfig(model=model))
    prompts, _ = encode(requests, engine.tokenizer, engine.max_context)
    found = []
    for index, text in enumerate(texts):
        ids = [*prompts[index], *engine.tokenizer(text, add_special_tokens=False)["input_ids"]]
        with torch.no_grad():
            best = engine.model(torch.tensor([ids])).logits[0, -1].log_softmax(-1).topk(2).values
        found.append(float(best[0] - best[1]))
    return found


def common(first: str, second: str) -> str:
    """What two texts begin with alike."""
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def main() -> None:
    """Print the comparison."""
    parser = parser_of(__doc__)
    parser.add_argument("judge")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--dtype", default="auto", help="of both, as float32 or bfloat16")
    options = parser.parse_args()
    requests = asked(options.judge, options.prompts, options.tokens)
    model = ModelConfig(path=options.judge, dtype=options.dtype)
    theirs, slow = timed(TransformersEngineConfig(model=model), requests)
    ours, fast = timed(VllmEngineConfig(model=model, vllm={"enforce_eager": True}), requests)
    differ = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a.text != b.text]
    print(f"equal: {len(requests) - len(differ)} of {len(requests)}")
    shared = [common(ours[i].text, theirs[i].text) for i in differ]
    found = margins(model, [requests[i] for i in differ], shared)
    for i, text, margin in zip(differ, shared, found, strict=True):
        parts = [repr(each[i].text[len(text) :][:30]) for each in (theirs, ours)]
        print(f"prompt {i}: after {len(text)} characters {parts[0]} against {parts[1]}; margin {margin:.6f} nats")
    print(f"tokens/s: transformers {slow:.0f}, vllm {fast:.0f}")


if __name__ == "__main__":
    main()
