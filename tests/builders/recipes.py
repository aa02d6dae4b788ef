"""Configurations as the command line composes them."""

from __future__ import annotations

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore

from judgetrain.pipeline.compose import register, typed
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.options import CONF


def composed(*overrides: str) -> Config:
    """The typed configuration of a command line."""
    register(ConfigStore.instance())
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return typed(compose("config", overrides=list(overrides)), overrides)
