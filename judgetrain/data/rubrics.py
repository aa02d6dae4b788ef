"""Rubrics in the shapes that people publish: in a row's column, in a file, or in Python."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from judgetrain.data.cells import number_in
from judgetrain.data.rubric_kinds import RubricByKind, RubricKind, check_columns, holds_kinds
from judgetrain.errors import ConfigError, DataError
from judgetrain.json_text import RepeatedKeyError, load_json
from judgetrain.messages import scalar_text
from judgetrain.rubrics import SCALE, Criterion, Level, Rubric

SHAPES: dict[str, tuple[str, ...]] = {
    "verifiers": ("text", "name", "weight", "choices"),
    "open-instruct, RaR": ("description", "title", "weight"),
    "HealthBench": ("criterion", "points", "tags"),
    "AutoRubric": ("requirement", "name", "weight", "options", "scale_type"),
    "judgetrain": ("text", "name", "weight", "scale", "guideline", "source"),
    "Prometheus": ("criteria", "score1_description", "score5_description"),
}
"""The columns of a criterion in each published shape, the one with its text first."""
_TEXTS = tuple(dict.fromkeys(columns[0] for columns in SHAPES.values()))
"""The columns that may hold a criterion's text."""
_COLUMNS = set().union(*SHAPES.values())
"""All columns of all shapes."""
_LEVELS = ("scale", "choices", "options")
"""The columns that may hold a criterion's levels."""
_WEIGHTS = ("points", "weight")
"""The columns that may hold a criterion's weight."""
_NAMES = ("name", "title")
"""The columns that may hold a criterion's name."""
_SCORES = ("score", "value")
"""The fields of a level that may hold its score."""
_LABELS = ("label", "name", "text", "description")
"""The fields of a level that hold texts, in the order in which they are read."""
_RUBRICS = ("criteria", "rubrics", "rubric")
"""The columns of a mapping that may hold the list of criteria, or the text of one."""
_DESCRIPTION = re.compile(r"score_?(\d{1,2})_description")
"""The columns that describe a response at a score, as Prometheus has them."""
_CODE = re.compile(r"""\s*(?:\[\s*["'\[{]|\{\s*["'])""")
"""The beginning of a list or an object in JSON or Python; ``[Safety] warns of ...`` is a text."""
_MARK = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s")
"""The mark or number before a line of a list."""
_MET = (Level(0.0, "the response does not meet it"), Level(1.0, "the response meets it"))
"""The scale of shapes whose criteria are met or not."""


def rubric_of(raw: Any) -> Rubric:
    """Return the rubric that a cell, a file or a value in Python holds.

    Args:
        raw: a list of criteria, a mapping that holds one under ``criteria`` or ``rubrics``, the JSON text of either, or
            a text with a criterion a line. A criterion is a text, or a mapping in one of the :data:`SHAPES`.

    Raises:
        DataError: there is no list, a criterion is wrong (names its number and the column), or a mapping, a criterion
            or a level says more than is read.
    """
    try:
        return _rubric_of(raw)
    except RecursionError as error:
        raise DataError("the criteria are nested too deeply to be a list of criteria") from error


def number_of_criteria(raw: Any) -> int:
    """Return how many criteria a value holds in any shape, without reading each; 0 where it is no list of them."""
    try:
        return len(_listed(raw))
    except (DataError, RecursionError):
        return 0


def _rubric_of(raw: Any) -> Rubric:
    """Return the rubric that a value holds, as :func:`rubric_of` does, however deep it is nested."""
    criteria = []
    for number, raw_criterion in enumerate(_listed(raw), start=1):
        try:
            criteria.append(_criterion(raw_criterion))
        except DataError as error:
            raise DataError(f"criterion {number}: {error}") from error
    return Rubric(tuple(criteria))


