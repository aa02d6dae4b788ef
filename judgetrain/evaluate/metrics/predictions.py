"""Rows of ``predictions.parquet``: one a comparison, method and number of branches."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.judges.base import Prediction

COLUMNS = {
    **dict.fromkeys(("benchmark", "split", "comparison_id", "content", "group", "label", "method"), "string"),
    "branches": "int64",
    **dict.fromkeys(("verdict_ab", "verdict_ba", "summed"), "string"),
    **dict.fromkeys(("margin", "margin_ab", "margin_ba"), "double"),
    "judgments": "int64",
    "failures": "string",
    **dict.fromkeys(("prompt_tokens", "generated_tokens", "calls"), "double"),
    "merged": "bool",
    "spread": "double",
    **dict.fromkeys(("asked", "plan"), "string"),
    "asked_again": "int64",
}
"""Arrow's types of the columns, the same whatever the rows hold, so that files add up."""


def prediction_rows(benchmark: Benchmark, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    """The rows of one method on a benchmark, in its order; ``failures`` is JSON, ``content`` a hash of the texts."""
    rows = []
    for comparison, prediction in zip(benchmark.comparisons, predictions, strict=True):
        own = {"benchmark": benchmark.name, "split": benchmark.split, "group": comparison.group}
        own |= {"label": comparison.label, "content": comparison.content}
        own |= {"failures": json.dumps(dict(sorted(prediction.failures.items())))}
        found = vars(prediction) | vars(prediction.cost) | own
        rows.append({name: found[name] for name in COLUMNS})
    return rows


def parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The rows as a Parquet file."""
    import pyarrow as arrow
    import pyarrow.parquet

    schema = arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in COLUMNS.items()])
    buffer = io.BytesIO()
    arrow.parquet.write_table(arrow.Table.from_pylist(list(rows), schema=schema), buffer)
    return buffer.getvalue()
