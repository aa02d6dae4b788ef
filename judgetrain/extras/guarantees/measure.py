"""How far judges can be relied on, out of an evaluation's predictions: no new inference."""

from __future__ import annotations

from judgetrain.evaluate.hooks import Measured, Predicted
from judgetrain.evaluate.metrics.paired import part_of
from judgetrain.extras.guarantees.gate import gate_checks
from judgetrain.extras.guarantees.worth import worth


def measure(found: Predicted) -> Measured:
    """The gate's checks, and whether training paid."""
    settings, required = found.settings, found.settings.guarantees.required
    tested = [part_of(found.test, p) for p in found.results]
    resamples = settings.evaluate.bootstrap
    checks = gate_checks(found.test, settings.evaluated, tested, required, resamples, settings.seed)
    paid = worth(found, tested)
    return Measured(records=[*checks, *([paid] if paid else [])])
