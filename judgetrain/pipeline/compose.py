"""The typed configuration, composed of conf/, recipes/ and the command line."""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import yaml
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, ListConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException

from judgetrain import rooms
from judgetrain.data.config import BenchmarkConfig, SourceConfig, WorldEngineConfig, described
from judgetrain.engines.config import ENGINES
from judgetrain.errors import ConfigError
from judgetrain.keys import did_you_mean, validate
from judgetrain.pipeline import CONF, RECIPES, groups, recipes
from judgetrain.pipeline.auto_engine import AutoEngine
from judgetrain.pipeline.config import Config, RunConfig, Untyped
from judgetrain.pipeline.environment import FromEnvironment, read_environment_here
from judgetrain.pipeline.key_names import is_key, key_types, no_such_key, section_of
from judgetrain.pipeline.variants import Layers, chosen, names_of, nodes, put, variant_nodes


def filled(key: str, value: str) -> str:
    """Return a text that is not empty; refuse (ConfigError) an empty one.

    Args:
        key: the configuration key of the text, for the message.
        value: the text.
    """
    # A resolver, not a check of the typed configuration: Hydra makes directories before that.
    if not value:
        raise ConfigError(f"{key}={value!r}: must not be empty; leave it out for {getattr(Config(), key)}")
    return value


def shipped_file(directory: str, name: str) -> str:
    """Return the path of a file that is shipped beside recipes, in a checkout or a wheel.

    Args:
        directory: ``conf``, ``recipes`` or ``launch``.
        name: the file's, below it.
    """
    return str(rooms.shipped(directory) / name)


def entries(listed: Sequence[Any], *names: str, _root_: DictConfig) -> ListConfig:
    """Return the entries of a list that have these names, for recipes that use some of a list twice.

    Args:
        listed: configurations with a ``name`` each.
        names: of those to take, in this order.
        _root_: the whole configuration, which OmegaConf gives; what the entries name is looked up there.

    Raises:
        ConfigError: there is no entry of a name.
    """
    by_name = {entry.name: entry for entry in listed}
    for name in names:
        if name not in by_name:
            raise ConfigError(f"entries: there is no {name!r}; there are {', '.join(by_name)}")
    return ListConfig([by_name[name] for name in names], parent=_root_)


OmegaConf.register_new_resolver("filled", filled, replace=True)
OmegaConf.register_new_resolver("entries", entries, replace=True)
OmegaConf.register_new_resolver("shipped", shipped_file, replace=True)
read_environment_here()


class Stored(ConfigNode):
    """A configuration as Hydra's store keeps it, which is made when it is first used and not copied with the store.

    Args:
        name: its name in the group.
        group: the group, as ``recipe``; None for the top level.
        package: the key under which it stands in the whole configuration; None for the group's own.
        make: reads or builds it.
    """

    def __init__(self, name: str, group: str | None, package: str | None, make: Callable[[], DictConfig]) -> None:
        self.name = f"{name}.yaml"
        self.group = group
        self.package = package
        self.provider = None
        self._used: DictConfig | None = None
        # Shared by the copies that Hydra makes before it asks for the node.
        self._make = cache(make)

    @property
    def node(self) -> DictConfig:  # type: ignore[override]
        """Return the configuration; Hydra puts a copy in its place before it changes anything."""
        return self._used or self._make()

    @node.setter
    def node(self, used: DictConfig) -> None:
        self._used = used

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a plain node with the configuration made: launchers of sweeps send the store to their jobs."""
        return ConfigNode, (self.name, self.node, self.group, self.package, self.provider)

    def __deepcopy__(self, memo: object) -> "Stored":
        """Return the same node: Hydra copies its whole store for every composition, and copies a node that it uses."""
        return self


def register(store: ConfigStore, arguments: Sequence[str] | None = None) -> None:
    """Make the schema and every shipped recipe known to Hydra (``recipe=NAME``).

    Args:
        store: Hydra's store.
        arguments: the command line. Sections that it does not name, and that not every run reads, are checked when a
            stage reads them. None puts all sections into the schema, to be completed and shown.
    """
    sections = _sections_in_schema(arguments)
    store.repo["schema.yaml"] = Stored("schema", None, None, partial(_schema, sections))
    for name, path in recipes().items():
        _store_recipe(store, name, partial(_shipped_recipe, path))


SHOWN = ("-c", "--cfg", "-i", "--info", "-sc", "--shell-completion", "-p", "--package", "--resolve")
"""Hydra's flags that show or complete configuration."""


