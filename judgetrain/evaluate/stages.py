"""Stage evaluate: what it reads, and what must hold before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from judgetrain.amounts import amount
from judgetrain.artifacts.stages import Stage, at, by_name
from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.hooks import calls, with_sections
from judgetrain.judges.kinds.kind import kind_of
from judgetrain.judges.method import Method
from judgetrain.judges.settings import ModelSettings, check_criteria, check_directories

if TYPE_CHECKING:
    from judgetrain.data.benchmarks.benchmark import Benchmark
    from judgetrain.data.benchmarks.responses import ResponseBenchmark
    from judgetrain.data.intervals import Resampling


@dataclass(frozen=True, kw_only=True)
@with_sections
class EvaluateSettings(ModelSettings):
    """Stage evaluate."""

    evaluate: EvaluateConfig = at("evaluate")
    # Which metric a sweeper reads changes nothing of what is measured.
    objective: str | None = at("objective", in_fingerprint=False)
    shard_size: int = at("tree.shard_size")

    # Criteria that the command gives count where a method asks for them (``dpo+given``).
    own_criteria: ClassVar[bool] = True

    @property
    def evaluated(self) -> Sequence[Method]:
        """Return the methods of ``evaluate.methods``."""
        return [Method.parse(text) for text in self.evaluate.methods]

    @property
    def methods(self) -> Sequence[Method]:
        """Return the methods, each followed by the judge that it is asked as, without repeats."""
        methods: list[Method] = []
        for method in self.evaluated:
            methods.append(method)
            # Its model must be checked, loaded and part of the fingerprint like one that is named itself.
            methods.append(method.asked_as)
        return self.with_members(methods)

    @property
    def resampling(self) -> Resampling:
        """Return how all intervals of the evaluation are drawn."""
        from judgetrain.data.intervals import Resampling

        return Resampling(self.evaluate.bootstrap, self.seed)

    @property
    def uses_world(self) -> bool:
        """Return whether a benchmark is of the generated world."""
        return any(benchmark.source.type == "world" for benchmark in self.evaluate.benchmarks)

    @cached_property
    def benchmarks(self) -> Sequence[Benchmark]:
        """Return the benchmarks of comparisons, read by the check of what is here and used by the stage."""
        # Imported at use: the settings are read by commands that read no benchmark.
        from judgetrain.data.benchmarks.benchmark import load_benchmark

        benchmarks = []
        for place, config in enumerate(self.evaluate.benchmarks):
            if place not in self._places_of_responses:
                benchmarks.append(load_benchmark(config, place, self.seed, self.world))
        return benchmarks

    @cached_property
    def responses(self) -> Sequence[ResponseBenchmark]:
        """Return the benchmarks of single responses, read as :attr:`benchmarks` are."""
        from judgetrain.data.benchmarks.responses import load_responses

        return [
            load_responses(self.evaluate.benchmarks[place], place, self.seed) for place in self._places_of_responses
        ]

    @cached_property
    def _places_of_responses(self) -> Sequence[int]:
        """Return the places in ``evaluate.benchmarks`` of those whose rows hold one response each."""
        from judgetrain.data.benchmarks.responses import holds_single_responses

        places = []
        for place, config in enumerate(self.evaluate.benchmarks):
            if holds_single_responses(config, f"evaluate.benchmarks[{place}]"):
                places.append(place)
        return places

    @property
    def scoring(self) -> Sequence[Method]:
        """Return the methods that give a single response a score."""
        return [method for method in self.evaluated if kind_of(method.asked_as).scores(self, method.asked_as)]

    @cached_property
    def read(self) -> dict[str, Any]:
        """Return the dictionary in which extras leave for the stage what their check of what is here has read."""
        return {}


def check_branches(branches: Sequence[int], criteria: int) -> None:
    """Check the numbers of branches that judges are asked with (ConfigError: more than there are criteria, or none)."""
    # tree.criteria counts: a judge of this run learns to name so many.
    if not branches or min(branches) < 1 or max(branches) > criteria:
        raise ConfigError(f"evaluate.branches={list(branches)}: allowed are 1 to tree.criteria={criteria}")


def _check_evaluate_here(settings: EvaluateSettings) -> None:
    """Read every row that the stage is going to read, its label too, and look at the directories of models."""
    # Reading is the check: the benchmarks stay with the settings.
    _ = settings.benchmarks
    if settings.responses and not settings.scoring:
        raise ConfigError(
            f"evaluate.benchmarks: the rows of {settings.responses[0].name} hold one response, and none of "
            f"evaluate.methods={[*settings.evaluate.methods]} gives one a score: name a branching judge that "
            "reads one, as dpo+one, or set judge.reads=one"
        )
    _check_criteria_of_scores(settings)
    check_directories(settings.engine, settings.methods, "evaluate.methods")
    for _, extra, section in calls("check_here", settings):
        extra(section, settings)


def _check_criteria_of_scores(settings: EvaluateSettings) -> None:
    """Refuse (ConfigError) a name's number of criteria for scores (``dpo@3``) that its judge does not name."""
    if not settings.responses:
        return
    criteria = settings.criteria or 0
    for method in settings.scoring:
        most = method.asked_as.most
        if most is None:
            continue
        check_criteria(criteria, method.asked_as, most, "evaluate.methods")
        # A judge's directory says itself how many it names.
        if most > criteria and not method.is_directory:
            raise ConfigError(
                f"evaluate.methods={method.text!r}: {amount(most, 'branch')}; allowed are 1 to tree.criteria={criteria}"
            )


def _inputs(settings: EvaluateSettings) -> list[str]:
    """Return the stages that the evaluation reads."""
    inputs = list(settings.judges)
    if any(method.labels for method in settings.evaluated):
        # Methods that learn from labelled pairs take them from the training data.
        inputs.insert(0, "responses")
    return inputs


def without(config: Any, lost: str, needed: Callable[[Any], Iterable[str]]) -> Any:
    """Return the configuration without the methods that need a stage which came to nothing.

    It is None where ``evaluate.partial`` does not ask for that, or no judge of this run remains.

    Args:
        config: the whole configuration.
        lost: the stage.
        needed: returns the stages that a configuration needs.
    """
    if not config.evaluate.partial:
        return None

    def only(methods: list[str]) -> Any:
        return config.changed(evaluate=replace(config.evaluate, methods=methods))

    # Method by method, as only the pipeline knows which stages each needs.
    remaining = [method for method in config.evaluate.methods if lost not in needed(only([method]))]
    targets = {Method.parse(method).target for method in remaining}
    # Baselines alone are no evaluation of a run: the error that nothing came to train on then stands.
    if targets.isdisjoint({"initial", "sft", "dpo"}):
        return None
    return only(remaining)


EVALUATE = Stage(
    name="evaluate",
    artifact="evaluation",
    format=6,
    settings=EvaluateSettings,
    inputs=_inputs,
    code="judgetrain.evaluate.stage:run",
    check=by_name("judgetrain.evaluate.runners:check_evaluate"),
    check_here=_check_evaluate_here,
    estimate="judgetrain.evaluate.dry_run:estimate",
    finished="judgetrain.evaluate.hooks:require_finished",
    without="judgetrain.evaluate.stages:without",
)
