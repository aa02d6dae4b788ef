"""Processes that train one model together: which of them leads, what they agree on, and how weights are gathered.

Every process runs the same training code. :func:`current` says which one it is; in a run of one process there is
nothing to agree on.

The global batch is ``per_device_train_batch_size x global_accumulation_steps`` however many processes there are. Each
takes its share of the accumulation steps, or of a micro-batch where there are too few of them, and micro-batches go
round them in the order of the data.
"""

from __future__ import annotations

import importlib.util
import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from judgetrain.amounts import amount
from judgetrain.errors import ConfigError
from judgetrain.rooms import shipped

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, Trainer

    from judgetrain.train.config import TrainStages

T = TypeVar("T")

PATIENCE = timedelta(days=7)
"""Time that the other processes wait for the leader, which meanwhile may sample trees for days."""
STEP_TIMEOUT = timedelta(hours=1)
"""Time that a process waits for another inside a training step."""
SET_DISTRIBUTED = "set train.distributed=ddp, fsdp, zero2 or zero3"
WHOLE = "none or ddp"
"""The layout of checkpoints that hold the whole model and optimizer: any number of processes can read them."""
FSDP = "fsdp"
"""The mode in which PyTorch's FSDP2 shares a model out, by accelerate. Also the layout of its checkpoints: each process
writes its part, and any number of processes can read the parts (torch.distributed.checkpoint)."""


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a run and this one's place among them; alone by default.

    Args:
        rank: the number of this process; rank 0 leads: it alone writes files and prints.
        size: the number of processes.
        mode: ``train.distributed``.
        deepspeed: path of the DeepSpeed JSON or its content, None without DeepSpeed.
        group: a gloo process group for messages, None when alone.
    """

    rank: int = 0
    size: int = 1
    mode: str = "none"
    deepspeed: str | dict[str, Any] | None = None
    group: Any = None

    @property
    def leads(self) -> bool:
        """Return whether this is the process that writes."""
        return self.rank == 0

    @property
    def fsdp(self) -> bool:
        """Return True if FSDP shares the model out."""
        return self.mode == FSDP

    @property
    def wraps(self) -> bool:
        """Return True if a model runs only once its trainer has it wrapped, which the first step does."""
        return self.fsdp or self.deepspeed is not None

    @property
    def layout(self) -> str:
        """Return the layout of a checkpoint's files: ZeRO's shards fit only the number of processes that wrote them."""
        if self.deepspeed:
            return f"{self.mode} with {amount(self.size, 'process')}"
        if self.fsdp:
            return FSDP
        return WHOLE

    def decide(self, function: Callable[[], T]) -> T:
        """Call ``function`` on the leader alone, and return its value on every process."""
        if self.group is None:
            return function()
        import torch.distributed as dist

        # The broadcast fills the list of every other process.
        values: list[Any] = [None]
        if self.leads:
            values = [function()]
        dist.broadcast_object_list(values, src=0, group=self.group)
        value: T = values[0]
        return value

    def all(self, holds_here: bool) -> bool:
        """Return True if ``holds_here`` is true on every process; waits for the others to call it too."""
        if self.group is None:
            return holds_here
        import torch
        import torch.distributed as dist

        # The least of ones and zeros is 1 only if all are.
        agreed = torch.tensor(int(holds_here))
        dist.all_reduce(agreed, dist.ReduceOp.MIN, group=self.group)
        return bool(agreed)


_current = ProcessGroup()


def current() -> ProcessGroup:
    """Return the process group that this process has joined, else a group of this process alone."""
    return _current


def started_by_launcher() -> bool:
    """Return True if torchrun, accelerate or SLURM started this process as one of several (``WORLD_SIZE``)."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def processes(settings: TrainStages) -> int:
    """Return the number of processes that train.

    It is that of those which a launcher started, else ``train.processes``, or one for each GPU here.
    """
    if started_by_launcher():
        return int(os.environ["WORLD_SIZE"])
    import torch

    return settings.processes or max(1, torch.cuda.device_count())


def deepspeed_json(settings: TrainStages) -> str | None:
    """Return the path of the DeepSpeed JSON of the settings' mode, or None without DeepSpeed."""
    mode = settings.distributed
    if not mode.startswith("zero"):
        return None
    return str(shipped("launch") / "deepspeed" / f"{mode}.json")


def _deepspeed_on_cpus(path: str) -> str | dict[str, Any]:
    """Return a DeepSpeed JSON for a machine without a GPU: its path, or its content with PyTorch's AdamW.

    DeepSpeed's own AdamW, which steps on the CPU for a GPU, is compiled when first used. That takes a minute and a
    compiler, and a run that is killed meanwhile leaves a lock on which all others wait.
    """
    content: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    if "optimizer" not in content:
        return path
    content["optimizer"]["params"]["torch_adam"] = True
    return content


