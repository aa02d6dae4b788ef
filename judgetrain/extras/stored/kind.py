"""The kind ``stored:NAME``: verdicts that are read from a file, published predictions among them."""

from judgetrain.judges.kinds.kind import Forms, Kind, later

_ROOM = __name__.rpartition(".")[0]

# Without ``build``: there is no judge that could be asked about other comparisons.
KIND = Kind(
    name="stored",
    forms=Forms(evaluate="stored:NAME"),
    published=True,
    check=later(f"{_ROOM}.verdicts:check_method"),
    run=later(f"{_ROOM}.verdicts:run"),
)
