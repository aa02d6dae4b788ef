"""What is to be judged: comparisons out of files, and rows that hold none, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from judgetrain.data import world
from judgetrain.data.cells import RowError
from judgetrain.data.config import SourceConfig, WorldConfig
from judgetrain.data.dialogues import adapted
from judgetrain.data.rows import RowReader
from judgetrain.data.sources import Rejects, read
from judgetrain.errors import DataError
from judgetrain.judging.config import VerdictsConfig
from judgetrain.judging.systems import pairs_of, unread
from judgetrain.schema import Candidates, Comparison

KEY = "verdicts.source"


@dataclass(frozen=True)
class Item:
    """A row: a comparison, and why it cannot be judged, or None. Of one that could not be read the texts are empty.

    ``group``: the responses of a row that holds no pair, each to be scored by itself; ``comparison`` names the row.
    """

    comparison: Comparison
    failure: str | None = None
    group: Candidates | None = None


def read_items(
    config: VerdictsConfig,
    world_config: WorldConfig | None,
    seed: int,
    say: Callable[[str], object] = lambda told: None,
) -> list[Item]:
    """The rows that stage judge is given, in their order, each under an id of its own.

    A row that cannot be read is one with a ``failure``. Columns that the first row lacks stop the reading. ``say`` is
    told of labels that are not known, and of columns that are not used.

    Raises:
        ConfigError: a missing path, fewer than two systems, or no such baseline.
        DataError: a file that is none, or without a column that is needed; names the file, line and column.
    """
    if config.systems:
        found = [Item(*pair) for pair in pairs_of(config.systems, config.baseline, say)]
    elif config.source.type == "world":
        assert world_config is not None
        found = [Item(c) for c in world.eval_comparisons(world_config, seed)[: config.source.limit]]
    else:
        found = _of_source(config.source, say)
    return list(_told_apart(found))


def _of_source(source: SourceConfig, say: Callable[[str], object]) -> list[Item]:
    source = replace(source, name=source.name or Path(source.path).name.partition(".")[0])
    found: list[Item] = []

    rejects = Rejects(strict=False, keep=lambda row: found.append(Item(*unread(source.name, row))))
    if source.adapter:
        for comparisons in _adapted(source, rejects):
            found += map(Item, comparisons)
    else:
        for item in _plain(source, rejects, say):
            found.append(item)  # rejected rows come in between
    if not found:
        raise DataError(f"{KEY}.path={source.path}: there is no row; expected a comparison a line")
    if all(item.failure for item in found):
        told = f"none of the {len(found)} rows holds a comparison; the first: {found[0].failure}"
        raise DataError(f"{KEY}.path={source.path}: {told}")
    return found


def _plain(source: SourceConfig, rejects: Rejects, say: Callable[[str], object]) -> Iterator[Item]:
    reader = RowReader(source, KEY)

    def take(row: Any, number: int) -> Item:
        try:
            if reader.is_scored(row):
                group = reader.candidates(row, number)
                return Item(Comparison(group.id, group.dialogue, "", ""), group=group)
            if number == 1:
                reader.check_columns(row)
            return Item(replace(reader.comparison(row, number, labelled=False), label=reader.label(row)))
        except RowError as error:
            with suppress(RowError):
                error.id = reader.id_of(row, number) if isinstance(row, Mapping) else None
            raise

    yield from read(source, KEY, take, rejects)
    reader.tell(say)


def _adapted(source: SourceConfig, rejects: Rejects) -> Iterator[list[Comparison]]:
    """What an adapter reads; a first row that lacks a column is no row of such a benchmark."""
    keep, first = rejects.keep, True

    def strict_at_first(row: Mapping[str, Any]) -> None:
        assert keep is not None
        keep({**row, "reason": "missing_column"} if first and row["reason"] == "missing_field" else row)

    rejects.keep = strict_at_first
    for comparisons in adapted(source, KEY, rejects):
        first = False
        yield comparisons


def _told_apart(items: list[Item]) -> Iterator[Item]:
    """The items, those whose id stood before under ``ID#2`` and so on."""
    seen: Counter[str] = Counter()
    taken = {item.comparison.id for item in items}
    for item in items:
        name = item.comparison.id
        seen[name] += 1
        while seen[name] > 1 and f"{name}#{seen[name]}" in taken:
            seen[name] += 1
        number = seen[name]
        own, group = f"{name}#{number}" if number > 1 else name, item.group
        yield Item(replace(item.comparison, id=own), item.failure, group and replace(group, id=own))
