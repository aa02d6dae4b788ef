"""``python -m judgetrain keys [PREFIX] [key=value ...]``; ``--markdown`` makes the page docs/keys.md."""

from __future__ import annotations

import argparse
import dataclasses
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from judgetrain.pipeline.config import Config
from judgetrain.pipeline.key_names import Key, every_key, keys_of, no_such_key, of_engines, records, shown

WIDTH = 100
"""Columns of a printed page at most."""
COLUMNS = ("key", "type", "default", "unit", "allowed", "meaning")
_PAGE = """# Every key

`python -m judgetrain keys train.dpo` prints a section with the values in force; this page is made by
`python -m judgetrain keys --markdown > docs/keys.md`. Set a key on the command line (`train.dpo.beta=0.2`), in a
recipe, or in a group. `[]` stands for a place in a list. A record that stands in several places has a table of its own,
at the end: where it stands, its name is the type.
"""


def show(arguments: Sequence[str]) -> None:
    """Print the keys that begin with a prefix, each with its value under the recipe and overrides given; or the page.

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
    overrides = [word for word in options.words if "=" in word]
    prefixes = [re.sub(r"\[\d*\]", "[]", word) for word in options.words if "=" not in word] or [""]
    keys = [key for key in every_key() if f"{key.name}.".startswith(tuple(prefixes))]
    if not keys:
        raise no_such_key(prefixes[0], f"no key begins with {prefixes[0]}")
    config, width = _composed(overrides), min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    for key in keys:
        print("\n".join(_lines(key, _in_force(config, key), width)))


def _composed(overrides: Sequence[str]) -> Config:
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore

    from judgetrain.pipeline.compose import recipe_overrides, register, typed
    from judgetrain.pipeline.options import CONF

    register(ConfigStore.instance())
    taken = recipe_overrides([*overrides])
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return typed(compose("config", overrides=taken), taken)


def _in_force(config: Any, key: Key) -> str | None:
    """The value of a key; None of a section, or where it has no one value: in lists and in engines of another type."""
    for part in key.name.split("."):
        config = getattr(config, part, None)
    return shown(config) if key.type and not _has_records(config) else None


def _has_records(value: Any) -> bool:
    return any(map(_has_records, value)) if isinstance(value, list) else dataclasses.is_dataclass(value)


def _lines(key: Key, value: str | None, width: int) -> Iterator[str]:
    """A key with its value, type and range, and below what it means."""
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
        cells = (key.name, key.type, key.default, key.unit, key.allowed, only + key.meaning)
        name, kind, default, unit, allowed, meaning = (cell.replace("|", "\\|") for cell in cells)
        if (record := kind.removeprefix("list of ")) in apart:
            kind = kind.replace(record, f"[{record}](#{record.lower()})")
        rows.append((f"`{name}`", kind, f"`{default}`" if default else "", unit, allowed, meaning))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