def _sections_in_schema(arguments: Sequence[str] | None) -> frozenset[str]:
    """Return the sections that Hydra is to check: the core's, and those that the command line or a recipe names."""
    sections = rooms.sections()
    if arguments is None:
        return frozenset(sections)
    # Whoever looks at the configuration or completes a key wants to see all sections.
    if any(argument.partition("=")[0] in SHOWN for argument in arguments):
        return frozenset(sections)

    named = {section_of(argument) for argument in arguments}
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key in ("recipe", "+recipe") and value.endswith((".yaml", ".yml")) and Path(value).is_file():
            named |= {section_of(leaf) for leaf, _ in _leaves(_load_recipe(Path(value)))}
    return frozenset(name for name, section in sections.items() if section.core or name in named)


# Hydra copies the configurations of its store before it changes them.
@cache
def _schema(typed_sections: frozenset[str]) -> DictConfig:
    """Return the configuration's schema, with an open mapping for every section that is not typed."""
    schema = _structured(RunConfig)
    # Hydra allows no new keys in a dataclass otherwise.
    with flag_override(schema, "struct", False):
        for name, section in rooms.sections().items():
            schema[name] = _structured(section.load()) if name in typed_sections else _open({})
    return schema


def _structured(kind: type[Any]) -> DictConfig:
    """Return a dataclass as Hydra checks it, with an open mapping for each engine, whatever its type."""
    schema: DictConfig = OmegaConf.structured(kind)
    # All keys of all types: which of them fit is known when all of the configuration is composed.
    engine_names = [name for engine in ENGINES.values() for name in names_of(engine)]
    for key, _, default in variant_nodes(kind()):
        # A key that is null gets the default of the type that is chosen in the end.
        settings: dict[str, Any] = dict.fromkeys(engine_names)
        if default is not None:
            settings["type"] = default.type
        OmegaConf.update(schema, key, _open(settings), merge=False)
    return schema


def _open(content: Mapping[str, Any]) -> DictConfig:
    """Return a mapping to which Hydra lets a recipe add keys."""
    return OmegaConf.create(dict(content), flags={"struct": False})


def _store_recipe(store: ConfigStore, name: str, load: Callable[[], DictConfig]) -> None:
    """Put a recipe into Hydra's store; a sub-folder of recipes/ is a group below ``recipe``."""
    group, _, leaf = f"recipe/{name}".rpartition("/")
    folder = store.repo
    # A folder in the store is a dictionary, made when its first recipe comes.
    for part in group.split("/"):
        folder = folder.setdefault(part, {})
    folder[f"{leaf}.yaml"] = Stored(leaf, group, "_global_", load)


def _load_recipe(path: Path) -> DictConfig:
    """Return a recipe from its file.

    Raises:
        ConfigError: it is no YAML file of keys and values, or chooses an option that a group does not have.
    """
    try:
        content = OmegaConf.load(path)
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"recipe {path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, DictConfig):
        raise ConfigError(f"recipe {path}: expected keys and values, as in seed: 3")
    if path.is_relative_to(RECIPES):
        # A shipped recipe may set keys of an extra that is not installed.
        keys = {*rooms.sections(), *names_of(RunConfig), *groups(), "defaults", "hydra"}
        for key in list(content):
            if key not in keys:
                del content[key]
    return _with_options(content, path)


_shipped_recipe = cache(_load_recipe)

_user_recipes: dict[str, dict[str, Any]] = {}
"""The keys that a user's recipe sets itself, and their values, by the name that it is registered under."""

_files_of_recipes: dict[str, str] = {}
"""A user's recipes as the command line names them, by the name that they are registered under."""

_ASKED_BY = ("recipe", "criteria", "prompts", "judge")
"""The keys, and the section, that say how a run's judge is asked."""


