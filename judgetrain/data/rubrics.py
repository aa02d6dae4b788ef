"""Rubrics as people write them: in a row's column, in a file, or in Python, in the shapes that are published."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from judgetrain.errors import ConfigError, DataError
from judgetrain.rubrics import SCALE, Criterion, Level, Rubric

SHAPES: dict[str, tuple[str, ...]] = {
    "verifiers": ("text", "name", "weight", "choices"),
    "open-instruct, RaR": ("description", "title", "weight"),
    "HealthBench": ("criterion", "points", "tags"),
    "AutoRubric": ("requirement", "name", "weight", "options", "scale_type"),
    "judgetrain": ("text", "name", "weight", "scale", "guideline", "source"),
}
"""The columns of a criterion in each published shape: first what says what to look for, then the others."""
_TEXTS = tuple(dict.fromkeys(columns[0] for columns in SHAPES.values()))
_KNOWN = {column for columns in SHAPES.values() for column in columns}
_LEVELS = ("scale", "choices", "options")
_MARK = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s")
"""What stands before a line of a list."""
_MET = (Level(0.0, "the response does not meet it"), Level(1.0, "the response meets it"))
"""The scale of shapes whose criteria are met or not."""


def rubric_of(raw: Any) -> Rubric:
    """The rubric that a cell, a file or a value in Python holds (DataError: the criterion's number and the column).

    ``raw``: a list of criteria, a mapping that holds one under ``criteria`` or ``rubrics``, the JSON text of either, or
    a text with a criterion a line. A criterion is a text, or a mapping in one of the :data:`SHAPES`.
    """
    if isinstance(raw, str):
        raw = _decoded(raw)
    if isinstance(raw, Mapping):
        inner = next((raw[name] for name in ("criteria", "rubrics", "rubric") if name in raw), None)
        raw = [raw] if inner is None else inner
    if isinstance(raw, str):
        raw = [line for each in raw.splitlines() if (line := _MARK.sub("", each).strip())]
    if not isinstance(raw, Sequence):
        raise DataError(f"expected a list of criteria, found {'nothing' if raw is None else type(raw).__name__}")
    found = []
    for number, each in enumerate(raw, start=1):
        try:
            found.append(_criterion(each))
        except DataError as error:
            raise DataError(f"criterion {number}: {error}") from error
    return Rubric(tuple(found))


def given_rubric(given: Any) -> Rubric | None:
    """The rubric that somebody gives in Python: one, its criteria in any shape, or the name of a file."""
    if given is None or isinstance(given, Rubric):
        return given
    if isinstance(given, Sequence) and all(isinstance(each, Criterion) for each in given):
        return Rubric(tuple(given))
    return read_rubric(given) if isinstance(given, (str, Path)) else rubric_of(given)


def read_rubric(path: str | Path) -> Rubric:
    """The rubric of a YAML or JSON file (DataError: it is none; ConfigError: no such file)."""
    import yaml

    file = Path(path).expanduser()
    try:
        found = yaml.safe_load(text := file.read_text(encoding="utf-8-sig"))
        return rubric_of(text if isinstance(found, str) else found)  # of which YAML would make one line
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"{file}: not a YAML or JSON file in UTF-8: {error}") from error
    except DataError as error:
        raise DataError(f"{file}: {error}") from error
    except (OSError, ValueError) as error:  # or a text that can be no file's name
        raise ConfigError(f"criteria={str(path)[:200]}: there is no such file of criteria (YAML or JSON)") from error


def _decoded(text: str) -> Any:
    """What a cell's text holds: JSON where it begins like JSON, else the text of a criterion."""
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(f"expected a list of criteria as JSON, found {text[:40]!r} ({error})") from error


def _criterion(raw: Any) -> Criterion:
    if isinstance(raw, str) and isinstance(raw := _decoded(raw), str):
        return Criterion(text=raw.strip())
    if not isinstance(raw, Mapping):
        raise DataError(f"expected a text or an object, found {type(raw).__name__}")
    raw = {name: value for name, value in raw.items() if value is not None}  # as Parquet fills what a row lacks
    if unknown := [str(name) for name in raw if name not in _KNOWN]:
        raise DataError(f"unknown column {unknown[0]!r}; known: {', '.join(sorted(_KNOWN))}")
    text = next((name for name in _TEXTS if raw.get(name) is not None), None)
    if text is None:
        raise DataError(f"no column says what to look for: expected one of {', '.join(_TEXTS)}; found {', '.join(raw)}")
    levels = next((name for name in _LEVELS if raw.get(name) is not None), None)
    met = text == "criterion" or (text == "description" and levels is None)
    return Criterion(
        text=_text(raw, text),
        name=_text(raw, "name") or _text(raw, "title"),
        weight=_number(raw.get("points", raw.get("weight", 1.0)), "points" if "points" in raw else "weight"),
        scale=_scale(raw[levels], levels) if levels else _MET if met else SCALE,
        guideline=_text(raw, "guideline") or None,
        source="given",
    )


def _text(raw: Mapping[str, Any], name: str) -> str:
    value = raw.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{name}: expected a text, found {value!r}")
    return value.strip()


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"{name}: expected a number, found {value!r}")
    return float(value)


def _scale(raw: Any, name: str) -> tuple[Level, ...]:
    """The levels of a scale: what each counts by its label, or a list of objects that say both; worst or best first."""
    if isinstance(raw, Mapping):
        raw = [{"label": label, "value": value} for label, value in raw.items()]
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise DataError(f"{name}: expected levels, each with what it counts: {{no: 0, yes: 1}}; found {raw!r}")
    found = []
    for each in raw:
        value = next((each[k] for k in ("score", "value") if k in each), None) if isinstance(each, Mapping) else each
        if isinstance(value, (str, bool)) or value is None:
            raise DataError(f"{name}: {each!r}: say what the level counts, as in {{no: 0, yes: 1}}")
        texts = [each.get(k) for k in ("label", "name", "text", "description")] if isinstance(each, Mapping) else []
        words = (("no", "yes")[text] if isinstance(text, bool) else text for text in texts)  # YAML reads these so
        told = [str(text) for text in words if text and not re.fullmatch(r"[-\d.]+", str(text))]  # which says nothing
        found.append(Level(_number(value, name), ": ".join(told)))
    falls = len(found) > 1 and found[0].score > found[-1].score
    return tuple(found[::-1] if falls else found)
