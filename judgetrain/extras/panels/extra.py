"""What the members of cascades and juries cost and say, as an extra of stage evaluate."""

from judgetrain.evaluate.hooks import EvaluationExtra

_ROOM = __name__.rpartition(".")[0]

# As text: the module is imported when the hook is called, and the command line lists extras without it.
EXTRA = EvaluationExtra(
    name="panels",
    measure=f"{_ROOM}.measure:measure",
    measure_responses=f"{_ROOM}.measure:measure_responses",
    sections=f"{_ROOM}.measure:sections",
    write=f"{_ROOM}.measure:write",
)
