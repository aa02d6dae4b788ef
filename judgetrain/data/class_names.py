"""The names of classes that a data set keeps as numbers, as ``datasets.ClassLabel`` does.

Which number a class has is the data set's affair: 0 is a pass where its names are ``[pass, fail]``.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = -1
"""The number by which data sets say that a row's class is not told."""

Names = Mapping[str, Sequence[str]]
"""The names of classes in the order of their numbers, by column."""


def names_in_features(features: Any) -> Names:
    """Return the names of the classes in the columns of a data set; ``features`` are its own, or None."""
    names = {}
    for column, column_feature in dict(features or {}).items():
        # Of a list of classes, what it is a list of.
        feature: Any = getattr(column_feature, "feature", column_feature)
        # The library need not be imported to know one of its classes.
        if type(feature).__name__ == "ClassLabel":
            names[column] = list(feature.names)
    return names


def names_in_metadata(metadata: Mapping[bytes, bytes] | None) -> Names:
    """Return the names of the classes in the columns of a Parquet file that ``datasets`` wrote, by its metadata."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        names = {}
        for column, feature in features.items():
            feature = feature.get("feature", feature)
            if feature.get("_type") == "ClassLabel":
                names[column] = [str(name) for name in feature["names"]]
    except (KeyError, TypeError, ValueError, AttributeError):
        # Whatever else stands there, the file holds rows all the same.
        return {}
    return names


def with_class_names(row: Mapping[str, Any], names: Names) -> Mapping[str, Any]:
    """Return a row with the classes' names in the place of their numbers; None where a class is not told."""
    if not names:
        return row
    cells = dict(row)
    for column, of_column in names.items():
        if column in cells:
            cells[column] = _named(cells[column], of_column)
    return cells


def _named(cell: Any, names: Sequence[str]) -> Any:
    """Return the name of a class, or those of a list of classes; anything that is no number comes back as it is."""
    if isinstance(cell, (list, tuple)):
        return [_named(value, names) for value in cell]
    # NumPy's integers, as data sets in its format give, are no integers of Python.
    if isinstance(cell, (bool, str)) or not hasattr(cell, "__index__"):
        return cell
    number = int(cell)
    if number == HIDDEN:
        return None
    if 0 <= number < len(names):
        return names[number]
    return cell
