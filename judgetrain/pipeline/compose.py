"""From conf/, recipes/ and the command line to the typed configuration."""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, cast

import yaml
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from judgetrain import rooms
from judgetrain.data.config import BenchmarkConfig, SourceConfig, WorldEngineConfig, described
from judgetrain.engines.config import ENGINES
from judgetrain.errors import ConfigError
from judgetrain.keys import did_you_mean, validate
from judgetrain.pipeline import CONF, RECIPES, groups, recipes
from judgetrain.pipeline.config import Config, RunConfig, Untyped
from judgetrain.pipeline.key_names import is_key, key_types, nearest_key, no_such_key, section_of

GROUPS = {
    "teacher.engine": "teacher",
    "engine": "engine",
    "label.external.engine": "external",
    "evaluate.external": "external",
}
"""The groups in conf/ that choose an engine's type, by its key."""


def filled(key: str, value: str) -> str:
    """The text (ConfigError: it is empty): Hydra makes directories before the configuration is checked."""
    if not value:
        raise ConfigError(f"{key}={value!r}: must not be empty; leave it out for {getattr(Config(), key)}")
    return value


OmegaConf.register_new_resolver("filled", filled, replace=True)


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

    def __reduce__(self) -> tuple[Any, ...]:
        """Launchers of sweeps send the store to the processes of their jobs, with every configuration made."""
        return ConfigNode, (self.name, self.node, self.group, self.package, self.provider)

    def __deepcopy__(self, memo: object) -> "Stored":
        """Hydra copies its whole store for every configuration that it composes, and copies a node when it uses it."""
        return self


def register(store: ConfigStore, arguments: Sequence[str] | None = None) -> None:
    """Make the schema and every shipped recipe known to Hydra (``recipe=NAME``).

    Sections that the command line (``arguments``) does not name, and that not every run reads, are checked when a stage
    reads them. None: all sections are in the schema, to be completed and shown.
    """
    store.repo["schema.yaml"] = Stored("schema", None, None, partial(_schema, _in_schema(arguments)))
    for name, path in recipes().items():
        _store_recipe(store, name, partial(_shipped_recipe, path))


SHOWN = ("-c", "--cfg", "-i", "--info", "-sc", "--shell-completion", "-p", "--package", "--resolve")
"""Hydra's flags that show or complete configuration."""


def _in_schema(arguments: Sequence[str] | None) -> frozenset[str]:
    """The sections that Hydra is to check: the core's, and those that the command line or the user's recipe names."""
    every = rooms.sections()
    if arguments is None or any(a.partition("=")[0] in SHOWN for a in arguments):
        return frozenset(every)
    named = {section_of(argument) for argument in arguments}
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key in ("recipe", "+recipe") and value.endswith((".yaml", ".yml")) and Path(value).is_file():
            named |= {section_of(key) for key, _ in _leaves(_load_recipe(Path(value)))}
    return frozenset(name for name, section in every.items() if section.core or name in named)


@cache  # Hydra copies what it takes from its store
def _schema(typed: frozenset[str]) -> DictConfig:
    """The configuration's schema, with an open mapping for what is not typed, or may be one of several classes."""
    schema = _structured(RunConfig)
    with flag_override(schema, "struct", False):
        for name, section in rooms.sections().items():
            schema[name] = _structured(section.load()) if name in typed else _open({})
    return schema


def _structured(kind: type[Any]) -> DictConfig:
    """A dataclass as Hydra checks it, with an open mapping for each engine, whatever its type."""
    schema: DictConfig = OmegaConf.structured(kind)
    names: dict[str, Any] = dict.fromkeys(name for kind in ENGINES.values() for name in _names(kind))
    for key, _, default in _variants(kind()):  # a key that is null has its type's own default
        every = names | {"type": default.type if default is not None else None}
        OmegaConf.update(schema, key, _open(every), merge=False)
    return schema


def _open(content: Mapping[str, Any]) -> DictConfig:
    return OmegaConf.create(dict(content), flags={"struct": False})


def _names(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _fields(node: Any, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any], Any]]:
    """The keys, fields and values of a configuration and of the objects in it; an object in a list has a key too."""
    for field in dataclasses.fields(node):
        key, value = f"{prefix}{field.name}", getattr(node, field.name)
        entries = {f"{key}[{i}]": entry for i, entry in enumerate(value)} if isinstance(value, list) else {key: value}
        for name, entry in entries.items():
            yield name, field, entry
            if dataclasses.is_dataclass(entry) and not isinstance(entry, type):
                yield from _fields(entry, f"{name}.")


