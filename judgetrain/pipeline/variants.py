"""Configuration fields that may hold one of several classes, as an engine of any type.

Hydra composes such a field as an open mapping. The ``type`` in it chooses the class, whose object takes its place.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from judgetrain.engines.auto import AutoEngineConfig
from judgetrain.errors import ConfigError
from judgetrain.pipeline.key_names import nearest_key, no_such_key

GROUPS = {
    "teacher.engine": "teacher",
    "engine": "engine",
    "label.external.engine": "external",
    "evaluate.external": "external",
}
"""The groups in conf/ that choose an engine's type, by its key."""

Layers = Sequence[Collection[str]]
"""The keys that the command line sets, then those that the user's own recipe sets."""


class Node(NamedTuple):
    """A value in a configuration: its key, as ``dialogues.sources[0].path``, and its dataclass field."""

    key: str
    field: dataclasses.Field[Any]
    value: Any


def names_of(kind: type) -> list[str]:
    """Return the names of a dataclass's fields."""
    return [field.name for field in dataclasses.fields(kind)]


def nodes(config: Any, prefix: str = "") -> Iterator[Node]:
    """Yield the values of a configuration and of all objects in it; an entry of a list has a key of its own.

    Args:
        config: an instance of a dataclass.
        prefix: stands before the name of every key, as ``train.``.
    """
    for field in dataclasses.fields(config):
        key = f"{prefix}{field.name}"
        value = getattr(config, field.name)
        # A list itself has no type to choose; its entries may.
        if isinstance(value, list):
            entries = {f"{key}[{place}]": entry for place, entry in enumerate(value)}
        else:
            entries = {key: value}
        for entry_key, entry in entries.items():
            yield Node(entry_key, field, entry)
            if dataclasses.is_dataclass(entry) and not isinstance(entry, type):
                yield from nodes(entry, f"{entry_key}.")


def variant_nodes(config: Any, prefix: str = "") -> list[Node]:
    """Return the values of a configuration whose fields may hold one of several classes."""
    return [node for node in nodes(config, prefix) if node.field.metadata.get("variants")]


def put(config: Any, key: str, value: Any) -> None:
    """Set the value of a key, as ``engine`` or ``responses.models[0].engine``, in a configuration."""
    *parents, last = key.replace("]", "").replace("[", ".").split(".")
    for part in parents:
        if part.isdigit():
            config = config[int(part)]
        else:
            config = getattr(config, part)
    setattr(config, last, value)


def chosen(node: Node, layers: Layers, auto: Callable[[], str]) -> Any:
    """Return the object of the class that ``type`` chooses, or None for an empty mapping where the key may be null.

    Args:
        node: a field of several classes, and the mapping in it; an object comes back as it is.
        layers: the keys that the user sets. Where one of them chooses the type, settings of a recipe below it that are
            for another type are left out.
        auto: returns the type that ``auto`` stands for.

    Raises:
        ConfigError: the type, or a key or a value of it, is not allowed.
    """
    key, field, value = node
    if dataclasses.is_dataclass(value):
        return value
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{key}={value!r}: expected keys and values, as in {{type: transformers, ...}}")
    settings = {name: setting for name, setting in (value or {}).items() if setting is not None}
    if not settings:
        if field.default is None:
            return None
        raise ConfigError(f"{key} is empty: expected keys and values, as in {{type: transformers, ...}}")

    variants: Mapping[str, type] = field.metadata["variants"]
    type_name = settings.get("type", "transformers")
    if not isinstance(type_name, str) or type_name not in variants:
        raise ConfigError(f"{key}.type={type_name!r}: allowed are {', '.join(variants)}")
    schema: DictConfig = OmegaConf.structured(variants[type_name])
    settings = _of_this_type(key, settings, variants, schema, layers)
    _check_names(key, settings, type_name, schema)
    try:
        value = OmegaConf.to_object(OmegaConf.merge(schema, settings))
    except ConfigKeyError as error:
        # OmegaConf names the key within the object alone.
        raise no_such_key(f"{key}.{error.full_key}") from error
    except OmegaConfBaseException as error:
        raise ConfigError(f"{key}.{error.full_key}: {str(error).splitlines()[0]}") from error
    if isinstance(value, AutoEngineConfig):
        # Now: fingerprints and manifests name what was used.
        return value.as_type(auto())
    return value


def _of_this_type(
    key: str, settings: Mapping[str, Any], variants: Mapping[str, type], schema: DictConfig, layers: Layers
) -> dict[str, Any]:
    """Return settings without those that a lower recipe made for another type than the user chooses.

    Args:
        key: the key of the field.
        settings: what stands in it.
        variants: the classes by type.
        schema: the fields of the chosen class.
        layers: the keys that the user sets.
    """
    choosing = None
    # The command line goes before the recipe: the first layer that chooses decides.
    for layer in layers:
        if f"{key}.type" in layer or key in layer or GROUPS.get(key) in layer:
            choosing = layer
            break
    if choosing is None:
        return dict(settings)

    of_any_type = {name for kind in variants.values() for name in names_of(kind)}
    kept = {}
    for name, setting in settings.items():
        # What the user sets beside the type stays, and so do misspelt names: both are refused if they do not fit.
        is_user_s = any(f"{set_key}.".startswith(f"{key}.{name}.") for set_key in choosing)
        if is_user_s or name not in of_any_type or _fits(name, setting, schema):
            kept[name] = setting
    return kept


def _fits(name: str, setting: Any, schema: DictConfig) -> bool:
    """Return whether a class has a field of a name, and holds there an object for a mapping and else a plain value."""
    # Of all names, since ``in`` is false for a field that has no value yet.
    names = list(schema)
    return name in names and isinstance(setting, Mapping) == OmegaConf.is_config(schema[name])


def _check_names(key: str, settings: Mapping[str, Any], type_name: str, schema: DictConfig) -> None:
    """Refuse (ConfigError) settings that the chosen class has no field for, or a field of another shape."""
    names = [str(name) for name in schema]
    foreign = sorted(set(settings) - set(names))
    if foreign:
        hint = ""
        near = nearest_key(f"{key}.{foreign[0]}")
        # A key of another type of engine looks like it as well, but would be refused next.
        if near.rpartition(".")[2] in names:
            hint = f"; did you mean {near}?"
        raise ConfigError(f"{key}.{foreign[0]}: type {type_name} has no such key; it has {', '.join(names)}{hint}")
    for name, setting in settings.items():
        if _fits(name, setting, schema):
            continue
        example = f"{key}.{name}=VALUE"
        if OmegaConf.is_config(schema[name]):
            example = f"{key}.{name}.path=PATH"
        raise ConfigError(f"{key}.{name}={setting!r}: does not fit type {type_name}; say {example}")
