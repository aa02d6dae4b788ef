"""The kinds ``floor:NAME``, ``fitted_floor:NAME`` and ``ceiling:NAME``: rules that judge nothing, and readers.

Those that are fitted to labels and those that know what counts read every sentence rightly, which nobody could have
without training: what training gains is reckoned against ``floor:NAME`` alone, which needs no label, as the judge.
"""

from judgetrain.judges.kinds.kind import Forms, Kind, later

_ROOM = __name__.rpartition(".")[0]

FLOOR = Kind(
    name="floor",
    forms=Forms(evaluate="floor:NAME"),
    ask=None,
    check=later(f"{_ROOM}.methods:check_method"),
    run=later(f"{_ROOM}.methods:run"),
)
FITTED_FLOOR = Kind(
    name="fitted_floor",
    forms=Forms(evaluate="fitted_floor:NAME"),
    published=True,
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
