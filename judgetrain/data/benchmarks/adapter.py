"""Benchmark adapters: YAML files that describe the rows of published benchmarks.

An adapter names the ``kind`` of the rows, the columns of each field and the meaning of labels:

- ``pair``: a row is a comparison, with one label (``fields.label``) or several annotators' (``label_columns``).
- ``votes``: a row is one person's vote; rows with one ``key`` are votes on the same
  comparison, whichever order they name its two models in (MT-Bench).
- ``single``: a row is one response with labels of its own: one (``fields.label``), several annotators'
  (``label_columns``, or a list in ``fields.label``), or one a criterion.
- ``chosen_rejected``: a row has better and worse responses, texts or lists of texts (RewardBench). ``styles`` names the
  places in the lists, where the groups are to be pairs of styles (RM-Bench). ``figure: prompts`` says that the
  published figure counts prompts whose pairs are all right (RewardBench 2), and ``apart`` names groups that it scores
  by another rule.

The shipped ones are in ``judgetrain/data/benchmarks/adapters``. A file of the same shape describes any other benchmark.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from judgetrain import rooms
from judgetrain.data.cells import RowError, label_text
from judgetrain.data.config import adapter_file
from judgetrain.data.rows.labels import VERDICTS
from judgetrain.data.rubrics import rubric_of
from judgetrain.errors import ConfigError, DataError
from judgetrain.schema import Verdict
from judgetrain.yaml_text import load_yaml

NEEDED = {
    "pair": ("query", "response_a", "response_b"),
    "votes": ("model_a", "model_b", "label"),
    "chosen_rejected": ("query", "chosen", "rejected"),
    "single": ("query", "response"),
}
"""The fields of each kind that an adapter must name."""

FIGURES = ("pairs", "prompts")
"""The things that a published figure may count."""


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """The columns and labels of a benchmark's rows. Its methods raise a RowError for a row that does not fit.

    Args:
        name: the name of the adapter's file.
        kind: the kind of its rows, one of :data:`NEEDED`.
        fields: the columns that may hold each field, the first of them first.
        labels: the verdict that each written label means; of rows of kind ``single`` its score, 0 (worst) to 1.
        optional: as ``fields``, of fields that a row may lack.
        hub: the data set on the Hub, if the benchmark is published there.
        key: the columns that tell one comparison from another, where rows are votes.
        label_columns: a column of labels for each annotator.
        domains: the groups of each coarse group, as names or beginnings (``mmlu-pro*``).
        styles: the names of the places in lists of responses.
        figure: what the published figure counts: ``pairs``, or ``prompts`` of which all pairs are right.
        apart: groups that a figure over prompts leaves out, as their publishers score them by a rule of their own.
        scalar_texts: numbers and truth values in the columns of texts are texts (``True``).
        rubric: the columns of a row's own criterion, by the names that criteria have in rubrics (``criteria``,
            ``score1_description``); ``a.b`` is the entry ``b`` of a column ``a``.
        criteria: what the people who wrote the labels were asked, as criteria of rows that bring none of their own.
        prompts: columns of prompts in Feedback Collection's form, whose parts are further columns
            (:mod:`judgetrain.data.benchmarks.prompt_form`): ``COLUMN.query``, ``COLUMN.response``, ``COLUMN.criteria``.
        preferences: rows of kind ``pair`` may hold ``chosen`` and ``rejected`` in place of two responses and a label,
            two transcripts of a whole dialogue among them. Their columns are then ``prompt``, ``response_a``,
            ``response_b`` and ``label``.
    """

    name: str
    kind: str
    fields: Mapping[str, list[str]]
    labels: Mapping[str, Any] = field(default_factory=dict)
    optional: Mapping[str, list[str]] = field(default_factory=dict)
    hub: Mapping[str, str] = field(default_factory=dict)
    key: list[str] = field(default_factory=list)
    label_columns: list[str] = field(default_factory=list)
    domains: Mapping[str, list[str]] = field(default_factory=dict)
    styles: list[str] = field(default_factory=list)
    figure: str = "pairs"
    apart: list[str] = field(default_factory=list)
    scalar_texts: bool = False
    rubric: Mapping[str, str] = field(default_factory=dict)
    criteria: list[Any] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    preferences: bool = False

    @property
    def of_single_responses(self) -> bool:
        """Return whether rows hold one response each, which labels are of."""
        return self.kind == "single"

    def value(self, row: Mapping[str, Any], name: str, required: bool = True) -> Any:
        """Return the cell of a field; None if it is empty and the field is optional or not ``required``."""
        # Versions of a data set may call one column differently.
        columns = self.fields.get(name, self.optional.get(name, []))
        for column in columns:
            if row.get(column) is not None:
                return row[column]
        # A field that the user gave an empty name has no column, and is not missed.
        if required and columns and name in self.fields:
            expected = " or ".join(repr(column) for column in columns)
            present = ", ".join(map(str, row))
            raise RowError("missing_field", f"expected the column {expected} (field {name}), found {present}")
        return None

    def criteria_of(self, row: Mapping[str, Any]) -> Any:
        """Return a row's criteria, or None.

        They are the cell of their column, the criterion that its columns make (``rubric``), or else those that all rows
        were labelled by (``criteria``).
        """
        # Whoever gives the field an empty name wants the rows without their criteria.
        if self.fields.get("criteria") == []:
            return None
        if not self.rubric:
            return self.value(row, "criteria", required=False) or self.criteria or None
        criterion = {}
        for name, column in self.rubric.items():
            outer, _, inner = column.partition(".")
            cell = row.get(column, row.get(outer))
            # A column of the whole name goes first: its own name may hold a dot.
            if column not in row and inner:
                if isinstance(cell, Mapping):
                    cell = cell.get(inner)
                else:
                    cell = None
            if cell is None:
                raise RowError(
                    "missing_field", f"expected the column {column!r} (rubric), found {', '.join(map(str, row))}"
                )
            criterion[name] = cell
        return criterion

    def text(self, row: Mapping[str, Any], name: str) -> Any:
        """Return the cell of a field that holds text; a number or truth value as text where ``scalar_texts`` is set."""
        value = self.value(row, name)
        if self.scalar_texts and isinstance(value, (bool, int, float)):
            return str(value)
        return value

    def verdict(self, column: str, value: Any) -> Verdict:
        """Return the verdict that a label means; ``column`` names it in the message of an unknown one."""
        verdict = self.labels.get(label_text(value))
        if verdict is None:
            allowed = ", ".join(self.labels)
            raise RowError("unknown_label", f"{column} {value!r} is not one of {allowed} (adapter {self.name})")
        return verdict

    def votes(self, row: Mapping[str, Any]) -> tuple[Verdict, ...]:
        """Return the verdicts of a row: one, or one for each annotator."""
        if not self.label_columns:
            return (self.verdict("label", self.value(row, "label")),)
        return tuple(self.verdict(column, row[column]) for column in self._label_columns_in(row))

    def ratings(self, row: Mapping[str, Any]) -> Any:
        """Return the labels of a row's only response as they are written; of several annotators a list."""
        if self.label_columns:
            return [row[column] for column in self._label_columns_in(row)]
        return self.value(row, "label", required=False)

    def _label_columns_in(self, row: Mapping[str, Any]) -> list[str]:
        """Return the columns of annotators' labels, all of which a row must have."""
        for column in self.label_columns:
            if column not in row:
                raise RowError("missing_field", f"expected the column {column!r}, found {', '.join(map(str, row))}")
        return self.label_columns

    def domain(self, group: str) -> str | None:
        """Return the coarse group that a group belongs to, or None."""
        # Groups of a published benchmark are many, and their names begin alike.
        for name, patterns in self.domains.items():
            if any(fnmatchcase(group, pattern) for pattern in patterns):
                return name
        return None


