"""The stages of this room, what each reads, and what must hold before any of them runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from judgetrain.artifacts.stages import Stage, StageSettings, at
from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.stages import check_adapter
from judgetrain.errors import ConfigError
from judgetrain.judges.method import ASKED_ONCE, BASELINE, BRANCHING, TARGETS, Method, meant
from judgetrain.judges.prompting.prompts import Dialect, load_prompt_set
from judgetrain.judges.settings import EXTERNAL, ModelSettings, check_criteria, check_directories, check_model
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


def check_judge(settings: ModelSettings, text: str, key: str) -> None:
    """Check a judge of any kind, as a method that judges comparisons without labels (ConfigError)."""
    from judgetrain.judges.kinds.baselines import BASELINES
    from judgetrain.scorers.config import check_scorer
    from judgetrain.scorers.methods import COMBINED, OF_RESPONSES, check_scorers

    method = Method.parse(text)
    if method.kind == BRANCHING:
        check_model(settings, method, key)
        criteria, most = settings.criteria or 0, 1 if method.most is None else method.most
        if most < 1 or (most > criteria and not method.is_directory):
            raise ConfigError(f"{key}={text!r}: {most} branches; allowed are 1 to tree.criteria={criteria}")
        check_criteria(criteria, method, most, key)
    elif method.kind in ASKED_ONCE:
        check_model(settings, method, key)
        dialect = cast(Dialect, method.kind)
        load_prompt_set(getattr(settings, dialect).prompts, dialect, f"evaluate.{dialect}.prompts")
    elif method.kind == "scorer":
        check_scorers([method.target], OF_RESPONSES, key)
        if method.target in COMBINED:
            allowed = ", ".join(name for name in OF_RESPONSES if name not in COMBINED)
            raise ConfigError(f"{key}={text!r}: it compares all items with each other; choose one of {allowed}")
        assert settings.scorer is not None
        check_scorer(settings.scorer, settings.base)
    elif method.kind != BASELINE or method.target not in BASELINES or method.target == "surface":
        baselines = ", ".join(name for name in BASELINES if name != "surface")
        raise ConfigError(
            f"{key}={text!r}: no judge of comparisons without labels; allowed are {', '.join(TARGETS)}, a judge's "
            f"directory (./NAME) or its id on the Hub, pairwise: and pointwise: before any of these or "
            f"a model's directory, scorer:NAME, {baselines}{meant(text, BASELINES)}"
        )


NO_JUDGE = """verdicts.judge is empty: name who judges
judge verdicts.judge=./my-judge@3 verdicts.source.path=FILE: a trained judge, here or on the Hub, by three criteria
judge recipe=pairs verdicts.judge=base train.base.path=MODEL verdicts.source.path=FILE criteria=FILE: any tuned model
judge recipe=pairs verdicts.judge=external external=openai verdicts.source.path=FILE criteria=FILE: a model on a server
judge verdicts.judge=dpo verdicts.source.path=FILE: this recipe's own judge, which is trained first if it is missing"""


def check_judged(found: JudgeSettings) -> None:
    settings = found.verdicts
    if not settings.judge:
        raise ConfigError(NO_JUDGE)
    if found.criteria_file and found.method.kind != BRANCHING:
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
