"""Stage correct: what it reads, and what must hold before it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from judgetrain.artifacts.stages import Stage, at
from judgetrain.data.sources import read_comparisons
from judgetrain.errors import ConfigError
from judgetrain.evaluate.correct.config import CorrectConfig
from judgetrain.judges.checks import check_directories, check_model
from judgetrain.judges.method import BRANCHING, TARGETS, Method
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.settings import ModelSettings


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


def _check_correct_here(config: Any) -> None:
    """Read the comparisons, and look at the judge's directory."""
    source = config.correct.source
    if source.type != "world":
        for _ in read_comparisons(source, "correct.source", labelled=False):
            pass
    check_directories(config, CorrectSettings.methods_of(config), "correct.judge")


CORRECT = Stage(
    name="correct",
    settings=CorrectSettings,
    code="judgetrain.evaluate.correct.stage:run",
    inputs=CorrectSettings.judges,
    check=_check_correct,
    check_here=_check_correct_here,
)
