"""Supervised examples of corrections: rows as stage correct writes them (``label.corrections``)."""

from dataclasses import replace
from typing import Any

from judgetrain.artifacts.losses import Losses
from judgetrain.data.cells import RowError, as_row_error
from judgetrain.data.config import SourceConfig
from judgetrain.data.duplicates import BenchmarkQueries
from judgetrain.data.rows.reader import RowReader
from judgetrain.data.sources import read
from judgetrain.judges.prompting.prompts import PromptSet, slots_of
from judgetrain.label.examples import sft_row
from judgetrain.messages import replied
from judgetrain.schema import Comparison

KEY = "label.corrections"
LEFT_OUT = {
    "not_corrected": "the judge wrote no correction of them: look at the counts of stage correct",
    "contaminated": "they hold the benchmarks' queries: give others, or set dialogues.decontaminate=[]",
}
"""The remedy where a large part of the rows is left out, by reason."""
COLUMNS = ("response", "judgment", "corrected")


def correction_rows(
    source: SourceConfig, prompts: PromptSet, queries: BenchmarkQueries | None = None
) -> tuple[list[dict[str, Any]], Losses]:
    """Return supervised examples of level ``correction``, and how many rows were left out, by reason.

    The prompt is the one that stage correct asks with. Rows have a query (or messages) and the columns response,
    judgment and corrected; stage correct's own call the judgment evaluation.

    Args:
        source: where the rows are.
        prompts: has the step ``correction``.
        queries: of benchmarks: rows that hold one are left out as ``contaminated``.

    Raises:
        DataError: a row lacks one of the columns; names file and line.
    """
    reader = RowReader(replace(source, name=source.name or "corrections"), key=KEY)
    left_out = Losses()

    def take(row: Any, number: int) -> list[dict[str, Any]]:
        """Return the example of a row, or none of a row that is left out."""
        dialogue = reader.dialogue(row, number)
        # By stage correct's own name first, which a column called judgment replaces.
        texts: dict[str, Any] = {"judgment": row.get("evaluation")}
        for name in COLUMNS:
            if name in row:
                texts[name] = row[name]
        # What a model thought is none of the three texts.
        for name, text in texts.items():
            with as_row_error("wrong_message", f"column {name}: "):
                texts[name] = replied(text)
        corrected = texts.pop("corrected", "")
        if corrected is None:
            # Stage correct writes null where the judge wrote no correction.
            left_out.lose("not_corrected", dialogue.id)
            return []
        if queries is not None and queries.matches(dialogue):
            left_out.lose("contaminated", dialogue.id)
            return []
        # A row may lack the column altogether.
        required = {"response": None, **texts, "corrected": corrected}
        for name, text in required.items():
            if not isinstance(text, str) or not text.strip():
                raise RowError("missing_field", f"expected text in the columns {', '.join(COLUMNS)}: {name} has none")
        # The two texts stand where a comparison's responses do, since examples are made of comparisons.
        comparison = Comparison(dialogue.id, dialogue, texts["response"], corrected)
        prompt = list(prompts.render("correction", slots_of(comparison) | texts))
        return [sft_row(prompt, corrected, "correction", comparison, [])]

    examples = []
    for examples_of_row in read(source, KEY, take):
        examples.extend(examples_of_row)
    return examples, left_out
