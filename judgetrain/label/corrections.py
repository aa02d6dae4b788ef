"""Correction pairs in the training set: a response, its judgment and the better response (branching paper, 5.5)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from judgetrain.data.cells import RowError
from judgetrain.data.config import SourceConfig
from judgetrain.data.duplicates import BenchmarkQueries
from judgetrain.data.rows import RowReader
from judgetrain.data.sources import read
from judgetrain.judges.prompting.prompts import PromptSet, slots_of
from judgetrain.label.examples import sft_row
from judgetrain.schema import Comparison

KEY = "label.corrections"
COLUMNS = ("response", "judgment", "corrected")


def correction_rows(
    source: SourceConfig, prompts: PromptSet, queries: BenchmarkQueries | None = None
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Supervised examples of level ``correction``: the prompt that stage correct asks with, and the corrected response.

    Rows have a query (or messages) and the columns response, judgment and corrected; stage correct's own call the
    judgment evaluation. How many are left out, by reason, comes second: ``contaminated``, they hold one of a
    benchmark's ``queries``, and ``not_corrected``, their ``corrected`` is null.

    Raises:
        DataError: a row without one of them; names file and line.
    """
    reader = RowReader(replace(source, name=source.name or "corrections"), key=KEY)
    dropped = Counter[str]()

    def take(row: Any, number: int) -> list[dict[str, Any]]:
        dialogue = reader.dialogue(row, number)
        texts = {"judgment": row.get("evaluation")} | {name: row[name] for name in COLUMNS if name in row}
        corrected = texts.pop("corrected", "")
        contaminated = queries is not None and queries.matches(dialogue)
        if corrected is None or contaminated:
            dropped["not_corrected" if corrected is None else "contaminated"] += 1
            return []
        for name, text in {"response": None, **texts, "corrected": corrected}.items():
            if not isinstance(text, str) or not text.strip():
                raise RowError("missing_field", f"expected text in the columns {', '.join(COLUMNS)}: {name} has none")
        item = Comparison(dialogue.id, dialogue, texts["response"], corrected)
        return [sft_row(list(prompts.render("correction", slots_of(item) | texts)), corrected, "correction", item, [])]

    return [row for rows in read(source, KEY, take) for row in rows], dropped
