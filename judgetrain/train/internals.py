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
    Internal(
        "trl.trainer.dpo_trainer:DPOTrainer.__init__",
        "self.ref_model = create_model_from_path(",
        "no reference model is loaded beside the one that is trained",
    ),
)
FSDP = (
    Internal(
        "transformers.trainer:Trainer.create_accelerator_and_postprocess",
        "FullyShardedDataParallelPlugin(**self.args.fsdp_plugin_args)",
        "FSDP shares out a model on CPUs",
    ),
    Internal(
        "accelerate.state:AcceleratorState",
        "self.distributed_type == DistributedType.FSDP and self.fsdp_plugin.fsdp_version == 2",
        "FSDP shares out a model on CPUs",
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
RELIED_ON = (*SFT, *DPO, *FSDP, *GRPO, FUSED_HEAD, COMPILER)


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


class SharedOutByFsdp:
    """Has FSDP share out a model on CPUs too, and keep float32 where bfloat16 would lose digits.

    Stands before one of TRL's trainers among a class's bases. PyTorch's FSDP2 runs on CPUs over gloo, but accelerate
    hands its plugin to accelerators alone, and would train on a whole model in every process. In mixed precision its
    plugin rounds whatever a model returns to bfloat16, log-probabilities among them, and sums gradients in it.
    """

    args: Any
    accelerator: Any
    is_fsdp_enabled: bool

    def create_accelerator_and_postprocess(self) -> None:
        """Make Transformers' accelerator, with FSDP's plugin where there is to be one."""
        if not self.args.fsdp:
            super().create_accelerator_and_postprocess()  # type: ignore[misc]
            return
        import torch
        from accelerate import PartialState  # type: ignore[import-untyped]
        from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin  # type: ignore[import-untyped]
        from torch.distributed.fsdp import MixedPrecisionPolicy

        check_internals(FSDP)
        plugin_args = self.args.fsdp_plugin_args
        if self.args.bf16:
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            plugin_args["mixed_precision_policy"] = policy
        super().create_accelerator_and_postprocess()  # type: ignore[misc]
        if self.is_fsdp_enabled:
            return
        state = self.accelerator.state
        state.fsdp_plugin = FullyShardedDataParallelPlugin(**plugin_args)
        state.distributed_type = DistributedType.FSDP
        # As accelerate does: every other state is made from this one.
        PartialState().distributed_type = DistributedType.FSDP
        self.is_fsdp_enabled = True


@contextmanager
def no_reference_model() -> Iterator[None]:
    """Have TRL's DPO trainer load no model to be the reference.

    Under FSDP it would load one while it is made, whole and in every process, and free it where rows bring their
    reference log-probabilities.
    """
    from trl.trainer import dpo_trainer

    load = dpo_trainer.create_model_from_path
    dpo_trainer.create_model_from_path = lambda *_, **__: None
    try:
        yield
    finally:
        dpo_trainer.create_model_from_path = load


class TokenisedPairs:
    """Has TRL's DPO trainer take pairs as :func:`judgetrain.train.data.dataset` gives them.

    Stands before ``DPOTrainer`` among a class's bases. Without it TRL would look for texts to tokenise, and would run
    the policy as its own reference over all pairs before the first step.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_internals(DPO)
        with no_reference_model():
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
