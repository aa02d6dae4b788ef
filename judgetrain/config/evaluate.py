"""Stages evaluate and correct, and merged reports."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.config.data import SourceConfig
from judgetrain.config.keys import key
from judgetrain.config.models import EngineConfig, LimitsConfig, SamplingConfig


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


@dataclass
class StoredConfig:
    """Verdicts read from a file, as a method called ``stored:NAME``."""

    name: str = key("", "the method is called stored:NAME")
    benchmark: str = key("", "name of the benchmark that the verdicts are about; rows are matched by its ids")
    source: SourceConfig = key(SourceConfig, "where the verdicts are; without a path, the benchmark's own rows")
    where: dict[str, str] = key({}, "take only rows whose columns have these values")
    verdict_ab: str = key("verdict_ab", "column of the verdict with the responses as they are")
    verdict_ba: str = key(
        "", "column of the verdict with the responses exchanged; empty: verdict_ab holds one verdict for both orders"
    )
    ba_mirrored: bool = key(False, "verdict_ba names the responses as in the benchmark, not as they were shown")
    labels: dict[str, str] = key({}, "how verdicts are written -> A, B, tie, unreadable or (one for both) conflict")


@dataclass
class AskConfig:
    """How a judge that is asked once is asked."""

    prompts: str = key("one_step", "prompt set: a name in judgetrain/tree/prompt_sets or a YAML file")
    sampling: SamplingConfig = key(SamplingConfig(0.0, 1.0, 512), "of the reply")


@dataclass
class EvaluateConfig(LimitsConfig):
    """Stage evaluate."""

    benchmarks: list[BenchmarkConfig] = key([], "held-out comparisons")
    methods: list[str] = key(
        ["initial", "sft", "dpo"],
        "judges (base, initial, sft, dpo, teacher, external or a judge's directory), the same or any model directory "
        "asked once (one_step:base, rating:teacher, one_step:DIR), scorers (scorer:sentprob and the like: "
        "judgetrain/scorers/methods.py), floors (random, first, longer), and stored:NAME",
    )
    branches: list[int] = key([1, 3, 5, 10], "k values read off one sampled run of max(branches)")
    aggregation: str = key("vote", "of branches", choices=("vote", "margin"))
    bootstrap: int = key(2000, "resamples of the 95% intervals", low=10)
    view: int = key(20, "pages of disagreements to look at, per benchmark and judge", low=0, unit="trees", neutral=True)
    early_stop: bool = key(
        False, "judge in waves, and only until the verdict can no longer change: fewer tokens in more steps"
    )
    top_up: bool = key(
        False, "ask once more for criteria where a judge names fewer than are wanted, as stage tree always does"
    )
    external: EngineConfig = key(EngineConfig, "the model of methods external, one_step:external, rating:external")
    one_step: AskConfig = key(AskConfig, "methods one_step:MODEL: [[A]], [[B]] or [[C]], in both orders")
    rating: AskConfig = key(AskConfig("rating"), "methods rating:MODEL: each response rated by itself")
    dev_share: float = key(
        0.0,
        "share of each benchmark's queries set aside to choose the number of branches on; metrics are of the others",
        low=0.0,
        high=0.9,
    )
    stored: list[StoredConfig] = key([], "verdicts read from files, methods stored:NAME")
    scenarios: SourceConfig = key(
        SourceConfig,
        "queries with a category: a classifier trained on them groups benchmarks without groups; no path: none",
    )


@dataclass
class CorrectConfig(LimitsConfig):
    """Stage correct."""

    source: SourceConfig = key(SourceConfig, "comparisons whose responses are corrected; labels are not needed")
    judge: str = key("dpo", "who judges: base, initial, sft, dpo, teacher, external or a judge's directory")
    branches: int = key(3, "criteria that a response is judged by", low=1)
    threshold: float = key(3.0, "rewrite responses whose mean score is below this (the paper: 3)", low=1.0, high=5.0)
    engine: EngineConfig = key(EngineConfig, "who rewrites; without a model.path, the judge's own model")
    prompts: str = key("correction", "prompt set: a name in judgetrain/tree/prompt_sets or a YAML file")
    sampling: SamplingConfig = key(SamplingConfig(0.7, 0.95, 512), "of the new responses")
    max_comparisons: int | None = key(None, "correct the responses of at most this many", low=1)
    shard_size: int = key(32, "comparisons finished together; the unit of resume", low=1)


@dataclass
class ReportConfig:
    """stage=report: one report of several evaluations."""

    runs: list[str] = key(
        [], "evaluations' directories, globs of them, or a sweep's directory; empty: all of output_dir", neutral=True
    )
    name: str = key("all", "the report is written to output_dir/reports/NAME", neutral=True)
