"""Stage correlate: what it reads, and what must hold before it runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from judgetrain.artifacts.stages import Stage, at, by_name
from judgetrain.errors import ConfigError
from judgetrain.extras.correlate.config import CorrelateConfig
from judgetrain.judges.kinds.kind import kind_of
from judgetrain.judges.method import Method
from judgetrain.judges.settings import ModelSettings
from judgetrain.judging.stages import check_judge


@dataclass(frozen=True, kw_only=True)
class CorrelateSettings(ModelSettings):
    """Stage correlate."""

    correlate: CorrelateConfig = at("correlate")

    @property
    def methods(self) -> Sequence[Method]:
        """Who rates."""
        return [Method.parse(text) for text in self.correlate.raters]

    @property
    def judges(self) -> Sequence[str]:
        """Those that rate this run's own answers, and the answers; none where files hold the scores."""
        return ("dialogues", "selfeval", *super().judges) if not self.correlate.scores else ()


def _check(found: CorrelateSettings) -> None:
    settings = found.correlate
    if not settings.ratings and not settings.raters:
        raise ConfigError("correlate.ratings and correlate.raters are empty: name a file of ratings, or who rates")
    if settings.raters and settings.scores:
        raise ConfigError("correlate.raters rate stage selfeval's answers, correlate.scores a file's: leave one out")
    for key in ("ratings", "scores"):
        for i, column in enumerate(getattr(settings, key)):
            if not column.name:
                raise ConfigError(f"correlate.{key}[{i}].name is empty: name the rater or score")
            column.source.check(f"correlate.{key}[{i}].source")
    for method in found.methods:
        check_judge(found, method.text, "correlate.raters")
        if not kind_of(method).rates:
            told = "allowed are pointwise:external, pointwise:DIRECTORY, ..."
            raise ConfigError(f"correlate.raters: {method.text!r}: {told}")
    known = {column.name for column in settings.ratings} | {method.name for method in found.methods}
    if unknown := [name for name in settings.against if name not in known]:
        raise ConfigError(f"correlate.against: {unknown[0]!r} is no rater; there are {', '.join(sorted(known))}")


CORRELATE = Stage(
    name="correlate",
    settings=CorrelateSettings,
    artifact="evaluation",
    check=_check,
    check_here=by_name("judgetrain.extras.correlate.stage:check_here"),
)
