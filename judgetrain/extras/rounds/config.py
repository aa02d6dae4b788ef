"""What ``stage=rounds`` is told."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.keys import in_place, key


@dataclass
class RoundsConfig:
    """Rounds of the stages tree, label, sft, dpo and rl (docs/training.md)."""

    count: int = key(3, "how many; each gets its own part of the comparisons", low=2)
    judge: str = key("dpo", "a round's result, which grows the next round's trees", choices=("sft", "dpo", "rl"))
    holdout_comparisons: int = key(
        100, "comparisons that no round trains on, by which the checks measure every round", low=1
    )
    stop_on_collapse: bool = key(True, "stop at a round whose judge has collapsed; false measures them alone")
    earlier: str = key(
        "", "rounds.json of the round before: stage=rounds sets it", content=in_place(lambda path, owner: path)
    )
