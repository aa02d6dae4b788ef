"""How fast a CPU trains where its allocator keeps memory that is free again, and where it gives it back to the system.

    python -m tests.benchmarks.memory_kept MODEL --jemalloc libjemalloc.so.2

MODEL is a causal language model (``package:NAME``, a directory or a Hub id). Each allocator gets a process of its own,
which goes forward and backward through the same batches of random texts of several lengths, with whole weights in
float32 and, where the CPU has the instructions, ``bfloat16`` mixed precision. Tokens a second count the batches behind
the first one. Linux only.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Mapping

from tests.benchmarks.common import parser_of

LENGTHS = (90, 400)
"""Tokens of the shortest and the longest texts; those of a batch have one length."""
KEEP_GLIBC = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=100000000000"
KEEP_JEMALLOC = "narenas:1,oversize_threshold:0,dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always"


def allocators(jemalloc: str) -> Mapping[str, Mapping[str, str]]:
    """Return the environment of each allocator by its name; ``jemalloc``: its library, empty where there is none."""
    variants: dict[str, dict[str, str]] = {
        "glibc as it is": {},
        "glibc that gives nothing back": {"GLIBC_TUNABLES": KEEP_GLIBC},
    }
    if jemalloc:
        variants["jemalloc as it is"] = {"LD_PRELOAD": jemalloc}
        variants["jemalloc that gives nothing back"] = {"LD_PRELOAD": jemalloc, "MALLOC_CONF": KEEP_JEMALLOC}
    return variants


def measured(name: str, batches: int, size: int) -> dict[str, float]:
    """Return tokens a second, seconds of the processor and the peak of memory of this process."""
    import torch

    from judgetrain.engines.config import ModelConfig
    from judgetrain.engines.loading import load_model

    model = load_model(ModelConfig(path=name, dtype="float32"), "cpu").train()
    mixes = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    lengths = random.Random(0)
    generator = torch.Generator().manual_seed(0)
    tokens = 0
    began = 0.0
    for number in range(batches):
        if number == 1:
            # The first batch loads libraries and touches memory for the first time under any allocator.
            began = time.monotonic()
        shape = (size, lengths.randint(*LENGTHS))
        texts = torch.randint(3, model.config.get_text_config().vocab_size, shape, generator=generator)
        with torch.autocast("cpu", torch.bfloat16, enabled=mixes):
            states = model.model(input_ids=texts, use_cache=False).last_hidden_state
            # As a judgment is trained: the head reads a few tokens at the end.
            logits = model.lm_head(states[:, -5:])
        logits.float().logsumexp(-1).mean().backward()
        if number:
            tokens += texts.numel()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "rate": tokens / (time.monotonic() - began),
        "system": usage.ru_stime,
        "all": usage.ru_stime + usage.ru_utime,
        # Linux counts kilobytes.
        "gigabytes": usage.ru_maxrss / 1e6,
    }


def main() -> None:
    """Measure each allocator in a process of its own, and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("model")
    parser.add_argument("--jemalloc", default="", help="its library, as LD_PRELOAD names it")
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--size", type=int, default=8, help="texts of a batch")
    parser.add_argument("--only", action="store_true", help="measure this process alone, and print its figures")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measured(options.model, options.batches, options.size)))
        return

    print("| allocator | tokens a second | seconds in the system, of all | peak GB |")
    print("| --- | --- | --- | --- |")
    command = [sys.executable, "-m", "tests.benchmarks.memory_kept", options.model, "--only"]
    command += ["--batches", str(options.batches), "--size", str(options.size)]
    for name, variables in allocators(options.jemalloc).items():
        done = subprocess.run(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True, check=True)
        figures = json.loads(done.stdout.splitlines()[-1])
        cells = [name, f"{figures['rate']:.0f}", f"{figures['system']:.0f} of {figures['all']:.0f}"]
        cells.append(f"{figures['gigabytes']:.1f}")
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
