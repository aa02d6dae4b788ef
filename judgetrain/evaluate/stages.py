"""The stages of this room, what each reads, and what must hold before any of them runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from judgetrain.artifacts.stages import Stage, at
from judgetrain.data.config import BenchmarkConfig, ClusterConfig, SourceConfig
from judgetrain.data.sources import read_comparisons
from judgetrain.data.stages import check_benchmarks, check_names
from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import CorrectConfig, EvaluateConfig, StudiesConfig
from judgetrain.evaluate.correlate.config import CorrelateConfig
from judgetrain.evaluate.hooks import calls, with_sections
from judgetrain.judges.checks import check_directories, check_model
from judgetrain.judges.method import ASKED_ONCE, BRANCHING, JUDGE_STAGES, TARGETS, Method
from judgetrain.judges.prompting.prompts import Dialect, load_prompt_set
from judgetrain.judges.rounds import GatesConfig
from judgetrain.judges.settings import ModelSettings
from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.stages import check_scorer


@dataclass(frozen=True, kw_only=True)
@with_sections
class EvaluateSettings(ModelSettings):
    """Stage evaluate."""

    evaluate: EvaluateConfig = at("evaluate")
    shard_size: int = at("tree.shard_size")

    @classmethod
    def methods_of(cls, config: Any) -> Iterable[Method]:
        """``evaluate.methods``."""
        return map(Method.parse, config.evaluate.methods)

    @classmethod
    def of_world(cls, config: Any) -> bool:
        """Whether a benchmark is of the world."""
        return any(b.source.type == "world" for b in config.evaluate.benchmarks)

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """What ``evaluate`` says already."""
        return {*super().unused(config), "aggregation", "early_stop", *ASKED_ONCE}

    @property
    def asks(self) -> EvaluateConfig:
        """``evaluate`` says how judges are asked."""
        return self.evaluate


@dataclass(frozen=True, kw_only=True)
class CorrectSettings(ModelSettings):
    """Stage correct."""

    correct: CorrectConfig = at("correct")

    @classmethod
    def methods_of(cls, config: Any) -> Iterable[Method]:
        """The judge, and who rates."""
        named = (config.correct.judge, config.correct.rater)
        return [Method.parse(text) for text in named if text]

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """Stopping early: a response is corrected by what all criteria say."""
        return {*super().unused(config), "early_stop"}

    @classmethod
    def of_world(cls, config: Any) -> bool:
        """Whether the responses to correct are the world's."""
        return config.correct.source.type == "world"


@dataclass(frozen=True, kw_only=True)
class StudiesSettings(ModelSettings):
    """Stage studies."""

    studies: StudiesConfig = at("studies")
    delta: float = at("selfeval.delta")
    sweep: list[float] = at("selfeval.sweep")
    scorer: ScorerConfig = at("scorer")
    cluster: ClusterConfig | None = at("cluster", only=("encoder",))
    branches: list[int] | None = at("evaluate.branches")

    @classmethod
    def methods_of(cls, config: Any) -> Iterable[Method]:
        """The judges of revisions and of answers, if there are some."""
        named = (config.studies.judge, config.studies.duels)
        return [Method.parse(text) for text in dict.fromkeys(named) if text]

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """Branches, where no judge has any, and the base model, where scorers read another."""
        unused = {*super().unused(config)}
        if "judge" in unused:
            unused.add("branches")
        if not config.studies.prompts:
            unused.add("cluster")
        return unused - {"scorer", *(() if config.scorer.model.path else ("base",))}


@dataclass(frozen=True, kw_only=True)
class CorrelateSettings(ModelSettings):
    """Stage correlate."""

    correlate: CorrelateConfig = at("correlate")
    delta: float = at("selfeval.delta")

    @classmethod
    def methods_of(cls, config: Any) -> Iterable[Method]:
        """Who rates."""
        return map(Method.parse, config.correlate.raters)


@dataclass(frozen=True, kw_only=True)
class ScenariosSettings(ModelSettings):
    """Stage scenarios."""

    source: SourceConfig | None = at("evaluate.scenarios")
    benchmarks: list[BenchmarkConfig] = at("evaluate.benchmarks")
    runs: list[str] = at("scenarios.runs")

    @classmethod
    def of_world(cls, config: Any) -> bool:
        """Whether a benchmark is of the world."""
        return any(b.source.type == "world" for b in config.evaluate.benchmarks)

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """What the classifier learns from, where nothing is named."""
        return {*super().unused(config), *(() if config.evaluate.scenarios.path else ("source",))}


@dataclass(frozen=True, kw_only=True)
class GateSettings(ModelSettings):
    """Stage gate."""

    gates: GatesConfig = at("rounds.gates")
    branches: int = at("rounds.branches")
    shard_size: int = at("tree.shard_size")

    @classmethod
    def methods_of(cls, config: Any) -> Iterable[Method]:
        """The round's result."""
        return (Method.parse(config.rounds.judge),)

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """Stopping early: the gates measure the scores of all branches."""
        return {*super().unused(config), "early_stop"}


