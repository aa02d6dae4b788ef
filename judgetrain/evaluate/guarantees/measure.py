"""How far each method can be relied on, out of an evaluation's predictions: no new inference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.guarantees.annotators import replacement
from judgetrain.evaluate.guarantees.cascade import selective
from judgetrain.evaluate.guarantees.corrected import corrected
from judgetrain.evaluate.guarantees.record import Guarantees
from judgetrain.evaluate.metrics.choose import drawn, part_of
from judgetrain.evaluate.metrics.rows import MethodKey
from judgetrain.judges.base import Prediction
from judgetrain.judges.kinds.baselines import BASELINES
from judgetrain.judges.method import Method

CALIBRATION = "calibration"
"""The purpose that a share of the queries is drawn for."""


def guarantees(
    dev: Benchmark | None, test: Benchmark, results: Sequence[Sequence[Prediction]], settings: EvaluateConfig, seed: int
) -> dict[MethodKey, Guarantees]:
    """Of every method but baselines, by its name and largest number of branches.

    Args:
        dev: the development split, which sets thresholds; None: a share of the test split does.
        test: what is reported.
        results: predictions of a method with one number of branches each, on both.
        settings: of the stage.
        seed: of the run.
    """
    whole = test if dev is None else test.part([*dev.comparisons, *test.comparisons], test.split)
    setting = {c.id for c in dev.comparisons} if dev else drawn(test, settings.selective.calibration, CALIBRATION)
    calibrating = np.array([c.id in setting for c in whole.comparisons])
    methods: dict[str, list[Sequence[Prediction]]] = {}
    for predictions in sorted(results, key=lambda each: each[0].branches):
        methods.setdefault(predictions[0].method, []).append(predictions)
    last = {name: tiers[-1] for name, tiers in methods.items()}
    proxy, then = (last.get(name) for name in (settings.corrected.proxy, settings.selective.then))
    first = methods.get(settings.selective.first, [None])[0]
    found = {}
    for name, each in methods.items():
        if name in BASELINES:
            continue
        before = [first] if first is not None and first is not each[0] else []
        tiers = [*before, *each, *([then] if then is not None and then is not last[name] else [])]
        mine = part_of(test, each[-1])
        stand_in = part_of(test, proxy) if proxy is not None and proxy is not last[name] else None
        bootstrap = settings.bootstrap
        found[MethodKey(name, each[-1][0].branches)] = Guarantees(
            selective=selective(
                whole, [part_of(whole, p) for p in tiers], calibrating, settings.selective, bootstrap, seed, name
            ),
            corrected=corrected(test, mine, stand_in, settings.corrected, seed),
            annotators=replacement(test, mine, settings.annotators),
        )
    return found


def check_guarantees(settings: EvaluateConfig) -> None:
    """Check the methods that ``evaluate.selective`` and ``.corrected`` name.

    Raises:
        ConfigError: one of them is not evaluated; lists those that are.
    """
    names = [Method.parse(text).name for text in settings.methods]
    selective = settings.selective
    if selective.first in BASELINES or Method.parse(selective.first).kind == "one_step":
        raise ConfigError(f"evaluate.selective.first={selective.first!r}: it does not say how sure it is")
    if selective.first and selective.first == selective.then:
        raise ConfigError(f"evaluate.selective.first={selective.first!r}: it is asked last, too (selective.then)")
    asked = {"selective.first": selective.first, "selective.then": selective.then}
    for key, name in (asked | {"corrected.proxy": settings.corrected.proxy}).items():
        if name and name not in names:
            raise ConfigError(f"evaluate.{key}={name!r}: is not evaluated; evaluate.methods has {', '.join(names)}")
