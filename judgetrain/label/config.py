"""Evaluation trees: stages teacher, tree and label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from judgetrain.data.config import SourceConfig
from judgetrain.engines.config import (
    AnyEngine,
    EngineConfig,
    PaidConfig,
    SamplingConfig,
    TransformersEngineConfig,
    engine_key,
    engine_type,
)
from judgetrain.errors import ConfigError
from judgetrain.judges.config import LEVELS
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.keys import in_place, key

if TYPE_CHECKING:
    from judgetrain.engines.answers import AnswerStore, Budget
    from judgetrain.engines.base import Engine


@engine_type("given")
@dataclass
class GivenEngineConfig(EngineConfig):
    """Labels that the data brings, in the teacher's place: evaluations are written from them by rule."""

    type: str = key("given", "backend")
    reasons: bool = key(
        True,
        "say of the better response what can be seen in it; without, the verdict is all that a judgment leaves open, "
        "and all that training on it is about",
    )

    computes = True

    def check(self, key: str) -> None:
        """Check that it stands in the teacher's place: it knows the labels of the training comparisons alone."""
        if key != "teacher.engine":
            raise ConfigError(f"{key}.type=given: writes evaluations of labelled training data as teacher.engine alone")

    def make(self, answers: AnswerStore | None = None, budget: Budget | None = None) -> Engine:
        """Stage teacher gives it the labels; asked by any other it has none.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"{self.model_name}: knows the labels of training data, and can judge nothing else; leave the method "
            "teacher out of evaluate.methods"
        )


@dataclass
class TeacherConfig(PaidConfig):
    """Stage teacher."""

    engine: AnyEngine = engine_key(
        TransformersEngineConfig(),
        "who writes: an external model, a model here, the data's own labels (given), the world's annotator",
        active_if=lambda c: not c.evaluations,
    )
    evaluations: str = key(
        "",
        "file or glob of evaluations that are already written (docs/dialogues.md); the engine is then asked nothing",
        content=in_place(lambda path, owner: path or None),
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
class ExternalConfig(PaidConfig):
    """The external judge that labels where label.source=external."""

    engine: AnyEngine = engine_key(TransformersEngineConfig(), "the judge, as a rule type openai")
    prompts: str = key(
        "one_step",
        "a set with a step one_step (it compares the responses) or preference (it prefers one of two critiques, as in "
        "the paper's table 9): a name in judgetrain/judges/prompting/prompt_sets or a YAML file",
        content=in_place(prompt_path),
    )
    sampling: SamplingConfig = key(SamplingConfig(0.5, 1.0, 512), "of its replies")
    samples: int = key(1, "one_step: replies in each order", low=1)
    attempts: int = key(2, "times an unreadable reply is asked for; needs a temperature above 0", low=1)
    max_pairs: int = key(4, "preference: pairs of conflicting critiques shown for a comparison", low=1)
    by: str = key(
        "dialogue",
        "preference: what the judge's preferences label: the comparison, by their vote (dialogue), or each pair of "
        "critiques by itself (pair, the paper's way), while the branches' label chooses the SFT examples",
        choices=("dialogue", "pair"),
        active_if=lambda c: c.by != "dialogue",
    )
    shard_size: int = key(32, "comparisons finished together; the unit of resume", low=1)


SIGNALS = ("probdiff", "glassbox")
"""Scores of branches under the judge itself that label.reward can use."""


def with_signal(signal: str) -> Callable[[Any], bool]:
    """Whether a signal is on: what concerns it alone counts only then."""
    return lambda config: signal in config.signals


@dataclass
class RewardConfig:
    """Auxiliary rewards of branches in stage label (docs/rewards.md); how scores are computed is scorer's."""

    signals: list[str] = key(
        [],
        "scores of the branches under the Initial judge, besides their vote: probdiff, glassbox; empty: the vote alone",
        choices=SIGNALS,
    )
    glassbox: str = key(
        "softmax_combo", "the score behind glassbox: judgetrain/scorers/methods.py", active_if=with_signal("glassbox")
    )
    ensemble_weight: float = key(
        1.0, "of the branches' vote in the weighted mean of the signals", low=0.0, active_if=lambda c: c.signals
    )
    probdiff_weight: float = key(
        1.0, "of ProbDiff; 0: it is reported, and decides nothing", low=0.0, active_if=with_signal("probdiff")
    )
    glassbox_weight: float = key(
        1.0,
        "of the glass-box score; 0: it is reported, and decides nothing",
        low=0.0,
        active_if=with_signal("glassbox"),
    )
    break_ties: bool = key(
        False,
        "where as many branches say A as B, label for the side with the better scores",
        active_if=lambda c: c.signals,
    )
    choose: str = key(
        "random",
        "which examples and pairs are taken where there are more than max_sft_per_tree and max_pairs_per_level: "
        "drawn at random, or those with the largest reward and margin; of examples as many with each verdict as a draw "
        "has",
        choices=("random", "best"),
    )
    min_margin: float = key(
        0.0, "leave out (and count) pairs whose margin is below this, negative ones always", low=0.0, high=1.0
    )
    shard_size: int = key(8, "trees scored together; the unit of resume", low=1, active_if=lambda c: c.signals)


