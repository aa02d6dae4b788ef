"""The settings of stages rubric and stress."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.engines.config import AnyEngine, LimitsConfig, SamplingConfig, engine_key, model_content
from judgetrain.judges.method import method_directory
from judgetrain.keys import beside, key

LABELS = "labels"
"""In ``stress.truth``: the rows' own labels say what a response is worth."""
WORLD = "world"
"""In ``stress.truth``: the generated world's hidden rule does."""


@dataclass
class RubricConfig:
    """Stage rubric: the criteria that decide, by kind of query."""

    files: list[str] = key(
        [],
        "files or globs of what is judged by criteria: verdicts of stage judge, or evaluations (docs/dialogues.md); "
        "empty: the verdicts of verdicts.judge, or without one this run's trees and the labels that stage label knows",
        content=beside(lambda path, owner: path),
    )
    kinds: int | None = key(
        None, "kinds of query; None: as many as foresee held-out labels, or judgments, best", low=1, high=32
    )
    encoder: str | None = key(
        None,
        "sentence encoder by which wordings that say the same are one criterion, as cluster.encoder names one; None: "
        "only criteria of nearly the same words are",
        content=beside(lambda encoder, owner: model_content(encoder.removeprefix("static:")) if encoder else None),
        active_if=lambda config: config.encoder is not None,
    )
    most: int = key(6, "criteria of a kind at most", low=1, high=20)
    queries: int = key(40, "typical queries of each kind, by which the kind of another query is found", low=3)


@dataclass
class StressConfig(LimitsConfig):
    """Stage stress: how far responses gain under a rubric without being better."""

    truth: str = key(
        LABELS,
        "who says what a response is worth: labels (of the rows), world (its hidden rule), or another judge, by its "
        "own criteria or by none (./other-judge@3, pointwise:external)",
        content=beside(lambda truth, owner: None if truth in (LABELS, WORLD) else method_directory(truth)),
    )
    writer: AnyEngine = engine_key(
        None, "who answers each prompt; None: the rows' own responses, or the generated world's writers"
    )
    samples: int = key(16, "responses to a prompt that are written", low=2, high=64)
    sampling: SamplingConfig = key(
        SamplingConfig(1.0, 1.0, 512), "of the responses that are written", active_if=lambda c: c.writer is not None
    )
    shard_size: int = key(16, "prompts finished together; the unit of resume", low=1)
