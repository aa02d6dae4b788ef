"""From conf/, recipes/ and the command line to the typed configuration."""

from __future__ import annotations

from pathlib import Path

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from judgetrain.artifacts.installed import shipped
from judgetrain.data.data_sets import describe_sources
from judgetrain.errors import ConfigError
from judgetrain.keys import validate
from judgetrain.pipeline.checks import check_together
from judgetrain.pipeline.config import Config

CONF = shipped("conf")
RECIPES = shipped("recipes")


def recipes() -> dict[str, Path]:
    """The shipped recipes by name; a sub-folder is part of the name."""
    return {str(p.relative_to(RECIPES).with_suffix("")): p for p in sorted(RECIPES.rglob("*.yaml"))}


def register(store: ConfigStore) -> None:
    """Make the schema and every shipped recipe known to Hydra (``recipe=NAME``)."""
    store.store(name="schema", node=Config)
    for name, path in recipes().items():
        _store_recipe(store, name, path)


def _store_recipe(store: ConfigStore, name: str, path: Path) -> None:
    try:
        content = OmegaConf.load(path)
    except (yaml.YAMLError, OSError) as error:
        raise ConfigError(f"recipe {path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, DictConfig):
        raise ConfigError(f"recipe {path}: expected keys and values, as in seed: 3")
    group, _, leaf = f"recipe/{name}".rpartition("/")
    store.store(name=leaf, node=content, group=group, package="_global_")


def recipe_overrides(arguments: list[str]) -> list[str]:
    """The command line with ``recipe=PATH.yaml`` replaced by a registered name.

    Raises:
        ConfigError: a recipe that is neither shipped nor a file; lists the shipped ones.
    """
    known = recipes()
    result = []
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key in ("recipe", "+recipe") and value.endswith((".yaml", ".yml")):
            path = Path(value)
            if not path.is_file():
                raise ConfigError(f"recipe={value}: no such file")
            # A user's recipe may have a shipped one's name and build on it.
            name = f"my_{path.stem}" if path.stem in known else path.stem
            _store_recipe(ConfigStore.instance(), name, path)
            argument = f"{key}={name}"
        elif key == "recipe" and value and "," not in value and value not in known:
            raise ConfigError(f"recipe={value}: no such recipe; there are {', '.join(known)}, or give a YAML file")
        result.append(argument)
    return result


def typed(composed: DictConfig) -> Config:
    """The typed, range-checked configuration.

    Raises:
        ConfigError: names the key, the value and what is allowed.
    """
    config = OmegaConf.to_object(composed)
    if not isinstance(config, Config):
        raise ConfigError("conf/config.yaml must start from the schema (defaults: [schema, ...])")
    validate(config)
    describe_sources(config)
    check_together(config)
    return config
