"""``dry_run=true``: what the first stage of a run that asks a paid model is expected to cost.

What comes before that stage is made, and the model itself is asked nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

from judgetrain.engines.config import engines_in
from judgetrain.errors import ConfigError
from judgetrain.pipeline.graph import STAGES
from judgetrain.pipeline.run import Pipeline


def show(pipeline: Pipeline) -> None:
    """Print the estimate of the first stage to be made that asks a paid model.

    Raises:
        ConfigError: that stage asks one, and has no estimate.
    """
    wanted = pipeline.config.stage
    pipeline.check(wanted)
    missing = [*pipeline.missing(wanted)]
    for stage in missing:  # what is wrong with what a run would read is said before it costs
        STAGES[stage].check_here(pipeline.settings(stage))
    for stage in missing:
        settings, estimate = pipeline.plan(stage).settings, STAGES[stage].estimate
        paid = {engine.model_name: None for engine in engines_in(settings) if engine.paid}
        if not paid:
            continue
        if not estimate:
            raise ConfigError(
                f"dry_run=true: stage {stage} asks the external models {', '.join(paid)} first, and has no estimate; "
                f"run stage={stage}, then this"
            )
        for line in resolve_name(estimate)(settings, partial(_inputs, pipeline, stage)):
            pipeline.console.line(line)
        return
    pipeline.console.line(f"{wanted}: dry run: 0 calls, since no model that is paid for is asked")


def _inputs(pipeline: Pipeline, stage: str) -> Mapping[str, Path]:
    """Make what a stage needs; gives its directories."""
    return {name: pipeline.run(name) for name in STAGES[stage].inputs(pipeline.settings(stage))}
