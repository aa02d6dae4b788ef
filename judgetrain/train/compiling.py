"""Compiling a model's repeated blocks for training: PyTorch's regional compilation, in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def compiled(model: nn.Module) -> str:
    """Compile the blocks of a model; the sentence for the log: how many, or why not."""
    if why := no_compiler():
        return f"regional_compilation is left out, since {why}"
    if not (number := compile_blocks(model)):
        return "regional_compilation is left out, since the model has no repeated blocks"
    return f"{number} blocks are compiled at the first steps, which take longer"


def compile_blocks(model: nn.Module) -> int:
    """Have every block of the model's stacks of like blocks compiled by ``torch.compile`` at its first call.

    In place: names of weights, saving and wrapping (PEFT, DDP) stay as they are, and the blocks share what is compiled.
    Lengths are dynamic, so that batches of another width need no other code.

    Returns:
        How many blocks; 0 where the model has no such stack.
    """
    from accelerate.utils.other import is_repeated_blocks  # type: ignore[import-untyped]

    stacks = [module for module in model.modules() if is_repeated_blocks(module)]
    blocks = [block for stack in stacks if len([*stack.children()]) > 1 for block in stack.children()]
    for block in blocks:
        block.compile(dynamic=True)
    return len(blocks)


def no_compiler() -> str | None:
    """What ``torch.compile`` lacks on this machine, on a GPU too (Triton calls a compiler of C), or None."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError):
        return "there is no C++ compiler (g++ or clang++)"
    return None
