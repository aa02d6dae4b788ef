"""Stage ``rubric``: what it reads, and what must hold before it runs."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from judgetrain.artifacts.stages import Stage, StageSettings, at
from judgetrain.extras.rubric.config import RubricConfig


@dataclass(frozen=True, kw_only=True)
class RubricSettings(StageSettings):
    """Stage rubric."""

    rubric: RubricConfig = at("rubric")
    # It says which stage is asked; what that stage then did is in its own fingerprint.
    judge: str = at("verdicts.judge", in_fingerprint=False)

    @property
    def judges(self) -> Sequence[str]:
        """Return the stages whose judgments are read: none where files are named."""
        if self.rubric.files:
            return ()
        if self.judge:
            return ("judge",)
        return ("tree", "label")


def _check_here(settings: RubricSettings) -> None:
    """Read every row of the files, and look whether the encoder is there."""
    from judgetrain.data.clustering import check_encoder
    from judgetrain.extras.rubric.reading import read_judged

    if settings.rubric.encoder is not None:
        check_encoder(settings.rubric.encoder, "rubric.encoder")
    if settings.rubric.files:
        # A deque without room goes through every row and keeps none.
        deque(read_judged(settings.rubric.files), maxlen=0)


RUBRIC = Stage(name="rubric", settings=RubricSettings, artifact="evaluation", check_here=_check_here)
