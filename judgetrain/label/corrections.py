"""Correction pairs in the training set: a response, its judgment and the better response (branching paper, 5.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from judgetrain.data.config import SourceConfig
from judgetrain.data.dedup import BenchmarkQueries
from judgetrain.data.rows import RowError, RowReader
from judgetrain.data.sources import read
from judgetrain.judges.prompting.prompts import PromptSet, slots_of
from judgetrain.label.examples import sft_row
from judgetrain.schema import Comparison

KEY = "label.corrections"
COLUMNS = ("response", "judgment", "corrected")


def correction_rows(
    source: SourceConfig, prompts: PromptSet, queries: BenchmarkQueries | None = None
) -> tuple[list[dict[str, Any]], int]:
    """Supervised examples of level ``correction``: the prompt that stage correct asks with, and the corrected response.

    Rows have a query (or messages) and the columns response, judgment and corrected. Those that hold one of a
    benchmark's ``queries`` are left out; how many they are comes second.

    Raises:
        DataError: a row without one of them; names file and line.
    """
    reader = RowReader(replace(source, name=source.name or "corrections"), key=KEY)

    def take(row: Any, number: int) -> dict[str, Any] | None:
        for column in COLUMNS:
            if not isinstance(row, Mapping) or not isinstance(row.get(column), str) or not row[column].strip():
                raise RowError("missing_field", f"expected text in the columns {', '.join(COLUMNS)}: {column} has none")
        dialogue = reader.dialogue(row, number)
        if queries is not None and queries.matches(dialogue):
            return None
        item = Comparison(dialogue.id, dialogue, row["response"], row["corrected"])
        slots = slots_of(item) | {"response": row["response"], "judgment": row["judgment"]}
        return sft_row(list(prompts.render("correction", slots)), row["corrected"], "correction", item, [])

    found = list(read(source, KEY, take))
    kept = [row for row in found if row is not None]
    return kept, len(found) - len(kept)