def _listed(raw: Any) -> Sequence[Any]:
    """Return the list of criteria, not read yet, that a value holds (DataError: there is none)."""
    # From the outside in: the text of JSON, then the mapping around a list, then the list or its lines.
    if isinstance(raw, str):
        raw = _decoded(raw)
    if isinstance(raw, Mapping):
        raw = _criteria_in(raw)
        # Tables hold the list within as JSON, too.
        if isinstance(raw, str):
            raw = _decoded(raw)
    if isinstance(raw, Mapping):
        raw = [raw]
    if isinstance(raw, str):
        lines = [_MARK.sub("", line).strip() for line in raw.splitlines()]
        raw = [line for line in lines if line]
    if raw is None:
        raise DataError("expected a list of criteria, found nothing")
    if not isinstance(raw, Sequence):
        raise DataError(f"expected a list of criteria, found {type(raw).__name__}")
    return raw


def given_rubric(given: Any) -> Rubric | None:
    """Return the rubric that somebody gives in Python: a rubric, its criteria in any shape, or the name of a file."""
    if given is None or isinstance(given, Rubric):
        return given
    if isinstance(given, Sequence) and all(isinstance(criterion, Criterion) for criterion in given):
        return Rubric(tuple(given))
    if isinstance(given, (str, Path)):
        return read_rubric(given)
    return rubric_of(given)


def rubric_by_kind(raw: Mapping[str, Any]) -> RubricByKind:
    """Return the rubric by kinds of query that a file holds.

    Args:
        raw: ``criteria`` for queries that are like none of any kind, and ``kinds``, a list of mappings with ``name``,
            ``queries`` (a list of typical ones) and ``criteria``. Criteria are as :func:`rubric_of` reads them.

    Raises:
        DataError: something is missing, is read by nothing, or is no criterion; names the kind.
    """
    check_columns(raw, ("criteria", "kinds"), "a rubric by kinds of query")
    if not isinstance(raw["kinds"], Sequence) or isinstance(raw["kinds"], str):
        raise DataError(f"kinds: expected a list of kinds of query, found {type(raw['kinds']).__name__}")
    kinds = []
    for number, raw_kind in enumerate(raw["kinds"], start=1):
        if not isinstance(raw_kind, Mapping):
            raise DataError(f"kind {number}: expected name, queries and criteria, found {type(raw_kind).__name__}")
        check_columns(raw_kind, ("name", "queries", "criteria"), f"kind {number}")
        queries = raw_kind["queries"]
        if not isinstance(queries, Sequence) or isinstance(queries, str):
            raise DataError(f"kind {number}: queries: expected a list of typical queries, found {queries!r}")
        try:
            rubric = rubric_of(raw_kind["criteria"])
        except DataError as error:
            raise DataError(f"kind {number}: {error}") from error
        kinds.append(RubricKind(str(raw_kind["name"]), tuple(map(str, queries)), rubric))
    return RubricByKind(rubric_of(raw["criteria"]).criteria, tuple(kinds))


