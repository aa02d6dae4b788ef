"""What stage ``studies`` finds: models side by side by their discrepancies, beside verdicts and official scores.

The ProbDiff paper, sections 3.2 and 5.

Everything is JSON-ready: rows of ``studies.json``, of which ``report.py`` makes tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from judgetrain.data.cells import RowError
from judgetrain.data.config import SourceConfig
from judgetrain.data.sources import read
from judgetrain.errors import DataError
from judgetrain.evaluate.metrics import correlations
from judgetrain.extras.probdiff_studies.models import ALL, SelfEvaluated, groups_of
from judgetrain.scorers.probdiff import DELTA, Values, average, confidence, confidence_sweep

Row = dict[str, Any]
Verdicts = Mapping[str, int | None]
"""By prompt id: 1 where the revision is better, -1 worse, 0 unchanged in quality, None where there is no verdict."""
THRESHOLDS = (0.0, 0.05, 0.1)
"""Of win, tie and lose: discrepancies that differ by less are a tie."""


def compared(
    models: Mapping[str, SelfEvaluated], verdicts: Mapping[str, Verdicts], official: Mapping[str, Mapping[str, float]]
) -> Row:
    """All that follows from the models' discrepancies; the first model is the run's own, whom verdicts are about."""
    ids = list(next(iter(models.values())).d)
    d = {name: [model.d[i] for i in ids] for name, model in models.items()}
    own, grouped = next(iter(d.values())), list(by_group(models))
    return {
        "ranking": ranking(d),
        "sweep": {name: {f"{k:g}": v for k, v in confidence_sweep(values).items()} for name, values in d.items()},
        "outcomes": [
            {"first": a, "second": b, "threshold": t, **win_tie_lose(d[a], d[b], t)}
            for a, b in combinations(d, 2)
            for t in THRESHOLDS
        ],
        "conflicts": {name: conflict(own, [found.get(i) for i in ids]) for name, found in verdicts.items()},
        "kappas": kappas(verdicts),
        "by_group": grouped,
        "official": list(beside_official(grouped, official)),
    }


def win_tie_lose(first: Values, second: Values, threshold: float = 0.0) -> Row:
    """Two models item by item (section 3.2): the higher d wins, a tie where they differ by at most ``threshold``.

    Shares of the ``n`` items that both have a d for; None without any.
    """
    differences = np.array([a - b for a, b in zip(first, second, strict=True) if a is not None and b is not None])
    sides = {"win": differences > threshold, "tie": np.abs(differences) <= threshold, "lose": differences < -threshold}
    n = len(differences)
    return {**{side: float(found.mean()) if n else None for side, found in sides.items()}, "n": n}


def ranking(models: Mapping[str, Values]) -> list[Row]:
    """Models from best to worst, by confidence; equal models share the better place."""
    rows: list[Row] = [
        {"model": name, "confidence": share, "mean": average(d), "n": sum(x is not None for x in d)}
        for name, d in models.items()
        if (share := confidence(d)) is not None
    ]
    placed = [{"place": 1 + sum(other["confidence"] > row["confidence"] for other in rows), **row} for row in rows]
    return sorted(placed, key=lambda row: (row["place"], row["model"]))


def by_group(models: Mapping[str, SelfEvaluated]) -> Iterator[Row]:
    """Each model's confidence over the ``n`` prompts of a group that have a d, at the paper's thresholds."""
    first = next(iter(models.values()))
    for group, ids in groups_of(first.d, first.categories).items():
        for name, model in models.items():
            d = [model.d[i] for i in ids]
            n = sum(x is not None for x in d)
            for delta, share in confidence_sweep(d).items():
                yield {"model": name, "group": group, "delta": delta, "n": n, "confidence": share}


def beside_official(grouped: Sequence[Row], official: Mapping[str, Mapping[str, float]]) -> Iterator[Row]:
    """How the order of models by confidence goes with that of each official score (table 4).

    Over the prompts of the group that has the score's name; where none has, over all of them.
    """
    for name, given in official.items():
        group = name if any(row["group"] == name for row in grouped) else ALL
        here = [row for row in grouped if (row["group"], row["delta"]) == (group, DELTA)]
        both = [
            (r["confidence"], given[r["model"]]) for r in here if r["model"] in given and r["confidence"] is not None
        ]
        found = correlations(*zip(*both, strict=True)) if both else {}
        ranks = {kind: found.get(kind) for kind in ("kendall", "spearman")}
        yield {"score": name, "prompts": group, "models": len(both), **ranks}


def conflict(d: Values, verdicts: Sequence[int | None]) -> Row:
    """``degree``: share of items in which ProbDiff and an external verdict contradict each other (5.2, table 6).

    d > 0 contradicts -1, d < 0 contradicts 1; 0 contradicts nothing. Over the ``n`` items that have both; ``without``:
    those that have d but no verdict.
    """
    known = [(x, v) for x, v in zip(d, verdicts, strict=True) if x is not None]
    opposed = [x * v < 0 for x, v in known if v is not None]
    return {"degree": average(opposed), "n": len(opposed), "without": len(known) - len(opposed)}


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


def kappas(verdicts: Mapping[str, Verdicts]) -> list[Row]:
    """Cohen's kappa ``of`` each two that gave verdicts, over the prompts that both have (section 5.2).

    None where it is not defined: no prompt in common, or one verdict throughout.
    """
    from sklearn.metrics import cohen_kappa_score

    result = []
    for (one, first), (two, second) in combinations(verdicts.items(), 2):
        pairs = [(v, w) for i, v in first.items() if v is not None and (w := second.get(i)) is not None]
        defined = len({value for pair in pairs for value in pair}) > 1
        kappa = float(cohen_kappa_score(*zip(*pairs, strict=True))) if defined else None
        result.append({"of": [one, two], "kappa": kappa})
    return result
