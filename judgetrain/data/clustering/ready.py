"""Whether the sentence encoder is there, looked at before anything runs."""

from __future__ import annotations

from pathlib import Path

from judgetrain.data.clustering.encode import MARKS, STATIC, packaged
from judgetrain.engines.config import ModelConfig, looks_local
from judgetrain.engines.reachable import check_loadable, check_on_hub
from judgetrain.errors import ConfigError, EngineError
from judgetrain.keys import PACKAGE


def check_encoder(name: str, key: str) -> None:
    """Check what ``cluster.encoder`` names, short of loading it.

    Raises:
        ConfigError: names the key, its value and the remedy.
    """
    if name.startswith(STATIC):
        check_loadable(ModelConfig(path=name.removeprefix(STATIC)), f"{key}={name}")
        return
    try:
        _check(name)
    except EngineError as error:
        told = str(error).replace("give a local directory", "give a local directory, package:NAME or static:world")
        raise ConfigError(f"{key}={name}: {told}") from error


def _check(name: str) -> None:
    local = Path(name).expanduser()
    if name.startswith(PACKAGE):
        packaged(name.removeprefix(PACKAGE))
    elif local.exists() or looks_local(name):
        if not any((local / mark).is_file() for mark in MARKS):
            raise EngineError(
                f"no sentence-transformers model lies there ({' or '.join(MARKS)}); give one's directory or Hub id, "
                "package:NAME or static:MODEL"
            )
    else:
        check_on_hub(name if "/" in name else f"sentence-transformers/{name}", None, MARKS[0])
