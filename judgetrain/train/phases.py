"""SFT whose learning rate rises and falls once for what is learned first, and again for the rest."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import get_scheduler
from trl import SFTTrainer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
            chosen = self.optimizer if optimizer is None else optimizer
            factors = [self._factor(steps, chosen) for steps in self._phases(num_training_steps)]
            starts = [0, *accumulate(self._phases(num_training_steps))][: len(factors)]
            self.lr_scheduler = LambdaLR(chosen, partial(_factor_at, starts, factors))
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def _phases(self, steps: int) -> list[int]:
        return [self.opening_steps, steps - self.opening_steps]

    def _factor(self, steps: int, optimizer: Optimizer) -> Callable[[int], float]:
        """What the peak rate is multiplied by at each step of a phase."""
        scheduler = get_scheduler(
            self.args.lr_scheduler_type,
            optimizer=optimizer,
            num_warmup_steps=self.args.get_warmup_steps(steps),
            num_training_steps=steps,
            scheduler_specific_kwargs=self.args.lr_scheduler_kwargs,
        )
        return scheduler.lr_lambdas[0]  # all kinds that train.*.lr_scheduler_type names are of this form


def _factor_at(starts: Sequence[int], factors: Sequence[Callable[[int], float]], step: int) -> float:
    phase = max(i for i, start in enumerate(starts) if start <= step)
    return factors[phase](step - starts[phase])
