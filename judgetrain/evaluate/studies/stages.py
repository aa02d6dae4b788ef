"""Stage studies: what it reads, and what must hold before it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, cast

from judgetrain.artifacts.stages import Stage, at
from judgetrain.data.config import ClusterConfig
from judgetrain.errors import ConfigError
from judgetrain.evaluate.stages import check_branches
from judgetrain.evaluate.studies.config import StudiesConfig
from judgetrain.judges.checks import check_directories, check_model
from judgetrain.judges.method import ASKED_ONCE, BRANCHING, JUDGE_STAGES, Method
from judgetrain.judges.prompting.prompts import Dialect, load_prompt_set
from judgetrain.judges.settings import ModelSettings
from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.stages import check_scorer


@dataclass(frozen=True, kw_only=True)
class StudiesSettings(ModelSettings):
    """Stage studies."""

    studies: StudiesConfig = at("studies")
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
            check_branches(config)
        check_model(config, method, key)
        if way:
            load_prompt_set(getattr(config.evaluate, way).prompts, cast(Dialect, way), f"evaluate.{way}.prompts")


def _check_studies_here(config: Any) -> None:
    """Read people's verdicts, and look at the judge's directory."""
    from judgetrain.evaluate.studies.conflicts import read_verdicts

    if config.studies.verdicts:
        read_verdicts(config.studies.verdicts, "studies.verdicts")
    check_directories(config, StudiesSettings.methods_of(config), "studies.judge")


STUDIES = Stage(
    name="studies",
    settings=StudiesSettings,
    code="judgetrain.evaluate.studies.stage:run",
    inputs=lambda config: ("dialogues", "selfeval"),
    check=_check_studies,
    check_here=_check_studies_here,
)
