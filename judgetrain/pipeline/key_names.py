"""The keys of the configuration: their types, defaults, ranges and meanings.

``python -m judgetrain keys [PREFIX] [key=value ...]`` prints them; ``--markdown`` makes the page docs/keys.md.
"""

import argparse
import dataclasses
import json
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args, get_type_hints

from judgetrain import rooms
from judgetrain.errors import ConfigError
from judgetrain.keys import bounds
from judgetrain.pipeline.config import Config, RunConfig

ENGINE = "Engine"
"""The name of the record that stands for an engine of any type."""
SIMILAR = 0.75
"""The least similarity of two keys of which one may be meant for the other (difflib's ratio)."""
WIDTH = 100
"""The most columns of a printed page."""
COLUMNS = ("key", "default", "type and range", "meaning")
"""The columns of the tables in docs/keys.md."""
_PAGE = """# Every key

`python -m judgetrain keys train.dpo` prints a section with the values in force; this page is made by
`python -m judgetrain keys --markdown > docs/keys.md`. Set a key on the command line (`train.dpo.beta=0.2`), in a
recipe, or in a group. `[]` stands for a place in a list, `?` behind a type says that null is allowed. A record that
stands in several places has a table of its own, at the end: where it stands, its name is the type, and what differs
there follows.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Key:
    """One configuration key as it is shown; a section has a name and a meaning alone.

    Args:
        name: with the names of the sections and records that it is in, and dots between them.
        meaning: its documentation.
        variants: the types of engine that have it; empty: all.
        type: of its values; for a record in several places, the record's name.
        default: its default, as it is typed on the command line.
        unit: of its values.
        allowed: its choices or its range.
    """

    name: str
    meaning: str
    variants: tuple[str, ...] = ()
    type: str = ""
    default: str = ""
    unit: str = ""
    allowed: str = ""


def keys_of(config: Any, prefix: str = "", apart: Collection[str] = ()) -> Iterator[Key]:
    """Yield the keys of a configuration, a record before its own keys.

    Args:
        config: an instance of a dataclass, whose values are the defaults.
        prefix: stands before the name of every key, as ``train.``.
        apart: the names of records whose keys are left out; such a name is the type of the record's key.
    """
    types = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        name = f"{prefix}{field.name}"
        value = getattr(config, field.name)
        record = record_of(types[field.name], field.metadata)
        if record is None:
            yield Key(
                name=name,
                meaning=field.metadata["doc"],
                type=_type(types[field.name]),
                default=shown(value),
                unit=field.metadata.get("unit") or "",
                allowed=_allowed(field.metadata),
            )
        else:
            yield from _keys_of_record(name, field, record, value, apart)


def _keys_of_record(
    name: str, field: dataclasses.Field[Any], record: Any, value: Any, apart: Collection[str]
) -> Iterator[Key]:
    """Yield the key of a record, or of a list of records, and the keys in it.

    Args:
        name: of the record's key.
        field: the dataclass field that holds it.
        record: its class.
        value: its default: a record, a list of records or None.
        apart: the names of records whose keys are left out.
    """
    variants = field.metadata.get("variants")
    is_list = isinstance(value, list)
    record_name = record.__name__
    if variants:
        record_name = ENGINE
    if record_name in apart:
        yield Key(name=name, meaning=field.metadata["doc"], type=_type_of_record(record_name, is_list))
        return

    # Of a record that extends one with a table of its own, only what it adds follows.
    base = next((kind for kind in record.__mro__[1:] if kind.__name__ in apart), None)
    base_name = ""
    if base is not None:
        base_name = base.__name__
    yield Key(name=name, meaning=field.metadata["doc"], type=_type_of_record(base_name, is_list))

    inner = f"{name}."
    if is_list:
        inner = f"{name}[]."
    if variants:
        yield from of_engines(variants, inner, apart)
        return

    # A list may be empty and a record may be None by default: then the record's own defaults are shown.
    defaults = value
    if value is None or is_list:
        defaults = record()
    inherited: set[Key] = set()
    if base is not None:
        inherited = set(keys_of(base(), inner, apart))
    for key in keys_of(defaults, inner, apart):
        if key not in inherited:
            yield key


def _type_of_record(name: str, is_list: bool) -> str:
    """Return the type that is shown for a record, or for a list of records; its name is empty if it has no table."""
    if not is_list:
        return name
    if not name:
        return "list"
    return f"list of {name}"


def record_of(hint: Any, meta: Mapping[str, Any]) -> Any:
    """Return the dataclass that a field holds, alone or in a list; None for plain values.

    Args:
        hint: the field's type.
        meta: its metadata. For a field of several classes, as an engine, the first of them is returned.
    """
    if meta.get("variants"):
        return next(iter(meta["variants"].values()))
    for kind in (hint, *get_args(hint)):
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            return kind
    return None


def of_engines(variants: Mapping[str, type], prefix: str, apart: Collection[str] = ()) -> Iterator[Key]:
    """Yield the keys of all types of engine; a key that several types have alike comes once, with their names."""
    types_of: dict[Key, list[str]] = {}
    # Sorted, as engines register in the order in which their modules are imported.
    for type_name, kind in sorted(variants.items()):
        for key in keys_of(kind(), prefix, apart):
            types_of.setdefault(key, []).append(type_name)
    for key, type_names in types_of.items():
        if len(type_names) == len(variants):
            yield key
        else:
            yield dataclasses.replace(key, variants=tuple(type_names))


def records() -> dict[str, Any]:
    """Return the records that stand in several places of the configuration, by name: each is described once.

    A record's value is its class, an engine's the classes of all its types.
    """
    places: Counter[str] = Counter()
    kinds: dict[str, Any] = {}

    def visit(kind: Any) -> None:
        types = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            record = record_of(types[field.name], field.metadata)
            if record is None:
                continue
            variants = field.metadata.get("variants")
            # Several records may extend one, which is then described once for all of them.
            shared: Any = record
            base = record.__mro__[1]
            if dataclasses.is_dataclass(base):
                shared = base
            name = shared.__name__
            if variants:
                name = ENGINE
            places[name] += 1
            if name in kinds:
                continue

            kinds[name] = variants or shared
            inner_kinds = [record]
            if variants:
                inner_kinds = list(variants.values())
            for inner in inner_kinds:
                visit(inner)

    visit(RunConfig)
    for section in rooms.sections().values():
        visit(section.load())
    return {name: kinds[name] for name in sorted(kinds) if places[name] > 1}


def every_key(named: Collection[str] | None = None, apart: Collection[str] = ()) -> Iterator[Key]:
    """Yield the keys of the configuration.

    Args:
        named: keys whose sections alone are read, which saves imports; None reads all.
        apart: the names of records whose keys are left out.
    """
    yield from keys_of(RunConfig(), apart=apart)
    sections = None
    if named is not None:
        sections = {section_of(key) for key in named}
    for section in rooms.sections().values():
        if sections is not None and section.name not in sections:
            continue
        # A heading, without a type.
        yield Key(name=section.name, meaning=section.doc)
        # This imports the section's room.
        yield from keys_of(section.default(), f"{section.name}.", apart)


def section_of(key: str) -> str:
    """Return the section (or group) that a key of the command line is in, with its value or without."""
    return re.split(r"[.=\[]", key.lstrip("+~"), maxsplit=1)[0]


def nearest_key(wrong: str) -> str:
    """Return the key that looks most like a wrong one, or an empty text where none does."""
    # Keys in lists are known by an empty pair of brackets.
    pattern = re.sub(r"\[\d+\]", "[]", wrong)
    matches = get_close_matches(pattern, [key.name for key in every_key()], n=1, cutoff=SIMILAR)
    if not matches:
        return ""
    return matches[0]


def no_such_key(wrong: str, message: str = "") -> ConfigError:
    """Return the error for an unknown key, with the key that looks most like it.

    Args:
        wrong: the unknown key.
        message: in the place of "there is no such key".
    """
    hint = ""
    near = nearest_key(wrong)
    if near:
        hint = f"; did you mean {near}?"
    if message:
        return ConfigError(f"{message}{hint}")
    return ConfigError(f"{wrong}: there is no such key{hint}")


def key_types(named: Collection[str] | None = None) -> dict[str, str]:
    """Return the type of every configuration key by its name; of ``named`` keys' sections alone, if they are given."""
    return {key.name: key.type for key in every_key(named)}


