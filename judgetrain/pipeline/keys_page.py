"""``python -m judgetrain keys [PREFIX]``: every configuration key; ``--markdown`` makes the page docs/keys.md."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args, get_type_hints

from judgetrain import rooms
from judgetrain.artifacts.console import Console
from judgetrain.errors import ConfigError
from judgetrain.keys import bounds
from judgetrain.pipeline.config import RunConfig

COLUMNS = ("key", "type", "default", "unit", "allowed", "meaning")
WIDEST = 40
"""Characters to which the columns of plain output are filled up at most."""
_PAGE = """# Every key

Made by `python -m judgetrain keys --markdown > docs/keys.md`; `python -m judgetrain keys train.dpo` prints a section.
A key is set on the command line (`train.dpo.beta=0.2`), in a recipe, or in a group; `[]` stands for the place in a
list, each of whose entries has these keys. A line without a type is a section.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Key:
    """One configuration key as it is shown; a section has a name and a meaning alone."""

    name: str
    meaning: str
    type: str = ""
    default: str = ""
    unit: str = ""
    allowed: str = ""
    variants: tuple[str, ...] = ()
    """The variants of its section that have it; empty: all."""

    def cells(self) -> tuple[str, ...]:
        """What is shown, in the order of :data:`COLUMNS`."""
        only = f"({', '.join(self.variants)}) " if self.variants else ""
        return self.name, self.type, self.default, self.unit, self.allowed, only + self.meaning


def keys_of(config: Any, prefix: str = "") -> Iterator[Key]:
    """The keys of a configuration dataclass (an instance, whose values are the defaults), sections first.

    A field whose metadata has ``variants`` (a dataclass by name) has the keys of all of them.
    """
    types = get_type_hints(type(config))
    for item in dataclasses.fields(config):
        name, value, meta = f"{prefix}{item.name}", getattr(config, item.name), item.metadata
        entries: list[Any] = [kind for kind in get_args(types[item.name]) if dataclasses.is_dataclass(kind)]
        if meta.get("variants"):
            yield Key(name=name, meaning=meta["doc"])
            yield from _of_variants(meta["variants"], f"{name}.")
        elif dataclasses.is_dataclass(value):
            yield Key(name=name, meaning=meta["doc"])
            yield from keys_of(value, f"{name}.")
        else:
            yield Key(
                name=name,
                meaning=meta["doc"],
                type="list" if entries else _type(types[item.name]),
                default=_shown(value),
                unit=meta.get("unit") or "",
                allowed=_allowed(meta),
            )
            for kind in entries:
                yield from keys_of(kind(), f"{name}[].")


def _of_variants(variants: Mapping[str, type], prefix: str) -> Iterator[Key]:
    """The keys of all variants: one that several have alike is there once."""
    having: dict[Key, list[str]] = {}
    for variant, kind in sorted(variants.items()):  # they register as their modules are imported
        for key in keys_of(kind(), prefix):
            having.setdefault(key, []).append(variant)
    for key, names in having.items():
        yield key if len(names) == len(variants) else dataclasses.replace(key, variants=tuple(names))


def _type(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")


def _shown(value: Any) -> str:
    """A value as it is typed on the command line."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _allowed(meta: Mapping[str, Any]) -> str:
    if meta.get("choices"):
        return ", ".join(map(_shown, meta["choices"]))
    low, high = meta.get("low"), meta.get("high")
    return f"{low:g} to {high:g}" if low is not None and high is not None else bounds(meta)


def every_key(named: Collection[str] | None = None) -> Iterator[Key]:
    """Every key of the configuration; ``named``: only of the sections in which these keys are."""
    yield from keys_of(RunConfig())
    wanted = None if named is None else {re.split(r"[.=\[]", key.lstrip("+~"), maxsplit=1)[0] for key in named}
    for section in rooms.sections().values():
        if wanted is None or section.name in wanted:
            yield Key(name=section.name, meaning=section.doc)
            yield from keys_of(section.load()(), f"{section.name}.")


def nearest_key(wrong: str) -> str | None:
    """The key that looks most like a wrong one; None if none does."""
    from difflib import get_close_matches

    wrong = re.sub(r"\[\d+\]", "[]", wrong)
    found = get_close_matches(wrong, [key.name for key in every_key()], n=1, cutoff=SIMILAR)
    return found[0] if found else None


def key_types(named: Collection[str] | None = None) -> dict[str, str]:
    """The type of every configuration key, by its name; ``named``: only of the sections in which these keys are."""
    return {key.name: key.type for key in every_key(named)}


def is_key(name: str, known: Mapping[str, str]) -> bool:
    """Whether there is a key of this name in :func:`key_types`, or one whose value is a mapping that may have it."""
    parts = re.sub(r"\.\d+(?=\.|$)", "[]", name).split(".")
    above = (".".join(parts[:i]) for i in range(1, len(parts)))
    return ".".join(parts) in known or any(known.get(key, "").startswith("dict") for key in above)


SIMILAR = 0.75
"""How alike two keys must be to be taken for one another (difflib's ratio)."""


def show(arguments: Sequence[str]) -> None:
    """Print the keys that begin with a prefix: a table at a terminal, else a line each; or the page.

    Raises:
        ConfigError: no key begins so.
    """
    parser = argparse.ArgumentParser("judgetrain keys", description="every configuration key")
    parser.add_argument("prefix", nargs="?", default="", help="as in train.dpo")
    parser.add_argument("--markdown", action="store_true", help="the page docs/keys.md")
    options = parser.parse_args(arguments)
    if options.markdown:
        sys.stdout.write(page())
        return
    prefix = re.sub(r"\[\d*\]", "[]", options.prefix)
    keys = [key for key in every_key() if f"{key.name}.".startswith(prefix)]
    if not keys:
        near = nearest_key(prefix)
        raise ConfigError(f"no key begins with {prefix}" + (f"; did you mean {near}?" if near else ""))
    _print([key.cells() for key in keys])


def _print(rows: Sequence[tuple[str, ...]]) -> None:
    console = Console()
    if console.terminal:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(*COLUMNS, box=box.SIMPLE_HEAD, pad_edge=False)
        for row in rows:
            table.add_row(*map(Text, row))
        console.plain([table])
        return
    widths = [min(WIDEST, max(map(len, column))) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def page() -> str:
    """docs/keys.md: a table for every section of the configuration, those without one first."""
    sections: dict[str, list[Key]] = {"": []}
    titles = {"": "All stages"}
    for key in every_key():
        head, dot, _ = key.name.partition(".")
        if dot:
            sections[head].append(key)
        elif key.type:
            sections[""].append(key)
        else:
            sections[head], titles[head] = [], f"`{head}`: {key.meaning}"
    return _PAGE + "".join(f"\n## {titles[head]}\n\n{_table(keys)}" for head, keys in sections.items())


def _table(keys: Iterable[Key]) -> str:
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    for key in keys:
        name, kind, default, unit, allowed, meaning = (cell.replace("|", "\\|") for cell in key.cells())
        rows.append((f"`{name}`", kind, f"`{default}`" if default else "", unit, allowed, meaning))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
