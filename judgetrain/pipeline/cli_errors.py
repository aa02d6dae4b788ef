"""What a wrong command line or recipe is told: one sentence that names the place and what to say instead."""

import dataclasses
import re
from difflib import get_close_matches

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.main import get_args_parser
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from judgetrain import rooms
from judgetrain.errors import ConfigError, JudgetrainError
from judgetrain.keys import did_you_mean
from judgetrain.pipeline import groups, recipes
from judgetrain.pipeline.key_names import nearest_key

PLUGINS = {"joblib": "joblib", "optuna": "optuna", "submitit_slurm": "submitit", "submitit_local": "submitit"}
"""The extras that bring Hydra's launchers and sweepers, by their names."""
NO_SLURM = "there is no SLURM here (no srun); on one machine say hydra/launcher=submitit_local, or sweep=joblib"
_NOISE = re.compile(r"full_key:|object_type=|reference_type=|set HYDRA_FULL|To append to|See https|Config search path")


def arguments(given: list[str]) -> list[str]:
    """The command line with Hydra's flags before the overrides, wherever they stood (ConfigError: a wrong flag)."""
    from argparse import ArgumentError

    parser = get_args_parser()
    parser.exit_on_error = False
    try:
        known, unknown = parser.parse_known_intermixed_args(given)
    except ArgumentError as error:
        raise ConfigError(str(error)) from error
    if unknown:
        near = did_you_mean(unknown[0], re.findall(r"--[\w-]+", parser.format_usage()))
        raise ConfigError(f"{unknown[0]}: there is no such flag{near}; keys are set as in seed=3, without dashes")
    return [*(text for text in given if text not in known.overrides), *known.overrides]


def named_stage(given: list[str]) -> list[str]:
    """The command line with ``stage=NAME`` for a first word that names one (ConfigError: two are named)."""
    entry = (rooms.stages() | rooms.commands()).get(given[0]) if given else None
    if entry is None:
        return given
    name, *rest = given
    if other := next((text for text in rest if text.startswith("stage=")), None):
        raise ConfigError(f"{name} and {other}: leave out one of them")
    if entry.takes and rest and "=" not in rest[0] and not rest[0].startswith("-"):
        # As Hydra's grammar has it: backslashes count double before a quote, and at the end.
        parts = (part + "\\" * (len(part) - len(part.rstrip("\\"))) for part in rest[0].split('"'))
        quoted = '\\"'.join(parts)
        rest[0] = f'{entry.takes}="{quoted}"'
    return [f"stage={name}", *rest]


def sentence(error: BaseException) -> str:
    """What an expected error says, in one sentence; errors of Hydra and OmegaConf in the project's own words."""
    inner = error.__cause__ or error.__context__
    if isinstance(error, OverrideParseException):
        return _unread(error.override)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _missing(error.missing_cfg_file, _place(error))
    if isinstance(error, OmegaConfBaseException):
        while inner is not None and not isinstance(inner, JudgetrainError):  # of a resolver
            inner = inner.__cause__ or inner.__context__
        return str(inner) if inner else _of_key(error)
    if isinstance(error, HydraException):
        if isinstance(inner, OmegaConfBaseException):
            return _place(error) + _of_key(inner, error)
        if found := re.match(r"Ambiguous value for argument '(.*)'", str(error)):
            return f"{found[1]}: several values are a sweep, which needs the flag -m; a list is written as in key=[a,b]"
    return "\n  ".join(_lines(error))


def _lines(error: BaseException) -> list[str]:
    lines = (line.strip() for line in str(error).splitlines())
    return [line for line in lines if line and not _NOISE.match(line)]


def _place(error: BaseException) -> str:
    """The recipe that Hydra says was being read, for the sentence's beginning."""
    found = re.match(r"In 'recipe/(.*?)':", str(error))
    return f"recipe {found[1]}: " if found else ""


def _unread(override: str) -> str:
    key, equals, _ = override.partition("=")
    if not equals:
        by_value = {name: f"recipe={name}" for name in recipes()}
        by_value |= {name: f"stage={name}" for name in (*rooms.stages(), *rooms.commands())}
        found = get_close_matches(override, by_value, n=1)
        near = by_value[found[0]] if found else f"{key}=VALUE" if (key := nearest_key(override)) else ""
        return f"{override}: expected key=value" + (f"; did you mean {near}?" if near else "")
    return f"{override}: the value cannot be read; one with signs such as ( ) = , needs quotes: '{key}=\"VALUE\"'"


def _missing(path: str, place: str) -> str:
    group, _, name = path.rpartition("/")
    if group.startswith("recipe"):
        group, name = "recipe", path.removeprefix("recipe/")
    if group in ("hydra/launcher", "hydra/sweeper") and name in PLUGINS:
        return f"{group}={name}: its package is not installed; pip install 'judgetrain[{PLUGINS[name]}]'"
    there = PLUGINS if group.startswith("hydra") else groups().get(group, [])
    listed = f" (there are {', '.join(there)})" if there else ""
    return f"{place}{group or '--config-name'}={name}: there is no such option{listed}{did_you_mean(name, there)}"


def _of_key(error: OmegaConfBaseException, outer: BaseException | None = None) -> str:
    key, first = error.full_key or "", _lines(error)[0]
    if isinstance(error, (ConfigAttributeError, ConfigKeyError)):
        if "is not in struct" in first:
            return f"{key}: there is no such entry; a new one is added with +{key}=VALUE"
        kind = error.object_type
        near = nearest_key(key)
        fields = [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
        meant = f"; did you mean {near}?" if near else did_you_mean(key.rpartition(".")[2], [*fields, *groups()])
        named = re.match(r"Could not override '(.*)'\.", str(outer))
        within = f"{named[1]}: " if named and named[1] != key else ""
        return f"{within}{key}: there is no such key{meant}"
    given = re.match(r"Error merging override \+*(.*)", str(outer))
    place = given[1] if given else key
    if "is not a subclass of" in first:
        return f"{place}: it is a section, whose keys are set one by one: python -m judgetrain keys {key}"
    if "is not a ListConfig" in first:
        return f"{place}: expected a list, as in {key}=[a,b]"
    return f"{place}: {first}" if place else first