def shipped() -> list[str]:
    """Return the names of the adapters that rooms bring, of this package and of installed ones."""
    return sorted(rooms.adapters())


def load_adapter(name: str, key: str = "evaluate.benchmarks") -> Adapter:
    """Return an adapter by its name, or from a YAML file.

    Raises:
        ConfigError: there is neither, and the message lists the shipped ones; or the file is no adapter. ``key`` is
            the configuration key for the first.
    """
    # By name if a room brings it, else by its path.
    path = Path(adapter_file(name) or "").expanduser()
    if not path.is_file():
        raise ConfigError(
            f"{key}: adapter {name!r} is neither a file nor one of {', '.join(shipped())}; "
            "leave it out for rows with query, response_a, response_b and label"
        )
    try:
        raw = load_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    _check(raw, path)

    values = dict(raw)
    for part in ("fields", "optional"):
        values[part] = {}
        for name_of_field, columns in (raw.get(part) or {}).items():
            # One column's name may stand without brackets.
            if isinstance(columns, str):
                columns = [columns]
            values[part][name_of_field] = list(columns)
    # YAML reads 0 and true as a number and a truth value; rows are compared by text.
    values["labels"] = {str(label): meaning for label, meaning in (raw.get("labels") or {}).items()}
    _check_criteria(raw.get("criteria"), path)
    return Adapter(name=path.stem, **values)