def _leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of a configuration, with those of its mappings after each mapping."""
    if not isinstance(node, DictConfig):
        return
    for name, value in node.items_ex(resolve=False):
        key = prefix + str(name)
        yield key, value
        yield from _leaves(value, f"{key}.")


def _option(group: str, name: str) -> DictConfig:
    """Return an option of a group of conf/, under the key that its file names as its package."""
    path = CONF / group / f"{name}.yaml"
    package = re.search(r"^# @package (\S+)", path.read_text(encoding="utf-8"))
    content = OmegaConf.load(path)
    if not package or package[1] == "_global_":
        return cast(DictConfig, content)
    root = OmegaConf.create()
    OmegaConf.update(root, package[1], content)
    return root


def _with_options(content: DictConfig, path: Path) -> DictConfig:
    """Return a recipe with the options of groups that its defaults choose (``override /train: lora``) below its keys.

    Hydra would compose them after the recipe and let them override its keys.

    Args:
        content: of the recipe's file.
        path: of the file, for messages.

    Raises:
        ConfigError: a group has no such option.
    """
    other_defaults = []
    below = OmegaConf.create()
    for entry in content.get("defaults") or ():
        text = ""
        name = entry
        if isinstance(entry, DictConfig):
            text, name = next((str(key), value) for key, value in entry.items())
        group = text.removeprefix("override /")
        # An entry that chooses no option of conf/, as the recipe below it, is Hydra's to compose.
        if group == text or group not in groups():
            other_defaults.append(entry)
            continue
        if name is None:
            # As in conf/config.yaml, null keeps the choice of the recipes below.
            continue
        options = groups()[group]
        if name not in options:
            raise ConfigError(f"recipe {path}: {text}: {name}: expected one of {', '.join(options)}, or null")
        option = _option(group, name)
        # An option, as sweep=joblib, may itself choose an option of Hydra's groups.
        other_defaults += option.pop("defaults", ())
        below = cast(DictConfig, OmegaConf.merge(below, option))
    if "defaults" in content:
        content.defaults = other_defaults
    return cast(DictConfig, OmegaConf.merge(below, content))


def overwritten(overrides: Collection[str]) -> Iterator[str]:
    """Yield a warning for each key of the user's own recipe that a group on the command line overrides.

    Args:
        overrides: the command line's ``key=value``.
    """
    values = {}
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        values[key] = value
    recipe = _user_recipes.get(values.get("recipe", ""), {})
    for group, options in groups().items():
        name = values.get(group)
        if group == "recipe" or name not in options:
            continue
        for key, value in _leaves(_option(group, name)):
            # A key on the command line goes before both; a mapping's own keys follow it.
            if key not in recipe or key in values or isinstance(value, DictConfig):
                continue
            if recipe[key] != value:
                yield (
                    f"{group}={name} sets {key}={value} in place of your recipe's {recipe[key]}; "
                    f"say {key}={recipe[key]} on the command line to keep it"
                )


def recipe_overrides(arguments: list[str]) -> list[str]:
    """Return the command line as Hydra reads it, with ``recipe=PATH.yaml`` replaced by a registered name.

    Raises:
        ConfigError: there is no such recipe.
    """
    options = groups()
    keys = key_types(arguments)
    directories = _config_directories(arguments)
    for_hydra = []
    for argument in arguments:
        if argument.startswith("+recipe="):
            # conf/config.yaml chooses a recipe, so there is one to replace and none to add.
            argument = argument.removeprefix("+")
        key, _, value = argument.partition("=")
        if key == "recipe":
            for_hydra.append(f"recipe={_registered(value, directories)}")
        elif value == "null" and key in options:
            # null keeps the recipe's choice; Hydra itself allows no null for a group.
            continue
        else:
            for_hydra.append(_for_hydra(argument, options, keys))
    return for_hydra


def _config_directories(arguments: Sequence[str]) -> list[Path]:
    """Return the directories that ``--config-dir`` adds to Hydra's search path."""
    directories = [Path(value) for flag, value in pairwise(arguments) if flag in ("--config-dir", "-cd")]
    for argument in arguments:
        if argument.startswith("--config-dir="):
            directories.append(Path(argument.removeprefix("--config-dir=")))
    return directories


