"""Stages evaluate and correct, and merged reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.engines.config import (
    AnyEngine,
    LimitsConfig,
    PaidConfig,
    SamplingConfig,
    TransformersEngineConfig,
    engine_key,
)
from judgetrain.judges.config import AskConfig
from judgetrain.judges.method import Method, method_directory
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.keys import beside, in_place, key


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


def _has_kind(kind: str) -> Callable[[EvaluateConfig], bool]:
    """Whether a method of a kind is evaluated: how it is asked counts only then."""
    return lambda config: any(m.kind == kind for m in map(Method.parse, config.methods))


@dataclass
class EvaluateConfig(PaidConfig):
    """Stage evaluate."""

    benchmarks: list[BenchmarkConfig] = key([], "held-out comparisons")
    methods: list[str] = key(
        ["initial", "sft", "dpo"],
        "judges (base, initial, sft, dpo, rl, teacher, external or a judge's directory), the same or any model "
        "directory asked once (one_step:base, at_once:base, rating:teacher, one_step:DIR), a judge asked in another "
        "way (dpo+sampled, dpo+independent@1: docs/asking.md), scorers (scorer:sentprob and the like: "
        "judgetrain/scorers/methods.py), baselines (random, first, longer; surface: word counts and lengths, fitted "
        "to the benchmark's own labels), and stored:NAME",
        content=beside(method_directory),
    )
    branches: list[int] = key([1, 3, 5, 10], "k values read off one run of max(branches)", low=1)
    aggregation: str = key(
        "vote",
        "how branches become a verdict: vote, the side that more prefer; margin, the larger sum of scores; ranked, the "
        "side of the first branch, in the order of the list, that sees a difference; clear, as ranked, but after the "
        "first branch only differences of more than half of the scale count, so that late criteria make no ties into "
        "verdicts",
        choices=("vote", "margin", "ranked", "clear"),
    )
    bootstrap: int = key(2000, "resamples of the 95% intervals", low=10)
    view: int = key(
        20, "pages of disagreements to look at, per benchmark and judge", low=0, unit="trees", in_fingerprint=False
    )
    shard_size: int | None = key(
        None,
        "comparisons of a judge's branches finished together; the unit of resume, and the larger the faster; "
        "None: twice tree.shard_size",
        low=1,
    )
    early_stop: bool = key(
        False, "judge in waves, and only until the verdict can no longer change: fewer tokens in more steps"
    )
    external: AnyEngine = engine_key(
        TransformersEngineConfig(),
        "the model of methods external, one_step:external, rating:external",
        active_if=lambda c: any(m.names_model and m.target == "external" for m in map(Method.parse, c.methods)),
    )
    partial: bool = key(
        False,
        "where nothing came out to train a judge on, evaluate those before it and say why, rather than fail",
        in_fingerprint=False,
    )
    one_step: AskConfig = key(
        AskConfig, "methods one_step:MODEL: [[A]], [[B]] or [[C]], in both orders", active_if=_has_kind("one_step")
    )
    at_once: AskConfig = key(
        AskConfig("at_once", SamplingConfig(0.0, 1.0, 2)),
        "methods at_once:MODEL: one letter in each order, and the model's log-odds of A over B",
        active_if=_has_kind("at_once"),
    )
    rating: AskConfig = key(
        AskConfig("rating"), "methods rating:MODEL: each response rated by itself", active_if=_has_kind("rating")
    )
    dev_share: float = key(
        0.0,
        "share of each benchmark's queries set aside to choose by (number of branches, objective=); metrics are of the "
        "others",
        low=0.0,
        high=0.9,
    )
    stored: list[StoredConfig] = key([], "verdicts read from files, methods stored:NAME")
    scenarios: SourceConfig = key(
        SourceConfig,
        "queries with a category: a classifier trained on them groups benchmarks without groups; no path: none",
        active_if=lambda c: c.scenarios.path,
    )


@dataclass
class CorrectConfig(LimitsConfig):
    """Stage correct."""

    source: SourceConfig = key(SourceConfig, "comparisons whose responses are corrected; labels are not needed")
    judge: str = key(
        "dpo",
        "who judges: base, initial, sft, dpo, rl, teacher, external or a judge's directory",
        content=beside(method_directory),
    )
    branches: int = key(3, "criteria that a response is judged by", low=1)
    threshold: float = key(3.0, "rewrite responses whose mean score is below this (the paper: 3)", low=1.0, high=5.0)
    engine: AnyEngine = engine_key(None, "who rewrites; None: the judge's own model")
    rater: str = key(
        "",
        "who rates every response before, and the rewritten ones after, from 1 to 10 as evaluate.rating says "
        "(the paper: GPT-4): rating:external, rating:teacher, rating:DIRECTORY",
        content=beside(lambda method, owner: method_directory(method) if method else None),
        active_if=lambda c: c.rater,
    )
    prompts: str = key(
        "correction",
        "prompt set: a name in judgetrain/judges/prompting/prompt_sets or a YAML file",
        content=in_place(prompt_path),
    )
    sampling: SamplingConfig = key(SamplingConfig(0.7, 0.95, 512), "of the new responses")
    max_comparisons: int | None = key(None, "correct the responses of at most this many", low=1)
    shard_size: int = key(32, "comparisons finished together; the unit of resume", low=1)

    @property
    def single(self) -> bool:
        """Whether the source has one response a row: both fields name the same column."""
        columns = self.source.fields
        return "response_a" in columns and columns["response_a"] == columns.get("response_b")


@dataclass
class StudiesConfig(LimitsConfig):
    """Stage studies: the ProbDiff paper's studies of the model that stage selfeval looked at, and of others."""

    prompts: int = key(80, "prompts answered repeatedly; 0 leaves the study out", low=0)
    times: int = key(3, "answers to each of them, one after the other", low=2)
    spread_prompts: int = key(10, "prompts whose answers are sampled; 0 leaves the study out", low=0)
    samples: int = key(100, "answers sampled to each of them", low=2)
    sampling: SamplingConfig = key(SamplingConfig(0.7, 1.0, 512), "of both studies' answers")
    against: list[str] = key(
        [],
        "other models: directories of their finished stage selfeval over the same prompts, or globs of them",
        content=beside(lambda directory, owner: f"{directory}/*.json*"),
    )
    thresholds: list[float] = key(
        [0.0, 0.05, 0.1], "of win, tie and lose: discrepancies that differ by less are a tie", low=0.0
    )
    judge: str = key(
        "",
        "who says whether a revision is better: base, teacher, external, one_step:external, a directory",
        content=beside(lambda method, owner: method_directory(method) if method else None),
    )
    verdicts: str = key(
        "",
        "file of people's verdicts on revisions: rows id, verdict (1 better, 0 unchanged, -1 worse), annotator",
        content=in_place(lambda path, owner: path or None),
    )
    duels: str = key(
        "",
        "who says which model's answer is better, this run's or another's (studies.against): as studies.judge",
        content=beside(lambda method, owner: method_directory(method) if method else None),
        active_if=lambda c: c.duels,
    )
    official: dict[str, dict[str, float]] = key(
        {},
        "name of a published score -> model -> its score, shown beside the models' confidence; over the prompts of one "
        "source or category where it has that name",
        active_if=lambda c: c.official,
    )


@dataclass
class ScenariosConfig:
    """Stage scenarios: of what kinds training dialogues and ``evaluate.benchmarks`` are, by ``evaluate.scenarios``."""

    runs: list[str] = key(
        [],
        "other training sets: directories of their finished stage scenarios, or globs of them",
        content=beside(lambda directory, owner: f"{directory}/*.json*"),
    )
