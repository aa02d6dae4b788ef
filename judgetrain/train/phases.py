"""SFT whose learning rate rises and falls once for what is learned first, and again for the rest. Imports TRL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import get_scheduler
from trl import SFTTrainer

if TYPE_CHECKING:
    from torch.optim import Optimizer


class PhasedTrainer(SFTTrainer):
    """TRL's SFT trainer, whose first ``opening_steps`` have a schedule of their own.

    Under one schedule the rate would be nearly 0 by the time that a short rest begins, and nothing of it be learned.
    """

    def __init__(self, *args: Any, opening_steps: int, **kwargs: Any) -> None:
        self.opening_steps = opening_steps
        super().__init__(*args, **kwargs)

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        """The schedule of ``args.lr_scheduler_type``, with its warm-up, once for either phase."""
        if self.lr_scheduler is None:  # type: ignore[has-type]
            chosen, opening = self.optimizer if optimizer is None else optimizer, self.opening_steps
            first, rest = (
                get_scheduler(
                    self.args.lr_scheduler_type,
                    optimizer=chosen,
                    num_warmup_steps=self.args.get_warmup_steps(steps),
                    num_training_steps=steps,
                    scheduler_specific_kwargs=self.args.lr_scheduler_kwargs,
                ).lr_lambdas[0]
                for steps in (opening, num_training_steps - opening)
            )
            self.lr_scheduler = LambdaLR(chosen, lambda step: first(step) if step < opening else rest(step - opening))
            self._created_lr_scheduler = True
        return self.lr_scheduler
