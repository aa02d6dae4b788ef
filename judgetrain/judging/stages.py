"""The stages of this room, what each reads, and what must hold before any of them runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from judgetrain.artifacts.stages import Stage, StageSettings, at
from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.stages import check_adapter
from judgetrain.errors import ConfigError
from judgetrain.judges.kinds.kind import Use, judge_kind
from judgetrain.judges.method import Method
from judgetrain.judges.settings import EXTERNAL, ModelSettings, check_directories
from judgetrain.judging.config import VerdictsConfig

if TYPE_CHECKING:
    from judgetrain.judging.items import Item


@dataclass(frozen=True, kw_only=True)
class JudgeSettings(ModelSettings):
    """Stage judge."""

    verdicts: VerdictsConfig = at("verdicts")
    criteria_file: str | None = at("criteria", in_fingerprint=False)

    @property
    def methods(self) -> Sequence[Method]:
        return (self.method,) if self.verdicts.judge else ()

    @property
    def reads_world(self) -> bool:
        return self.verdicts.source.type == "world" and not self.verdicts.systems

    @property
    def method(self) -> Method:
        return Method.parse(self.verdicts.judge)


def check_judge(settings: ModelSettings, text: str, key: str, alone: bool = False) -> None:
    """Check a judge of any kind, as a method that judges comparisons without labels (ConfigError).

    ``alone``: every comparison is to be judged by itself, whatever else it is asked.
    """
    method = Method.parse(text)
    use = Use(key=key, alone=alone)
    judge_kind(method, use).check(settings, method, use)


NO_JUDGE = """verdicts.judge is empty: name who judges
judge verdicts.judge=./my-judge@3 verdicts.source.path=FILE: a trained judge, here or on the Hub, by three criteria
judge recipe=pairs verdicts.judge=base train.base.path=MODEL verdicts.source.path=FILE criteria=FILE: any tuned model
judge recipe=pairs verdicts.judge=external external=openai verdicts.source.path=FILE criteria=FILE: a model on a server
judge verdicts.judge=dpo verdicts.source.path=FILE: this recipe's own judge, which is trained first if it is missing"""


def check_judged(found: JudgeSettings) -> None:
    settings = found.verdicts
    if not settings.judge:
        raise ConfigError(NO_JUDGE)
    if found.criteria_file and not found.method.goes_by_criteria:
        raise ConfigError(f"criteria={found.criteria_file}: {settings.judge} goes by no criteria; branching judges do")
    check_judge(found, settings.judge, "verdicts.judge")
    if settings.systems:
        return
    if settings.baseline is not None:
        raise ConfigError("verdicts.baseline is one of several systems: name their answers' files in verdicts.systems")
    if settings.source.type != "world" and not settings.source.path and not settings.source.adapter:
        told = "verdicts.source.path is empty: name a file of comparisons (query, response_a, response_b)"
        raise ConfigError(f"{told}, or systems' answers to the same prompts with verdicts.systems=[A,B]")
    settings.source.check("verdicts.source")
    check_adapter(settings.source, "verdicts.source")
    target = found.method.target
    asked = EXTERNAL.get(target)
    if asked and settings.source.type != "world" and isinstance(getattr(found, target), WorldEngineConfig):
        told = f"{asked}.type=world knows what the generated world says and nothing else"
        raise ConfigError(f"verdicts.judge={settings.judge}: {told}; name a model, as external=openai does")


@dataclass(frozen=True, kw_only=True)
class VerdictsSettings(StageSettings):
    """A stage that reads verdicts: those in ``files``, or where none are named, those of stage judge."""

    files: list[str]  # each stage says from where
    verdicts: VerdictsConfig = at("verdicts", in_fingerprint=False)
    world: WorldConfig = at("dialogues.world", in_fingerprint=False)
    """What stage judge is to judge, looked at before it does."""

    @property
    def judges(self) -> Sequence[str]:
        return () if self.files else ("judge",)

    def items(self) -> Sequence[Item]:
        return items_here(self.verdicts, self.world, self.seed)


def items_here(verdicts: VerdictsConfig, world: WorldConfig | None, seed: int) -> Sequence[Item]:
    """What is to be judged, as far as it is on this machine: none of what the Hub holds."""
    from judgetrain.judging.items import read_items

    if verdicts.source.type == "hub" and not verdicts.systems:
        return ()
    return read_items(verdicts, world, seed)


def _check_here(settings: JudgeSettings) -> None:
    items_here(settings.verdicts, settings.world, settings.seed)
    check_directories(settings.engine, settings.methods, "verdicts.judge")


JUDGE = Stage(name="judge", settings=JudgeSettings, tracked=False, check=check_judged, check_here=_check_here)