def _variants(node: Any, prefix: str = "") -> list[tuple[str, dataclasses.Field[Any], Any]]:
    """The keys, fields and values of a configuration's fields that may hold one of several classes."""
    return [found for found in _fields(node, prefix) if found[1].metadata.get("variants")]


def _store_recipe(store: ConfigStore, name: str, load: Callable[[], DictConfig]) -> None:
    group, _, leaf = f"recipe/{name}".rpartition("/")
    at = store.repo
    for part in group.split("/"):
        at = at.setdefault(part, {})
    at[f"{leaf}.yaml"] = Stored(leaf, group, "_global_", load)


def _load_recipe(path: Path) -> DictConfig:
    try:
        content = OmegaConf.load(path)
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"recipe {path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, DictConfig):
        raise ConfigError(f"recipe {path}: expected keys and values, as in seed: 3")
    if path.is_relative_to(RECIPES):  # what it says of an extra that is not there is of no use
        known = {*rooms.sections(), *_names(RunConfig), *groups(), "defaults", "hydra"}
        for key in [key for key in content if key not in known]:
            del content[key]
    return _with_options(content, path)


_shipped_recipe = cache(_load_recipe)

_own: dict[str, dict[str, Any]] = {}
"""The keys that a user's recipe sets itself, and their values, by the name that it is registered under."""


def _leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in node.items_ex(resolve=False) if isinstance(node, DictConfig) else ():
        yield (key := prefix + str(name)), value
        yield from _leaves(value, f"{key}.")


def _option(group: str, name: str) -> DictConfig:
    path = CONF / group / f"{name}.yaml"
    package = re.search(r"^# @package (\S+)", path.read_text(encoding="utf-8"))
    content, root = OmegaConf.load(path), OmegaConf.create()
    if not package or package[1] == "_global_":
        return cast(DictConfig, content)
    OmegaConf.update(root, package[1], content)
    return root


def _with_options(content: DictConfig, path: Path) -> DictConfig:
    """A recipe with the options of groups that its defaults choose (``override /train: lora``) under its own keys.

    Hydra would compose them after the recipe, whose keys they would then set otherwise.
    """
    kept, under = [], OmegaConf.create()
    for entry in content.get("defaults") or ():
        text, name = next(((str(k), v) for k, v in entry.items())) if isinstance(entry, DictConfig) else ("", entry)
        group = text.removeprefix("override /")
        if group == text or group not in groups():
            kept.append(entry)
        elif name is None:  # as in conf/config.yaml: what the recipes below it say
            continue
        elif name not in groups()[group]:
            raise ConfigError(f"recipe {path}: {text}: {name}: expected one of {', '.join(groups()[group])}, or null")
        else:
            option = _option(group, name)
            kept += option.pop("defaults", ())  # as of sweep=joblib, which chooses an option of Hydra's
            under = cast(DictConfig, OmegaConf.merge(under, option))
    if "defaults" in content:
        content.defaults = kept
    return cast(DictConfig, OmegaConf.merge(under, content))


def overwritten(overrides: Collection[str]) -> Iterator[str]:
    """What to say of groups that the command line chooses, which set otherwise what the user's own recipe sets."""
    chosen = dict(text.lstrip("+").partition("=")[::2] for text in overrides)
    own = _own.get(chosen.get("recipe", ""), {})
    for group, options in groups().items():
        if group == "recipe" or (name := chosen.get(group)) not in options:
            continue
        for key, value in _leaves(_option(group, name)):
            if key in own and key not in chosen and own[key] != value and not isinstance(value, DictConfig):
                told = f"{group}={name} sets {key}={value} in place of your recipe's {own[key]}"
                yield f"{told}; say {key}={own[key]} on the command line to keep it"


