"""The kind ``systemone:URL``: a decision model that answers typed questions with probabilities."""

from judgetrain.judges.kinds.kind import Forms, Kind, later

_ROOM = __name__.rpartition(".")[0]

KIND = Kind(
    name="systemone",
    forms=Forms(evaluate="systemone:URL"),
    check=later(f"{_ROOM}.judge:check"),
    scores=lambda settings, method: True,
    build=later(f"{_ROOM}.judge:build"),
)
