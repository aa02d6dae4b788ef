"""Labels that a data set keeps as numbers of classes mean what the classes' names say, at every door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest

from judgetrain.data.config import SourceConfig
from judgetrain.data.sources import read, read_comparisons, row_reader
from judgetrain.judges.rows import comparisons_in
from judgetrain.schema import Comparison


def data_set(names: list[str], labels: list[Any], **columns: list[str]) -> datasets.Dataset:
    """Return a data set whose labels are classes of these names."""
    features = {name: datasets.Value("string") for name in columns}
    features["label"] = datasets.ClassLabel(names=names)
    return datasets.Dataset.from_dict({**columns, "label": labels}, features=datasets.Features(features))


def rated(path: Path, **source: Any) -> list[float]:
    """Return what the labels of single responses are read as, 0 (worst) to 1."""
    config = SourceConfig(name="s", path=str(path), **source)
    reader = row_reader(config, "key")
    rows = list(read(config, "key", lambda row, number: reader.rated(row, number)))
    return [row.rating_a.score for row in rows if row.rating_a is not None]


@pytest.mark.parametrize(
    ("names", "expected"), [(["pass", "fail"], [1.0, 0.0, 1.0]), (["fail", "pass"], [0.0, 1.0, 0.0])]
)
def test_a_file_of_single_responses_is_read_by_its_classes_names(
    names: list[str], expected: list[float], tmp_path: Path
) -> None:
    table = data_set(names, [0, 1, 0], query=["a", "b", "c"], response=["x", "y", "z"])
    table.to_parquet(tmp_path / "rows.parquet")
    assert rated(tmp_path / "rows.parquet") == expected
    assert rated(tmp_path, type="hub") == expected, "a folder is read as a data set of the Hub is"


def test_pairs_are_read_by_their_classes_names_also_in_python(tmp_path: Path) -> None:
    """-1 is how data sets hide a label."""
    pair = {"query": ["a", "b", "c", "d"], "response_a": ["x"] * 4, "response_b": ["y"] * 4}
    table = data_set(["B", "tie", "A"], [0, 1, 2, -1], **pair)
    expected = ["B", "tie", "A", None]
    table.to_parquet(tmp_path / "rows.parquet")
    source = SourceConfig(name="s", path=str(tmp_path / "rows.parquet"))
    assert [comparison.label for comparison in read_comparisons(source, "key", labelled=None)] == expected
    for rows in (table, table.with_format("numpy"), table.to_iterable_dataset()):
        found: list[Comparison] = comparisons_in(rows).items
        assert [comparison.label for comparison in found] == expected


def test_columns_of_plain_numbers_stay_numbers(tmp_path: Path) -> None:
    columns = {"query": ["a", "b"], "response": ["x", "y"], "label": [0, 1]}
    datasets.Dataset.from_dict(columns).to_parquet(tmp_path / "rows.parquet")
    assert rated(tmp_path / "rows.parquet") == [0.0, 1.0]
    several = datasets.Features(
        {
            "query": datasets.Value("string"),
            "response": datasets.Value("string"),
            "label": datasets.List(datasets.ClassLabel(names=["good", "poor"])),
        }
    )
    annotators = {**columns, "label": [[0, 0, 1], [1, 1]]}
    datasets.Dataset.from_dict(annotators, features=several).to_parquet(tmp_path / "several.parquet")
    assert rated(tmp_path / "several.parquet") == [pytest.approx(2 / 3), 0.0]
