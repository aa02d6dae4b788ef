"""Define stage correlate: what it reads, and what must hold before it runs."""

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
    """The settings of stage correlate."""

    correlate: CorrelateConfig = at("correlate")

    @property
    def methods(self) -> Sequence[Method]:
        """Return the raters."""
        return [Method.parse(text) for text in self.correlate.raters]

    @property
    def judges(self) -> Sequence[str]:
        """Return the stages of the raters, and of the answers that they rate; none where files hold the scores."""
        # Files bring scores and answers of their own, so that no stage has to run for them.
        if self.correlate.scores:
            return ()
        return ("dialogues", "selfeval", *super().judges)


def _check(settings: CorrelateSettings) -> None:
    """Check the stage's settings before anything runs (ConfigError)."""
    config = settings.correlate
    if not config.ratings and not config.raters:
        raise ConfigError("correlate.ratings and correlate.raters are empty: name a file of ratings, or who rates")
    if config.raters and config.scores:
        raise ConfigError("correlate.raters rate stage selfeval's answers, correlate.scores a file's: leave one out")
    for key, columns in (("ratings", config.ratings), ("scores", config.scores)):
        for number, column in enumerate(columns):
            if not column.name:
                raise ConfigError(f"correlate.{key}[{number}].name is empty: name the rater or score")
            column.source.check(f"correlate.{key}[{number}].source")
    for method in settings.methods:
        check_judge(settings, method.text, "correlate.raters")
        if not kind_of(method).rates:
            raise ConfigError(
                f"correlate.raters: {method.text!r}: allowed are pointwise:external, pointwise:DIRECTORY, ..."
            )
    # Names are known before anything is read, so that a misspelt one is found before a rater is paid.
    raters = {column.name for column in config.ratings} | {method.name for method in settings.methods}
    for name in config.against:
        if name not in raters:
            raise ConfigError(f"correlate.against: {name!r} is no rater; there are {', '.join(sorted(raters))}")


CORRELATE = Stage(
    name="correlate",
    settings=CorrelateSettings,
    artifact="evaluation",
    check=_check,
    check_here=by_name("judgetrain.extras.correlate.stage:check_here"),
)
