"""The stages of this room, what each reads, and what must hold before any of them runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judgetrain.artifacts.stages import Stage, StageSettings, at, needs
from judgetrain.data.config import DialoguesConfig
from judgetrain.engines.config import EngineConfig, LocalEngineConfig, ModelConfig
from judgetrain.errors import ConfigError
from judgetrain.judges.checks import check_asking
from judgetrain.judges.config import TreeConfig
from judgetrain.judges.prompting.prompts import FILE, load_prompt_set, prompt_path
from judgetrain.keys import in_place
from judgetrain.label.config import GivenEngineConfig, LabelConfig, TeacherConfig
from judgetrain.schema import ORDERS
from judgetrain.scorers.config import OF_BRANCHES, ScorerConfig
from judgetrain.scorers.stages import check_revision_prompt

TEACHERS = (
    "choose one: teacher=openai teacher.engine.model=NAME (a model behind an endpoint); teacher=local "
    "teacher.engine.model.path=MODEL (a model here); teacher=given (the label of your rows); teacher=given "
    "'responses.contrast.kinds=[nearby,errors]' (pairs constructed so that the better side is known); "
    "teacher.evaluations=FILE (evaluations that are written already)"
)
"""What can stand in the teacher's place."""

TWO_JUDGMENTS = (
    "takes two judgments by one guideline in one order that differ, and with tree.judgments=1 there is one; set "
    "tree.judgments=2"
)

OF_QUERIES = ("decontaminate",)
"""What says whether a dialogue holds a benchmark's query."""


@dataclass(frozen=True, kw_only=True)
class TeacherSettings(StageSettings):
    """Stage teacher."""

    teacher: TeacherConfig = at("teacher")
    criteria: int = at("tree.criteria")
    shard_size: int = at("tree.shard_size")
    prompts: str = at("prompts", content=in_place(prompt_path))
    dialogues: DialoguesConfig | None = at("dialogues", only=OF_QUERIES)

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """What says which evaluations hold a benchmark's query, but for evaluations that come from a file."""
        return () if config.teacher.evaluations and config.dialogues.decontaminate else ("dialogues",)


@dataclass(frozen=True, kw_only=True)
class TreeSettings(StageSettings):
    """Stage tree."""

    tree: TreeConfig = at("tree")
    engine: EngineConfig = at("engine")


@dataclass(frozen=True, kw_only=True)
class LabelSettings(StageSettings):
    """Stage label."""

    label: LabelConfig = at("label")
    criteria: int = at("tree.criteria")
    prompts: str = at("prompts", content=in_place(prompt_path))
    scorer: ScorerConfig | None = at("scorer", only=OF_BRANCHES)
    correction_prompts: str | None = at("correct.prompts", content=in_place(prompt_path))
    dialogues: DialoguesConfig | None = at("dialogues", only=OF_QUERIES)
    grower: str | None = at("tree.judge", in_fingerprint=False)
    base: ModelConfig | None = at("train.base", in_fingerprint=False)
    """How the judge that grew the trees is loaded, where its own branches are scored."""

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """What is read for scored branches or for corrections alone, where there are none."""
        needed = {
            ("scorer", "base"): config.label.signals,
            ("correction_prompts",): config.label.corrections.path,
            ("dialogues",): config.label.corrections.path and config.dialogues.decontaminate,
        }
        return [name for names, wanted in needed.items() if not wanted for name in names]


def check_teacher(config: Any) -> None:
    """Check the teacher, unless its evaluations are written already.

    Raises:
        ConfigError: names the key, its value and the remedy.
    """
    teacher = config.teacher
    load_prompt_set(config.prompts)
    if teacher.branches > teacher.criteria:
        raise ConfigError(f"teacher.branches={teacher.branches}: at most teacher.criteria={teacher.criteria}")
    if teacher.evaluations:
        return
    if isinstance(teacher.engine, LocalEngineConfig) and not teacher.engine.model.path:
        raise ConfigError(f"there is no teacher; {TEACHERS}")
    teacher.engine.check("teacher.engine")
    if isinstance(teacher.engine, GivenEngineConfig):
        from judgetrain.data.given import check_labelled

        check_labelled(config.dialogues.sources, config.responses, "teacher=given")


def _check_evaluations(config: Any) -> None:
    """Read the evaluations that are written already, every row."""
    if config.teacher.evaluations:
        from judgetrain.label.evaluations import read_evaluations

        for _ in read_evaluations(config.teacher.evaluations):
            pass


def check_tree(config: Any) -> None:
    """Check the prompts and whoever samples trees.

    Raises:
        ConfigError: names the key and the remedy.
    """
    load_prompt_set(config.prompts)
    check_asking(config, "tree.constrained=true" if config.tree.constrained else "")
    if config.tree.judge and not (Path(config.tree.judge) / FILE).is_file():
        raise ConfigError(f"tree.judge={config.tree.judge!r}: it holds no {FILE}, so that it is no trained judge")


def _check_label(config: Any) -> None:
    labels = config.label
    if {"verdict", "place"} <= {*labels.balance}:  # a place is evened out among pairs of the same verdicts
        raise ConfigError("label.balance: verdict and place cannot both be evened out; name one of them")
    if labels.orders_together and labels.max_sft_per_tree % len(ORDERS):
        raise ConfigError(
            f"label.max_sft_per_tree={labels.max_sft_per_tree}: label.orders_together=true takes judgments two by two; "
            "give an even number"
        )
    if labels.pairs_by == "label" and "judgment" in labels.levels and config.tree.judgments == 1:
        raise ConfigError(f"label.pairs_by=label: {TWO_JUDGMENTS}, or leave judgment out of label.levels")
    if labels.corrections.path:
        labels.corrections.check("label.corrections")
        load_prompt_set(config.correct.prompts, "correction", "correct.prompts")
    if labels.source == "external":
        from judgetrain.label.external import load_external_prompts

        labels.external.engine.check("label.external.engine")
        dialect = load_external_prompts(labels.external)[1]
        if dialect == "preference" and config.tree.judgments == 1:
            raise ConfigError(f"label.external.prompts={labels.external.prompts}: {TWO_JUDGMENTS}")
    if labels.source == "given":
        from judgetrain.data.given import check_labelled

        check_labelled(config.dialogues.sources, config.responses)
    if labels.signals:
        from judgetrain.scorers.methods import OF_RESPONSES, check_scorers

        check_scorers(labels.signals, OF_RESPONSES, "label.signals")
        check_revision_prompt(config)


def _grower(config: Any) -> Sequence[str]:
    """The stage whose judge grows the trees, where none is given."""
    return () if config.tree.judge else ("initial",)


TEACHER = Stage(
    name="teacher",
    settings=TeacherSettings,
    code="judgetrain.label.teacher_stage:run",
    inputs=needs("responses"),
    check=check_teacher,
    check_here=_check_evaluations,
    format=3,
    estimate="judgetrain.label.estimate:teacher",
)

TREE = Stage(
    name="tree",
    settings=TreeSettings,
    code="judgetrain.label.grow:run",
    inputs=lambda config: ("teacher", *_grower(config)),
    check=check_tree,
)

LABEL = Stage(
    name="label",
    settings=LabelSettings,
    code="judgetrain.label.stage:run",
    inputs=lambda config: ("tree", *(_grower(config) if config.label.signals else ())),
    check=_check_label,
    estimate="judgetrain.label.estimate:external",
)
