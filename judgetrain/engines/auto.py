"""The engine type ``auto``: the type that measurements name for a machine of this kind."""

import importlib.util
import os
import shutil
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from judgetrain.engines.base import Engine
from judgetrain.engines.config import (
    GenerateEngineConfig,
    LocalEngineConfig,
    TransformersEngineConfig,
    VllmEngineConfig,
    engine_type,
)
from judgetrain.keys import key

DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""What a machine with a GPU has one of: NVIDIA's driver, AMD's, or that of Windows below Linux."""
COMPILERS = ("cc", "gcc", "clang")
"""A GPU's steps are compiled by one of these, as Triton looks for them."""


@dataclass
class ChosenVllmConfig(VllmEngineConfig):
    """vLLM that nobody has named: stage ``rl``, whose training needs the GPU as well, samples without it."""


@engine_type("auto")
@dataclass
class AutoEngineConfig(LocalEngineConfig):
    """A model run by the engine that measurements name for a machine of this kind (:func:`type_here`).

    A run puts another object in its place before anything is planned (:meth:`as_type`). The keys are those of the types
    that may be chosen; the chosen one leaves out those of the others.
    """

    type: str = "auto"
    batch_size: int = key(
        TransformersEngineConfig.batch_size, "requests decoded together", low=1, unit="requests", in_fingerprint=False
    )
    tensor_parallel_size: int = key(1, "GPUs that share out every layer", low=1, unit="GPUs", in_fingerprint=False)
    vllm: dict[str, Any] = key(
        {}, "further arguments of vllm.LLM, as in {gpu_memory_utilization: 0.85}", active_if=lambda c: bool(c.vllm)
    )

    makes = "judgetrain.engines.auto:make_type_here"
    continues = True

    def as_type(self, name: str) -> LocalEngineConfig:
        """Return the configuration of an engine of another type, a key of :data:`TYPES`, with the same model."""
        kind = TYPES[name]
        names = {field.name for field in fields(kind)} - {"type"}
        settings = {field.name: getattr(self, field.name) for field in fields(self) if field.name in names}
        # vLLM shares out every layer, the others whole ones; on how many GPUs may be said by either key.
        gpus = max(self.model.gpus, self.tensor_parallel_size)
        if kind is ChosenVllmConfig:
            settings |= {"model": replace(self.model, gpus=1), "tensor_parallel_size": gpus}
        else:
            settings["model"] = replace(self.model, gpus=gpus)
        return kind(**settings)


TYPES: dict[str, type[LocalEngineConfig]] = {
    "transformers": TransformersEngineConfig,
    "generate": GenerateEngineConfig,
    "vllm": ChosenVllmConfig,
}
"""The types that ``auto`` may stand for."""


def has_gpu() -> bool:
    """Return whether PyTorch can use a GPU here."""
    # PyTorch takes seconds to import, and most machines without a GPU have no driver.
    if not any(Path(driver).exists() for driver in DRIVERS):
        return False
    import torch

    return torch.cuda.is_available()


def type_here() -> str:
    """Return the type that ``auto`` stands for on this machine, a key of :data:`TYPES`.

    Without a GPU it is the project's own decoder, type ``transformers``, which writes more tokens a second there than
    ``generate`` (docs/results/speed.md). On a GPU it is vLLM where that is installed, by its makers' measurements: ours
    have none. Else it is ``generate`` with a static cache, which needs a compiler: on the one GPU that was measured the
    own decoder has 0.36 of its tokens a second at 0.5B (docs/results/hardware.md). At 7B it was not measured.
    """
    if not has_gpu():
        return "transformers"
    if importlib.util.find_spec("vllm") is not None:
        return "vllm"
    if os.environ.get("CC") or any(shutil.which(compiler) for compiler in COMPILERS):
        return "generate"
    return "transformers"


def make_type_here(config: AutoEngineConfig) -> Engine:
    """Return the engine of a configuration that no run has resolved, as a caller in Python makes one."""
    from judgetrain.engines.lazy_model import make_engine

    return make_engine(config.as_type(type_here()))
