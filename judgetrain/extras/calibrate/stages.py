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
    if settings.calibrate.length and settings.calibrate.error is not None:
        raise ConfigError(
            "calibrate.length=true and calibrate.error: thresholds are chosen for a judge as it is, and no weight is "
            "fitted; run stage calibrate with calibrate.length first, and then for thresholds with the weights it wrote"
        )
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
    # Margins had no ratio of lengths beside them.
    format=JUDGE.format + 3,
)