def _check_criteria(criteria: Any, path: Path) -> None:
    """Refuse (ConfigError) criteria of an adapter's file that are none; None: it has no such key."""
    if criteria is None:
        return
    if not isinstance(criteria, list):
        raise ConfigError(f"{path}: criteria: expected a list of criteria, found {criteria!r:.80}")
    try:
        rubric_of(criteria)
    except DataError as error:
        raise ConfigError(f"{path}: criteria: {error}") from error


def _check(raw: Any, path: Path) -> None:
    """Refuse (ConfigError) the content of a file that is no adapter."""
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected keys and values, as in kind: pair")
    # The file's own name is the adapter's.
    keys = set(Adapter.__dataclass_fields__) - {"name"}
    unknown = sorted(set(raw) - keys)
    if unknown:
        raise ConfigError(f"{path}: unknown key {unknown[0]!r}; known are {', '.join(sorted(keys))}")

    kind = raw.get("kind")
    if kind not in NEEDED:
        raise ConfigError(f"{path}: kind={kind!r}: allowed are {', '.join(NEEDED)}")
    for name in NEEDED[kind]:
        if name not in (raw.get("fields") or {}):
            raise ConfigError(f"{path}: fields.{name} is missing; kind {kind} needs it")
    figure = raw.get("figure", FIGURES[0])
    if figure not in FIGURES:
        raise ConfigError(f"{path}: figure={figure!r}: allowed are {', '.join(FIGURES)}")
    if figure != FIGURES[0] and kind != "chosen_rejected":
        raise ConfigError(f"{path}: figure={figure}: kind {kind} has no prompts of several pairs; leave it out")
    if kind == "votes" and not raw.get("key"):
        raise ConfigError(f"{path}: key is empty: name the columns that tell one comparison from another")

    labels = raw.get("labels") or {}
    if kind == "single":
        if any(isinstance(score, bool) or not isinstance(score, (int, float)) for score in labels.values()):
            raise ConfigError(
                f"{path}: labels must map every label to a score from 0 (worst) to 1, as in {{1: 0, 5: 1}}"
            )
        return
    wrong = [meaning for meaning in labels.values() if meaning not in VERDICTS]
    if wrong:
        raise ConfigError(f"{path}: labels must map every label to A, B or tie, not {wrong}")
    # The better response of a pair chosen/rejected needs no label.
    if not labels and kind != "chosen_rejected":
        raise ConfigError(f"{path}: labels must map every label to A, B or tie, not nothing")
