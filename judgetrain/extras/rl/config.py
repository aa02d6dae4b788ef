"""Settings of stage rl."""

from dataclasses import dataclass

from judgetrain.keys import key
from judgetrain.train.config import TrainerConfig

PARTS = 4
"""Texts of a branch: a list of criteria, a guideline, and a judgment in each order or of each response."""
LABEL_BRANCHES = 10
"""Branches by which the start labels a comparison itself, at most tree.criteria; judge.aggregation joins them."""
TEMPERATURE = 1.0
"""The temperature of sampled branches: TRL's loss takes them for the policy's own."""


@dataclass
class RlConfig(TrainerConfig):
    """Stage rl: on-policy training on whole branches with TRL's GRPOTrainer.

    ``max_length`` is of a prompt and the longest answer; a branch that would be longer counts as unreadable.
    """

    learning_rate: float = key(1e-6, "peak", above=0.0)
    save_steps: int = key(10, "checkpoint every so many optimizer steps", low=1, in_fingerprint=False)
    eval_steps: int = key(10, "steps between measures of held-out agreement", low=1, active_if=lambda c: c.keep_best)
    start: str = key("dpo", "the judge that training goes on from", choices=("dpo", "sft", "initial"))
    labels: str = key(
        "label",
        "what branches are rewarded by: stage label's labels, or the start's verdicts by ten branches",
        choices=("label", "start"),
    )
    max_comparisons: int | None = key(
        None,
        "comparisons that the start labels, drawn by the seed; None: all",
        low=1,
        active_if=lambda c: c.labels == "start",
    )
    comparisons_per_step: int = key(8, "comparisons judged for one optimizer step, over all processes", low=1)
    num_generations: int = key(8, "branches of a comparison that are compared with one another", low=2)
    credit: str = key(
        "branch",
        "what parts are rewarded for: the branch; judgments under it (criterion); being readable (level)",
        choices=("branch", "criterion", "level"),
    )
    beta: float = key(0.0, "strength of the KL constraint to the start; above 0 the start stays in memory", low=0.0)
    keep_best: bool = key(True, "keep the checkpoint that agrees most with held-out labels, asked greedily; needs them")

    @property
    def rows_per_step(self) -> int:
        """Return the number of texts that an optimizer step learns from, over all processes."""
        return self.comparisons_per_step * self.num_generations * PARTS