def recipe_overrides(arguments: list[str]) -> list[str]:
    """The command line with ``recipe=PATH.yaml`` replaced by a registered name (ConfigError: no such recipe)."""
    known, options, keys = recipes(), groups(), key_types(arguments)
    more = [Path(after) for flag, after in pairwise(arguments) if flag in ("--config-dir", "-cd")]
    more += [Path(each.removeprefix("--config-dir=")) for each in arguments if each.startswith("--config-dir=")]
    result = []
    for argument in arguments:
        argument = argument.removeprefix("+") if argument.startswith("+recipe=") else argument  # there is one always
        key, _, value = argument.partition("=")
        if key == "recipe" and (own := [path for d in more if (path := d / "recipe" / f"{value}.yaml").is_file()]):
            value = str(own[0])
        if key == "recipe" and value.endswith((".yaml", ".yml")):
            path = Path(value)
            if not path.is_file():
                raise ConfigError(f"recipe={value}: no such file")
            # A user's recipe may have a shipped one's name and build on it.
            name = f"my_{path.stem}" if path.stem in known or more else path.stem
            _store_recipe(ConfigStore.instance(), name, partial(_load_recipe, path))
            _own[name] = dict(_leaves(_load_recipe(path)))
            argument = f"{key}={name}"
        elif key == "recipe" and "," not in value and value not in known:
            told = f"recipe={value}: no such recipe (there are {', '.join(known)}, or give a YAML file)"
            raise ConfigError(told + did_you_mean(value, known))
        if value == "null" and key in options:  # which keeps the recipe's; Hydra takes no null there
            continue
        result.append(_taken(argument, options, keys))
    return result


def _taken(argument: str, options: Collection[str], keys: Mapping[str, str]) -> str:
    """An argument as Hydra takes it: places in lists with dots, and ``++`` where it may bring entries of a mapping.

    The entries of ``verdicts.source.fields`` and its like are the user's own; Hydra would ask for a ``+`` before each.
    """
    key, equals, value = argument.partition("=")
    dotted = re.sub(r"\[(\d+)\](?=\.|$)", r".\1", key)
    if not equals or not re.match(r"\w", key) or key in options or not is_key(dotted, keys):
        return argument
    new = "++" if value.startswith("{") or is_key(f"{dotted}.x", keys) else ""
    return f"{new}{dotted}={value}"


def typed(composed: DictConfig, overrides: Collection[str] = ()) -> Config:
    """The typed, range-checked configuration (ConfigError: names the key, the value and what is allowed).

    ``overrides`` are the command line's own part of what Hydra ``composed``.
    """
    run = OmegaConf.to_object(composed)
    if not isinstance(run, RunConfig):
        raise ConfigError("conf/config.yaml must start from the schema (defaults: [schema, ...])")
    found = vars(run)
    layers = _layers(overrides)
    named = {section_of(key) for layer in layers for key in layer}
    dialogues = found["dialogues"]
    dialogues.decontaminate = [*map(_benchmark, dialogues.decontaminate)]
    world = dialogues.world
    if world.rule is None:
        world.rule = run.seed
    _complete(run, "", layers, world.rule)
    config = Config(**{field.name: found[field.name] for field in dataclasses.fields(RunConfig)})
    for name, section in rooms.sections().items():
        read = partial(_read, section, found.get(name), layers, world.rule)
        setattr(config, name, read() if section.core or name in named else Untyped(read))
    added = [text.lstrip("+").partition("=")[0] for text in overrides if text.startswith("+")]
    keys = key_types(added)
    for key in added:  # which Hydra adds, whether there are such keys or not
        if not is_key(key, keys) and key not in groups():
            raise no_such_key(key)
    for i, source in enumerate(sources := config.dialogues.sources):
        sources[i] = described(source, f"dialogues.sources[{i}]")
    return config


def _benchmark(given: Any) -> Any:
    """What ``${evaluate.benchmarks}`` stands for is plain data where section evaluate is not in the schema."""
    if dataclasses.is_dataclass(given):
        return given
    return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(BenchmarkConfig), given))


def _read(section: rooms.Section, value: Any, layers: Sequence[Collection[str]], rule: int) -> Any:
    """A section's typed, range-checked object (ConfigError: the key, the value and what is allowed)."""
    if not dataclasses.is_dataclass(value):
        try:
            value = OmegaConf.to_object(OmegaConf.merge(_structured(section.load()), value or {}))
        except OmegaConfBaseException as error:
            error.full_key = f"{section.name}.{error.full_key}"
            raise
    _complete(value, f"{section.name}.", layers, rule)
    return value


def _complete(node: Any, prefix: str, layers: Sequence[Collection[str]], rule: int) -> None:
    """Make what stands for one of several classes an object of its own, and check every range.

    What is of the generated world and names no rule gets the run's ``rule``, which fingerprints then hold.
    """
    for key, field, value in _variants(node, prefix):
        _put(node, key.removeprefix(prefix), _chosen(key, field, value, layers))
    for key, _, value in _fields(node, prefix):
        if isinstance(value, SourceConfig) and value.type == "world" and _path_alone(key, layers):
            value.type = "jsonl"  # which reads whatever file the path names
        of_the_world = isinstance(value, (SourceConfig, WorldEngineConfig)) and value.type == "world"
        if of_the_world and value.rule is None:
            value.rule = rule
    validate(node, prefix)


