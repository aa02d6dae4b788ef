"""Reading the results of a finished stage ``selfeval``: for studies, comparisons and rankings of models."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from judgetrain.artifacts.integrity import MANIFEST, checked
from judgetrain.artifacts.shards import read_rows
from judgetrain.errors import DataError


@dataclass(frozen=True)
class SelfEvaluated:
    """One model over its prompts; every mapping is by prompt id, in the stage's order.

    ``d``: ProbDiff's discrepancy, None where there is none. ``length_ratios``: revised length / length in tokens.
    ``answers`` and ``revisions`` (of the first chain that gave one; only prompts with a discrepancy): texts.
    """

    model: str
    d: Mapping[str, float | None]
    length_ratios: Mapping[str, float | None]
    answers: Mapping[str, str]
    revisions: Mapping[str, str]

    def only(self, ids: Set[str]) -> SelfEvaluated:
        """The same of some prompts."""
        chosen: dict[str, Any] = {
            name: {i: v for i, v in part.items() if i in ids} for name, part in vars(self).items() if name != "model"
        }
        return replace(self, **chosen)


def read_selfeval(directory: str | Path) -> SelfEvaluated:
    """A finished stage selfeval with ProbDiff among its methods.

    Raises:
        DataError: the directory holds no finished selfeval, or none with ProbDiff.
    """
    directory = Path(directory).expanduser()
    manifest = checked(directory)
    if manifest is None:
        raise DataError(f"{directory}: holds no finished stage selfeval (no {MANIFEST}); run stage=selfeval")
    scores = list(read_rows(directory, "scores"))
    if not all("probdiff" in row["scores"] for row in scores):
        raise DataError(f"{directory} holds no ProbDiff scores: put probdiff into selfeval.methods")
    ids = [row["id"] for row in scores]
    revised = list(read_rows(directory, "scores-probdiff"))
    values = [row["scores"]["probdiff"] for row in scores]
    d = [None if isinstance(value, str) else float(value) for value in values]
    return SelfEvaluated(
        manifest["config"]["scorer"]["model"]["path"] or manifest["config"]["train.base"]["path"],
        dict(zip(ids, d, strict=True)),
        {i: row["length_ratio"] for i, row in zip(ids, revised, strict=True)},
        {row["id"]: row["response"] for row in scores},
        {i: row["revisions"][0] for i, row in zip(ids, revised, strict=True) if "revisions" in row},
    )
