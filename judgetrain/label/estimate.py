"""What the teacher and the external judge are expected to cost, before they are asked anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.answers import CostProbe, Costs, Estimator, described
from judgetrain.judges.prompting.replies import Asker
from judgetrain.label.config import ExternalConfig
from judgetrain.label.external import Case, ask, cases_of, load_external_prompts
from judgetrain.label.stages import LabelSettings, TeacherSettings
from judgetrain.label.teacher_stage import divided, writer
from judgetrain.schema import Comparison


def estimate(settings: TeacherSettings, comparisons: Sequence[Comparison]) -> Costs:
    """The expected cost of annotating ``comparisons``, by step.

    A teacher that lists fewer criteria than are to be judged takes fewer calls; tries that fail take more.
    """
    probe = CostProbe()
    writer(settings, comparisons, 0)(comparisons, Estimator(probe), 0)
    return probe.costs


def estimate_external(settings: ExternalConfig, cases: Sequence[Case]) -> Costs:
    """The expected cost of the external judge's labels; what is asked again because it could not be read adds to it."""
    prompts, dialect = load_external_prompts(settings)
    probe = CostProbe()
    ask(cases, Asker(Estimator(probe), prompts, settings.sampling, 1), dialect, 0)
    return probe.costs


def teacher(settings: TeacherSettings, inputs: Callable[[], Mapping[str, Path]]) -> Iterator[str]:
    """The lines of a dry run of stage teacher."""
    config = settings.teacher
    comparisons = [Comparison.from_row(row) for row in read_rows(inputs()["responses"], "comparisons")]
    taught, remaining = divided(comparisons, config, derive_seed(settings.seed, "teacher"))
    left = f"{len(remaining)} remain for the tree"
    if not remaining:
        left = "none remains, so that the trees are grown over the same ones; a smaller teacher.share leaves some"
    yield f"teacher: dry run for {config.engine.model_name}: {len(taught)} comparisons ({left}), expected"
    yield from described(estimate(settings, taught), config, "teacher")


def external(settings: LabelSettings, inputs: Callable[[], Mapping[str, Path]]) -> Iterator[str]:
    """The lines of a dry run of stage label."""
    config = settings.label.external
    _, dialect = load_external_prompts(config)
    cases = list(cases_of(settings.label, inputs()["tree"], dialect, derive_seed(settings.seed, "label")))
    yield f"label: dry run for {config.engine.model_name}: {len(cases)} comparisons, expected"
    yield from described(estimate_external(config, cases), config, "label.external")
