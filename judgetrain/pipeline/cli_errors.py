"""Messages for a wrong command line or recipe: one sentence that names the place and the remedy."""

import dataclasses
import re
from difflib import get_close_matches
from typing import Any, get_args, get_origin, get_type_hints

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.main import get_args_parser
from omegaconf import ListConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from judgetrain import rooms
from judgetrain.amounts import amount
from judgetrain.errors import ConfigError, JudgetrainError
from judgetrain.keys import did_you_mean
from judgetrain.pipeline import groups, recipes
from judgetrain.pipeline.key_names import nearest_key, record_of

PLUGINS = {"joblib": "joblib", "optuna": "optuna", "submitit_slurm": "submitit", "submitit_local": "submitit"}
"""The extras of the package that install Hydra's launchers and sweepers, by the names of these."""
NO_SLURM = "there is no SLURM here (no srun); on one machine say hydra/launcher=submitit_local, or sweep=joblib"
_NOISE = re.compile(r"full_key:|object_type=|reference_type=|set HYDRA_FULL|To append to|See https|Config search path")
"""The beginnings of lines in Hydra's messages that help nobody who has not read its code."""


def arguments(words: list[str]) -> list[str]:
    """Return the command line with Hydra's flags before the overrides, wherever they stood.

    Raises:
        ConfigError: a flag is unknown, or lacks its value.
    """
    from argparse import ArgumentError

    parser = get_args_parser()
    # Otherwise argparse prints its own message and ends the process.
    parser.exit_on_error = False
    try:
        options, unknown = parser.parse_known_intermixed_args(words)
    except ArgumentError as error:
        raise ConfigError(str(error)) from error
    if unknown:
        # argparse gives its flags only in the text of its help.
        near = did_you_mean(unknown[0], re.findall(r"--[\w-]+", parser.format_usage()))
        raise ConfigError(f"{unknown[0]}: there is no such flag{near}; keys are set as in seed=3, without dashes")
    # Hydra itself knows its flags before the overrides only.
    flags = [word for word in words if word not in options.overrides]
    return [*flags, *options.overrides]


def named_stage(words: list[str]) -> list[str]:
    """Return the command line with ``stage=NAME`` for a first word that names a stage or a command.

    Raises:
        ConfigError: a second one is named.
    """
    if not words:
        return words
    entry = (rooms.stages() | rooms.commands()).get(words[0])
    if entry is None:
        return words

    name, *rest = words
    for word in rest:
        if word.startswith("stage="):
            raise ConfigError(f"{name} and {word}: leave out one of them")
    # As in ``judgetrain init DIR``: the second word is the value of the command's main key.
    if entry.takes and rest and "=" not in rest[0] and not rest[0].startswith("-"):
        rest[0] = f"{entry.takes}={_quoted(rest[0])}"
    return [f"stage={name}", *rest]


def _quoted(text: str) -> str:
    """Return a text in the quotation marks of Hydra's grammar."""
    # There, backslashes count double before a quotation mark and at the end, and once elsewhere.
    parts = []
    for part in text.split('"'):
        backslashes = len(part) - len(part.rstrip("\\"))
        parts.append(part + "\\" * backslashes)
    escaped = '\\"'.join(parts)
    return f'"{escaped}"'


def sentence(error: BaseException) -> str:
    """Return the message of an expected error; errors of Hydra and OmegaConf in the project's own words."""
    if isinstance(error, OverrideParseException):
        return _unread(error.override)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _missing(error.missing_cfg_file, _place(error))
    if isinstance(error, OmegaConfBaseException):
        message = _message_of_resolver(error)
        return message or _of_key(error)
    if isinstance(error, HydraException):
        inner = error.__cause__ or error.__context__
        # Hydra wraps errors of the keys that it merges.
        if isinstance(inner, OmegaConfBaseException):
            return _place(error) + _of_key(inner, error)
        sweep = re.match(r"Ambiguous value for argument '(.*)'", str(error))
        if sweep:
            return f"{sweep[1]}: several values are a sweep, which needs the flag -m; a list is written as in key=[a,b]"
    return "\n  ".join(_lines(error))


