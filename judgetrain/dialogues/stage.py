"""Stage ``dialogues``: every source into one schema, queries deduplicated, everything counted (A.1)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from judgetrain.artifacts import StageRun, write_rows_atomic
from judgetrain.config import Config, DialoguesConfig, SourceConfig
from judgetrain.dialogues import world
from judgetrain.dialogues.dedup import Seen
from judgetrain.dialogues.rows import RowError, RowReader
from judgetrain.dialogues.schema import Comparison, Dialogue
from judgetrain.dialogues.sources import Rejects, read
from judgetrain.errors import ConfigError, DataError

Item = tuple[Dialogue, Comparison | None]


def run(config: Config, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``dialogues.jsonl``, ``comparisons.jsonl`` (rows that carry two responses) and ``rejects.jsonl``."""
    settings = config.dialogues
    seen, rejects = Seen(), Rejects(settings.strict)
    table: dict[str, Counter[str]] = {}
    comparisons: list[Comparison] = []
    ids: set[str] = set()

    def kept() -> Iterator[dict[str, Any]]:
        for index, source in enumerate(settings.sources):
            counts = table[source.name] = Counter()
            before = sum(rejects.counts.values())
            for dialogue, comparison in _items(source, f"dialogues.sources[{index}]", config, rejects):
                fate = _fate(dialogue, comparison, settings, seen)
                if fate == "kept" and dialogue.id in ids:
                    fate = "repeated_id"
                counts[fate] += 1
                if fate == "kept":
                    ids.add(dialogue.id)
                    if comparison:
                        comparisons.append(comparison)
                    yield dialogue.to_row()
            counts["rejected"] = sum(rejects.counts.values()) - before
            out.log(f"dialogues: {source.name}: {', '.join(f'{n} {what}' for what, n in counts.items() if n)}")

    write_rows_atomic(out.path("dialogues.jsonl"), kept())
    out.write_rows("comparisons", (c.to_row() for c in comparisons))
    out.write_rows("rejects", rejects.rows)
    total = sum(table.values(), Counter[str]())
    out.note("sources", {name: dict(counts) for name, counts in table.items()})
    dropped = {k: n for k, n in total.items() if k not in ("kept", "rejected")} | dict(rejects.counts)
    out.count(in_=sum(total.values()), out=total["kept"], dropped=dropped)
    if not total["kept"]:
        raise DataError(f"no dialogue is left: {json.dumps(dropped)}; look at dialogues.min/max_query_chars and fields")


def _items(source: SourceConfig, key: str, config: Config, rejects: Rejects) -> Iterator[Item]:
    if source.type == "world":
        yield from ((d, None) for d in world.train_dialogues(config.dialogues.world, config.seed))
        return
    try:
        reader = RowReader(source, key=key)
    except RowError as error:
        raise ConfigError(str(error)) from error

    def take(row: Any, number: int) -> Item:
        if source.type == "comparisons" or source.format == "comparison" or reader.has_responses(row):
            comparison = reader.comparison(row, number, labelled=False)
            return comparison.dialogue, comparison
        return reader.dialogue(row, number), None

    yield from read(source, key, take, rejects)


def _fate(dialogue: Dialogue, comparison: Comparison | None, settings: DialoguesConfig, seen: Seen) -> str:
    if len(dialogue.query) < settings.min_query_chars:
        return "too_short"
    if sum(len(m.content) for m in dialogue.messages) > settings.max_query_chars:
        return "too_long"
    parts = [dialogue.context, dialogue.query] if dialogue.context else [dialogue.query]
    if comparison:  # the same query with other responses is another comparison
        parts += [comparison.response_a, comparison.response_b]
    if settings.dedup and not seen.add("\n".join(parts)):
        return "duplicate"
    return "kept"
