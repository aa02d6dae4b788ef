"""Evaluation trees: stages teacher, tree and label."""

from __future__ import annotations

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
from judgetrain.judges.config import LEVELS
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.keys import in_place, key, of_file


@engine_type("given")
@dataclass
class GivenEngineConfig(EngineConfig):
    """Labels that the data brings, in the teacher's place: evaluations are written from them by rule."""

    type: str = "given"

    makes = "judgetrain.label.known:no_engine"
    computes = True

    def check(self, key: str) -> None:
        """Check that it stands in the teacher's place: it knows the labels of the training comparisons alone."""
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
        "a set with a step pairwise (it compares the responses) or preference (it prefers one of two critiques, as in "
        "the paper's table 9): a name in judgetrain/judges/prompting/prompt_sets or a YAML file",
        content=in_place(prompt_path),
    )
    sampling: SamplingConfig = key(SamplingConfig(0.5, 1.0, 512), "of its replies")


@dataclass
class LabelConfig:
    """Stage label."""

    rule: str = key(
        "evidence",
        "how branches make labels and pairs. evidence: a label is what most branches that decide say, ties abstain and "
        "contradict no label, and a pair's sides differ in more than chance (min_evidence). paper, the branching "
        "paper's letter: a label is what most branches say, ties too, which contradict A and B; every judgment in "
        "keeping with the label is chosen against every one that is not, guidelines and criteria by their shares of "
        "such judgments, and criteria stand in SFT as sampled",
        choices=("evidence", "paper"),
        active_if=lambda c: c.rule != "evidence",
    )
    max_sft_per_tree: int = key(12, "SFT judgment examples per comparison", low=1)
    max_pairs_per_level: int = key(4, "preference pairs per comparison and level", low=0)
    levels: list[str] = key([*LEVELS], "levels whose pairs are taken", choices=LEVELS)
    min_evidence: float = key(
        0.95,
        "leave out pairs whose chosen side is better with a lower probability than this, by the judgments under both; "
        "0.5 asks for nothing",
        low=0.5,
        high=1.0,
    )
    sft_share: float | None = key(
        None,
        "take SFT examples of this share of the comparisons, drawn by the seed, and preference pairs of the others "
        "(the paper's table 6: 0.5); None: both of every comparison",
        above=0.0,
        high=1.0,
        active_if=lambda c: c.sft_share is not None,
    )
    balance: list[str] = key(
        ["verdict"],
        "leave out pairs at random until, at each level, as many judgment pairs show order AB as BA (order), in as "
        "many the chosen side decides as says tie (verdict), or it speaks for the response shown first as often as for "
        "the second (place)",
        choices=("order", "verdict", "place"),
    )
    holdout: float = key(0.05, "share of comparisons kept for the trainers' evaluation loss", low=0.0, high=0.5)
    source: str = key(
        "ensemble",
        "who labels: the vote of the branches, label.external, or the data's own labels and constructed pairs (given)",
        choices=("ensemble", "external", "given"),
    )
    signals: list[str] = key(
        [],
        "scores of the branches under the judge that wrote them, beside their vote (docs/rewards.md): probdiff, or a "
        "glass-box score as softmax_combo; empty: the vote alone. How they are computed is scorer's",
        active_if=lambda c: c.signals,
    )
    corrections: SourceConfig = key(
        SourceConfig,
        "SFT examples of correction (the paper: 3,000): rows query, response, judgment, corrected, as stage correct "
        "writes them too; no path: none",
        active_if=lambda c: c.corrections.path,
    )
    external: ExternalConfig = key(ExternalConfig, "the external judge", active_if=lambda c: c.source == "external")
