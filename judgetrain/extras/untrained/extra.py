"""What one would do without training, as an extra of stage evaluate."""

from judgetrain.artifacts.stages import at
from judgetrain.evaluate.hooks import EvaluationExtra

_ROOM = __name__.rpartition(".")[0]

EXTRA = EvaluationExtra(
    name="untrained",
    settings=at("cluster", only=("encoder",), active_if=lambda s: any(m.kind == "fewshot" for m in s.evaluated)),
    runners={kind: f"{_ROOM}.runners:{kind.upper()}" for kind in ("prompted", "rubric", "fewshot")}
    | {"scorer": f"{_ROOM}.scorers:RUNNER"},
    asked_as={"prompted": "{}+sampled+one", "rubric": "{}+one", "fewshot": "pairwise:{}"},
)
