"""The stages of this room, the settings of each, and the checks before any of them runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from judgetrain.artifacts.stages import Stage, StageSettings, at
from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.stages import check_adapter
from judgetrain.errors import ConfigError
from judgetrain.judges.kinds.kind import Use, judge_kind
from judgetrain.judges.method import Method
from judgetrain.judges.settings import EXTERNAL, ModelSettings, check_directories
from judgetrain.judging.config import VerdictsConfig

if TYPE_CHECKING:
    from judgetrain.judging.items import JudgedRow


@dataclass(frozen=True, kw_only=True)
class JudgeSettings(ModelSettings):
    """Stage judge."""

    verdicts: VerdictsConfig = at("verdicts")
    # The file's name, for messages; its content is ``rubric``, which the fingerprint holds.
    criteria_file: str | None = at("criteria", in_fingerprint=False)

    reasons_key: ClassVar[str] = "verdicts.reasons"

    @property
    def methods(self) -> Sequence[Method]:
        """Return the one method and its members; none where ``verdicts.judge`` is empty, which the check refuses."""
        named: tuple[Method, ...] = ()
        if self.verdicts.judge:
            named = (self.method,)
        return self.with_members(named)

    @property
    def writes_reasons(self) -> bool | None:
        """Return ``verdicts.reasons``."""
        return self.verdicts.reasons

    @property
    def uses_world(self) -> bool:
        """Return whether comparisons of the generated world are judged."""
        return self.verdicts.source.type == "world" and not self.verdicts.systems

    @property
    def method(self) -> Method:
        """Return the method of ``verdicts.judge``."""
        return Method.parse(self.verdicts.judge)


def check_judge(settings: ModelSettings, text: str, key: str, alone: bool = False) -> None:
    """Check a judge of any kind, as a method that judges comparisons without labels.

    Args:
        settings: of the stage.
        text: names the method.
        key: the configuration key that it stands under.
        alone: True: every comparison is judged by itself, whatever else the judge is asked.

    Raises:
        ConfigError: there is no such judge, or it cannot do that.
    """
    method = Method.parse(text)
    use = Use(key=key, alone=alone)
    judge_kind(method, use).check(settings, method, use)


NO_JUDGE = """verdicts.judge is empty: name who judges
judge verdicts.judge=./my-judge@3 verdicts.source.path=FILE: a trained judge, here or on the Hub, by three criteria
judge recipe=pairs verdicts.judge=base train.base.path=MODEL verdicts.source.path=FILE criteria=FILE: any tuned model
judge recipe=pairs verdicts.judge=external external=openai verdicts.source.path=FILE criteria=FILE: a model on a server
judge verdicts.judge=dpo verdicts.source.path=FILE: this recipe's own judge, which is trained first if it is missing"""


def check_judged(settings: JudgeSettings) -> None:
    """Check the judge and the rows that it is to judge (ConfigError)."""
    config = settings.verdicts
    if not config.judge:
        raise ConfigError(NO_JUDGE)
    # Criteria that nothing reads would look as if they had been judged by.
    if settings.criteria_file and not settings.method.goes_by_criteria:
        raise ConfigError(f"criteria={settings.criteria_file}: {config.judge} goes by no criteria; branching judges do")
    check_judge(settings, config.judge, "verdicts.judge")
    # Files of systems' answers take the place of the source.
    if config.systems:
        return
    if config.baseline is not None:
        raise ConfigError("verdicts.baseline is one of several systems: name their answers' files in verdicts.systems")
    if config.source.type != "world" and not config.source.path and not config.source.adapter:
        raise ConfigError(
            "verdicts.source.path is empty: name a file of comparisons (query, response_a, response_b), "
            "or systems' answers to the same prompts with verdicts.systems=[A,B]"
        )
    config.source.check("verdicts.source")
    check_adapter(config.source, "verdicts.source")

    target = settings.method.target
    knows_world_alone = target in EXTERNAL and isinstance(getattr(settings, target), WorldEngineConfig)
    if knows_world_alone and config.source.type != "world":
        raise ConfigError(
            f"verdicts.judge={config.judge}: {EXTERNAL[target]}.type=world knows what the generated world says and "
            "nothing else; name a model, as external=openai does"
        )


@dataclass(frozen=True, kw_only=True)
class VerdictsSettings(StageSettings):
    """A stage that reads verdicts: those in ``files``, or where none are named, those of stage judge."""

    # A stage that inherits says under which key its files are named.
    files: list[str]
    # The rows of stage judge are looked at before it judges them.
    verdicts: VerdictsConfig = at("verdicts", in_fingerprint=False)
    world: WorldConfig = at("dialogues.world", in_fingerprint=False)

    @property
    def judges(self) -> Sequence[str]:
        """Return the stages that the verdicts come from: stage judge, or none where files are named."""
        if self.files:
            return ()
        return ("judge",)

    def items(self) -> Sequence[JudgedRow]:
        """Return the rows that stage judge is to judge, as :func:`items_here` does."""
        return items_here(self.verdicts, self.world, self.seed)


def items_here(verdicts: VerdictsConfig, world: WorldConfig | None, seed: int) -> Sequence[JudgedRow]:
    """Return the rows that are to be judged, as far as they are on this machine: none of those on the Hub."""
    # Imported at use: the command line reads these settings to complete keys.
    from judgetrain.judging.items import read_items

    # Rows on the Hub are fetched by the stage, since a check must be quick.
    if verdicts.source.type == "hub" and not verdicts.systems:
        return ()
    return read_items(verdicts, world, seed)


def _check_here(settings: JudgeSettings) -> None:
    """Read the rows and look at the judge's directory, before anything is loaded."""
    items_here(settings.verdicts, settings.world, settings.seed)
    check_directories(settings.engine, settings.methods, "verdicts.judge")


# 5: rows say whether they are decided, and single responses have their labels.
JUDGE = Stage(name="judge", format=5, settings=JudgeSettings, tracked=False, check=check_judged, check_here=_check_here)
