"""Stage evaluate: what it reads, and what must hold before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from judgetrain.artifacts.stages import Stage, at, by_name
from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.hooks import calls, with_sections
from judgetrain.judges.method import Method
from judgetrain.judges.settings import ModelSettings, check_directories

if TYPE_CHECKING:
    from judgetrain.data.benchmarks.benchmark import Benchmark


@dataclass(frozen=True, kw_only=True)
@with_sections
class EvaluateSettings(ModelSettings):
    """Stage evaluate."""

    evaluate: EvaluateConfig = at("evaluate")
    objective: str | None = at("objective", in_fingerprint=False)
    shard_size: int = at("tree.shard_size")

    own_criteria: ClassVar[bool] = True

    @property
    def evaluated(self) -> Sequence[Method]:
        """``evaluate.methods``."""
        return [Method.parse(text) for text in self.evaluate.methods]

    @property
    def methods(self) -> Sequence[Method]:
        """The methods, and the judges that those without training are asked as."""
        methods: list[Method] = []
        for method in self.evaluated:
            methods += [method, method.asked_as]
        return list(dict.fromkeys(methods))

    @property
    def reads_world(self) -> bool:
        """Whether a benchmark is of the world."""
        return any(b.source.type == "world" for b in self.evaluate.benchmarks)

    @cached_property
    def benchmarks(self) -> Sequence[Benchmark]:
        """``evaluate.benchmarks``, read once: by the check of what is here, and then by the stage."""
        from judgetrain.data.benchmarks.benchmark import load_benchmark

        return [load_benchmark(b, i, self.seed, self.world) for i, b in enumerate(self.evaluate.benchmarks)]

    @cached_property
    def read(self) -> dict[str, Any]:
        """What extras read by their check of what is here, for the stage."""
        return {}


def check_branches(branches: Sequence[int], criteria: int) -> None:
    """Check the numbers of branches that judges are asked with (ConfigError: more than there are criteria, or none)."""
    if not branches or min(branches) < 1 or max(branches) > criteria:
        raise ConfigError(f"evaluate.branches={list(branches)}: allowed are 1 to tree.criteria={criteria}")


def _check_evaluate_here(found: EvaluateSettings) -> None:
    """Read every row that the stage is going to read, its label too, and look at the directories of models."""
    _ = found.benchmarks
    check_directories(found.engine, found.methods, "evaluate.methods")
    for _, extra, section in calls("check_here", found):
        extra(section, found)


def without(config: Any, lost: str, needed: Callable[[Any], Iterable[str]]) -> Any:
    """The configuration without the methods that need a stage which came to nothing, where ``evaluate.partial`` asks
    for it and a judge is left; else None."""
    if not config.evaluate.partial:
        return None

    def only(methods: list[str]) -> Any:
        return config.changed(evaluate=replace(config.evaluate, methods=methods))

    left = [m for m in config.evaluate.methods if lost not in needed(only([m]))]
    return only(left) if {"initial", "sft", "dpo"} & {Method.parse(m).target for m in left} else None


EVALUATE = Stage(
    name="evaluate",
    artifact="evaluation",
    format=4,
    settings=EvaluateSettings,
    inputs=lambda found: [*(["responses"] if any(m.labels for m in found.evaluated) else []), *found.judges],
    code="judgetrain.evaluate.stage:run",
    check=by_name("judgetrain.evaluate.runners:check_evaluate"),
    check_here=_check_evaluate_here,
    estimate="judgetrain.evaluate.stage:estimate",
    finished="judgetrain.evaluate.hooks:require_finished",
    without="judgetrain.evaluate.stages:without",
)