def is_key(name: str, types: Mapping[str, str]) -> bool:
    """Return whether there is a key of a name, or one above it whose value is a mapping.

    Args:
        name: places in lists stand between dots or in brackets without a number.
        types: of all keys (:func:`key_types`).
    """
    # dialogues.sources.0.path and dialogues.sources[].path are one key.
    parts = re.sub(r"\.\d+(?=\.|$)", "[]", name).split(".")
    if ".".join(parts) in types:
        return True
    # The entries of a mapping are the user's own.
    above = [".".join(parts[:length]) for length in range(1, len(parts))]
    return any(types.get(key, "").startswith("dict") for key in above)


def shown(value: Any) -> str:
    """Return a value as it is typed on the command line."""
    # An empty text needs its quotation marks; others read better without.
    if isinstance(value, str) and value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _type(hint: Any) -> str:
    """Return a type as it is written in Python."""
    if isinstance(hint, type) and not get_args(hint):
        return hint.__name__
    return str(hint).replace("typing.", "")


def _allowed(meta: Mapping[str, Any]) -> str:
    """Return a key's choices or its range, in words."""
    if meta.get("choices"):
        return ", ".join(map(shown, meta["choices"]))
    low = meta.get("low")
    high = meta.get("high")
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    return bounds(meta)