def _layers(overrides: Collection[str]) -> list[Collection[str]]:
    """The keys that the command line sets, and those that the user's own recipe sets."""
    parsed = OverridesParser.create().parse_overrides([text for text in overrides if "=" in text])
    values = {re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", each.key_or_group): each.value() for each in parsed}
    nested = (dict(_leaves(OmegaConf.create(v), f"{k}.")) for k, v in values.items() if isinstance(v, dict))
    recipe = values.get("recipe")
    return [{*values, *chain.from_iterable(nested)}, *([set(_own[recipe])] if recipe in _own else [])]


def _path_alone(key: str, layers: Sequence[Collection[str]]) -> bool:
    """Whether a source got its path without a type: whatever it is built on may have one that does not fit."""
    set_by = next((layer for layer in layers if f"{key}.path" in layer or f"{key}.type" in layer), ())
    return f"{key}.type" not in set_by and f"{key}.path" in set_by


def _put(config: Any, key: str, value: Any) -> None:
    *parents, last = key.replace("]", "").replace("[", ".").split(".")
    for part in parents:
        config = config[int(part)] if part.isdigit() else getattr(config, part)
    setattr(config, last, value)


def _chosen(key: str, field: dataclasses.Field[Any], value: Any, layers: Sequence[Collection[str]]) -> Any:
    """The object of the class that ``type`` chooses, from the mapping that stands in its place; None if that is empty.

    Where the command line, or else the user's own recipe, chooses the type, what a recipe below it sets for another
    type has no use and is left out. ``layers`` are the keys that each of the two sets.
    """
    if dataclasses.is_dataclass(value):
        return value
    if not isinstance(value, (Mapping, type(None))):
        raise ConfigError(f"{key}={value!r}: expected keys and values, as in {{type: transformers, ...}}")
    if not (given := {k: v for k, v in (value or {}).items() if v is not None}):
        if field.default is None:
            return None
        raise ConfigError(f"{key} is empty: expected keys and values, as in {{type: transformers, ...}}")
    variants: Mapping[str, type] = field.metadata["variants"]
    name = given.get("type", "transformers")
    if not isinstance(name, str) or name not in variants:
        raise ConfigError(f"{key}.type={name!r}: allowed are {', '.join(variants)}")
    known, own = _names(variants[name]), OmegaConf.structured(variants[name])
    group = GROUPS.get(key)
    for layer in layers:
        if f"{key}.type" in layer or key in layer or group in layer:
            elsewhere = {n for other in variants.values() for n in _names(other)}
            for k in elsewhere - {k for k in given if any(f"{g}.".startswith(f"{key}.{k}.") for g in layer)}:
                if k in given and (k not in known or isinstance(given[k], Mapping) != OmegaConf.is_config(own[k])):
                    del given[k]
            break
    if foreign := sorted(set(given) - set(known)):
        near = nearest_key(f"{key}.{foreign[0]}")
        hint = f"; did you mean {near}?" if near.rpartition(".")[2] in known else ""
        raise ConfigError(f"{key}.{foreign[0]}: type {name} has no such key; it has {', '.join(known)}{hint}")
    for k, v in given.items():
        if isinstance(v, Mapping) != OmegaConf.is_config(own[k]):
            say = f"{key}.{k}.path=PATH" if OmegaConf.is_config(own[k]) else f"{key}.{k}=VALUE"
            raise ConfigError(f"{key}.{k}={v!r}: does not fit type {name}; say {say}")
    try:
        return OmegaConf.to_object(OmegaConf.merge(own, given))
    except ConfigKeyError as error:
        raise no_such_key(f"{key}.{error.full_key}") from error
    except OmegaConfBaseException as error:
        raise ConfigError(f"{key}.{error.full_key}: {str(error).splitlines()[0]}") from error


def composed_of(overrides: Sequence[str]) -> Config:
    """The typed, range-checked configuration of a command line, outside of a run."""
    from hydra import compose, initialize_config_dir

    register(ConfigStore.instance())
    taken = recipe_overrides([*overrides])
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return typed(compose("config", overrides=taken), taken)
