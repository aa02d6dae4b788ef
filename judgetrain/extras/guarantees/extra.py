"""What can be relied on, as an extra of stage evaluate."""

from judgetrain.evaluate.hooks import EvaluationExtra

_ROOM = __name__.rpartition(".")[0]

EXTRA = EvaluationExtra(
    name="guarantees",
    check=f"{_ROOM}.gate:check_gate",
    check_here=f"{_ROOM}.gate:check_gate_here",
    measure=f"{_ROOM}.worth:measure",
    measure_responses=f"{_ROOM}.gate:checks_of_responses",
    sections=f"{_ROOM}.sections:sections",
    write=f"{_ROOM}.worth:write",
    finished=f"{_ROOM}.gate:require_passed",
)