def show(arguments: Sequence[str], composed: Callable[[Sequence[str]], Config]) -> None:
    """Print the keys that begin with a prefix, each with its value in force, or the page docs/keys.md.

    Args:
        arguments: the words after ``keys``.
        composed: returns the configuration of a command line.

    Raises:
        ConfigError: no key begins so.
    """
    parser = argparse.ArgumentParser("judgetrain keys", description="every configuration key, with its value in force")
    parser.add_argument("words", nargs="*", help="a prefix, as in train.dpo; recipe=NAME and key=value")
    parser.add_argument("--markdown", action="store_true", help="the page docs/keys.md")
    options = parser.parse_args(arguments)
    if options.markdown:
        sys.stdout.write(page())
        return

    # Words with an equals sign choose the configuration whose values are shown, as recipe=NAME.
    overrides = [word for word in options.words if "=" in word]
    prefixes = [re.sub(r"\[\d*\]", "[]", word) for word in options.words if "=" not in word] or [""]
    keys = _beginning_with(prefixes)
    if not keys:
        raise no_such_key(prefixes[0], f"no key begins with {prefixes[0]}")

    # After the check of the prefix: composing takes a second.
    config = composed(overrides)
    # Piped into a file or a pager, the page is as wide as it may be.
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    for key in keys:
        print("\n".join(_lines(key, _in_force(config, key), width)))


def _beginning_with(prefixes: Sequence[str]) -> list[Key]:
    """Return the keys that begin with one of several prefixes; an empty prefix asks for every key.

    The keys of an engine are the same wherever one stands, and many. Under the prefix of a section the engine is one
    key, whose meaning says how its own keys are listed.
    """
    # With a dot at the end, a whole name is a prefix, too.
    keys = [key for key in every_key() if f"{key.name}.".startswith(tuple(prefixes))]
    if "" in prefixes:
        return keys
    engines = []
    for key in every_key(apart=[ENGINE]):
        is_named = any(prefix.startswith(key.name) for prefix in prefixes)
        if key.type == ENGINE and not is_named:
            engines.append(key.name)
    inside = tuple(f"{name}." for name in engines)
    shown_keys = []
    for key in keys:
        if key.name in engines:
            pointer = f"{key.meaning}; its keys: python -m judgetrain keys {key.name}"
            shown_keys.append(dataclasses.replace(key, type=ENGINE.lower(), meaning=pointer))
        elif not key.name.startswith(inside):
            shown_keys.append(key)
    return shown_keys


