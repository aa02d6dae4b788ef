"""Passwords that stand in addresses on the command line, kept out of the files that Hydra writes about a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.secrets import without_passwords


class RedactPasswords(Callback):
    """Takes them out as soon as the files are there, before the job begins (``hydra.callbacks`` in conf/)."""

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Called by Hydra in the process that runs the job."""
        settings = HydraConfig.get()
        files = [*Path(settings.runtime.output_dir).glob(".hydra/*.yaml")]
        if settings.mode == RunMode.MULTIRUN:
            files.append(Path(settings.sweep.dir) / "multirun.yaml")
        for path in files:
            if path.is_file() and (shown := without_passwords(text := path.read_text(encoding="utf-8"))) != text:
                write_text_atomic(path, shown)
