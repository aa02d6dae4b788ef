"""Find comparisons that were judged more than once: again by one judge, or by several."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from judgetrain.data.cells import id_text, name_text
from judgetrain.data.prompt_keys import PromptKey

NO_KEY = 0
"""The key of rows that carry no id: nothing tells whether two of them are one comparison."""


def key_of(row: Mapping[str, Any], prompt: PromptKey | None) -> int:
    """Return a 64-bit key of the comparison that a row is about, whoever judged it; :data:`NO_KEY` without an id.

    Files of different data may give their rows the same ids, so that the prompt, the systems and the responses are part
    of the key.
    """
    if row.get("id") is None:
        return NO_KEY
    parts = [id_text(row["id"]), repr(prompt)]
    parts += [name_text(row.get(column)) for column in ("model_a", "model_b")]
    # As Python writes them: a missing text and the text "None" must not be the same key.
    parts += [repr(row.get(column)) for column in ("response_a", "response_b")]
    # 64 bits: among a million comparisons two share a key by chance once in some 37 million files.
    digest = blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    # A digest of 0 would be taken for a row without an id.
    return int.from_bytes(digest, "big") or 1


@dataclass(frozen=True)
class CountedRows:
    """The rows that count, and what the others were.

    Args:
        kept: whether each row counts [rows]: of one judge's verdicts on a comparison the last that is one.
        repeated: number of rows that a later verdict of the same judge replaces.
        changed: number of comparisons whose verdicts by one judge differ.
        shared: number of comparisons that several judges gave a verdict on.
        agreed: number of those on which all of them say the same.
    """

    kept: NDArray[np.bool_]
    repeated: int
    changed: int
    shared: int
    agreed: int


def repeats_of(
    keys: NDArray[np.uint64], judges: NDArray[np.intp], outcomes: NDArray[np.intp], counts: NDArray[np.bool_]
) -> CountedRows:
    """Return which rows count.

    Args:
        keys: of the comparisons [rows].
        judges: the number of each row's judge [rows].
        outcomes: the number of each row's outcome [rows].
        counts: whether the outcome is a verdict [rows].
    """
    # What cannot be told to be a repetition counts.
    kept = keys == NO_KEY
    named = np.flatnonzero(~kept)
    # By comparison and judge; in a group verdicts come after what could not be read, and then by place.
    order = named[np.lexsort((named, counts[named], judges[named], keys[named]))]
    last_of_group = np.ones(len(order), dtype=bool)
    last_of_group[:-1] = (keys[order[1:]] != keys[order[:-1]]) | (judges[order[1:]] != judges[order[:-1]])
    kept[order[last_of_group]] = True

    # How many groups ended before each row: the row that ends a group still belongs to it.
    group = np.cumsum(last_of_group) - last_of_group
    changed = _groups_that_differ(group[counts[order]], outcomes[order][counts[order]])

    # One row for each comparison and judge that has a verdict: where a comparison has several, several judges gave one.
    verdicts = order[last_of_group & counts[order]]
    _, comparison, sizes = np.unique(keys[verdicts], return_inverse=True, return_counts=True)
    several = sizes[comparison] > 1
    shared = int((sizes > 1).sum())
    differing = _groups_that_differ(comparison[several], outcomes[verdicts][several])
    return CountedRows(kept, int(len(order) - last_of_group.sum()), changed, shared, shared - differing)


def _groups_that_differ(groups: NDArray[np.intp], values: NDArray[np.intp]) -> int:
    """Return how many groups [rows] hold more than one of the values [rows]."""
    # Each value of a group once: a group that differs then has two rows at least.
    pairs = np.unique(np.column_stack([groups, values]), axis=0)
    _, distinct_values = np.unique(pairs[:, 0], return_counts=True)
    return int((distinct_values > 1).sum())
