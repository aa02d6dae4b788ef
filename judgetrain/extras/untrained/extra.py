"""Methods that learn from labelled pairs without training, as an extra of stage evaluate."""

from judgetrain.artifacts.stages import at
from judgetrain.evaluate.hooks import EvaluationExtra

_ROOM = __name__.rpartition(".")[0]

EXTRA = EvaluationExtra(
    name="untrained",
    settings=at("cluster", only=("encoder",), active_if=lambda s: any(m.kind == "fewshot" for m in s.evaluated)),
    runners={"rubric": f"{_ROOM}.runners:RUBRIC", "fewshot": f"{_ROOM}.runners:FEWSHOT"},
    asked_as={"rubric": "{}+one", "fewshot": "pairwise:{}"},
)
