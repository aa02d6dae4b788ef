"""Stage ``label_queue``: what it reads, and what must hold before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.artifacts.stages import Stage, at
from judgetrain.errors import ConfigError
from judgetrain.extras.label_queue.config import LabelQueueConfig
from judgetrain.judging.stages import VerdictsSettings


@dataclass(frozen=True, kw_only=True)
class LabelQueueSettings(VerdictsSettings):
    """Stage label_queue."""

    label_queue: LabelQueueConfig = at("label_queue")
    files: list[str] = at("label_queue.files", in_fingerprint=False)


def _check_here(settings: LabelQueueSettings) -> None:
    """Read every row of the files, or of what is to be judged: it has comparisons that nobody has labelled."""
    from judgetrain.extras.label_queue.stage import read_rows_of

    queue = settings.label_queue
    if queue.files:
        read_rows_of(queue.files)
    elif not queue.relabel:
        items = settings.items()
        if items and all(item.failure or item.comparison.label for item in items):
            raise ConfigError(
                f"label_queue: none of the {len(items)} comparisons is left to label: all have a label or cannot be "
                "judged; label_queue.relabel=true ranks those that have a label too"
            )


LABEL_QUEUE = Stage(name="label_queue", settings=LabelQueueSettings, check_here=_check_here)
"""Stage label_queue."""