def _registered(recipe: str, directories: Sequence[Path]) -> str:
    """Return the name that Hydra knows a recipe by; a file is registered first.

    Args:
        recipe: a name, a YAML file, or several names of a sweep with commas between them.
        directories: further directories of configuration, whose folder ``recipe`` may hold it.

    Raises:
        ConfigError: there is no such recipe.
    """
    shipped = recipes()
    for directory in directories:
        path = directory / "recipe" / f"{recipe}.yaml"
        if path.is_file():
            recipe = str(path)
            break
    if recipe.endswith((".yaml", ".yml")):
        path = Path(recipe)
        if not path.is_file():
            raise ConfigError(f"recipe={recipe}: no such file")
        name = path.stem
        if name in shipped or directories:
            # A user's recipe may have a shipped one's name and build on it.
            name = f"my_{name}"
        _store_recipe(ConfigStore.instance(), name, partial(_load_recipe, path))
        # Its own keys alone, without those of the recipes that it builds on.
        _user_recipes[name] = dict(_leaves(_load_recipe(path)))
        _files_of_recipes[name] = recipe
        return name
    if "," not in recipe and recipe not in shipped:
        near = did_you_mean(recipe, shipped)
        raise ConfigError(
            f"recipe={recipe}: no such recipe (there are {', '.join(shipped)}, or give a YAML file){near}"
        )
    return recipe


def _for_hydra(argument: str, options: Collection[str], keys: Mapping[str, str]) -> str:
    """Return an argument as Hydra reads it: places in lists with dots, and ``++`` for entries of a user's mapping.

    The entries of ``verdicts.source.fields`` and its like are the user's own; Hydra would ask for a ``+`` before each.

    Args:
        argument: a ``key=value``, or a flag, which comes back as it is.
        options: the names of groups.
        keys: the types of keys by name.
    """
    key, equals, value = argument.partition("=")
    dotted = re.sub(r"\[(\d+)\](?=\.|$)", r".\1", key)
    is_plain_key = re.match(r"\w", key) and key not in options and is_key(dotted, keys)
    if not equals or not is_plain_key:
        return argument
    # Any name fits below a key whose value is a mapping, so x stands for the user's own.
    may_add = value.startswith("{") or is_key(f"{dotted}.x", keys)
    if may_add:
        return f"++{dotted}={value}"
    return f"{dotted}={value}"


def typed(composed: DictConfig, overrides: Collection[str] = ()) -> Config:
    """Return the typed, range-checked configuration.

    Args:
        composed: the configuration that Hydra composed.
        overrides: the command line's own part of it.

    Raises:
        ConfigError: a key or a value is wrong; names the key, the value and what is allowed.
    """
    run = OmegaConf.to_object(composed)
    if not isinstance(run, RunConfig):
        raise ConfigError("conf/config.yaml must start from the schema (defaults: [schema, ...])")
    values = vars(run)
    layers = _layers(overrides)
    dialogues = values["dialogues"]
    # Stage dialogues reads them as well: it takes the prompts of benchmarks out of the training data.
    dialogues.decontaminate = [_benchmark(benchmark) for benchmark in dialogues.decontaminate]
    if dialogues.world.rule is None:
        # Set here, as later stages read it without the seed.
        dialogues.world.rule = run.seed
    rule = dialogues.world.rule
    auto = AutoEngine(run.output_dir, run.recipe_name)
    _complete(run, "", layers, rule, auto)

    config = Config(**{name: values[name] for name in names_of(RunConfig)})
    object.__setattr__(config, "environment", FromEnvironment.of(composed))
    object.__setattr__(config, "auto_engine", auto)
    object.__setattr__(config, "asking", asking(overrides))
    named = {section_of(key) for layer in layers for key in layer}
    for name, section in rooms.sections().items():
        read = partial(_read, section, values.get(name), layers, rule, auto)
        # What the user names is checked at once; other sections wait for a stage that reads them.
        value: Any = Untyped(read)
        if section.core or name in named:
            value = read()
        setattr(config, name, value)
    _check_added(overrides)
    sources = config.dialogues.sources
    for place, source in enumerate(sources):
        sources[place] = described(source, f"dialogues.sources[{place}]")
    return config


