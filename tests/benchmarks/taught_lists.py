"""What the lists of criteria that SFT was shown put first, on the generated world, where the truth is known.

    python -m tests.benchmarks.taught_lists outputs/artifacts/label/*

Prints a row for each artifact of stage label: its rule, its trees, its lists, and in how many of these both criteria
that count stand first, or the primary one does. By chance both are first in one list of 45.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judgetrain.artifacts.integrity import MANIFEST
from judgetrain.artifacts.shards import read_rows
from judgetrain.data.world.language import load_language
from judgetrain.data.world.rule import load_world
from tests.benchmarks.common import parser_of

NAME = re.compile(r"^\d+\. *(\w+):", re.MULTILINE)
"""The name of a criterion in a list."""
QUERY = re.compile(r"^Query: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Lists:
    """How many lists there are, and what stands first in them."""

    number: int
    both_first: int
    primary_first: int


def lists_of(directory: Path, rule: int) -> Lists:
    """Return what the lists of an artifact put first, under the rule of its seed."""
    world = load_world(rule)
    language = load_language()
    number = 0
    both_first = 0
    primary_first = 0
    for row in read_rows(directory, "sft-train"):
        if row["level"] != "criteria":
            continue
        names = NAME.findall(_text(row["completion"]))
        query = QUERY.search(_text(row["prompt"]))
        if query is None:
            continue
        deciding = world.deciding[language.kind_of(query[1])]
        number += 1
        both_first += set(names[:2]) == set(deciding.crucial)
        primary_first += names[:1] == [deciding.primary]
    return Lists(number, both_first, primary_first)


def _text(messages: list[Mapping[str, Any]]) -> str:
    return "\n".join(message["content"] for message in messages)


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("directories", type=Path, nargs="+", help="artifacts of stage label")
    options = parser.parse_args()
    print("| rule | trees | lists | both that count first % | the primary one first % |")
    print("| --- | --- | --- | --- | --- |")
    for directory in options.directories:
        manifest = json.loads((directory / MANIFEST).read_text())
        lists = lists_of(directory, manifest["seed"])
        both = 100 * lists.both_first / max(lists.number, 1)
        primary = 100 * lists.primary_first / max(lists.number, 1)
        print(f"| {manifest['seed']} | {manifest['counts']['in']} | {lists.number} | {both:.1f} | {primary:.1f} |")


if __name__ == "__main__":
    main()