def read_rubric(path: str | Path) -> Rubric:
    """Return the rubric of a YAML or JSON file.

    Raises:
        ConfigError: there is no such file.
        DataError: the file holds no rubric.
    """
    # Slow to import, and needed for files alone.
    import yaml

    from judgetrain.yaml_text import ExpansionError, load_yaml

    file = Path(path).expanduser()
    try:
        text = file.read_text(encoding="utf-8-sig")
        # JSON is YAML, too.
        content = load_yaml(text)
        if holds_kinds(content):
            return rubric_by_kind(content)
        if isinstance(content, str):
            # YAML makes one line of a plain text, which has a criterion a line.
            return rubric_of(text)
        return rubric_of(content)
    except RecursionError as error:
        raise DataError(f"{file}: it is nested too deeply to be a list of criteria") from error
    except ExpansionError as error:
        raise DataError(f"{file}: {error}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"{file}: not a YAML or JSON file in UTF-8: {error}") from error
    except DataError as error:
        raise DataError(f"{file}: {error}") from error
    except (OSError, ValueError) as error:
        # A ValueError: the text can be no file's name, as it holds a null character.
        raise ConfigError(f"criteria={str(path)[:200]}: there is no such file of criteria (YAML or JSON)") from error


def _criteria_in(raw: Mapping[str, Any]) -> Any:
    """Return the criteria that a mapping holds, or a list of the mapping itself where it is one criterion.

    What stands beside a list belongs to no criterion, and is refused. Beside a text it says more of this one criterion.
    """
    # Parquet fills the columns that a row lacks with None.
    filled = {name: value for name, value in raw.items() if value is not None}
    columns = [name for name in _RUBRICS if name in filled]
    if not columns:
        return [raw]
    if len(columns) > 1:
        raise DataError(f"two columns hold criteria: {' and '.join(columns)}; keep one of them")
    column = columns[0]
    criteria = filled.pop(column)
    if not filled:
        return criteria
    # One criterion, of which the other columns say more: its weight, its levels.
    if isinstance(criteria, str) and not _CODE.match(criteria):
        return [{"criteria": criteria, **filled}]
    unused = ", ".join(repr(str(name)) for name in filled)
    raise DataError(f"{unused} beside the list {column!r}: nothing reads it; write what concerns a criterion into it")


def _decoded(text: str) -> Any:
    """Return the values of a text that is JSON, and any other text as it is.

    Raises:
        DataError: the text begins like code and is no JSON, as a list that was cut off.
    """
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return load_json(text)
    except RepeatedKeyError as error:
        raise DataError(str(error)) from error
    except ValueError as error:
        if not _CODE.match(text):
            return text
        raise DataError(f"expected a list of criteria as JSON, found {text[:40]!r} ({error})") from error


def _decoded_criterion(text: str) -> Any:
    """Return the mapping that a text holds as JSON, and any other text as it is."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        value = load_json(text)
    except RepeatedKeyError as error:
        raise DataError(str(error)) from error
    except ValueError:
        # A criterion may begin with a bracket, as "{name} is filled in".
        return text
    if not isinstance(value, Mapping):
        return text
    return value


def _criterion(raw: Any) -> Criterion:
    """Return a criterion from a text, a mapping in one of the :data:`SHAPES`, or the JSON text of one."""
    if isinstance(raw, str):
        raw = _decoded_criterion(raw)
    if isinstance(raw, str):
        # A mere text gets the default scale and weight.
        return Criterion(text=raw.strip())
    if not isinstance(raw, Mapping):
        raise DataError(f"expected a text or an object, found {type(raw).__name__}")

    described = _described(raw)
    # Parquet fills the columns that a row lacks with None.
    raw = {name: value for name, value in raw.items() if value is not None}
    # Refused rather than passed over: what stands beside a criterion's text may change what it asks.
    for name in raw:
        if name not in _COLUMNS and not _DESCRIPTION.fullmatch(str(name)):
            raise DataError(f"unknown column {str(name)!r}; known: {', '.join(sorted(_COLUMNS))}")
    text_column = _only(raw, _TEXTS)
    if text_column is None:
        expected = ", ".join(_TEXTS)
        raise DataError(f"no column says what to look for: expected one of {expected}; found {', '.join(raw)}")

    weight_column = _only(raw, _WEIGHTS) or "weight"
    name_column = _only(raw, _NAMES) or "name"
    return Criterion(
        text=_text(raw, text_column),
        name=_text(raw, name_column),
        weight=_number(raw.get(weight_column, 1.0), weight_column),
        scale=_scale_of(raw, text_column, described),
        guideline=_text(raw, "guideline") or None,
        source="given",
    )


def _scale_of(raw: Mapping[str, Any], text_column: str, described: tuple[Level, ...]) -> tuple[Level, ...]:
    """Return the scale of a criterion: its levels, which may be ``described`` one by one, or those of its shape."""
    levels_column = _only(raw, _LEVELS)
    if described and levels_column is not None:
        raise DataError(f"{levels_column}: a criterion whose scores are described one by one has no other scale")
    if described:
        return described
    if levels_column is not None:
        return _scale(raw[levels_column], levels_column)
    # A criterion of HealthBench, RaR or open-instruct is met or not.
    if text_column in ("criterion", "description"):
        # What the author says of the levels stands in the guideline then.
        if _text(raw, "guideline"):
            return tuple(Level(level.score) for level in _MET)
        return _MET
    return SCALE


def _described(raw: Mapping[str, Any]) -> tuple[Level, ...]:
    """Return the levels that columns such as ``score1_description`` describe, the lowest first; empty without any."""
    texts: dict[float, str | None] = {}
    for name, value in raw.items():
        match = _DESCRIPTION.fullmatch(str(name))
        if match is None:
            continue
        text = None
        if value is not None:
            text = _text(raw, name)
        texts[float(match[1])] = text
    described = [score for score, text in texts.items() if text is not None]
    if not described:
        return ()
    # Parquet fills the columns that a criterion lacks with None: beyond its scale there are no levels. Between two
    # levels there is one also where nobody described it, or those above it would move.
    levels = []
    for score in sorted(texts):
        if min(described) <= score <= max(described):
            levels.append(Level(score, texts[score] or ""))
    return tuple(levels)


def _only(raw: Mapping[str, Any], columns: Sequence[str]) -> str | None:
    """Return the one of some columns that a criterion has, or None.

    Each shape has its own name for a thing. Two of them at once would be two things, of which one were passed over:
    they are refused (DataError), unless both say the same.
    """
    filled = [column for column in columns if raw.get(column) not in (None, "")]
    for column in filled[1:]:
        if raw[column] != raw[filled[0]]:
            raise DataError(
                f"{filled[0]!r} and {column!r} are two names of one thing, and say two things; put all of it into "
                f"{filled[0]!r}"
            )
    if filled:
        return filled[0]
    # An empty one, which is refused where something has to stand.
    return next((column for column in columns if column in raw), None)


def _text(raw: Mapping[str, Any], name: str) -> str:
    """Return the text of a column, or an empty one."""
    value = raw.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{name}: expected a text, found {value!r:.80}")
    return value.strip()


def _number(value: Any, name: str) -> float:
    """Return a value as a number; ``name`` is its column, for the message."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"{name}: expected a number, found {value!r:.80}")
    return float(value)


def _scale(raw: Any, name: str) -> tuple[Level, ...]:
    """Return the levels of a scale, the worst first.

    Args:
        raw: the score of each label, or a list of objects with both; the worst or the best first.
        name: the column, for messages.
    """
    if isinstance(raw, Mapping):
        # Both ways to write a scale become the longer one.
        raw = [{"label": label, "value": value} for label, value in raw.items()]
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise DataError(f"{name}: expected levels, each with what it counts: {{no: 0, yes: 1}}; found {raw!r:.80}")
    levels = [_level(raw_level, name) for raw_level in raw]
    # Published scales begin at either end.
    if len(levels) > 1 and levels[0].score > levels[-1].score:
        levels.reverse()
    return tuple(levels)


def _level(raw: Any, name: str) -> Level:
    """Return a level of a scale from its score alone, or an object with a score and texts; ``name`` is the column."""
    fields: Mapping[str, Any] = {"value": raw}
    if isinstance(raw, Mapping):
        fields = raw
    unknown = [str(field) for field, value in fields.items() if value is not None and field not in _SCORES + _LABELS]
    if unknown:
        known = ", ".join(_SCORES + _LABELS)
        raise DataError(f"{name}: {raw!r:.80}: nothing reads {unknown[0]!r} of a level; known: {known}")
    score_field = _only(fields, _SCORES)
    score = None
    if score_field is not None:
        score = fields[score_field]
    # A truth value is a label here, not a score.
    if isinstance(score, (str, bool)) or score is None:
        raise DataError(f"{name}: {raw!r:.80}: say what the level counts, as in {{no: 0, yes: 1}}")

    texts = []
    for column in _LABELS:
        text = fields.get(column)
        # YAML reads an unquoted yes or no as a truth value.
        if text is True:
            text = "yes"
        elif text is False:
            text = "no"
        text = scalar_text(text)
        if text in (None, ""):
            continue
        # A name that is a number adds nothing to the score, and a description only where it is another one.
        number = number_in(text)
        is_name = column in ("label", "name")
        if number is None or not (is_name or number == score):
            texts.append(str(text))
    return Level(_number(score, name), ": ".join(texts))
