"""What can be relied on, as an extra of stage evaluate."""

from judgetrain.evaluate.hooks import EvaluationExtra

_ROOM = __name__.rpartition(".")[0]

EXTRA = EvaluationExtra(
    name="guarantees",
    check=f"{_ROOM}.gate:check_gate",
    check_here=f"{_ROOM}.release:check_release",
    measure=f"{_ROOM}.measure:measure",
    column=f"{_ROOM}.measure:Guarantees",
    sections=f"{_ROOM}.sections:sections",
    write=f"{_ROOM}.worth:write",
    finished=f"{_ROOM}.gate:require_passed",
)
