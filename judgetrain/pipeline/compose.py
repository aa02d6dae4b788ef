"""From conf/, recipes/ and the command line to the typed configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigNode, ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from judgetrain.artifacts.installed import shipped
from judgetrain.data.data_sets import describe_sources
from judgetrain.errors import ConfigError
from judgetrain.keys import validate
from judgetrain.pipeline.config import Config

CONF = shipped("conf")
RECIPES = shipped("recipes")
GROUPS = {"teacher.engine": "teacher", "engine": "engine", "label.external.engine": "external"} | {
    "evaluate.external": "external"
}
"""The groups in conf/ that choose an engine's type, by its key."""


def recipes() -> dict[str, Path]:
    """The shipped recipes by name; a sub-folder is part of the name."""
    return {str(p.relative_to(RECIPES).with_suffix("")): p for p in sorted(RECIPES.rglob("*.yaml"))}


class Stored(ConfigNode):
    """A configuration as Hydra's store keeps it, which is made when it is first used and not copied with the store."""

    def __init__(self, name: str, group: str | None, package: str | None, make: Callable[[], DictConfig]) -> None:
        self.name, self.group, self.package, self.provider = f"{name}.yaml", group, package, None
        self._used: DictConfig | None = None
        self._make = cache(make)  # shared by the copies that Hydra makes before it asks for the node

    @property
    def node(self) -> DictConfig:  # type: ignore[override]
        """The configuration; Hydra puts a copy in its place before it changes anything."""
        return self._used or self._make()

    @node.setter
    def node(self, used: DictConfig) -> None:
        self._used = used

    def __deepcopy__(self, memo: object) -> Stored:
        """Hydra copies its whole store for every configuration that it composes, and copies a node when it uses it."""
        return self


def register(store: ConfigStore) -> None:
    """Make the schema and every shipped recipe known to Hydra (``recipe=NAME``)."""
    store.repo["schema.yaml"] = Stored("schema", None, None, _schema)
    for name, path in recipes().items():
        _store_recipe(store, name, path)


def _schema() -> DictConfig:
    """The configuration's schema, with an open mapping for every field that may hold one of several classes."""
    schema = OmegaConf.structured(Config)
    for key, _, default in _variants(Config()):
        given = {"type": default.type} if default is not None else {}
        OmegaConf.update(schema, key, OmegaConf.create(given, flags={"struct": False}), merge=False)
    return schema


def _variants(node: Any, prefix: str = "") -> list[tuple[str, dataclasses.Field[Any], Any]]:
    """The keys, fields and values of a configuration's fields that may hold one of several classes."""
    found = []
    for field in dataclasses.fields(node):
        key, value = f"{prefix}{field.name}", getattr(node, field.name)
        if field.metadata.get("variants"):
            found.append((key, field, value))
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            found += _variants(value, f"{key}.")
        elif isinstance(value, list):
            for i, entry in enumerate(value):
                if dataclasses.is_dataclass(entry) and not isinstance(entry, type):
                    found += _variants(entry, f"{key}[{i}].")
    return found


def _store_recipe(store: ConfigStore, name: str, path: Path) -> None:
    group, _, leaf = f"recipe/{name}".rpartition("/")
    at = store.repo
    for part in group.split("/"):
        at = at.setdefault(part, {})
    at[f"{leaf}.yaml"] = Stored(leaf, group, "_global_", partial(_load_recipe, path))


def _load_recipe(path: Path) -> DictConfig:
    try:
        content = OmegaConf.load(path)
    except (yaml.YAMLError, OSError) as error:
        raise ConfigError(f"recipe {path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, DictConfig):
        raise ConfigError(f"recipe {path}: expected keys and values, as in seed: 3")
    return content


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


def typed(composed: DictConfig, overrides: Collection[str] = ()) -> Config:
    """The typed, range-checked configuration.

    Args:
        composed: what Hydra made of conf/, the recipe and the command line.
        overrides: the command line's own part of it, ``key=value``.

    Raises:
        ConfigError: names the key, the value and what is allowed.
    """
    config = OmegaConf.to_object(composed)
    if not isinstance(config, Config):
        raise ConfigError("conf/config.yaml must start from the schema (defaults: [schema, ...])")
    given = {name.lstrip("+~") for name in (text.partition("=")[0] for text in overrides)}
    for key, field, value in _variants(config):
        _put(config, key, _chosen(key, field, value, given))
    validate(config)
    describe_sources(config.dialogues.sources)
    return config


def _put(config: Any, key: str, value: Any) -> None:
    *parents, last = key.replace("]", "").replace("[", ".").split(".")
    for part in parents:
        config = config[int(part)] if part.isdigit() else getattr(config, part)
    setattr(config, last, value)


def _chosen(key: str, field: dataclasses.Field[Any], value: Any, given: Collection[str]) -> Any:
    """The object of the class that ``type`` chooses, from the mapping that stands in its place; None if that is empty.

    Where the command line chooses the type, keys that a recipe sets for another type have no use and are left out.

    Raises:
        ConfigError: an unknown type, or a key that the type does not have.
    """
    if not isinstance(value, Mapping) or not value:
        return None if isinstance(value, Mapping) else value
    variants: Mapping[str, Callable[[], Any]] = field.metadata["variants"]
    name = value.get("type", "transformers")
    if name not in variants:
        raise ConfigError(f"{key}.type={name!r}: allowed are {', '.join(variants)}")
    known = [f.name for f in dataclasses.fields(variants[name])]  # type: ignore[arg-type]
    foreign = {k for k, v in value.items() if k not in known and v is not None}
    if f"{key}.type" in given or GROUPS.get(key) in given:
        elsewhere = {f.name for other in variants.values() for f in dataclasses.fields(other)}  # type: ignore[arg-type]
        foreign -= {k for k in elsewhere if not any(g == f"{key}.{k}" or g.startswith(f"{key}.{k}.") for g in given)}
    if foreign:
        raise ConfigError(f"{key}.{min(foreign)}: type {name} has no such key; it has {', '.join(known)}")
    own = {k: v for k, v in value.items() if k in known}
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(variants[name]), own))
    except ConfigKeyError as error:
        raise ConfigError(f"{key}.{error.full_key}: there is no such key") from error
    except OmegaConfBaseException as error:
        raise ConfigError(f"{key}.{error.full_key}: {str(error).splitlines()[0]}") from error
