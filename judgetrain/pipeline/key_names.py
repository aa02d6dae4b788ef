"""Every key of the configuration, by its name: with its type, default, range and meaning.

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
"""How alike two keys must be to be taken for one another (difflib's ratio)."""
WIDTH = 100
"""Columns of a printed page at most."""
COLUMNS = ("key", "default", "type and range", "meaning")
_PAGE = """# Every key

`python -m judgetrain keys train.dpo` prints a section with the values in force; this page is made by
`python -m judgetrain keys --markdown > docs/keys.md`. Set a key on the command line (`train.dpo.beta=0.2`), in a
recipe, or in a group. `[]` stands for a place in a list, `?` behind a type says that null is allowed. A record that
stands in several places has a table of its own, at the end: where it stands, its name is the type, and what differs
there follows.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Key:
    """One configuration key as it is shown; a section has a name and a meaning alone."""

    name: str
    meaning: str
    variants: tuple[str, ...] = ()
    """The types of engine that have it; empty: all."""
    type: str = ""
    default: str = ""
    unit: str = ""
    allowed: str = ""


def keys_of(config: Any, prefix: str = "", apart: Collection[str] = ()) -> Iterator[Key]:
    """The keys of a configuration dataclass (an instance, whose values are the defaults), sections first.

    ``apart``: records whose keys are left out: where one stands, its name is the type.
    """
    types = get_type_hints(type(config))
    for item in dataclasses.fields(config):
        name, value, meta = f"{prefix}{item.name}", getattr(config, item.name), item.metadata
        record, several = record_of(types[item.name], meta), isinstance(value, list)
        if record is None:
            yield Key(
                name=name,
                meaning=meta["doc"],
                type=_type(types[item.name]),
                default=shown(value),
                unit=meta.get("unit") or "",
                allowed=_allowed(meta),
            )
            continue
        called = ENGINE if meta.get("variants") else record.__name__
        if called in apart:
            yield Key(name=name, meaning=meta["doc"], type=f"list of {called}" if several else called)
            continue
        base = next((kind for kind in record.__mro__[1:] if kind.__name__ in apart), None)
        like = base.__name__ if base else ""
        yield Key(name=name, meaning=meta["doc"], type=f"list of {like}".removesuffix(" of ") if several else like)
        inner = f"{name}[]." if several else f"{name}."
        if meta.get("variants"):
            yield from of_engines(meta["variants"], inner, apart)
        else:
            told = {*keys_of(base(), inner, apart)} if base else set()
            found = keys_of(record() if value is None or several else value, inner, apart)
            yield from (key for key in found if key not in told)


def record_of(hint: Any, meta: Mapping[str, Any]) -> Any:
    """The dataclass that a field holds, or a list of it; one of an engine's for an engine; None for plain values."""
    if meta.get("variants"):
        return next(iter(meta["variants"].values()))
    kinds = [kind for kind in (hint, *get_args(hint)) if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
    return kinds[0] if kinds else None


def of_engines(variants: Mapping[str, type], prefix: str, apart: Collection[str] = ()) -> Iterator[Key]:
    """The keys of all types of engine: one that several have alike is there once."""
    having: dict[Key, list[str]] = {}
    for variant, kind in sorted(variants.items()):  # they register as their modules are imported
        for key in keys_of(kind(), prefix, apart):
            having.setdefault(key, []).append(variant)
    for key, names in having.items():
        yield key if len(names) == len(variants) else dataclasses.replace(key, variants=tuple(names))


def records() -> dict[str, Any]:
    """The records that stand in several places, by name: each is described once. An engine's value is its types."""
    places: Counter[str] = Counter()
    found: dict[str, Any] = {}

    def visit(kind: Any) -> None:
        types = get_type_hints(kind)
        for item in dataclasses.fields(kind):
            if (record := record_of(types[item.name], item.metadata)) is None:
                continue
            variants = item.metadata.get("variants")
            shared: Any = next(filter(dataclasses.is_dataclass, record.__mro__[1:2]), record)  # what several may extend
            called = ENGINE if variants else shared.__name__
            places[called] += 1
            if called not in found:
                found[called] = variants or shared
                for each in (variants or {"": record}).values():
                    visit(each)

    for kind in (RunConfig, *(section.load() for section in rooms.sections().values())):
        visit(kind)
    return {name: found[name] for name in sorted(found) if places[name] > 1}


def every_key(named: Collection[str] | None = None, apart: Collection[str] = ()) -> Iterator[Key]:
    """Every key of the configuration; ``named``: only of the sections in which these keys are."""
    yield from keys_of(RunConfig(), apart=apart)
    wanted = None if named is None else {section_of(key) for key in named}
    for section in rooms.sections().values():
        if wanted is None or section.name in wanted:
            yield Key(name=section.name, meaning=section.doc)
            yield from keys_of(section.default(), f"{section.name}.", apart)


def section_of(key: str) -> str:
    """The section (or group) that a key of the command line, with its value or without, is in."""
    return re.split(r"[.=\[]", key.lstrip("+~"), maxsplit=1)[0]


def nearest_key(wrong: str) -> str:
    """The key that looks most like a wrong one; empty if none does."""
    wrong = re.sub(r"\[\d+\]", "[]", wrong)
    found = get_close_matches(wrong, [key.name for key in every_key()], n=1, cutoff=SIMILAR)
    return found[0] if found else ""


def no_such_key(wrong: str, what: str = "") -> ConfigError:
    """The error of a key that there is not, with the one that looks most like it; ``what``: what is wrong instead."""
    near = nearest_key(wrong)
    return ConfigError((what or f"{wrong}: there is no such key") + (f"; did you mean {near}?" if near else ""))


def key_types(named: Collection[str] | None = None) -> dict[str, str]:
    """The type of every configuration key, by its name; ``named``: only of the sections in which these keys are."""
    return {key.name: key.type for key in every_key(named)}


def is_key(name: str, known: Mapping[str, str]) -> bool:
    """Whether there is a key of this name in :func:`key_types`, or one whose value is a mapping that may have it."""
    parts = re.sub(r"\.\d+(?=\.|$)", "[]", name).split(".")
    above = (".".join(parts[:i]) for i in range(1, len(parts)))
    return ".".join(parts) in known or any(known.get(key, "").startswith("dict") for key in above)


def shown(value: Any) -> str:
    """A value as it is typed on the command line."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _type(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")


def _allowed(meta: Mapping[str, Any]) -> str:
    if meta.get("choices"):
        return ", ".join(map(shown, meta["choices"]))
    low, high = meta.get("low"), meta.get("high")
    return f"{low:g} to {high:g}" if low is not None and high is not None else bounds(meta)


def show(arguments: Sequence[str], composed: Callable[[Sequence[str]], Config]) -> None:
    """Print the keys that begin with a prefix, each with its value in what ``composed`` makes; or the page."""
    parser = argparse.ArgumentParser("judgetrain keys", description="every configuration key, with its value in force")
    parser.add_argument("words", nargs="*", help="a prefix, as in train.dpo; recipe=NAME and key=value")
    parser.add_argument("--markdown", action="store_true", help="the page docs/keys.md")
    options = parser.parse_args(arguments)
    if options.markdown:
        sys.stdout.write(page())
        return
    overrides = [word for word in options.words if "=" in word]
    prefixes = [re.sub(r"\[\d*\]", "[]", word) for word in options.words if "=" not in word] or [""]
    if not (keys := [key for key in every_key() if f"{key.name}.".startswith(tuple(prefixes))]):
        raise no_such_key(prefixes[0], f"no key begins with {prefixes[0]}")
    config, width = composed(overrides), min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    for key in keys:
        print("\n".join(_lines(key, _in_force(config, key), width)))


def _in_force(config: Any, key: Key) -> str | None:
    """The value of a key; None of a section, or where it has no one value: in lists and in engines of another type."""
    for part in key.name.split("."):
        config = getattr(config, part, None)
    return shown(config) if key.type and not _has_records(config) else None


def _has_records(value: Any) -> bool:
    return any(map(_has_records, value)) if isinstance(value, list) else dataclasses.is_dataclass(value)


def _lines(key: Key, value: str | None, width: int) -> Iterator[str]:
    facts = "; ".join(filter(None, (f"{key.type} {key.unit}".strip(), key.allowed)))
    if value is not None and value != key.default:
        facts += f"; default {key.default}"
    first = key.name if value is None else f"{key.name}={value}"
    only = f"({', '.join(key.variants)}) " if key.variants else ""
    yield from textwrap.wrap(f"{first}  {facts}".rstrip(), width, subsequent_indent="    ", break_on_hyphens=False)
    yield from textwrap.wrap(only + key.meaning, width, initial_indent="    ", subsequent_indent="    ")


def page() -> str:
    """docs/keys.md: a table for every section of the configuration, those without one first, and for every record."""
    apart = records()
    sections: dict[str, list[Key]] = {"": []}
    titles = {"": "All stages"}
    for key in every_key(apart=[*apart]):
        head, dot, _ = key.name.partition(".")
        if dot:
            sections[head].append(key)
        elif key.type:
            sections[""].append(key)
        else:
            sections[head], titles[head] = [], f"`{head}`: {key.meaning}"
    tables = [(titles[head], keys) for head, keys in sections.items()]
    for name, kind in apart.items():
        inner = of_engines(kind, "", [*apart]) if isinstance(kind, dict) else keys_of(kind(), "", [*apart])
        tables.append((name, list(inner)))
    return _PAGE + "".join(f"\n## {title}\n\n{_table(keys, apart)}" for title, keys in tables)


def _table(keys: Iterable[Key], apart: Iterable[str]) -> str:
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    for key in keys:
        only = f"({', '.join(key.variants)}) " if key.variants else ""
        kind = f"{key.type.replace(' | None', '?')} {key.unit}".strip()
        allowed = key.allowed.replace("at least ", "≥").replace("above ", ">").replace("at most ", "≤")
        cells = (key.name, key.default, kind, only + key.meaning)
        name, default, kind, meaning = (cell.replace("|", "\\|") for cell in cells)
        if (record := kind.removeprefix("list of ")) in apart:
            kind = kind.replace(record, f"[{record}](#{record.lower()})")
        rows.append((f"`{name}`", f"`{default}`" if default else "", ": ".join(filter(None, (kind, allowed))), meaning))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
