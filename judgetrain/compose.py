"""From conf/, recipes/ and the command line to the typed configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from judgetrain.config import Config, validate
from judgetrain.errors import ConfigError


def _data_directory(name: str) -> Path:
    """``conf`` or ``recipes``: inside the installed package, else beside it in the checkout."""
    package = Path(__file__).parent
    installed = package / f"_{name}"
    return installed if installed.is_dir() else package.parent / name


CONF = _data_directory("conf")
RECIPES = _data_directory("recipes")


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
        content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"recipe {path}: not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"recipe {path}: expected keys and values, got {type(content).__name__}")
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
            _store_recipe(ConfigStore.instance(), path.stem, path)
            argument = f"{key}={path.stem}"
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
    _validate_together(config)
    return config


def _validate_together(config: Config) -> None:
    """Checks that span several keys."""
    for key, names in (
        ("dialogues.sources", [s.name for s in config.dialogues.sources]),
        ("evaluate.benchmarks", [b.name for b in config.evaluate.benchmarks]),
        ("responses.models", [m.name for m in config.responses.models]),
    ):
        repeated = {n for n in names if names.count(n) > 1}
        if repeated:
            raise ConfigError(f"{key}: the name {sorted(repeated)[0]!r} is used twice; names must differ")
        if "" in names:
            raise ConfigError(f"{key}: every entry needs a name")
    branches = config.evaluate.branches
    if not branches or min(branches) < 1 or max(branches) > config.tree.criteria:
        raise ConfigError(
            f"evaluate.branches={branches}: allowed are 1 to tree.criteria={config.tree.criteria}, "
            "since a branch follows one criterion"
        )
    if config.stage not in ("status",) and not config.dialogues.sources:
        raise ConfigError("dialogues.sources is empty: name a recipe (recipe=quickstart) or a source")
    if config.teacher.branches > config.teacher.criteria:
        raise ConfigError(
            f"teacher.branches={config.teacher.branches}: at most teacher.criteria={config.teacher.criteria}"
        )
