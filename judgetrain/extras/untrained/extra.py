"""What one would do without training, as an extra of stage evaluate."""

from judgetrain.artifacts.stages import at
from judgetrain.evaluate.hooks import EvaluationExtra

# Examples are found by the encoder that stage cluster uses; no other method reads it.
EXTRA = EvaluationExtra(
    name="untrained",
    settings=at("cluster", only=("encoder",), active_if=lambda s: any(m.kind == "fewshot" for m in s.evaluated)),
)
