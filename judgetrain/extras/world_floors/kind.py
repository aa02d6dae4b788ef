"""The kinds ``floor:NAME`` and ``ceiling:NAME``: rules that judge nothing, and readers who know what counts."""

from judgetrain.judges.kinds.kind import Forms, Kind, later

_ROOM = __name__.rpartition(".")[0]

FLOOR = Kind(
    name="floor",
    forms=Forms(evaluate="floor:NAME"),
    ask=None,
    check=later(f"{_ROOM}.methods:check_method"),
    run=later(f"{_ROOM}.methods:run"),
)
CEILING = Kind(
    name="ceiling",
    forms=Forms(evaluate="ceiling:NAME"),
    published=True,
    ask=None,
    check=later(f"{_ROOM}.methods:check_method"),
    run=later(f"{_ROOM}.methods:run"),
)
