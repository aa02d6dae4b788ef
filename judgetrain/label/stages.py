"""The stages of this room, what each reads, and what must hold before any of them runs."""

import re
from dataclasses import dataclass, replace

from judgetrain.artifacts.stages import Stage, StageSettings, at, by_name, needs
from judgetrain.data.config import DialoguesConfig, DialogueSourceConfig, ResponsesConfig
from judgetrain.data.rubrics import read_rubric
from judgetrain.engines.config import EngineConfig, LocalEngineConfig, ModelConfig, SamplingConfig
from judgetrain.errors import ConfigError
from judgetrain.judges.prompting.prompts import (
    Dialect,
    PromptSet,
    check_reads,
    load_prompt_set,
    prompt_file,
    prompt_path,
)
from judgetrain.judges.settings import check_asking
from judgetrain.judges.trees.config import TREE_READS, TreeConfig
from judgetrain.keys import in_place, of_file
from judgetrain.label.config import ExternalConfig, GivenEngineConfig, LabelConfig, TeacherConfig
from judgetrain.rubrics import Rubric
from judgetrain.scorers.config import OF_BRANCHES, ScorerConfig
from judgetrain.scorers.encode import revision_prompt

TEACHERS = (
    "choose one: teacher=openai teacher.engine.model=NAME (a model behind an endpoint); teacher=local "
    "teacher.engine.model.path=MODEL (a model here); teacher=given (the label of your rows); teacher=given "
    "'responses.contrast=[nearby,errors]' (pairs constructed so that the better side is known); "
    "teacher.evaluations=FILE (evaluations that are written already)"
)
"""The choices in the teacher's place, for messages."""

TWO_JUDGMENTS = "takes two judgments by one guideline in one order that differ: set tree.judgments=2"

CORRECTION = "correction"
"""The prompt set by which examples of correction are taught; stage correct asks by it too, unless told otherwise."""

OF_PAIRS = ("levels", "min_evidence", "balance", "max_pairs_per_level")
"""The keys that decide preference pairs, and no label nor SFT example."""

OF_QUERIES = ("decontaminate",)
"""The keys that say whether a dialogue holds a benchmark's query."""


@dataclass(frozen=True, kw_only=True)
class TeacherSettings(StageSettings):
    """Stage teacher."""

    teacher: TeacherConfig = at("teacher")
    criteria: int = at("tree.criteria")
    reads: str = at("tree.reads")
    reference: bool = at("tree.reference")
    rubric: str = at("tree.rubric")
    # What the teacher writes by and, as it hands on what remains with its criteria, what the trees grow by.
    criteria_file: str | None = at("criteria", content=of_file, counted_if=lambda settings: settings.criteria_file)
    write_guidelines: bool = at("tree.write_guidelines")
    shard_size: int = at("tree.shard_size")
    prompts: str = at("prompts", content=in_place(prompt_path))
    dialogues: DialoguesConfig | None = at(
        "dialogues",
        only=OF_QUERIES,
        active_if=lambda settings: settings.teacher.evaluations and settings.dialogues.decontaminate,
    )
    """The settings that say which evaluations from a file hold a benchmark's query."""
    # From here on for checks and warnings alone. What they decide is in the fingerprints of the inputs.
    base: ModelConfig = at("train.base", in_fingerprint=False)
    judgment_sampling: SamplingConfig = at("tree.judgment_sampling", in_fingerprint=False)
    sources: list[DialogueSourceConfig] = at("dialogues.sources", in_fingerprint=False)
    responses: ResponsesConfig = at("responses", in_fingerprint=False)
    holdout: float = at("label.holdout", in_fingerprint=False)


@dataclass(frozen=True, kw_only=True)
class TreeSettings(StageSettings):
    """Stage tree."""

    tree: TreeConfig = at("tree")
    engine: EngineConfig = at("engine")
    prompts: str = at("prompts", in_fingerprint=False)


@dataclass(frozen=True, kw_only=True)
class LabelSettings(StageSettings):
    """Stage label."""

    label: LabelConfig = at("label")
    criteria: int = at("tree.criteria")
    reference: bool = at("tree.reference")

    # That responses are ranked decides which examples are drawn; by what weight does not.
    ranking: float | None = at("train.sft.ranking_weight", active_if=lambda s: s.ranking, content=lambda *_: True)
    prompts: str = at("prompts", content=in_place(prompt_path))
    scorer: ScorerConfig | None = at("scorer", only=OF_BRANCHES, active_if=lambda settings: settings.label.signals)
    dialogues: DialoguesConfig | None = at(
        "dialogues",
        only=OF_QUERIES,
        active_if=lambda settings: settings.label.corrections.path and settings.dialogues.decontaminate,
    )
    base: ModelConfig | None = at("train.base", in_fingerprint=False, active_if=lambda settings: settings.label.signals)
    """The model that grew the trees, to be loaded where its own branches are scored."""
    # From here on for checks alone. What they decide is in the fingerprints of the inputs.
    judgments: int = at("tree.judgments", in_fingerprint=False)
    sources: list[DialogueSourceConfig] = at("dialogues.sources", in_fingerprint=False)
    responses: ResponsesConfig = at("responses", in_fingerprint=False)


def load_external_prompts(config: ExternalConfig) -> tuple[PromptSet, Dialect]:
    """Return the prompt set of the external judge, and which of the two ways of asking it holds.

    Raises:
        ConfigError: no such set, or a set with neither way.
    """
    path = prompt_file(config.prompts)
    text = ""
    if path.is_file():
        text = path.read_text(encoding="utf-8", errors="replace")
    # Looked for in the text: a set is parsed by the steps that its dialect needs.
    dialect: Dialect = "pairwise"
    if re.search("^preference:", text, re.MULTILINE):
        dialect = "preference"
    return load_prompt_set(config.prompts, dialect, "label.external.prompts"), dialect


