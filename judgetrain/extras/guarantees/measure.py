"""How far each method can be relied on, out of an evaluation's predictions: no new inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate.hooks import Measured, Predicted
from judgetrain.evaluate.metrics.paired import drawn, part_of
from judgetrain.evaluate.metrics.rows import MethodKey
from judgetrain.extras.guarantees.config import GuaranteesConfig
from judgetrain.extras.guarantees.gate import gate_checks
from judgetrain.extras.guarantees.overlap import Overlap, overlaps
from judgetrain.extras.guarantees.selective import Selective, selective
from judgetrain.extras.guarantees.worth import worth
from judgetrain.judges.base import Prediction
from judgetrain.judges.kinds.baselines import BASELINES

CALIBRATION = "calibration"
"""The purpose that a share of the queries is drawn for."""
SHARE = 0.5
"""Of the queries, those that set thresholds where there is no development split: numbers of the others are as sure."""


@dataclass(frozen=True, kw_only=True)
class Guarantees:
    """How far a method can be relied on, a part of its row of ``metrics.json``.

    ``selective``: where it answers, with a guarantee; None where there is nothing to say it by. ``overlap``: how much
    of the benchmark it was trained on; None of what is no trained judge.
    """

    selective: Selective | None = None
    overlap: Overlap | None = None


def measure(found: Predicted) -> Measured:
    """The column of metrics, the gate's checks, whether training paid, and what is to be said of overlaps."""
    settings, section = found.settings.evaluate, found.settings.guarantees
    values = guarantees(found.dev, found.test, found.results, section, found.settings.seed)
    tested = [part_of(found.test, p) for p in found.results]
    methods, seed = found.settings.evaluated, found.settings.seed
    every = [*(found.dev.comparisons if found.dev else ()), *found.test.comparisons]
    seen, told = overlaps(methods, found.inputs, found.test.name, every)
    values = {key: replace(value, overlap=seen.get(key.method)) for key, value in values.items()}
    checks = gate_checks(found.test, methods, tested, found.chosen, section, settings.bootstrap, seed)
    paid = worth(found, tested)
    return Measured(values=values, records=[*checks, *([paid] if paid else []), *told])


def guarantees(
    dev: Benchmark | None, test: Benchmark, results: Sequence[Sequence[Prediction]], config: GuaranteesConfig, seed: int
) -> dict[MethodKey, Guarantees]:
    """Of every method but baselines, by its name and largest number of branches.

    Args:
        dev: the development split, which sets thresholds; None: a share of the test split does.
        test: what is reported.
        results: predictions of a method with one number of branches each, on both.
        config: ``guarantees``.
        seed: of the run.
    """
    whole = test if dev is None else test.part([*dev.comparisons, *test.comparisons], test.split)
    setting = {c.id for c in dev.comparisons} if dev else drawn(test, SHARE, CALIBRATION)
    calibrating = np.array([c.id in setting for c in whole.comparisons])
    methods: dict[str, list[Sequence[Prediction]]] = {}
    for predictions in sorted(results, key=lambda each: each[0].branches):
        methods.setdefault(predictions[0].method, []).append(predictions)
    found = {}
    for name, each in methods.items():
        if name in BASELINES:
            continue
        tiers = [part_of(whole, p) for p in each]
        found[MethodKey(name, each[-1][0].branches)] = Guarantees(
            selective=selective(whole, tiers, calibrating, config.agreement, seed)
        )
    return found