def _message_of_resolver(error: BaseException) -> str:
    """Return the message of the project's own error that OmegaConf wrapped, as a resolver raises one, or nothing."""
    inner = error.__cause__ or error.__context__
    while inner is not None and not isinstance(inner, JudgetrainError):
        inner = inner.__cause__ or inner.__context__
    if inner is None:
        return ""
    return str(inner)


def _lines(error: BaseException) -> list[str]:
    """Return the lines of an error's message that help."""
    lines = [line.strip() for line in str(error).splitlines()]
    return [line for line in lines if line and not _NOISE.match(line)]


def _place(error: BaseException) -> str:
    """Return the beginning of a message: the recipe that Hydra was reading, if it says so."""
    recipe = re.match(r"In 'recipe/(.*?)':", str(error))
    if recipe is None:
        return ""
    return f"recipe {recipe[1]}: "


def _unread(override: str) -> str:
    """Return the message for a word of the command line that Hydra cannot parse."""
    key, equals, _ = override.partition("=")
    if equals:
        return f"{override}: the value cannot be read; one with signs such as ( ) = , needs quotes: '{key}=\"VALUE\"'"

    hint = ""
    setting = _meant_by(override)
    if setting:
        hint = f"; did you mean {setting}?"
    return f"{override}: expected key=value{hint}"


def _meant_by(word: str) -> str:
    """Return the setting that a word without an equals sign may stand for, or an empty text."""
    settings = {name: f"recipe={name}" for name in recipes()}
    # A stage goes before a recipe of its name.
    settings |= {name: f"stage={name}" for name in (*rooms.stages(), *rooms.commands())}
    matches = get_close_matches(word, settings, n=1)
    if matches:
        return settings[matches[0]]
    key = nearest_key(word)
    if not key:
        return ""
    return f"{key}=VALUE"


def _missing(path: str, place: str) -> str:
    """Return the message for an option that a group does not have.

    Args:
        path: ``group/name``, as Hydra looked for it.
        place: the beginning of the message.
    """
    group, _, name = path.rpartition("/")
    if group.startswith("recipe"):
        # A recipe in a sub-folder has the folder in its name.
        group = "recipe"
        name = path.removeprefix("recipe/")
    if group in ("hydra/launcher", "hydra/sweeper") and name in PLUGINS:
        return f"{group}={name}: its package is not installed; pip install 'judgetrain[{PLUGINS[name]}]'"

    options = groups().get(group, [])
    if group.startswith("hydra"):
        options = list(PLUGINS)
    choices = ""
    if options:
        choices = f" (there are {', '.join(options)})"
    # Without a group, it is the name of the whole configuration's file that Hydra did not find.
    key = group or "--config-name"
    return f"{place}{key}={name}: there is no such option{choices}{did_you_mean(name, options)}"


def _of_key(error: OmegaConfBaseException, outer: BaseException | None = None) -> str:
    """Return the message for a wrong key or value.

    Args:
        error: OmegaConf's error.
        outer: Hydra's error around it, which may name the override.
    """
    key = error.full_key or ""
    # OmegaConf has few classes of errors: its words say which one this is.
    first_line = _lines(error)[0]
    if isinstance(error, (ConfigAttributeError, ConfigKeyError)):
        if "is not in struct" in first_line:
            return f"{key}: there is no such entry; a new one is added with +{key}=VALUE"
        return _unknown_key(key, error, outer)

    # Hydra names the words that were typed, OmegaConf the key alone.
    place = key
    override = re.match(r"Error merging override \+*(.*)", str(outer))
    if override:
        place = override[1]
    if _is_behind_list(error, place):
        return _no_entry(error, place)
    if "is not a subclass of" in first_line:
        entries = get_args(error.ref_type)
        # An entry of a list of records, as jury.judges=[longer].
        if error.object_type is list and entries and dataclasses.is_dataclass(entries[0]):
            return _no_record(key, entries[0], error, place)
        return f"{place}: it is a section, whose keys are set one by one: python -m judgetrain keys {key}"
    if "is not a ListConfig" in first_line:
        return f"{place}: expected a list, as in {key}=[{_entries_of(key, error)}]"
    if not place:
        return first_line
    return f"{place}: {first_line}"


