"""The kinds ``floor:NAME``, ``fitted_floor:NAME`` and ``ceiling:NAME``: rules that judge nothing, and readers.

Those that are fitted to labels and those that know what counts read every sentence rightly, which nobody could have
without training: what training gains is reckoned against ``floor:NAME`` alone, which needs no label, as the judge.
"""

from judgetrain.judges.kinds.kind import Forms, Kind, later

_ROOM = __name__.rpartition(".")[0]


def _rules(name: str, published: bool) -> Kind:
    return Kind(
        name=name,
        forms=Forms(evaluate=f"{name}:NAME"),
        published=published,
        # They cost nothing, so that nothing is kept.
        ask=None,
        check=later(f"{_ROOM}.methods:check_method"),
        run=later(f"{_ROOM}.methods:run"),
    )


FLOOR = _rules("floor", published=False)
FITTED_FLOOR = _rules("fitted_floor", published=True)
CEILING = _rules("ceiling", published=True)
