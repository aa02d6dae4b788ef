"""``dry_run=true`` of ``teacher``, ``label.external`` and ``evaluate``: what a paid model is expected to cost.

What comes before the model's stage is made, and the model itself is asked nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.config import EngineConfig, OpenAIEngineConfig
from judgetrain.engines.cost_estimate import Costs, described
from judgetrain.engines.openai.address import Address
from judgetrain.errors import ConfigError
from judgetrain.evaluate.estimate import rehearsed
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.label.estimate import estimate, estimate_external
from judgetrain.label.external import cases_of, load_external_prompts
from judgetrain.label.teacher_stage import divided
from judgetrain.pipeline.graph import STAGES
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Comparison


def show(pipeline: Pipeline) -> None:
    """Print the estimate for the pipeline's configuration: of the teacher, the external judge, or the judges evaluated.

    Raises:
        ConfigError: other external models are asked before and have not answered yet, which would cost; or no
            external judge labels.
    """
    if pipeline.config.stage == "evaluate":  # what is to be measured on, as a run looks at it before it begins
        STAGES["evaluate"].check_here(pipeline.config)
    if pipeline.config.teacher.dry_run:
        _teacher(pipeline)
    elif pipeline.config.label.external.dry_run:
        _external(pipeline)
    else:
        _evaluate(pipeline)


def _teacher(pipeline: Pipeline) -> None:
    config = pipeline.config
    pipeline.check("teacher")
    if config.teacher.evaluations:
        pipeline.console.line("teacher: dry run: 0 calls, its evaluations are already written (teacher.evaluations)")
        return
    _refuse_costs(pipeline, "teacher.dry_run", "responses")
    directory = pipeline.run("responses")
    comparisons = [Comparison.from_row(row) for row in read_rows(directory, "comparisons")]
    taught, remaining = divided(comparisons, config.teacher, derive_seed(config.seed, "teacher"))
    left = f"{len(remaining)} remain for the tree"
    if not remaining:
        left = "none remains, so that the trees are grown over the same ones; a smaller teacher.share leaves some"
    pipeline.console.line(
        f"teacher: dry run for {config.teacher.engine.model_name}{_server(config.teacher.engine)}: {len(taught)} "
        f"comparisons ({left}), expected"
    )
    for line in described(estimate(config.teacher, config.prompts, taught), config.teacher, "teacher"):
        pipeline.console.line(line)


def _external(pipeline: Pipeline) -> None:
    config, settings = pipeline.config, pipeline.config.label.external
    if config.label.source != "external":
        raise ConfigError(f"label.external.dry_run=true: label.source={config.label.source}, so that nobody is asked")
    pipeline.check("label")
    _refuse_costs(pipeline, "label.external.dry_run", "tree")
    directory = pipeline.run("tree")
    _, dialect = load_external_prompts(settings)
    cases = list(cases_of(config.label, directory, dialect, derive_seed(config.seed, "label")))
    who = f"{settings.engine.model_name}{_server(settings.engine)}"
    pipeline.console.line(f"label: dry run for {who}: {len(cases)} comparisons, expected")
    for line in described(estimate_external(settings, cases), settings, "label.external"):
        pipeline.console.line(line)


def _evaluate(pipeline: Pipeline) -> None:
    config = pipeline.config
    pipeline.check("evaluate")
    found = dict(rehearsed(EvaluateSettings.of(config)))
    if not found:
        pipeline.console.line("evaluate: dry run: 0 calls, since no method asks a model that is paid for")
        return
    pipeline.console.line(f"evaluate: dry run for {', '.join(found)}, expected")
    total = Costs()
    for costs in found.values():
        for step, cost in costs.items():
            total[step] += cost
    for line in described(total, config.evaluate, "evaluate"):
        pipeline.console.line(line)


def _server(engine: EngineConfig) -> str:
    """Where it would be asked, without a password or key in the address; empty for what is no server."""
    if not isinstance(engine, OpenAIEngineConfig):
        return ""
    return f" at {Address.parse(engine.base_url, 'base_url').shown}"


def _refuse_costs(pipeline: Pipeline, key: str, target: str) -> None:
    """Refuse to make ``target`` where that would ask external models."""
    config = pipeline.config
    engines: dict[str, Sequence[EngineConfig]] = {
        "responses": [model.engine for model in config.responses.models],
        "teacher": [] if config.teacher.evaluations else [config.teacher.engine],
    }
    for stage in pipeline.missing(target):
        paid = [engine.model_name for engine in engines.get(stage, []) if engine.paid]
        if paid:
            raise ConfigError(
                f"{key}=true: stage {stage} is to be made first, which asks the external models "
                f"{', '.join(paid)}; run stage={stage}, then this"
            )