def asking(overrides: Collection[str]) -> tuple[str, ...]:
    """Return the words of a command line that say how a run's judge is asked: its recipe, its criteria, ``judge.*``.

    A command that asks the judge has to repeat them, or it asks it in another way than it was measured in.

    Args:
        overrides: the command line as Hydra reads it.
    """
    words = []
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        if section_of(key) not in _ASKED_BY:
            continue
        if key == "recipe":
            value = _files_of_recipes.get(value, value)
        words.append(f"{key}={value}")
    return tuple(words)


def _check_added(overrides: Collection[str]) -> None:
    """Refuse (ConfigError) unknown keys with a ``+``, which Hydra adds whether there are such keys or not."""
    added = [text.lstrip("+").partition("=")[0] for text in overrides if text.startswith("+")]
    keys = key_types(added)
    for key in added:
        if not is_key(key, keys) and key not in groups():
            raise no_such_key(key)


def _benchmark(benchmark: Any) -> Any:
    """Return a benchmark as an object.

    ``${evaluate.benchmarks}`` gives plain data where section evaluate is not in the schema.
    """
    if dataclasses.is_dataclass(benchmark):
        return benchmark
    return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(BenchmarkConfig), benchmark))


def _read(section: rooms.Section, value: Any, layers: Layers, rule: int, auto: AutoEngine) -> Any:
    """Return a section's typed, range-checked object.

    Args:
        section: the section.
        value: its composed value; an object if the section is in the schema.
        layers: the keys that the user sets.
        rule: of the generated world, where nothing names another.
        auto: the run's choice of an engine.

    Raises:
        ConfigError: a key or a value is wrong.
    """
    if not dataclasses.is_dataclass(value):
        try:
            value = OmegaConf.to_object(OmegaConf.merge(_structured(section.load()), value or {}))
        except OmegaConfBaseException as error:
            # OmegaConf knows the key within the section alone.
            error.full_key = f"{section.name}.{error.full_key}"
            raise
    _complete(value, f"{section.name}.", layers, rule, auto)
    return value


def _complete(config: Any, prefix: str, layers: Layers, rule: int, auto: AutoEngine) -> None:
    """Make an object of every mapping that stands for one of several classes, and check every range.

    Sources and engines of the generated world that name no rule get the run's, so that fingerprints hold it.

    Args:
        config: an object of the configuration.
        prefix: stands before the names of its keys.
        layers: the keys that the user sets.
        rule: the run's rule.
        auto: the run's choice of an engine.
    """
    for node in variant_nodes(config, prefix):
        put(config, node.key.removeprefix(prefix), chosen(node, layers, auto))
    for key, _, value in nodes(config, prefix):
        if isinstance(value, SourceConfig) and value.type == "world" and _has_path_alone(key, layers):
            # Despite its name, this type reads whatever file the path names.
            value.type = "jsonl"
        if isinstance(value, (SourceConfig, WorldEngineConfig)) and value.type == "world" and value.rule is None:
            value.rule = rule
    # Last: ranges are those of the objects that now stand there.
    validate(config, prefix)


def _layers(overrides: Collection[str]) -> Layers:
    """Return the keys that the command line sets, and those that the user's own recipe sets, if there is one."""
    # Words without a value, as ~key, set nothing.
    parsed = OverridesParser.create().parse_overrides([text for text in overrides if "=" in text])
    values = {}
    for override in parsed:
        key = re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", override.key_or_group)
        values[key] = override.value()
    # A mapping on the command line, as engine={type: vllm}, sets the keys in it, too.
    keys = set(values)
    for key, value in values.items():
        if isinstance(value, dict):
            keys.update(leaf for leaf, _ in _leaves(OmegaConf.create(value), f"{key}."))
    recipe = values.get("recipe")
    if recipe not in _user_recipes:
        return [keys]
    return [keys, set(_user_recipes[recipe])]


def _has_path_alone(key: str, layers: Layers) -> bool:
    """Return whether the user gives a source a path without a type: the type below it may be of another source."""
    for layer in layers:
        if f"{key}.type" in layer:
            return False
        if f"{key}.path" in layer:
            return True
    return False


def composed_of(overrides: Sequence[str]) -> Config:
    """Return the typed, range-checked configuration of a command line, outside of a run."""
    from hydra import compose, initialize_config_dir

    register(ConfigStore.instance())
    arguments = recipe_overrides(list(overrides))
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return typed(compose("config", overrides=arguments), arguments)
