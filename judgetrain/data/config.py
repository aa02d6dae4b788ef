"""Stages dialogues, cluster and responses."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.engines.config import EngineConfig, SamplingConfig
from judgetrain.keys import key


@dataclass
class SourceConfig:
    """Where dialogues come from."""

    name: str = key("", "source name, unique")
    type: str = key("jsonl", "reader", choices=("world", "jsonl", "parquet", "hub", "comparisons"))
    path: str = key("", "file, glob (JSON lines or array, Parquet, ParlAI .txt) or Hub id")
    split: str = key("train", "Hub split")
    subset: str | None = key(None, "Hub configuration name")
    revision: str | None = key(None, "Hub revision: a branch, tag or commit")
    format: str = key(
        "auto",
        "row shape",
        choices=(
            *("auto", "messages", "conversations", "turns", "alpaca", "prompt", "multiple_choice", "questions"),
            "comparison",
        ),
    )
    turns: str = key(
        "last",
        "user turns of a conversation that become dialogues, with what came before",
        choices=("first", "last", "every"),
    )
    template: str = key("", "what is asked about the query, as in 'Summarise this. {query}'; empty: the query itself")
    fields: dict[str, str] = key(
        {},
        "column names where they differ: query, messages, id, response_a, response_b, label, ...",
    )
    limit: int | None = key(None, "take at most this many rows", low=1, unit="rows")
    dataset: str | None = key(
        None, "a known data set (dialogues/data_sets.yaml): its shape, and without a path its place on the Hub"
    )
    data_files: list[str] = key([], "Hub: the repository's files to read; empty reads those of the split")


@dataclass
class WorldConfig:
    """The generated quickstart world (DESIGN section 6)."""

    train_dialogues: int = key(480, "queries of the training split", low=8)
    # Neutral for stage dialogues; stage evaluate lists it among the keys that it reads.
    eval_comparisons: int = key(300, "comparisons of the held-out split", low=8, neutral=True)
    seed: int = key(0, "added to the run's seed")


@dataclass
class DialoguesConfig:
    """Stage dialogues."""

    sources: list[SourceConfig] = key([], "where dialogues come from")
    world: WorldConfig = key(WorldConfig, "read by sources of type world")
    min_query_chars: int = key(1, "shorter queries are dropped and counted", low=1, unit="characters")
    max_query_chars: int = key(8000, "longer dialogues are dropped and counted", low=1, unit="characters")
    dedup: bool = key(True, "drop queries equal after case folding, Unicode NFKC and white-space folding")
    near_dedup: bool = key(
        False, "also drop queries that are near-duplicates of a kept one (MinHash LSH over character 5-grams)"
    )
    near_similarity: float = key(
        0.8, "Jaccard similarity of 5-grams from which two queries are near-duplicates", low=0.3, high=1.0
    )
    near_window: int = key(
        1_000_000, "latest kept queries that near-duplicates are looked for among, about 2.5 kB each", low=1
    )
    decontaminate: str = key(
        "near",
        "drop dialogues that hold a query of a benchmark that evaluate lists: word for word (exact), or "
        "near-duplicates too (near); the benchmarks are then part of this stage's fingerprint",
        choices=("near", "exact", "off"),
    )
    strict: bool = key(True, "a malformed row stops the run; false keeps it aside in rejects.jsonl and counts it")


@dataclass
class ClusterConfig:
    """Stage cluster."""

    encoder: str = key(
        "sentence-transformers/all-MiniLM-L6-v2",
        "sentence-transformers id or path, 'package:NAME', or 'static:MODEL' (mean of MODEL's input embeddings)",
    )
    backend: str = key("auto", "k-means", choices=("auto", "cuml", "sklearn"))
    n_clusters: int = key(1000, "k", low=1)
    max_iter: int = key(300, "iterations of k-means", low=1)
    sample: int = key(7000, "dialogues sampled uniformly over clusters", low=1)
    batch_size: int | None = key(None, "queries encoded together; None: 16, and 256 on a GPU", low=1)
    device: str | None = key(
        None, "of the encoder: one (cuda:1), or several (cuda:0,cuda:1); None takes every GPU", neutral=True
    )
    dtype: str = key(
        "auto", "the encoder computes in; auto: bfloat16 on a GPU", choices=("auto", "float32", "bfloat16", "float16")
    )


@dataclass
class ResponseModelConfig(EngineConfig):
    """A response model."""

    sampling: SamplingConfig | None = key(None, "of this model; None takes responses.sampling")


@dataclass
class ResponsesConfig:
    """Stage responses."""

    models: list[ResponseModelConfig] = key([], "response models; empty uses the responses the sources already have")
    sampling: SamplingConfig = key(SamplingConfig, "of response models that have none of their own")
    system_prompt: str = key("", "put before every dialogue")


@dataclass
class BenchmarkConfig:
    """A set of labelled comparisons to evaluate on."""

    name: str = key("", "name in reports")
    source: SourceConfig = key(
        SourceConfig, "type world, a comparison file or the Hub; an adapter knows its own place on the Hub"
    )
    labels: dict[str, str] = key({}, "how labels are written -> A, B or tie; empty takes the adapter's, or A, B, tie")
    limit: int | None = key(None, "take a seeded sample of this many comparisons", low=1)
    max_chars: int | None = key(None, "leave out (and count) comparisons with more text", low=1, unit="characters")
    adapter: str | None = key(
        None, "how rows are read: a name in judgetrain/evaluate/adapters or a YAML file; None: one comparison a row"
    )
    answers: str | None = key(None, "file of the models' answers, for votes published without texts")
    where: dict[str, str] = key({}, "take only rows whose columns have these values, as in {turn: '1'}")
