"""``teacher.dry_run=true``: what the teacher is expected to cost; makes what comes before it, and asks it nothing."""

from __future__ import annotations

from judgetrain.artifacts import derive_seed, read_rows
from judgetrain.checks import check_stage
from judgetrain.dialogues.schema import Comparison
from judgetrain.errors import ConfigError
from judgetrain.pipeline import Pipeline
from judgetrain.tree.estimate import described
from judgetrain.tree.teach import divided


def show(pipeline: Pipeline) -> None:
    """Print the estimate for the pipeline's configuration.

    Raises:
        ConfigError: the response models are external ones and have not answered yet, which would cost.
    """
    config = pipeline.config
    check_stage(config, "teacher")
    if config.teacher.evaluations:
        pipeline.console.line("teacher: dry run: 0 calls, its evaluations are already written (teacher.evaluations)")
        return
    paid = [m.name for m in config.responses.models if m.type == "openai"]
    if paid and not pipeline.plan("responses").manifest:
        raise ConfigError(
            f"teacher.dry_run=true: stage responses is to be made first, which asks the external models "
            f"{', '.join(paid)}; run stage=responses, then this"
        )
    directory = pipeline.run("responses")
    comparisons = [Comparison.from_row(row) for row in read_rows(directory, "comparisons")]
    taught, remaining = divided(comparisons, config.teacher.comparisons, derive_seed(config.seed, "teacher"))
    pipeline.console.line(
        f"teacher: dry run for {config.teacher.engine.model.path or config.teacher.engine.type}: {len(taught)} "
        f"comparisons ({len(remaining)} remain for the tree), expected"
    )
    for line in described(config, taught):
        pipeline.console.line(line)
