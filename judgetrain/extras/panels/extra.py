"""What the members of cascades and juries cost and say, as an extra of stage evaluate."""

from judgetrain.evaluate.hooks import EvaluationExtra

_ROOM = __name__.rpartition(".")[0]

EXTRA = EvaluationExtra(
    name="panels",
    measure=f"{_ROOM}.measure:measure",
    measure_responses=f"{_ROOM}.measure:measure_responses",
    sections=f"{_ROOM}.measure:sections",
    write=f"{_ROOM}.measure:write",
)
