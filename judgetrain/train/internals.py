"""The private parts of TRL, Transformers and PyTorch that training cannot do without.

Every other module uses what these libraries document. A release may move what stands here without a notice, and an
overridden method that is no longer called would go unnoticed. So each part is listed in :data:`RELIED_ON` with the
line of the library that shows it, and with what this package does by it. :func:`check_internals` is called before a
trainer is made, and says in words which part a version has moved. What engines and scorers need stands in
:mod:`judgetrain.engines.internals`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from judgetrain.engines.internals import Internal, check_internals
from judgetrain.train.data import REFERENCE_COLUMNS

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import Trainer


SFT = (
    Internal(
        "trl.trainer.sft_trainer:SFTTrainer.log",
        "self._metrics[mode]",
        "held-out figures of stages initial and sft are read and written",
    ),
)
DPO = (
    Internal(
        "trl.trainer.dpo_trainer:DPOTrainer.log",
        "self._metrics[mode]",
        "held-out figures of stage dpo are read and written",
    ),
    Internal(
        "trl.trainer.dpo_trainer:DPOTrainer.__init__",
        "self._prepare_dataset(",
        "pairs that are tokenised already are left as they are",
    ),
    Internal(
        "trl.trainer.dpo_trainer:DPOTrainer.__init__",
        "self._precompute_ref_logps(",
        "the reference's log-probabilities are taken from stage reference",
    ),
)
GRPO = (
    Internal(
        "transformers.trainer:Trainer.training_step", "self._prepare_inputs(", "stage rl chooses its micro-batches"
    ),
    Internal(
        "trl.trainer.grpo_trainer:GRPOTrainer._prepare_inputs",
        "self._generate_and_score_completions(",
        "stage rl samples and rewards branches",
    ),
)
FUSED_HEAD = Internal(
    "trl.trainer.utils:add_fused_lm_head", "compact = _use_triton(", "a CPU projects labelled tokens alone"
)
COMPILER = Internal(
    "torch._inductor.cpp_builder:get_cpp_compiler",
    "def get_cpp_compiler(",
    "regional_compilation finds out whether there is a C++ compiler",
)
RELIED_ON = (*SFT, *DPO, *GRPO, FUSED_HEAD, COMPILER)


def figures(trainer: Trainer) -> dict[str, list[float]]:
    """Return the lists of values whose means TRL's trainer adds to its next row of logs.

    They are those of training while the model is in training mode, and of evaluation otherwise, as TRL sorts them.
    """
    if trainer.model.training:
        mode = "train"
    else:
        mode = "eval"
    values: dict[str, list[float]] = trainer._metrics[mode]
    return values


class TokenisedPairs:
    """Has TRL's DPO trainer take pairs as :func:`judgetrain.train.data.dataset` gives them.

    Stands before ``DPOTrainer`` among a class's bases. Without it TRL would look for texts to tokenise, and would run
    the policy as its own reference over all pairs before the first step.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_internals(DPO)
        super().__init__(*args, **kwargs)

    def _prepare_dataset(self, dataset: Dataset, *_: Any, **__: Any) -> Dataset:
        """Return the data set as it is: its rows are token ids already."""
        return dataset

    def _precompute_ref_logps(self, dataset: Dataset, name: str, batch_size: int) -> Dataset:
        """Return the data set as it is if its rows bring their reference log-probabilities, else as TRL makes it."""
        if set(REFERENCE_COLUMNS) <= set(dataset.column_names):
            return dataset
        computed: Dataset = super()._precompute_ref_logps(dataset, name, batch_size)  # type: ignore[misc]
        return computed


class OwnMicroBatches:
    """Has TRL's GRPO trainer train on micro-batches that :meth:`micro_batches` makes of the rows sampled at once.

    Stands before ``GRPOTrainer`` among a class's bases. TRL would shuffle the rows first. What is sampled is trained
    on once (TRL's ``num_iterations`` of 1).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_internals(GRPO)
        self._waiting: list[Mapping[str, Any]] = []
        super().__init__(*args, **kwargs)

    def micro_batches(self, scored: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """Return the micro-batches of one optimizer step, in the order in which they are trained on.

        Args:
            scored: TRL's tensors of all rows sampled at once, with their advantages.
        """
        raise NotImplementedError

    def _prepare_inputs(self, generation_batch: Any) -> Mapping[str, Any]:
        """Return the next micro-batch; sample anew where none is left."""
        if not self._waiting:
            scored = self._generate_and_score_completions(generation_batch)  # type: ignore[attr-defined]
            self._waiting = [*self.micro_batches(scored)]
        return self._waiting.pop(0)


@contextmanager
def labelled_tokens_alone() -> Iterator[None]:
    """Have TRL's fused output layer project, on a CPU, only the positions whose next token has a label.

    TRL 1.16 does so where Triton runs its kernels, and elsewhere projects every position, lest accelerators compile
    for each number of them; a CPU compiles nothing. Of a judgment nine tokens in ten are prompt: with a vocabulary of
    262,144 most of a step's time goes there. Losses and gradients are the same.
    """
    import torch
    from trl.trainer import utils

    on_triton = getattr(utils, "_use_triton", None)
    if on_triton is None:
        # Another version of TRL. Training is slower there and gives the same, so this is no reason to stop.
        yield
        return
    utils._use_triton = lambda device: device == torch.device("cpu") or on_triton(device)
    try:
        yield
    finally:
        utils._use_triton = on_triton


def has_cpp_compiler() -> bool:
    """Return whether torch.compile finds a C++ compiler. It needs one on a GPU too, where Triton calls one of C."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError):
        return False
    return True
