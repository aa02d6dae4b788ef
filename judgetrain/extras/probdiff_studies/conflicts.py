"""External verdicts on revisions, for ProbDiff's conflict degree (ProbDiff paper, section 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from judgetrain.data.config import SourceConfig
from judgetrain.data.rows import RowError
from judgetrain.data.sources import read
from judgetrain.errors import DataError

Verdicts = Mapping[str, int | None]
"""By prompt id: 1 where the revision is better, -1 worse, 0 unchanged in quality, None where there is no verdict."""


def read_verdicts(path: str, key: str, ids: Mapping[str, Any] | None = None) -> dict[str, dict[str, int]]:
    """Verdicts of people or another judge: rows ``id``, ``verdict`` (1, 0 or -1) and maybe ``annotator``.

    By annotator, ``file`` where rows name none. ``ids`` are those of the run's prompts; None: they are not known yet,
    and any will do.

    Raises:
        DataError: a malformed row, or one about no prompt of the run; names file and line.
    """

    def take(row: Any, number: int) -> tuple[str, str, int]:
        if not isinstance(row, Mapping) or "id" not in row or row.get("verdict") not in (1, 0, -1):
            raise RowError("wrong_verdict", "expected an object with id and verdict, which is 1, 0 or -1")
        if ids is not None and str(row["id"]) not in ids:
            raise RowError(
                "unknown_id", f"no prompt of this run has the id {row['id']!r}: ids are those of scores.jsonl"
            )
        return str(row.get("annotator") or "file"), str(row["id"]), int(row["verdict"])

    found: dict[str, dict[str, int]] = {}
    for who, i, given in read(SourceConfig(name=key, path=path), key, take):
        if i in found.setdefault(who, {}):
            raise DataError(f"{path}: id {i!r} has several verdicts of {who}; name each one's annotator, or give one")
        found[who][i] = given
    return found


def kappas(verdicts: Mapping[str, Verdicts]) -> dict[tuple[str, str], float | None]:
    """Cohen's kappa of each two that gave verdicts, over the prompts that both have (section 5.2).

    None where it is not defined: no prompt in common, or one verdict throughout.
    """
    from sklearn.metrics import cohen_kappa_score

    result: dict[tuple[str, str], float | None] = {}
    for (one, first), (two, second) in combinations(verdicts.items(), 2):
        pairs = [(v, w) for i, v in first.items() if v is not None and (w := second.get(i)) is not None]
        defined = len({value for pair in pairs for value in pair}) > 1
        result[one, two] = float(cohen_kappa_score(*zip(*pairs, strict=True))) if defined else None
    return result
