"""``predictions.parquet``: every prediction of every method, a row each."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.judges.predictions import Prediction

PREDICTED = {
    "benchmark": "string",
    "split": "string",
    "comparison_id": "string",
    "group": "string",
    "label": "string",
    "method": "string",
    "branches": "int64",
    "verdict_ab": "string",
    "verdict_ba": "string",
    "summed": "string",
    "margin": "double",
    "judgments": "int64",
    "failures": "string",
    "prompt_tokens": "double",
    "generated_tokens": "double",
    "calls": "double",
    "merged": "bool",
    "asked": "string",
    "plan": "string",
    "asked_again": "int64",
}
"""Arrow's types of the columns, the same whatever the rows hold, so that files add up."""


def prediction_table(benchmark: Benchmark, predictions: Sequence[Prediction]) -> Any:
    """Return Arrow's table of one method on a benchmark, in its order; ``failures`` is JSON."""
    # Slow to import: settings and dry runs need none of it.
    import pyarrow as arrow

    # Column by column, as Arrow would guess the types of rows.
    columns: dict[str, list[Any]] = {name: [] for name in PREDICTED}
    for comparison, prediction in zip(benchmark.comparisons, predictions, strict=True):
        values = {
            "benchmark": benchmark.name,
            "split": benchmark.split,
            "group": comparison.group,
            "label": comparison.label,
            "failures": json.dumps(dict(sorted(prediction.failures.items()))),
            **asdict(prediction.cost),
        }
        for name, column in columns.items():
            if name not in values:
                # The other columns are fields of the prediction.
                values[name] = getattr(prediction, name)
            column.append(values[name])
    # Given and not inferred: a column of None alone would have no type, and files could not be put together.
    schema = arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in PREDICTED.items()])
    return arrow.table(columns, schema)


def parquet(tables: Sequence[Any]) -> bytes:
    """Return the tables as one Parquet file."""
    import pyarrow.parquet

    buffer = pyarrow.BufferOutputStream()
    # In one chunk, so that equal predictions give equal files.
    pyarrow.parquet.write_table(pyarrow.concat_tables(tables).combine_chunks(), buffer)
    return bytes(buffer.getvalue())
