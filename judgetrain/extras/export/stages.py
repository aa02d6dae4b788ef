"""Stage export: what it reads, and what must hold before it runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from judgetrain.artifacts.stages import Stage, at
from judgetrain.engines.config import EngineConfig
from judgetrain.errors import ConfigError
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.method import JUDGE_STAGES, Method, method_directory
from judgetrain.judges.settings import ModelSettings, check_directories, check_model
from judgetrain.keys import in_place


@dataclass(frozen=True, kw_only=True)
class ExportSettings(ModelSettings):
    """Stage export: a judge's weights and prompts decide what it writes, not how the judge is asked."""

    named: str = at("verdicts.judge", content=in_place(method_directory))
    # How the judge is asked is only checked here, so that another value must not export the same weights again.
    judge: JudgeConfig = at("judge", in_fingerprint=False)
    criteria: int = at("tree.criteria", in_fingerprint=False)
    rubric: str | None = at("criteria", in_fingerprint=False)
    engine: EngineConfig = at("engine", in_fingerprint=False)

    @property
    def method(self) -> Method:
        """Return the judge."""
        return Method.parse(self.named)

    @property
    def methods(self) -> Sequence[Method]:
        """Return the judge, if it is one that can be exported."""
        method = self.method
        if method.goes_by_criteria and (method.target in JUDGE_STAGES or method.is_directory):
            return (method,)
        return ()


def _check_export(settings: ExportSettings) -> None:
    """Refuse (ConfigError) a judge whose score is not known from the prompt alone."""
    key = "verdicts.judge"
    method = settings.method
    if not settings.methods:
        raise ConfigError(f"{key}={settings.named!r}: trained judges are exported: a stage's (dpo), or a directory")
    check_model(settings, method, key)
    config = settings.judge.changed(**method.asking)
    # Any number of criteria: only how scores are read is looked at.
    if config.reads != "one" or config.asking(1).score != "expected":
        raise ConfigError(
            f"{key}={settings.named!r}: a classifier scores one response: set judge.reads=one, and leave "
            "judge.score=auto"
        )


EXPORT = Stage(
    name="export",
    settings=ExportSettings,
    code="judgetrain.extras.export.stage:run",
    artifact="model",
    check=_check_export,
    check_here=lambda settings: check_directories(settings.engine, settings.methods, "verdicts.judge"),
)
