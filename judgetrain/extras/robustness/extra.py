"""Attacks, as an extra of stage evaluate."""

from judgetrain.evaluate.hooks import EvaluationExtra

_ROOM = __name__.rpartition(".")[0]

EXTRA = EvaluationExtra(
    name="robustness",
    active=lambda section: section.sample > 0,
    check=f"{_ROOM}.attack_suite:check",
    benchmarks=f"{_ROOM}.attack_suite:attacked_benchmarks",
    measure=f"{_ROOM}.measure:measure",
    column=f"{_ROOM}.measure:Attacks",
    sections=f"{_ROOM}.sections:sections",
)
