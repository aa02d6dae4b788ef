"""Stage correct: what it reads, and what must hold before it runs."""

from collections.abc import Sequence
from dataclasses import dataclass

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

    @property
    def whole_trees(self) -> bool:
        """Return True: a response is corrected by what all criteria say."""
        return True

    """A response is corrected by what all criteria say."""

    @property
    def methods(self) -> Sequence[Method]:
        """Return the judge, and the rater if there is one."""
        return [Method.parse(text) for text in (self.correct.judge, self.correct.rater) if text]

    @property
    def uses_world(self) -> bool:
        """Return whether the responses to correct are the world's."""
        return self.correct.source.type == "world"


def _check(settings: CorrectSettings) -> None:
    """Refuse (ConfigError) what the stage cannot do."""
    correct = settings.correct
    if correct.source.type != "world" and not correct.source.path:
        raise ConfigError("correct.source.path is empty: give comparisons whose responses are to be corrected")
    correct.source.check("correct.source")
    judge = Method.parse(correct.judge)
    if not judge.goes_by_criteria:
        allowed = ", ".join(TARGETS)
        raise ConfigError(
            f"correct.judge={correct.judge!r}: a judge that grows branches is needed; allowed are {allowed} or a "
            "judge's directory (./NAME)"
        )
    check_model(settings, judge, "correct.judge")
    if correct.rater:
        check_judge(settings, correct.rater, "correct.rater")
        if not kind_of(Method.parse(correct.rater)).rates:
            raise ConfigError(
                f"correct.rater={correct.rater!r}: it does not rate one response; allowed are pointwise:external, "
                "pointwise:DIRECTORY, ..."
            )
    if correct.engine is not None:
        correct.engine.check("correct.engine")
    load_prompt_set(correct.prompts, "correction", "correct.prompts")


def _check_here(settings: CorrectSettings) -> None:
    """Refuse (JudgetrainError) files and directories that cannot be used on this machine."""
    source = settings.correct.source
    if source.type != "world":
        # Read to the end: each row is checked when it is read.
        for _ in read_comparisons(source, "correct.source", labelled=False):
            pass
    check_directories(settings.engine, settings.methods, "correct.judge")


CORRECT = Stage(name="correct", settings=CorrectSettings, check=_check, check_here=_check_here)
