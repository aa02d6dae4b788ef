"""Evaluation trees: stages teacher, tree and label."""

from dataclasses import dataclass

from judgetrain.data.config import SourceConfig
from judgetrain.engines.config import (
    AnyEngine,
    EngineConfig,
    LimitsConfig,
    SamplingConfig,
    TransformersEngineConfig,
    engine_key,
    engine_type,
)
from judgetrain.errors import ConfigError
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.judges.trees.config import LEVELS
from judgetrain.keys import in_place, key, of_file


@engine_type("given")
@dataclass
class GivenEngineConfig(EngineConfig):
    """Labels that the data brings, in the teacher's place: evaluations are written from them by rule."""

    type: str = "given"
    by_criteria: bool = key(
        False,
        "write the label under each criterion of criteria=, where these are general: each speaks of the whole "
        "response; criteria that people labelled by themselves have their own label in any case",
        active_if=lambda c: c.by_criteria,
    )

    makes = "judgetrain.label.labels:no_engine"
    computes = True

    def check(self, key: str) -> None:
        """Check that it stands in the teacher's place: it knows the labels of the training comparisons alone."""
        # Anywhere else it would be asked about comparisons whose labels it was not given.
        if key != "teacher.engine":
            raise ConfigError(f"{key}.type=given: writes evaluations of labelled training data as teacher.engine alone")


@dataclass
class TeacherConfig(LimitsConfig):
    """Stage teacher."""

    engine: AnyEngine = engine_key(
        TransformersEngineConfig(),
        "who writes: an external model, a model here, the data's own labels (given), the world's annotator",
        active_if=lambda c: not c.evaluations,
    )
    evaluations: str = key(
        "",
        "file or glob of evaluations that are already written (docs/dialogues.md); the engine is then asked nothing",
        content=of_file,
    )
    comparisons: int = key(3000, "comparisons annotated; the rest is left for the tree", low=1)
    share: float = key(
        1.0, "of the comparisons at most, however few there are", above=0.0, high=1.0, active_if=lambda c: c.share < 1
    )
    criteria: int = key(10, "criteria listed", low=1)
    judged: int | None = key(
        None, "comparisons whose criteria are judged; of the others the list alone is written; None: all", low=1
    )
    branches: int = key(3, "criteria judged of a comparison", low=1)
    both_orders: bool = key(True, "judge in both orders")
    sampling: SamplingConfig = key(SamplingConfig, "of the teacher at every step")


@dataclass
class ExternalConfig(LimitsConfig):
    """The external judge that labels where label.source=external."""

    engine: AnyEngine = engine_key(TransformersEngineConfig(), "the judge, as a rule type openai")
    prompts: str = key(
        "pairwise",
        "prompt set or YAML file with a step pairwise, or preference between critiques (table 9)",
        content=in_place(prompt_path),
    )
    sampling: SamplingConfig = key(SamplingConfig(0.5, 1.0, 512), "of its replies")


@dataclass
class LabelConfig:
    """Stage label."""

    rule: str = key(
        "evidence",
        "how branches make labels and pairs. evidence: most branches that decide say the label, and "
        "pairs differ in more than chance (min_evidence); paper: the branching paper's letter "
        "(docs/papers.md)",
        choices=("evidence", "paper"),
        active_if=lambda c: c.rule != "evidence",
    )
    max_sft_per_tree: int = key(12, "SFT judgment examples per comparison", low=1)
    max_pairs_per_level: int = key(4, "preference pairs per comparison and level", low=0)
    levels: list[str] = key([*LEVELS], "levels whose pairs are taken", choices=LEVELS)
    min_evidence: float = key(
        0.95,
        "leave out pairs whose chosen side is better with a lower probability than this; 0.5 asks for nothing",
        low=0.5,
        high=1.0,
    )
    sft_share: float | None = key(
        None,
        "SFT examples of this share of the comparisons, drawn by the seed, and pairs of the others; "
        "None: both of all (the paper: 0.5)",
        above=0.0,
        high=1.0,
        active_if=lambda c: c.sft_share is not None,
    )
    balance: list[str] = key(
        ["verdict"],
        "leave out judgment pairs until orders, decisions and ties (verdict), or places are even",
        choices=("order", "verdict", "place"),
    )
    holdout: float = key(
        0.05, "share of prompts whose comparisons are kept for the trainers' evaluation loss", low=0.0, high=0.5
    )
    source: str = key(
        "ensemble",
        "who labels: the vote of the branches, label.external, or the data's own labels and constructed pairs (given)",
        choices=("ensemble", "external", "given"),
    )
    given: int = key(
        0,
        "so many comparisons, drawn by the seed, keep their own label; what criteria are worth is fitted to these and "
        "to the trees without a label",
        low=0,
        active_if=lambda c: c.given and c.source == "ensemble",
    )
    signals: list[str] = key(
        [],
        "scores beside the branches' vote: probdiff, or one as softmax_combo (docs/rewards.md)",
        active_if=lambda c: c.signals,
    )
    corrections: SourceConfig = key(
        SourceConfig,
        "SFT examples of correction, rows as stage correct writes them; no path: none",
        active_if=lambda c: c.corrections.path,
    )
    external: ExternalConfig = key(ExternalConfig, "the external judge", active_if=lambda c: c.source == "external")
