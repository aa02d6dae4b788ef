"""Stage ``label_queue``: what it reads, and what must hold before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.artifacts.stages import Stage, at, by_name
from judgetrain.extras.label_queue.config import LabelQueueConfig
from judgetrain.judging.stages import VerdictsSettings


@dataclass(frozen=True, kw_only=True)
class LabelQueueSettings(VerdictsSettings):
    """Stage label_queue."""

    label_queue: LabelQueueConfig = at("label_queue")
    files: list[str] = at("label_queue.files", in_fingerprint=False)


LABEL_QUEUE = Stage(
    name="label_queue",
    settings=LabelQueueSettings,
    check_here=by_name("judgetrain.extras.label_queue.stage:check_here"),
)
"""Stage label_queue."""