def _in_force(config: Any, key: Key) -> str | None:
    """Return the value of a key, or None for a section and for a key without one value.

    The latter stand in lists, and in engines of another type.
    """
    value = config
    for part in key.name.split("."):
        # A list has no attribute models[], and an engine none of another type's.
        if not hasattr(value, part):
            return None
        value = getattr(value, part)
    if not key.type or _has_records(value):
        return None
    return shown(value)


def _has_records(value: Any) -> bool:
    """Return whether a value is a record or a list with one."""
    if isinstance(value, list):
        return any(_has_records(entry) for entry in value)
    return dataclasses.is_dataclass(value)


def _meaning(key: Key) -> str:
    """Return a key's meaning, after the types of engine that alone have it."""
    if not key.variants:
        return key.meaning
    return f"({', '.join(key.variants)}) {key.meaning}"


def _lines(key: Key, value: str | None, width: int) -> Iterator[str]:
    """Yield the lines of a key: its name, value, type and range, and indented its meaning."""
    # As in: train.dpo.beta=0.2  float; above 0; default 0.1
    facts = [f"{key.type} {key.unit}".strip(), key.allowed]
    # A section has no default.
    if key.default and value != key.default:
        facts.append(f"default {key.default}")
    setting = key.name
    if value is not None:
        setting = f"{key.name}={value}"
    first_line = f"{setting}  {'; '.join(filter(None, facts))}".rstrip()
    yield from textwrap.wrap(first_line, width, subsequent_indent="    ", break_on_hyphens=False)
    yield from textwrap.wrap(_meaning(key), width, initial_indent="    ", subsequent_indent="    ")


def page() -> str:
    """Return docs/keys.md: a table for every section of the configuration, and one for every record.

    Keys without a section come first.
    """
    apart = records()
    keys_by_section: dict[str, list[Key]] = {"": []}
    titles = {"": "All stages"}
    for key in every_key(apart=list(apart)):
        section, dot, _ = key.name.partition(".")
        if dot:
            keys_by_section[section].append(key)
        elif key.type:
            keys_by_section[""].append(key)
        else:
            # The heading of a section, or of a record at the top level (executor); it comes before its keys.
            keys_by_section[section] = []
            titles[section] = f"`{section}`: {key.meaning}"

    tables = [(titles[section], keys) for section, keys in keys_by_section.items()]
    for name, kind in apart.items():
        if isinstance(kind, dict):
            keys = list(of_engines(kind, "", list(apart)))
        else:
            keys = list(keys_of(kind(), "", list(apart)))
        tables.append((name, keys))
    return _PAGE + "".join(f"\n## {title}\n\n{_table(keys, apart)}" for title, keys in tables)


def _table(keys: Iterable[Key], apart: Iterable[str]) -> str:
    """Return keys as a table in Markdown; the types that have a table of their own are links to it."""
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    for key in keys:
        # Within a cell, a bar would begin the next one.
        default = key.default.replace("|", "\\|")
        type_name = f"{key.type.replace(' | None', '?')} {key.unit}".strip().replace("|", "\\|")
        record = type_name.removeprefix("list of ")
        if record in apart:
            type_name = type_name.replace(record, f"[{record}](#{record.lower()})")
        allowed = key.allowed.replace("at least ", "≥").replace("above ", ">").replace("at most ", "≤")
        values = ": ".join(filter(None, (type_name, allowed)))
        meaning = _meaning(key).replace("|", "\\|")
        # A section has no default, and its cell stays empty.
        shown_default = ""
        if default:
            shown_default = f"`{default}`"
        rows.append((f"`{key.name}`", shown_default, values, meaning))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