def check_distributed(settings: TrainStages) -> int:
    """Check how the processes of the stages that train are to work together, and return how many there are.

    Raises:
        ConfigError: names the key, its value and the remedy.
    """
    mode = settings.distributed
    if mode == "none":
        if settings.processes not in (None, 1):
            raise ConfigError(f"train.processes={settings.processes} and train.distributed=none: {SET_DISTRIBUTED}")
        return 1
    if mode.startswith("zero") and importlib.util.find_spec("deepspeed") is None:
        raise ConfigError(f"train.distributed={mode} needs the package deepspeed: pip install 'judgetrain[deepspeed]'")
    return processes(settings)


def join(settings: TrainStages) -> ProcessGroup:
    """Join the processes that a launcher started, and return their group.

    The launcher sets ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT``.

    Raises:
        ConfigError: several processes and ``train.distributed=none``.
    """
    global _current
    import torch
    import torch.distributed as dist

    # DeepSpeed calls what torch is about to rename, and each process would print a line at every step.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed\..*")
    size = int(os.environ["WORLD_SIZE"])
    if settings.distributed == "none":
        raise ConfigError(f"WORLD_SIZE={size} and train.distributed=none: {SET_DISTRIBUTED}")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    else:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        # The processes of a machine share its cores.
        cores = (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", size))
        torch.set_num_threads(max(1, min(torch.get_num_threads(), cores)))
    # NCCL moves tensors of GPUs alone, gloo those of the CPU.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=STEP_TIMEOUT)
    json_path = deepspeed_json(settings)
    configuration: str | dict[str, Any] | None = json_path
    if json_path is not None:
        import deepspeed

        if not torch.cuda.is_available():
            configuration = _deepspeed_on_cpus(json_path)

        # This operation is compiled when first used, which takes a minute and a compiler, and hangs after a kill. Gloo
        # serves as well.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        # DeepSpeed keeps its own handle on the process group; without it ZeRO-3 cannot partition a model on loading.
        deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo", auto_mpi_discovery=False)
    # A group of its own: waiting for the leader may take days, and a step that takes an hour has failed.
    group = dist.new_group(backend="gloo", timeout=PATIENCE)
    _current = ProcessGroup(dist.get_rank(), size, settings.distributed, configuration, group)
    return _current


def leave() -> None:
    """Close the connections to the other processes."""
    global _current
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
    _current = ProcessGroup()


def forget_wrapping() -> None:
    """Have models loaded whole again, as before a training under DeepSpeed or FSDP.

    Under ZeRO-3 Transformers otherwise partitions every model that a process loads.
    """
    if _current.deepspeed:
        from transformers.integrations.deepspeed import unset_hf_deepspeed_config

        unset_hf_deepspeed_config()
    if _current.fsdp:
        # Accelerate sets it for the plugin that it was given, and would make one for whoever comes after.
        os.environ.pop("ACCELERATE_USE_FSDP", None)


def own_part(parameter: Any) -> torch.Tensor:
    """Return the values of a parameter that this process holds: all, or ZeRO-3's or FSDP's part without padding."""
    if hasattr(parameter, "to_local"):
        local: torch.Tensor = parameter.to_local()
        return local
    if not hasattr(parameter, "ds_tensor"):
        return parameter
    import torch.distributed as dist

    part = parameter.ds_tensor
    start = part.numel() * dist.get_rank(parameter.ds_process_group)
    # All parts are of one size, so the last ones hold padding, or nothing else.
    values = max(0, min(part.numel(), parameter.ds_numel - start))
    return part.narrow(0, 0, values)


@contextmanager
def whole_model(trainer: Trainer) -> Iterator[tuple[PreTrainedModel, dict[str, torch.Tensor] | None]]:
    """Yield the trained model and its whole weights, which are None on all processes but the leader.

    Every process has to enter. Adapters can be merged inside, on the leader. Under FSDP the model stays in parts.
    """
    model = trainer.accelerator.unwrap_model(trainer.model)
    leads = current().leads
    if current().fsdp:
        state = trainer.accelerator.get_state_dict(trainer.model_wrapped)
        if not leads:
            state = None
        yield model, state
        return

    parameters = list(model.parameters())
    is_partitioned = any(hasattr(parameter, "ds_id") for parameter in parameters)
    if is_partitioned and not hasattr(model, "peft_config"):
        # The engine, not the module, knows how ZeRO-3 has split the weights.
        state = trainer.accelerator.get_state_dict(trainer.model_wrapped)
        if not leads:
            state = None
        yield model, state
        return

    with ExitStack() as gathered:
        if is_partitioned:
            import deepspeed

            # Whole on every process for as long as the caller works with it; each then goes back to its own part.
            gathered.enter_context(deepspeed.zero.GatheredParameters(parameters))
        state = None
        if leads:
            state = model.state_dict()
        yield model, state
