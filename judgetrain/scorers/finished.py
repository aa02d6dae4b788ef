"""Reading the results of a finished stage ``selfeval``: for studies, comparisons and rankings of models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from judgetrain.artifacts.integrity import MANIFEST, checked
from judgetrain.artifacts.shards import read_rows
from judgetrain.errors import DataError


@dataclass(frozen=True)
class SelfEvaluated:
    """One model over its prompts; every mapping is by prompt id, in the stage's order.

    ``d``: ProbDiff's discrepancy, None where there is none. ``length_ratios``: revised length / length in tokens.
    ``answers`` and ``revisions`` (only of prompts with a discrepancy): texts.
    ``categories``: the prompts'. ``settings``: what stage selfeval was made with.
    """

    model: str
    d: Mapping[str, float | None]
    length_ratios: Mapping[str, float | None]
    answers: Mapping[str, str]
    revisions: Mapping[str, str]
    categories: Mapping[str, str | None] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def only(self, ids: Set[str]) -> SelfEvaluated:
        """The same of some prompts."""
        by_prompt = {name: part for name, part in vars(self).items() if name not in ("model", "settings")}
        chosen: dict[str, Any] = {n: {i: v for i, v in part.items() if i in ids} for n, part in by_prompt.items()}
        return replace(self, **chosen)


def has_probdiff(directory: Path) -> bool:
    """Whether a directory holds a finished stage selfeval with ProbDiff among its methods."""
    return checked(directory) is not None and any(directory.glob("scores-probdiff-*.jsonl"))


def read_selfeval(directory: str | Path) -> SelfEvaluated:
    """A finished stage selfeval with ProbDiff among its methods.

    Raises:
        DataError: the directory holds no finished selfeval, or none with ProbDiff.
    """
    directory = Path(directory).expanduser()
    made = _made(directory)
    scores = list(read_rows(directory, "scores"))
    if not all("probdiff" in row["scores"] for row in scores):
        raise DataError(f"{directory} holds no ProbDiff scores: put probdiff into selfeval.methods")
    ids = [row["id"] for row in scores]
    revised = list(read_rows(directory, "scores-probdiff"))
    values = [row["scores"]["probdiff"] for row in scores]
    d = [None if isinstance(value, str) else float(value) for value in values]
    return SelfEvaluated(
        model_of(made),
        dict(zip(ids, d, strict=True)),
        {i: row["length_ratio"] for i, row in zip(ids, revised, strict=True)},
        {row["id"]: row["response"] for row in scores},
        {i: row["revision"] for i, row in zip(ids, revised, strict=True) if "revision" in row},
        {row["id"]: row.get("category") for row in scores},
        made,
    )


@dataclass(frozen=True)
class Finished:
    """A finished stage selfeval: its model, its rows of answers and of scores, and by score 1 or -1: what is better."""

    model: str
    responses: list[dict[str, Any]]
    scores: list[dict[str, Any]]
    better: Mapping[str, int]


def read_finished(directory: str | Path) -> Finished:
    """A finished stage selfeval, whatever its scores.

    Raises:
        DataError: the directory holds none.
    """
    directory = Path(directory).expanduser()
    model = model_of(_made(directory))
    metrics = json.loads((directory / "metrics.json").read_text(encoding="utf-8"))
    responses, scores = (list(read_rows(directory, name)) for name in ("responses", "scores"))
    return Finished(model, responses, scores, {row["method"]: row["better"] for row in metrics})


def _made(directory: Path) -> dict[str, Any]:
    """The settings of a finished stage selfeval."""
    manifest = checked(directory)
    if manifest is None:
        raise DataError(f"{directory}: holds no finished stage selfeval (no {MANIFEST}); run stage=selfeval")
    found: dict[str, Any] = manifest["config"]
    return found


def model_of(settings: Mapping[str, Any]) -> str:
    """The path of the model that a stage selfeval with these settings looked at."""
    found: str = settings["scorer"]["model"]["path"] or settings["train.base"]["path"]
    return found