def _gate_inputs(config: Any) -> Sequence[str]:
    """The round's result, and what is known of the rounds before: in the first, of the Initial judge."""
    return "anchors", ("initial" if config.rounds.number == 1 else "gate"), config.rounds.judge


def _check_gate(config: Any) -> None:
    if config.rounds.branches > config.tree.criteria:
        raise ConfigError(f"rounds.branches={config.rounds.branches}: at most tree.criteria={config.tree.criteria}")
    check_model(config, Method.parse(config.rounds.judge), "rounds.judge")


def _check_evaluate(config: Any) -> None:
    from judgetrain.evaluate.runners import known_methods, runner_of

    settings = config.evaluate
    check_benchmarks("evaluate.benchmarks", settings.benchmarks)
    check_names("evaluate.stored", [s.name for s in settings.stored])
    if not settings.benchmarks:
        raise ConfigError("evaluate.benchmarks is empty: name labelled comparisons to evaluate on")
    if not settings.methods:
        raise ConfigError(f"evaluate.methods is empty: allowed are {known_methods()}")
    benchmarks = [b.name for b in settings.benchmarks]
    for i, stored in enumerate(settings.stored):
        if stored.benchmark not in benchmarks:
            listed = ", ".join(benchmarks)
            raise ConfigError(
                f"evaluate.stored[{i}].benchmark={stored.benchmark!r}: no such benchmark; there are {listed}"
            )
    methods = [Method.parse(text) for text in settings.methods]
    if any(method.has_branches for method in methods):
        _check_branches(config)
    for _, extra, section in calls("check", config):
        extra(section, settings)
    names = [method.name for method in methods]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"evaluate.methods: the name {twice!r} is used twice; names must differ")
    for method in methods:
        runner_of(method).check(method, config)


def _check_branches(config: Any) -> None:
    branches, criteria = config.evaluate.branches, config.tree.criteria
    if not branches or min(branches) < 1 or max(branches) > criteria:
        raise ConfigError(
            f"evaluate.branches={branches}: allowed are 1 to tree.criteria={criteria}, "
            "since a branch follows one criterion"
        )


def _check_evaluate_here(config: Any) -> None:
    """Read every row that the stage is going to read, its label too, and look at the directories of models."""
    from judgetrain.data.benchmarks.benchmark import load_benchmark
    from judgetrain.data.benchmarks.scenarios import labelled_queries
    from judgetrain.evaluate.runners.stored import stored_predictions

    settings, methods = config.evaluate, list(EvaluateSettings.methods_of(config))
    wanted = {m.target for m in methods if m.kind == "stored"}
    for i, benchmark in enumerate(settings.benchmarks):
        loaded = load_benchmark(benchmark, i, config.seed, config.dialogues.world)
        for j, stored in enumerate(settings.stored):
            if stored.benchmark == benchmark.name and stored.name in wanted:
                stored_predictions(stored, benchmark, loaded.comparisons, f"evaluate.stored[{j}]")
    if settings.scenarios.path:
        labelled_queries(settings.scenarios, "evaluate.scenarios")
    check_directories(config, methods, "evaluate.methods")
    for _, extra, section in calls("check_here", config):
        extra(section, settings)


def _check_correct_here(config: Any) -> None:
    """Read the comparisons, and look at the judge's directory."""
    source = config.correct.source
    if source.type != "world":
        for _ in read_comparisons(source, "correct.source", labelled=False):
            pass
    check_directories(config, CorrectSettings.methods_of(config), "correct.judge")


def _check_studies_here(config: Any) -> None:
    """Read people's verdicts, and look at the judge's directory."""
    from judgetrain.evaluate.studies.conflicts import read_verdicts

    if config.studies.verdicts:
        read_verdicts(config.studies.verdicts, "studies.verdicts")
    check_directories(config, StudiesSettings.methods_of(config), "studies.judge")


def _check_correct(config: Any) -> None:
    settings, method = config.correct, Method.parse(config.correct.judge)
    if settings.source.type != "world" and not settings.source.path:
        raise ConfigError("correct.source.path is empty: give comparisons whose responses are to be corrected")
    settings.source.check("correct.source")
    if method.kind != BRANCHING:
        raise ConfigError(
            f"correct.judge={settings.judge!r}: a judge that grows branches is needed; allowed are "
            f"{', '.join(TARGETS)} or a judge's directory (./NAME)"
        )
    check_model(config, method, "correct.judge")
    if settings.rater:
        rater = Method.parse(settings.rater)
        if rater.kind != "rating":
            raise ConfigError(f"correct.rater={settings.rater!r}: allowed are rating:external, rating:DIRECTORY, ...")
        check_model(config, rater, "correct.rater")
        load_prompt_set(config.evaluate.rating.prompts, "rating", "evaluate.rating.prompts")
    if settings.branches > config.tree.criteria:
        raise ConfigError(f"correct.branches={settings.branches}: at most tree.criteria={config.tree.criteria}")
    if settings.engine is not None:
        settings.engine.check("correct.engine")
    load_prompt_set(settings.prompts, "correction", "correct.prompts")


