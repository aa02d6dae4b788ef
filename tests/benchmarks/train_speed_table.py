"""What the arms of the training benchmark took, as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class Measured:
    """What one arm took."""

    arm: str
    examples: int
    tokens: int
    seconds: float
    process: float
    megabytes: float
    heldout_loss: float | None
    gigaflops: float | None


def with_reference(measured: Sequence[Measured]) -> list[Measured]:
    """The arms, and what the first run of a sweep takes: this project's training after its reference stage."""
    arms = {m.arm: m for m in measured}
    if not {"reference", "judgetrain"} <= arms.keys():
        return list(measured)
    first, then = arms["reference"], arms["judgetrain"]
    both = replace(
        then,
        arm="judgetrain, reference included",
        seconds=first.seconds + then.seconds,
        process=first.process + then.process,
        megabytes=max(first.megabytes, then.megabytes),
        gigaflops=(first.gigaflops or 0.0) + (then.gigaflops or 0.0),
    )
    return [*measured, both]


def table(measured: Sequence[Measured], parameters: int, peak_flops: float | None) -> list[str]:
    """Markdown rows; speed is against the first arm, by process seconds on a CPU and by the clock on a GPU."""
    gpu, first = torch.cuda.is_available(), measured[0]
    lines = ["| arm | examples/s | tokens/s | process s | peak MB | held-out loss | speed |", "| --- " * 7 + "|"]
    if peak_flops:
        lines = [f"{line} {cell} |" for line, cell in zip(lines, ("MFU", "---"), strict=True)]
    for m in with_reference(measured):
        ratio = first.seconds / m.seconds if gpu else first.process / m.process
        loss = "" if m.heldout_loss is None else f"{m.heldout_loss:.4f}"
        cells = [m.arm, f"{m.examples / m.seconds:.2f}", f"{m.tokens / m.seconds:.0f}", f"{m.process:.1f}"]
        cells += [f"{m.megabytes:.0f}", loss, f"{ratio:.2f}x"]
        if peak_flops:
            cells.append(f"{6 * parameters * m.tokens / m.seconds / peak_flops:.1%}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def operations(measured: Sequence[Measured]) -> list[str]:
    """Markdown rows of floating-point operations, the loop's (and the reference stage's), against the first arm's."""
    lines = ["| arm | GFLOP a pair | held-out loss | of the first |", "| --- " * 4 + "|"]
    for m in with_reference(measured):
        loss = "" if m.heldout_loss is None else f"{m.heldout_loss:.4f}"
        share = (m.gigaflops or 0.0) / (measured[0].gigaflops or math.inf)
        lines.append(f"| {m.arm} | {(m.gigaflops or 0.0) / m.examples:.4f} | {loss} | {share:.3f} |")
    return lines
