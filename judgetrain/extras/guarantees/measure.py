"""How far each method can be relied on, out of an evaluation's predictions: no new inference."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.evaluate.hooks import Measured, Predicted
from judgetrain.evaluate.metrics.paired import part_of
from judgetrain.evaluate.metrics.rows import MethodKey
from judgetrain.extras.guarantees.gate import gate_checks
from judgetrain.extras.guarantees.overlap import Overlap, overlaps
from judgetrain.extras.guarantees.worth import worth


@dataclass(frozen=True, kw_only=True)
class Guarantees:
    """A part of a trained judge's row of ``metrics.json``: how much of the benchmark it was trained on."""

    overlap: Overlap


def measure(found: Predicted) -> Measured:
    """The column of metrics, the gate's checks, whether training paid, and what is to be said of overlaps."""
    settings, section = found.settings.evaluate, found.settings.guarantees
    tested = [part_of(found.test, p) for p in found.results]
    methods, seed = found.settings.evaluated, found.settings.seed
    every = [*(found.dev.comparisons if found.dev else ()), *found.test.comparisons]
    seen, told = overlaps(methods, found.inputs, found.test.name, every)
    most = {each[0].method: each[0].branches for each in sorted(found.results, key=lambda each: each[0].branches)}
    values = {
        MethodKey(name, most[name]): Guarantees(overlap=overlap) for name, overlap in seen.items() if name in most
    }
    checks = gate_checks(found.test, methods, tested, found.chosen, section, settings.bootstrap, seed)
    paid = worth(found, tested)
    return Measured(values=values, records=[*checks, *([paid] if paid else []), *told])
