"""Stage ``calibrate``: what it reads, and what must hold before it runs."""

from dataclasses import dataclass, replace

from judgetrain.artifacts.stages import at
from judgetrain.errors import ConfigError
from judgetrain.extras.calibrate.config import CalibrateConfig
from judgetrain.judging.stages import JUDGE, JudgeSettings, check_judged


@dataclass(frozen=True, kw_only=True)
class CalibrateSettings(JudgeSettings):
    """Stage calibrate."""

    calibrate: CalibrateConfig = at("calibrate")

    @property
    def whole_trees(self) -> bool:
        """Return whether weights are fitted, which need every margin; thresholds are of the judge as it is asked."""
        return self.calibrate.error is None


def _check_calibrate(settings: JudgeSettings) -> None:
    assert isinstance(settings, CalibrateSettings)
    check_judged(settings)
    if settings.calibrate.error is None and not settings.method.goes_by_criteria:
        raise ConfigError(f"verdicts.judge={settings.verdicts.judge!r}: branching judges alone have criteria to weigh")


# Stage judge's own record with another end: rows, checks and inputs are the same.
CALIBRATE = replace(
    JUDGE,
    name="calibrate",
    settings=CalibrateSettings,
    code="judgetrain.extras.calibrate.stage:run",
    check=_check_calibrate,
    # Rows that label a pair, or a response, differently were all fitted to.
    format=JUDGE.format + 2,
)
