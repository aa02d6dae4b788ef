"""The kind ``reward:DIR``: a scalar reward model, which reads one response at a time."""

from judgetrain.judges.kinds.kind import Forms, Kind, Target, later

_ROOM = __name__.rpartition(".")[0]

KIND = Kind(
    name="reward",
    forms=Forms(evaluate="reward:DIR"),
    target=Target(files=True),
    check=later(f"{_ROOM}.judge:check"),
    build=later(f"{_ROOM}.judge:build"),
)
