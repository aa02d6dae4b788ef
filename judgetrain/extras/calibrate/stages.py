"""Stage ``calibrate``: what it reads, and what must hold before it runs."""

from dataclasses import dataclass, replace
from typing import ClassVar

from judgetrain.errors import ConfigError
from judgetrain.judging.stages import JUDGE, JudgeSettings, check_judged


@dataclass(frozen=True, kw_only=True)
class CalibrateSettings(JudgeSettings):
    """Stage calibrate."""

    whole_trees: ClassVar[bool] = True


def _check_calibrate(settings: JudgeSettings) -> None:
    check_judged(settings)
    if not settings.method.goes_by_criteria:
        raise ConfigError(f"verdicts.judge={settings.verdicts.judge!r}: branching judges alone have criteria to weigh")


CALIBRATE = replace(
    JUDGE,
    name="calibrate",
    settings=CalibrateSettings,
    code="judgetrain.extras.calibrate.stage:run",
    check=_check_calibrate,
    # Rows that label a pair differently were all fitted to.
    format=JUDGE.format + 1,
)
