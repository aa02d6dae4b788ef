"""The stage graph: what each stage needs, and which configuration and local files it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from judgetrain.judges.names import base_method, split_method
from judgetrain.pipeline import reads
from judgetrain.pipeline.config import Config

JUDGE_STAGES = ("initial", "sft", "dpo")


@dataclass(frozen=True)
class Stage:
    """One stage: where its code is, which stages it needs, which configuration keys and files it reads.

    ``also`` are further keys that depend on the configuration; ``format`` is raised when the stage's code changes
    what it writes.
    """

    name: str
    function: str
    inputs: Callable[[Config], Sequence[str]]
    keys: tuple[str, ...]
    files: reads.Files = lambda config: ()
    format: int = 1
    also: Callable[[Config], tuple[str, ...]] = lambda config: ()
    trains: bool = False
    """Whether several processes do it together under ``train.distributed``."""

    def reads(self, config: Config) -> tuple[str, ...]:
        """Every key that the stage's fingerprint covers for this configuration."""
        return (*self.keys, *self.also(config))


def _needs(*names: str) -> Callable[[Config], Sequence[str]]:
    return lambda config: names


def _judges(config: Config) -> Sequence[str]:
    targets = [split_method(method)[1] for method in config.evaluate.methods]
    return [name for name in JUDGE_STAGES if name in targets]


def _dpo(config: Config) -> Sequence[str]:
    reference = ("reference",) if config.train.dpo.precompute_ref_log_probs else ()
    return ("sft", "label", *reference)


STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage(
            "dialogues",
            "judgetrain.data.dialogues:run",
            _needs(),
            ("dialogues",),
            reads.sources,
            also=reads.decontaminated,
        ),
        Stage("cluster", "judgetrain.data.clustering.stage:run", _needs("dialogues"), ("cluster",), reads.encoder),
        Stage(
            "responses",
            "judgetrain.data.responses:run",
            _needs("dialogues", "cluster"),
            ("responses",),
            reads.writers,
        ),
        Stage(
            "teacher",
            "judgetrain.label.teach:run",
            _needs("responses"),
            ("teacher", "tree.criteria", "tree.shard_size", "prompts"),
            reads.teacher,
            format=2,
        ),
        Stage(
            "initial",
            "judgetrain.train.stage:run_initial",
            _needs("teacher"),
            ("train.base", "train.initial", "train.deepspeed", "prompts", *reads.JUDGE),
            reads.initial,
            also=reads.processes("initial"),
            trains=True,
        ),
        Stage(
            "tree",
            "judgetrain.label.grow:run",
            _needs("teacher", "initial"),
            ("tree", "engine", "prompts"),
            reads.prompts_of,
        ),
        Stage(
            "label",
            "judgetrain.label.stage:run",
            lambda config: ("tree", "initial") if config.label.reward.signals else ("tree",),
            ("prompts",),
            reads.label,
            also=reads.label_keys,
        ),
        Stage(
            "sft",
            "judgetrain.train.stage:run_sft",
            _needs("initial", "label"),
            ("train.sft", "train.deepspeed"),
            reads.deepspeed,
            also=reads.processes("sft"),
            trains=True,
        ),
        Stage(
            "reference",
            "judgetrain.train.stage:run_reference",
            _needs("sft", "label"),
            ("train.deepspeed", *reads.REFERENCE),
            reads.reference,
            also=reads.processes("dpo"),
            trains=True,
        ),
        Stage(
            "dpo",
            "judgetrain.train.stage:run_dpo",
            _dpo,
            ("train.dpo", "train.deepspeed"),
            reads.reference,
            also=reads.processes("dpo"),
            trains=True,
        ),
        Stage(
            "evaluate",
            "judgetrain.evaluate.stage:run",
            _judges,
            (
                *("evaluate", "tree", "engine", "prompts", "train.base", "teacher.engine"),
                *("dialogues.world", "dialogues.world.eval_comparisons"),
            ),
            reads.evaluate,
            format=3,
            also=lambda config: ("scorer",) if reads.has_scorers(config) else (),
        ),
        Stage(
            "correct",
            "judgetrain.evaluate.correct.stage:run",
            lambda config: [name for name in JUDGE_STAGES if name == base_method(config.correct.judge)],
            (
                *("correct", "tree", "engine", "prompts", "train.base", "teacher.engine"),
                *("evaluate.external", "evaluate.aggregation", "evaluate.top_up"),
                *("dialogues.world", "dialogues.world.eval_comparisons"),
            ),
            reads.correct,
        ),
        Stage(
            "selfeval",
            "judgetrain.scorers.stage:run",
            _needs("dialogues"),
            ("selfeval", "scorer", "train.base"),
            reads.scorer,
        ),
        Stage(
            "studies",
            "judgetrain.evaluate.studies.stage:run",
            _needs("dialogues", "selfeval"),
            ("studies", "selfeval.delta", "selfeval.sweep", "scorer", "train.base", "cluster"),
            reads.studies,
            also=lambda config: reads.JUDGED if config.studies.judge else (),
        ),
    )
}
"""Every stage by name, inputs before what needs them."""
