"""The kind ``world:NAME``: rules that judge nothing, and perfect readers, on the generated world."""

from judgetrain.judges.kinds.kind import Forms, Kind, later

_ROOM = __name__.rpartition(".")[0]

KIND = Kind(
    name="world",
    forms=Forms(evaluate="world:NAME"),
    ask=None,
    check=later(f"{_ROOM}.methods:check_method"),
    run=later(f"{_ROOM}.methods:run"),
)
