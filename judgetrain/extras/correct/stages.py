"""Stage correct: what it reads, and what must hold before it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from judgetrain.artifacts.stages import Stage, at
from judgetrain.data.sources import read_comparisons
from judgetrain.errors import ConfigError
from judgetrain.extras.correct.config import CorrectConfig
from judgetrain.judges.kinds.kind import kind_of
from judgetrain.judges.method import TARGETS, Method
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.settings import ModelSettings, check_directories, check_model
from judgetrain.judging.stages import check_judge


@dataclass(frozen=True, kw_only=True)
class CorrectSettings(ModelSettings):
    """Stage correct."""

    correct: CorrectConfig = at("correct")

    whole_trees: ClassVar[bool] = True
    """A response is corrected by what all criteria say."""

    @property
    def methods(self) -> Sequence[Method]:
        """The judge, and who rates."""
        return [Method.parse(text) for text in (self.correct.judge, self.correct.rater) if text]

    @property
    def reads_world(self) -> bool:
        """Whether the responses to correct are the world's."""
        return self.correct.source.type == "world"


def _check(found: CorrectSettings) -> None:
    settings, method = found.correct, Method.parse(found.correct.judge)
    if settings.source.type != "world" and not settings.source.path:
        raise ConfigError("correct.source.path is empty: give comparisons whose responses are to be corrected")
    settings.source.check("correct.source")
    if not method.goes_by_criteria:
        allowed = f"allowed are {', '.join(TARGETS)} or a judge's directory (./NAME)"
        raise ConfigError(f"correct.judge={settings.judge!r}: a judge that grows branches is needed; {allowed}")
    check_model(found, method, "correct.judge")
    if settings.rater:
        check_judge(found, settings.rater, "correct.rater")
        if not kind_of(Method.parse(settings.rater)).rates:
            allowed = "allowed are pointwise:external, pointwise:DIRECTORY, ..."
            raise ConfigError(f"correct.rater={settings.rater!r}: it does not rate one response; {allowed}")
    if settings.engine is not None:
        settings.engine.check("correct.engine")
    load_prompt_set(settings.prompts, "correction", "correct.prompts")


def _check_here(found: CorrectSettings) -> None:
    source = found.correct.source
    if source.type != "world":
        for _ in read_comparisons(source, "correct.source", labelled=False):
            pass
    check_directories(found.engine, found.methods, "correct.judge")


CORRECT = Stage(name="correct", settings=CorrectSettings, check=_check, check_here=_check_here)