def _is_behind_list(error: OmegaConfBaseException, place: str) -> bool:
    """Return whether a word sets an entry that a list does not have, as ``a.9.b=1`` where ``a`` has nine.

    Args:
        error: OmegaConf's error.
        place: the word. One that gives a list as a whole has no place in its key.
    """
    key_in_word = re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", place.partition("=")[0])
    if not error.full_key or not key_in_word.startswith(error.full_key):
        return False
    index = re.search(r"\[(\d+)\]$", error.full_key)
    parent = error.parent_node
    if index is None or not isinstance(parent, ListConfig):
        return False
    entries = OmegaConf.to_container(parent, resolve=False)
    # One that is missing or null is no list, and has no length.
    return isinstance(entries, list) and int(index[1]) >= len(entries)


def _no_entry(error: OmegaConfBaseException, place: str) -> str:
    """Return the message for an entry that a list does not have.

    Args:
        error: OmegaConf's error, of which :func:`_is_behind_list` is true.
        place: the beginning of the message.
    """
    of_list, _, index = str(error.full_key).rstrip("]").rpartition("[")
    record = get_args(error.ref_type)
    entries = "…"
    if record and dataclasses.is_dataclass(record[0]):
        entries = _form_of(record[0])
    return (
        f"{place}: {of_list} has {amount(len(error.parent_node), 'entry')}, counted from 0, and none at place {index}; "
        f"write the whole list, as in {of_list}=[{entries}]"
    )


def _no_record(key: str, record: Any, error: OmegaConfBaseException, place: str) -> str:
    """Return the message for an entry of a list that is no record, with the form of one.

    Args:
        key: of the entry, as ``jury.judges[0]``.
        record: the class of the list's records.
        error: OmegaConf's error, whose first line ends with the value.
        place: the beginning of the message.
    """
    of_list = re.sub(r"\[\d+\]$", "", key)
    value = _lines(error)[0].partition("value: ")[2]
    # Within a record, OmegaConf names no key but the record's own.
    listed = re.split(r"[=\[]", place)[0]
    return (
        f"{place}: {value!r} is no record; expected records with their keys, as in {of_list}=[{_form_of(record)}]: "
        f"python -m judgetrain keys {listed}"
    )


def _form_of(record: Any) -> str:
    """Return the form of a record on the command line by its first two fields, with which an entry is written."""
    types = get_type_hints(record)
    form = []
    for field in dataclasses.fields(record)[:2]:
        mark = "…"
        if get_origin(types[field.name]) is list:
            mark = "[…]"
        elif record_of(types[field.name], field.metadata) is not None:
            mark = "{…}"
        form.append(f"{field.name}: {mark}")
    return f"{{{', '.join(form)}}}"


def _entries_of(key: str, error: OmegaConfBaseException) -> str:
    """Return two plain entries of a list, or the form of one of a list of records.

    Args:
        key: of the list.
        error: OmegaConf's error, which names the class that the list is in.
    """
    if dataclasses.is_dataclass(error.object_type):
        kinds = get_args(get_type_hints(error.object_type).get(key.rpartition(".")[2]))
        if kinds and dataclasses.is_dataclass(kinds[0]):
            return _form_of(kinds[0])
    return "a,b"


def _unknown_key(key: str, error: OmegaConfBaseException, outer: BaseException | None) -> str:
    """Return the message for a key that there is not, with the key or group that may be meant."""
    near = nearest_key(key)
    if near:
        hint = f"; did you mean {near}?"
    else:
        # OmegaConf says in which object the key was looked for; a group's name may be meant as well.
        names = []
        kind = error.object_type
        if dataclasses.is_dataclass(kind):
            names = [field.name for field in dataclasses.fields(kind)]
        hint = did_you_mean(key.rpartition(".")[2], [*names, *groups()])
    message = f"{key}: there is no such key{hint}"

    # Of an override with several keys, as a={b: 1}, Hydra names the whole.
    override = re.match(r"Could not override '(.*)'\.", str(outer))
    if override and override[1] != key:
        return f"{override[1]}: {message}"
    return message