def _check_studies(config: Any) -> None:
    settings = config.studies
    if "probdiff" not in config.selfeval.methods:
        raise ConfigError("selfeval.methods holds no probdiff, which stage=studies is about: add it")
    check_scorer(config)
    if settings.duels and not settings.against:
        raise ConfigError("studies.duels: name other models' finished stage selfeval in studies.against")
    for method in StudiesSettings.methods_of(config):
        key = "studies.judge" if method.text == settings.judge else "studies.duels"
        if method.target in JUDGE_STAGES or method.kind not in (BRANCHING, *ASKED_ONCE):
            raise ConfigError(
                f"{key}={method.text!r}: allowed are base, teacher, external or a judge's directory (./NAME)"
            )
        way = None if method.kind == BRANCHING else method.kind
        if way is None:
            _check_branches(config)
        check_model(config, method, key)
        if way:
            load_prompt_set(getattr(config.evaluate, way).prompts, cast(Dialect, way), f"evaluate.{way}.prompts")


def _correlate_inputs(config: Any) -> Sequence[str]:
    if not config.correlate.own:
        return ()
    return "dialogues", "selfeval", *CorrelateSettings.judges(config)


def _check_correlate(config: Any) -> None:
    settings = config.correlate
    if not settings.own and not settings.scores:
        raise ConfigError("correlate.own=false and correlate.scores is empty: there is no score; name a file of some")
    if not settings.ratings and not settings.raters:
        raise ConfigError("correlate.ratings and correlate.raters are empty: name a file of ratings, or who rates")
    if settings.raters and not settings.own:
        raise ConfigError("correlate.raters and correlate.own=false: they rate the answers of stage selfeval; set own")
    for key in ("ratings", "scores"):
        for i, column in enumerate(getattr(settings, key)):
            if not column.name:
                raise ConfigError(f"correlate.{key}[{i}].name is empty: name the rater or score")
            column.source.check(f"correlate.{key}[{i}].source")
    raters = list(CorrelateSettings.methods_of(config))
    for method in raters:
        if method.kind != "rating":
            raise ConfigError(f"correlate.raters: {method.text!r}: allowed are rating:external, rating:DIRECTORY, ...")
        check_model(config, method, "correlate.raters")
        load_prompt_set(config.evaluate.rating.prompts, "rating", "evaluate.rating.prompts")
    known = {column.name for column in settings.ratings} | {method.name for method in raters}
    if unknown := [name for name in settings.against if name not in known]:
        raise ConfigError(f"correlate.against: {unknown[0]!r} is no rater; there are {', '.join(sorted(known))}")


def _check_correlate_here(config: Any) -> None:
    """Read the files of ratings and scores, and look at the raters' directories."""
    from judgetrain.evaluate.correlate.columns import read_columns

    read_columns(config.correlate.ratings, "correlate.ratings")
    read_columns(config.correlate.scores, "correlate.scores")
    check_directories(config, CorrelateSettings.methods_of(config), "correlate.raters")


def _check_scenarios(config: Any) -> None:
    if not config.evaluate.scenarios.path:
        raise ConfigError(
            "evaluate.scenarios.path is empty: name queries with a category; a classifier learns from them"
        )
    config.evaluate.scenarios.check("evaluate.scenarios")
    check_benchmarks("evaluate.benchmarks", config.evaluate.benchmarks)


GATE = Stage(
    name="gate",
    makes="what the anchors tell of a round's judge: whether to go on, and the best round",
    settings=GateSettings,
    code="judgetrain.evaluate.gate:run",
    artifact="evaluation",
    inputs=_gate_inputs,
    check=_check_gate,
    format=2,
)

EVALUATE = Stage(
    name="evaluate",
    makes="agreement, consistency and cost of every method, with intervals, and a report",
    settings=EvaluateSettings,
    code="judgetrain.evaluate.stage:run",
    artifact="evaluation",
    inputs=EvaluateSettings.judges,
    check=_check_evaluate,
    check_here=_check_evaluate_here,
    format=4,
)

CORRECT = Stage(
    name="correct",
    makes="responses that a judge scored low, rewritten",
    settings=CorrectSettings,
    code="judgetrain.evaluate.correct.stage:run",
    inputs=CorrectSettings.judges,
    check=_check_correct,
    check_here=_check_correct_here,
)

STUDIES = Stage(
    name="studies",
    makes="the ProbDiff paper's studies of what selfeval found",
    settings=StudiesSettings,
    code="judgetrain.evaluate.studies.stage:run",
    inputs=lambda config: ("dialogues", "selfeval"),
    check=_check_studies,
    check_here=_check_studies_here,
)

CORRELATE = Stage(
    name="correlate",
    makes="a rating for each response, correlated with every score",
    settings=CorrelateSettings,
    code="judgetrain.evaluate.correlate.stage:run",
    artifact="evaluation",
    inputs=_correlate_inputs,
    check=_check_correlate,
    check_here=_check_correlate_here,
)

SCENARIOS = Stage(
    name="scenarios",
    makes="of what kinds the training dialogues and the benchmarks are",
    settings=ScenariosSettings,
    code="judgetrain.evaluate.scenarios.stage:run",
    artifact="evaluation",
    inputs=lambda config: ("cluster",),
    check=_check_scenarios,
)