def _of_examples(settings: LabelSettings) -> LabelSettings:
    """Return the settings with defaults for what decides no label and no SFT example.

    Stage sft depends on these alone, so that a sweep over pairs trains it once.
    """
    label = settings.label
    defaults = LabelConfig()
    # With the same values for all runs, so that runs which differ in pairs alone have one fingerprint here.
    changes = {name: getattr(defaults, name) for name in OF_PAIRS}
    if label.source == "external":
        _, dialect = load_external_prompts(label.external)
        if dialect == "preference":
            # A critic that prefers critiques (table 9) makes pairs alone.
            changes["source"] = "ensemble"
    return replace(settings, label=replace(label, **changes))


def check_teacher(settings: TeacherSettings) -> None:
    """Check the teacher, unless its evaluations are written already.

    Raises:
        ConfigError: names the key and the remedy.
    """
    teacher = settings.teacher
    check_reads(load_prompt_set(settings.prompts), TREE_READS[settings.reads], f"tree.reads={settings.reads}")
    if settings.criteria_file:
        _check_general(read_rubric(settings.criteria_file), teacher.engine)
    elif isinstance(teacher.engine, GivenEngineConfig) and teacher.engine.by_criteria:
        raise ConfigError("teacher.engine.by_criteria=true: there are no criteria; name their file with criteria=FILE")
    if teacher.branches > teacher.criteria:
        raise ConfigError(f"teacher.branches={teacher.branches}: at most teacher.criteria={teacher.criteria}")
    # Nobody is asked then, so that no engine has to be there.
    if teacher.evaluations:
        return
    # The default engine names no model: nobody has chosen a teacher yet.
    if isinstance(teacher.engine, LocalEngineConfig) and not teacher.engine.model.path:
        raise ConfigError(f"there is no teacher; {TEACHERS}")
    teacher.engine.check("teacher.engine")
    if isinstance(teacher.engine, GivenEngineConfig):
        from judgetrain.data.dialogues import check_labelled

        check_labelled(settings.sources, settings.responses, "teacher=given")


def _check_general(rubric: Rubric, engine: EngineConfig) -> None:
    """Refuse (ConfigError) criteria under which a known label of the whole response would be wrong."""
    if not isinstance(engine, GivenEngineConfig) or not engine.by_criteria:
        return
    for criterion in rubric.criteria:
        if criterion.weight < 0:
            raise ConfigError(
                f"teacher.engine.by_criteria=true: the criterion {criterion.name or criterion.text!r} says what must "
                "not be (its weight is negative), so that the better response has the lower level; leave one out"
            )


def _check_tree(settings: TreeSettings) -> None:
    """Refuse (ConfigError) prompts and an engine that cannot grow the trees."""
    tree = settings.tree
    check_reads(load_prompt_set(settings.prompts), TREE_READS[tree.reads], f"tree.reads={tree.reads}")
    needs_constraint = ""
    if tree.constrained:
        needs_constraint = "tree.constrained=true"
    check_asking(settings.engine, needs_constraint)


def _check_label(settings: LabelSettings) -> None:
    """Refuse (ConfigError) what the stage cannot do."""
    labels = settings.label
    # A place is evened out among pairs of the same verdicts, of which evening out verdicts leaves other numbers.
    if {"verdict", "place"} <= set(labels.balance):
        raise ConfigError("label.balance: verdict and place cannot both be evened out; name one of them")
    if labels.rule == "paper" and "judgment" in labels.levels and settings.judgments == 1:
        raise ConfigError(f"label.rule=paper: {TWO_JUDGMENTS}, or leave judgment out of label.levels")
    if labels.given and labels.source != "ensemble":
        raise ConfigError(f"label.given={labels.given}: label.source={labels.source} labels every tree; leave one out")
    if labels.corrections.path:
        labels.corrections.check("label.corrections")
        load_prompt_set(CORRECTION, "correction", "label.corrections")
    if labels.source == "external":
        labels.external.engine.check("label.external.engine")
        dialect = load_external_prompts(labels.external)[1]
        if dialect == "preference" and settings.judgments == 1:
            raise ConfigError(f"label.external.prompts={labels.external.prompts}: {TWO_JUDGMENTS}")
    if labels.source == "given":
        from judgetrain.data.dialogues import check_labelled

        check_labelled(settings.sources, settings.responses)
    if labels.signals:
        # Imported for the few runs that use scores.
        from judgetrain.scorers.methods import OF_RESPONSES, check_scorers

        check_scorers(labels.signals, OF_RESPONSES, "label.signals")
        assert settings.scorer is not None
        revision_prompt(settings.scorer.prompts, settings.scorer.revision_prompt)


TEACHER = Stage(
    name="teacher",
    code="judgetrain.label.teacher_stage:run",
    estimate="judgetrain.label.teacher_stage:estimated",
    settings=TeacherSettings,
    inputs=needs("responses"),
    check=check_teacher,
    check_here=by_name("judgetrain.label.teacher_stage:check_evaluations"),
    format=5,
)

TREE = Stage(
    name="tree",
    code="judgetrain.label.tree_stage:run",
    inputs=needs("teacher", "initial"),
    check=_check_tree,
    settings=TreeSettings,
)

LABEL = Stage(
    name="label",
    code="judgetrain.label.stage:run",
    estimate="judgetrain.label.external:estimated",
    inputs=lambda settings: ("tree", "initial") if settings.label.signals else ("tree",),
    parts={"examples": _of_examples},
    settings=LabelSettings,
    check=_check_label,
    format=2,
)
