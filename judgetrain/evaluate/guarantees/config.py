"""What of an evaluation is to be relied on: ``evaluate.selective``, ``.corrected``, ``.annotators``, ``.gate``."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.keys import beside, key


@dataclass
class SelectiveConfig:
    """Verdicts where the judge is sure, abstentions elsewhere (docs/guarantees.md)."""

    agreement: float = key(
        0.8, "what is answered is to agree with the labels at least this often, over both orders", above=0.0, high=0.999
    )
    risk: float = key(0.1, "the chance that this is broken nevertheless", above=0.0, high=0.5)
    confidence: str = key(
        "margin",
        "what a judge is sure by: margin, the mean score of A minus that of B, either sign; branches, the share of "
        "pairs of branches that say the same. Where the orders differ nothing is answered",
        choices=("margin", "branches"),
    )
    calibration: float = key(
        0.5,
        "share of the queries by which the threshold is set; numbers are of the others. With evaluate.dev_share the "
        "development split sets it",
        low=0.1,
        high=0.9,
    )
    budget: float = key(
        0.3,
        "answering everything, a judge may spend this share of the tokens of its most branches",
        above=0.0,
        high=1.0,
    )
    first: str = key(
        "",
        "the method of evaluate.methods that is asked before a judge's branches, and answers at once where its margin "
        "says that it is sure, as at_once:dpo or scorer:sentprob; a third of the queries that set the threshold then "
        "tell what a margin of each tier is worth; empty: none",
    )
    then: str = key("", "the method of evaluate.methods that is asked last, before a judge abstains; empty: none")


@dataclass
class CorrectedConfig:
    """Win rates and agreement from few labels and many verdicts (docs/guarantees.md)."""

    labels: int | None = key(
        None,
        "take so many labels, drawn at random, as if the others were not known; None: all, and nothing to correct "
        "unless a benchmark has unlabelled rows",
        low=1,
    )
    width: float = key(
        0.1, "say how many labels an interval of this width needs (0.1: ten points)", above=0.0, high=1.0
    )
    proxy: str = key(
        "",
        "the method of evaluate.methods whose verdicts stand in for labels when agreement is corrected; empty: whether "
        "the judge's own two orders say the same",
    )


@dataclass
class AnnotatorsConfig:
    """May a judge replace one of several people who labelled the same comparisons? (docs/guarantees.md)"""

    epsilon: float = key(
        0.15,
        "by how much a person may be better and still not be worth the cost (experts 0.2, skilled 0.15, crowd 0.1)",
        low=0.0,
        high=1.0,
    )
    least: int = key(30, "leave out people with fewer comparisons that somebody else has labelled too", low=2)
    false_discoveries: float = key(0.05, "the false discovery rate over people", above=0.0, high=0.5)


@dataclass
class GateConfig:
    """What must hold, or the run fails after its artifact is written (docs/guarantees.md)."""

    required: list[str] = key(
        [],
        "such as dpo beats sft (by the paired test), dpo@10 beats floors (every baseline evaluated), dpo matches "
        "release (is not worse than the same method in evaluate.gate.release)",
    )
    benchmarks: list[str] = key([], "on these; empty: on every one")
    p: float = key(0.05, "the p of the paired bootstrap up to which a difference counts", above=0.0, high=0.5)
    release: str = key(
        "",
        "directory of the last release's finished evaluation",
        content=beside(lambda directory, owner: f"{directory}/predictions.parquet" if directory else None),
    )
