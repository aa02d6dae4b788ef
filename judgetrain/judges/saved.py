"""``judge.json`` and ``criteria.yaml``: how a trained judge is asked, and by what, as its directory says it."""

import json
import logging
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import write_json_atomic, write_text_atomic
from judgetrain.data.rubrics import read_rubric
from judgetrain.errors import ConfigError
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.trees.config import StepsConfig
from judgetrain.keys import did_you_mean
from judgetrain.rubrics import Rubric

log = logging.getLogger(__name__)

SETTINGS = "judge.json"
"""The file of a trained judge's directory that says how it is asked, unless the run or the caller says otherwise."""

LEARNED_CRITERIA = "criteria.yaml"
"""The file of the criteria that a judge was taught to go by; one that learned to name its own criteria has none."""


def save_settings(judge: JudgeConfig, directory: Path, criteria: int, learned: str = "both") -> None:
    """Write how a judge is asked as ``judge.json`` into its directory.

    Args:
        judge: how it is asked, unless the run or the caller says otherwise.
        directory: the judge's.
        criteria: how many criteria it was trained to name.
        learned: how many responses its judgments learned to read, as in ``tree.reads``.
    """
    # All settings, so that a later default changes nothing for a judge that is already trained.
    write_json_atomic(directory / SETTINGS, {"criteria": criteria, "learned": learned, **asdict(judge)})


def save_criteria(text: str | None, directory: Path) -> None:
    """Write the criteria that a judge was taught by into its directory.

    Args:
        text: of a YAML or JSON file that :func:`read_rubric` reads; None: the judge learned to name its own.
        directory: the judge's.
    """
    if text is not None:
        write_text_atomic(directory / LEARNED_CRITERIA, text)


def learned_rubric(directory: Path) -> Rubric | None:
    """Return the criteria that a directory's judge was taught to go by; None: it names its own.

    Raises:
        DataError: the file is there, and holds no criteria.
    """
    file = directory / LEARNED_CRITERIA
    if not file.is_file():
        return None
    return read_rubric(file)


def saved_settings(directory: Path) -> JudgeConfig:
    """Return how the judge of a directory is asked (ConfigError: names the file and the key)."""
    saved = _read(directory)
    # These two describe the trained model, not how it is asked.
    saved.pop("criteria", None)
    saved.pop("learned", None)
    return JudgeConfig(**saved)


def criteria_of(directory: Path) -> int:
    """Return how many criteria a directory's judge was trained to name; raises as :func:`saved_settings`."""
    return int(_read(directory)["criteria"])


def overridden(judge: JudgeConfig, directory: Path) -> list[str]:
    """Return the settings of a directory's ``judge.json`` that others take the place of, as on the command line.

    Args:
        judge: the other settings.
        directory: the trained judge's.
    """
    trained = asdict(saved_settings(directory))
    current = asdict(judge)
    different = []
    for name, value in trained.items():
        if value != current[name]:
            text = value
            if value is None:
                # As the command line writes it.
                text = "null"
            different.append(f"judge.{name}={text}")
    return different


def check_learned(directory: Path, reads: str, prefix: str = "judge.") -> None:
    """Warn if a directory's judge is asked to read another number of responses than it was trained on.

    Args:
        directory: the judge's.
        reads: how many responses it is asked to read.
        prefix: what stands before the names of settings in messages.
    """
    learned = _read(directory).get("learned", "both")
    if learned not in ("both", reads):
        _warn_of_reads(directory, learned, f"{prefix}reads={reads}")


# Cached so that a run that makes the judge's options many times warns once.
@cache
def _warn_of_reads(directory: Path, learned: str, setting: str) -> None:
    """Warn that a judge is asked to read another number of responses than it was trained on."""
    log.warning(
        "%s: it learned to read %s, and %s asks for what it never learned: its scores mean little; "
        "a judge reads either that a run with tree.reads=both has trained",
        directory,
        learned,
        setting,
    )


def _read(directory: Path) -> dict[str, Any]:
    """Return the content of a directory's ``judge.json``, checked (ConfigError: names the file and the key)."""
    path = directory / SETTINGS
    defaults = {"criteria": StepsConfig.criteria, "learned": "both", **asdict(JudgeConfig())}
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path} is missing or cannot be opened: this is not a trained judge; "
            f'of another model write at least {{"criteria": {defaults["criteria"]}}}'
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON ({error})") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: it is nested too deeply to be a judge's settings") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{path}: expected an object, found {type(settings).__name__}")

    # By hand, since a judge may come from anywhere: an unknown or misspelt setting must not be passed over.
    for name, value in settings.items():
        if name not in defaults:
            raise ConfigError(f"{path}: {name}: a judge has no such setting{did_you_mean(name, defaults)}")
        default = defaults[name]
        allowed: tuple[type, ...] = (type(default),)
        if isinstance(default, float):
            # A hand-written 0 may stand for 0.0.
            allowed = (float, int)
        # A default of None tells nothing of the type.
        if default is not None and type(value) not in allowed:
            raise ConfigError(f"{path}: {name}: expected {type(default).__name__}, found {value!r}")
    if "criteria" not in settings:
        raise ConfigError(f"{path}: criteria is missing: the number of criteria that the judge was trained to name")
    return settings
