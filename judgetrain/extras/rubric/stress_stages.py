"""Stage ``stress``: what it reads, and what must hold before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from judgetrain.artifacts.stages import Stage, at
from judgetrain.engines.config import EngineConfig
from judgetrain.errors import ConfigError
from judgetrain.extras.rubric.config import LABELS, WORLD, StressConfig
from judgetrain.judges.kinds.kind import find_kind, kind_of
from judgetrain.judges.method import Method
from judgetrain.judges.settings import check_directories
from judgetrain.judging.stages import JudgeSettings, check_judge, check_judged


@dataclass(frozen=True, kw_only=True)
class StressSettings(JudgeSettings):
    """Stage stress."""

    stress: StressConfig = at("stress")

    @property
    def truth(self) -> Method | None:
        """Return the judge that says what a response is worth; None where labels or the world do."""
        if self.stress.truth in (LABELS, WORLD):
            return None
        return Method.parse(self.stress.truth)

    @property
    def methods(self) -> Sequence[Method]:
        """Return the judge that scores by the rubric, the one that says what responses are worth, and their members."""
        named = [Method.parse(self.verdicts.judge)] if self.verdicts.judge else []
        if self.truth is not None:
            named.append(self.truth)
        return self.with_members(named)

    @property
    def asked_engines(self) -> tuple[EngineConfig | None, ...]:
        """Return the engines that may be paid for, the writer's among them."""
        return (*super().asked_engines, self.stress.writer)


@dataclass(frozen=True, kw_only=True)
class TruthSettings(StressSettings):
    """The same settings, for the judge that says what responses are worth: it does not go by the rubric."""

    own_criteria: ClassVar[bool] = True

    @classmethod
    def of(cls, settings: StressSettings) -> TruthSettings:
        """Return the settings of a stage for that judge."""
        return cls(**{field.name: getattr(settings, field.name) for field in fields(settings)})


def _check(settings: StressSettings) -> None:
    """Refuse (ConfigError) what the stage cannot do."""
    check_judged(settings)
    if not settings.criteria_file:
        raise ConfigError(
            "criteria is empty: name the rubric that responses are chosen by, as criteria=rubric.yaml (stage rubric "
            "writes one)"
        )
    if settings.verdicts.systems:
        raise ConfigError("verdicts.systems: stage stress reads prompts with their responses from verdicts.source")
    method = settings.method
    if not kind_of(method).scores(settings, method):
        raise ConfigError(
            f"verdicts.judge={settings.verdicts.judge}: it compares two responses, and stage stress has each scored by "
            "itself: set judge.reads=one, with a branching judge"
        )
    if settings.stress.writer is not None:
        settings.stress.writer.check("stress.writer")
    _check_truth(settings)


def _check_truth(settings: StressSettings) -> None:
    """Refuse (ConfigError) a truth that is none, or that cannot be known of these responses."""
    text = settings.stress.truth
    if text == WORLD and not settings.uses_world:
        raise ConfigError(
            "stress.truth=world: the responses are not the generated world's; set verdicts.source.type=world"
        )
    if text == LABELS and (settings.stress.writer is not None or settings.uses_world):
        raise ConfigError(
            "stress.truth=labels: nobody has labelled responses that are written now; name another judge, or "
            "stress.truth=world for the generated world's"
        )
    method = settings.truth
    if method is None:
        return
    if find_kind(method.kind) is not None and not _values_one_response(settings, method):
        raise ConfigError(
            f"stress.truth={text!r}: it compares two responses; allowed are labels, world, pointwise:MODEL, or a judge "
            "that reads one response (judge.reads=one, or +one behind its name)"
        )
    check_judge(settings, text, "stress.truth")


def _values_one_response(settings: StressSettings, method: Method) -> bool:
    """Return whether a method's judge says of one response what it is worth."""
    kind = kind_of(method)
    return kind.rates or kind.scores(settings, method)


def _check_here(settings: StressSettings) -> None:
    """Read the rows, and look at the judges' directories, before anything is loaded."""
    # Imported at use: the command line reads these settings to complete keys.
    from judgetrain.extras.rubric.stress_pools import pools_of

    # The generated world's rows need no look, and its responses take a while to write.
    if settings.verdicts.source.type != "hub" and not settings.uses_world:
        pools_of(settings, lambda line: None)
    check_directories(settings.engine, settings.methods, "verdicts.judge")


STRESS = Stage(name="stress", settings=StressSettings, tracked=False, check=_check, check_here=_check_here)