@dataclass
class LabelConfig:
    """Stage label."""

    min_vote_share: float = key(
        0.5,
        "abstain when the winner's share of the votes that count (label.vote: the deciding ones, or all readable) is "
        "not above this",
        low=0.0,
        high=1.0,
    )
    min_deciding_share: float = key(
        0.0,
        "abstain when fewer of a tree's readable branches decide, saying A or B rather than tie; labels that are ties "
        "need none",
        low=0.0,
        high=1.0,
    )
    vote: str = key(
        "deciding",
        "how branches become a tree's label: deciding, the side with more of the branches that decide, ties "
        "abstaining; plurality, what most branches say, ties too (the paper's letter); mean_score, the response with "
        "the higher mean score; ranked, clear, what both orders say where the branches are read as by "
        "evaluate.aggregation, the first criteria first: for trees of a judge that names first what matters",
        choices=("deciding", "plurality", "mean_score", "ranked", "clear"),
        active_if=lambda c: c.vote != "deciding",
    )
    min_readable: float = key(
        0.5, "leave a tree out of training when fewer of its judgments could be read", low=0.0, high=1.0
    )
    ties: str = key(
        "neutral",
        "a branch that sees a tie where the label is A or B: neutral (its criterion does not tell the responses apart) "
        "or wrong (the paper's letter)",
        choices=("neutral", "wrong"),
    )
    max_sft_per_tree: int = key(12, "SFT judgment examples per comparison", low=1)
    orders_together: bool = key(
        False,
        "draw SFT judgments two by two, one in each order by the same guideline, so that no place is taught alone "
        "(train.sft.orders_together trains them in one batch)",
        active_if=lambda c: c.orders_together,
    )
    max_pairs_per_level: int = key(4, "preference pairs per comparison and level", low=0)
    levels: list[str] = key([*LEVELS], "levels whose pairs are taken", choices=LEVELS)
    pairs_by: str = key(
        "evidence",
        "what tells a pair's sides apart: evidence, a consensus or label that is more than chance (min_evidence); "
        "label, every judgment in keeping with the label against every one that is not, guidelines and criteria by "
        "their shares of such judgments (the paper's letter)",
        choices=("evidence", "label"),
        active_if=lambda c: c.pairs_by != "evidence",
    )
    high_success: float = key(
        0.75,
        "pairs_by=label or external.by=pair: criteria lead a chosen list if at least this share of their judgments is "
        "right",
        low=0.0,
        high=1.0,
        active_if=lambda c: c.by_success,
    )
    low_success: float = key(
        0.25,
        "pairs_by=label or external.by=pair: criteria lead a rejected list if at most this share is",
        low=0.0,
        high=1.0,
        active_if=lambda c: c.by_success,
    )
    sft_share: float | None = key(
        None,
        "take SFT examples of this share of the comparisons, drawn by the seed, and preference pairs of the others "
        "(the paper's table 6: 0.5); None: both of every comparison",
        above=0.0,
        high=1.0,
        active_if=lambda c: c.sft_share is not None,
    )
    min_evidence: float = key(
        0.95,
        "leave out pairs whose chosen side is better with a lower probability than this, by the judgments under both",
        low=0.5,
        high=1.0,
    )
    leave_one_out: bool = key(
        False, "a criterion leads a chosen list only if the vote of all other criteria is the label, too"
    )
    max_chance: float = key(
        0.05,
        "leave out all guideline or judgment pairs if an independent signal confirms such differences no more often "
        "than chance: the largest p-value; 1: every level teaches",
        low=0.0,
        high=1.0,
    )
    keep_digit_pairs: bool = key(False, "keep judgment pairs whose sides differ in their scores alone")
    criteria_order: str = key(
        "kept_first",
        "SFT criteria lists: as sampled, or criteria with a kept branch first",
        choices=("sampled", "kept_first"),
    )
    balance: list[str] = key(
        ["verdict"],
        "leave out pairs at random until, at each level, as many chosen sides are longer as are shorter (length), as "
        "many judgment pairs show order AB as BA (order), in as many the chosen side decides as says tie (verdict), in "
        "as many it prefers the response shown first as the second (place); all that are named at once",
        choices=("length", "order", "verdict", "place"),
    )
    holdout: float = key(0.05, "share of comparisons kept for the trainers' evaluation loss", low=0.0, high=0.5)
    view: int = key(
        20,
        "pages of trees to look at; more: python -m judgetrain.judges.views.viewer",
        low=0,
        unit="trees",
        in_fingerprint=False,
    )
    source: str = key(
        "ensemble",
        "who labels: the vote of the branches, label.external, or the data's own labels and constructed pairs (given)",
        choices=("ensemble", "external", "given"),
    )
    corrections: SourceConfig = key(
        SourceConfig,
        "SFT examples of correction (the paper: 3,000): rows query, response, judgment, corrected, as stage correct "
        "writes them too; no path: none",
        active_if=lambda c: c.corrections.path,
    )
    external: ExternalConfig = key(ExternalConfig, "the external judge", active_if=lambda c: c.source == "external")
    reward: RewardConfig = key(RewardConfig, "auxiliary rewards of the branches")

    @property
    def by_success(self) -> bool:
        """Whether guidelines and criteria are told apart by their shares of right judgments, without evidence."""
        return self.pairs_by == "label" or (self.source == "external" and self.external.by == "pair")
