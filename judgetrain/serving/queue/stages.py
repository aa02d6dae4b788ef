"""Stage ``label_queue``: what it reads, and what must hold before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from judgetrain.artifacts.stages import Stage, StageSettings, at
from judgetrain.errors import ConfigError
from judgetrain.serving.queue.config import LabelQueueConfig
from judgetrain.serving.stages import JUDGE, items_here


@dataclass(frozen=True, kw_only=True)
class LabelQueueSettings(StageSettings):
    """Stage label_queue."""

    label_queue: LabelQueueConfig = at("label_queue")


def _inputs(config: Any) -> Sequence[str]:
    return () if config.label_queue.files else (JUDGE.name,)


def _check(config: Any) -> None:
    if not config.label_queue.by:
        raise ConfigError("label_queue.by is empty: name what tells, as branches, orders or margin")


def _check_here(config: Any) -> None:
    """Read every row of the files, or of what is to be judged: it has comparisons that nobody has labelled."""
    from judgetrain.serving.queue.stage import read_rows_of

    queue = config.label_queue
    if queue.files:
        read_rows_of(queue.files)
    elif not queue.relabel:
        items = items_here(config)
        if items and all(item.failure or item.comparison.label for item in items):
            raise ConfigError(
                f"label_queue: none of the {len(items)} comparisons is left to label: all have a label or cannot be "
                "judged; label_queue.relabel=true ranks those that have a label too"
            )


LABEL_QUEUE = Stage(
    name="label_queue",
    settings=LabelQueueSettings,
    code="judgetrain.serving.queue.stage:run",
    inputs=_inputs,
    check=_check,
    check_here=_check_here,
)
"""Stage label_queue."""
