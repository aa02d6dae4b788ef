"""Benchmark adapters: from the rows of published benchmarks to comparisons with votes; each is a YAML file.

An adapter says of which ``kind`` the rows are, in which columns things stand and how labels are written:

- ``pair``: a row is a comparison, with one label (``fields.label``) or several annotators' (``label_columns``).
- ``votes``: a row is one person's vote; rows with one ``key`` are votes on the same
  comparison, whichever order they name its two models in (MT-Bench).
- ``chosen_rejected``: a row has better and worse responses, texts or lists of texts (RewardBench). ``styles`` names the
  places in the lists, where the groups are to be pairs of styles (RM-Bench).

The shipped ones are in ``judgetrain/data/benchmarks/adapters``; a file of the same shape describes any other benchmark.
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
from judgetrain.data.rows import VERDICTS
from judgetrain.errors import ConfigError
from judgetrain.schema import Verdict

NEEDED = {
    "pair": ("query", "response_a", "response_b"),
    "votes": ("model_a", "model_b", "label"),
    "chosen_rejected": ("query", "chosen", "rejected"),
}
"""The fields of each kind that an adapter must name."""


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """How the rows of a benchmark are read; a RowError says which column a row lacks, or which label is unknown.

    ``fields`` and ``optional`` map a field to the columns that may hold it, first come first; ``labels`` maps how
    labels are written to A, B or tie. ``hub`` is where the benchmark is published on the Hub, if it is. ``domains``
    maps a coarse group to its groups, or to how they begin (``mmlu-pro*``). ``scalar_texts``: numbers and truth values
    in the columns of texts are the texts that they are written as (``True``).
    """

    name: str
    kind: str
    fields: Mapping[str, list[str]]
    labels: Mapping[str, Verdict] = field(default_factory=dict)
    optional: Mapping[str, list[str]] = field(default_factory=dict)
    hub: Mapping[str, str] = field(default_factory=dict)
    key: list[str] = field(default_factory=list)
    label_columns: list[str] = field(default_factory=list)
    domains: Mapping[str, list[str]] = field(default_factory=dict)
    styles: list[str] = field(default_factory=list)
    scalar_texts: bool = False

    def value(self, row: Mapping[str, Any], name: str, required: bool = True) -> Any:
        """The value of a field; None when it is optional and not there."""
        columns = self.fields.get(name, self.optional.get(name, []))
        for column in columns:
            if row.get(column) is not None:
                return row[column]
        if required and columns and name in self.fields:
            looked, found = " or ".join(map(repr, columns)), ", ".join(map(str, row))
            raise RowError("missing_field", f"expected the column {looked} (field {name}), found {found}")
        return None

    def text(self, row: Mapping[str, Any], name: str) -> Any:
        """The value of a field that holds text, numbers and truth values as text where the adapter says so."""
        value = self.value(row, name)
        return str(value) if self.scalar_texts and isinstance(value, (bool, int, float)) else value

    def verdict(self, column: str, value: Any) -> Verdict:
        """What a label means."""
        verdict = self.labels.get(label_text(value))
        if verdict is None:
            known = ", ".join(self.labels)
            raise RowError("unknown_label", f"{column} {value!r} is not one of {known} (adapter {self.name})")
        return verdict

    def votes(self, row: Mapping[str, Any]) -> tuple[Verdict, ...]:
        """The labels of a row: one, or one an annotator."""
        if not self.label_columns:
            return (self.verdict("label", self.value(row, "label")),)
        if missing := [column for column in self.label_columns if column not in row]:
            raise RowError("missing_field", f"expected the column {missing[0]!r}, found {', '.join(map(str, row))}")
        return tuple(self.verdict(column, row[column]) for column in self.label_columns)

    def domain(self, group: str) -> str | None:
        """The coarse group that a group belongs to, or None."""
        return next((name for name, groups in self.domains.items() if any(fnmatchcase(group, g) for g in groups)), None)


def shipped() -> list[str]:
    """Return the names of the adapters that rooms bring, of this package and of installed ones."""
    return sorted(rooms.adapters())


def load_adapter(name: str, key: str = "evaluate.benchmarks") -> Adapter:
    """An adapter by name, or from a YAML file; a ConfigError names file and key, and lists the shipped ones."""
    path = Path(adapter_file(name) or "").expanduser()
    if not path.is_file():
        told = f"adapter {name!r} is neither a file nor one of {', '.join(shipped())}"
        raise ConfigError(f"{key}: {told}; leave it out for rows with query, response_a, response_b and label")
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if wrong := _wrong(raw):
        raise ConfigError(f"{path}: {wrong}")
    # One column's name may stand without brackets.
    columns = {
        part: {field: [names] if isinstance(names, str) else [*names] for field, names in (raw.get(part) or {}).items()}
        for part in ("fields", "optional")
    }
    labels = {str(label): meaning for label, meaning in (raw.get("labels") or {}).items()}
    return Adapter(name=path.stem, **(raw | columns | {"labels": labels}))


def _wrong(raw: Any) -> str | None:
    if not isinstance(raw, dict):
        return "expected keys and values, as in kind: pair"
    known = set(Adapter.__dataclass_fields__) - {"name"}
    if unknown := sorted(set(raw) - known):
        return f"unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}"
    if (kind := raw.get("kind")) not in NEEDED:
        return f"kind={kind!r}: allowed are {', '.join(NEEDED)}"
    if missing := [name for name in NEEDED[kind] if name not in (raw.get("fields") or {})]:
        return f"fields.{missing[0]} is missing; kind {kind} needs it"
    if kind == "votes" and not raw.get("key"):
        return "key is empty: name the columns that tell one comparison from another"
    wrong = [meaning for meaning in (raw.get("labels") or {}).values() if meaning not in VERDICTS]
    if wrong or (kind != "chosen_rejected" and not raw.get("labels")):
        return f"labels must map every label to A, B or tie, not {wrong or 'nothing'}"
    return None
