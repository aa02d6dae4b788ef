"""What the benchmark programs share: a command line whose help is the program's docstring, turns, and tables."""

from __future__ import annotations

import argparse
import inspect
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from judgetrain.artifacts.fingerprint import version_of


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows the docstring as it is laid out."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def with_overrides(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, list[str]]:
    """Return a command line's options, and beside them the overrides of a recipe, as ``data_dir=DIR``."""
    words = sys.argv[1:]
    overrides = [word for word in words if "=" in word and not word.startswith("--")]
    return parser.parse_args([word for word in words if word not in overrides]), overrides


def made_by(command: Sequence[str], name: str) -> Path:
    """Run a main command, its lines passed on to standard error, and return its artifact's directory.

    Args:
        command: the program and its arguments.
        name: of the run, before each line.

    Raises:
        RuntimeError: the command failed; the message says which run.
    """
    print("$ python", *command[1:], file=sys.stderr, flush=True)
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(f"{name}: {line}", end="", file=sys.stderr, flush=True)
            last = line.strip() or last
    if process.returncode:
        raise RuntimeError(f"{name}: the main command ended with exit code {process.returncode}; see above")
    # The last line of a run ends with its artifact.
    return Path(last.rsplit(": ", 1)[1])


def program(doc: str | None, figures: Callable[..., Sequence[Figure]]) -> None:
    """Run the command line that prints the table of some figures; their numbers and texts are its options."""
    parser = parser_of(doc)
    for name, parameter in inspect.signature(figures).parameters.items():
        if isinstance(parameter.default, int | float | str):
            parser.add_argument(f"--{name}", type=type(parameter.default), default=parameter.default)
    print(table(figures(**vars(parser.parse_args()))))


@dataclass(frozen=True)
class Figure:
    """What was measured of one workload, ours and the best-configured peer's, in turns."""

    workload: str
    unit: str
    ours: Sequence[float]
    peers: Sequence[float]
    peer: str
    """Its name, version and options, which stand below the table."""
    note: str = ""

    @property
    def ratio(self) -> float:
        """Return how many times as fast we are, by medians: units are of time unless they are ``.../s``."""
        ours = statistics.median(self.ours)
        peers = statistics.median(self.peers)
        return ours / peers if self.unit.endswith("/s") else peers / ours


def table(figures: Sequence[Figure]) -> str:
    """Markdown: medians with the least and the most, their ratio, and below what the peers are."""
    rows = ["| workload | | ours | peer | ours is | |", "| --- | --- | --- | --- | --- | --- |"]
    for f in figures:
        cells = (f.workload, f.unit, _said(f.ours), _said(f.peers), f"{f.ratio:.2f} times as fast", f.note)
        rows.append(f"| {' | '.join(cells)} |")
    peers = dict.fromkeys(f.peer for f in figures)
    return "\n".join([*rows, "", *(f"Peer: {peer}." for peer in peers)])


def _said(values: Sequence[float]) -> str:
    middle = statistics.median(values)
    low = min(values)
    high = max(values)
    return f"{middle:.3g}" if len(values) == 1 else f"{middle:.3g} ({low:.3g} to {high:.3g})"


def one_core() -> None:
    """Have this process run on one core with one thread; ``taskset`` may have chosen it already."""
    import torch

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)


def in_turns(arms: Mapping[str, Callable[[], float | None]], repeats: int) -> dict[str, list[float]]:
    """Return the CPU seconds of each arm, run in turns ``repeats`` times; an arm may return its seconds itself."""
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(repeats):
        for name, arm in arms.items():
            began = time.process_time()
            taken_seconds = arm()
            if taken_seconds is None:
                taken_seconds = time.process_time() - began
            seconds[name].append(taken_seconds)
    return seconds


def versions(*packages: str) -> str:
    """Return packages with their versions, as ``torch 2.13.0, trl 1.16.0``."""
    names = []
    for package in packages:
        number = version_of(package)
        names.append(f"{package} {number}" if number else f"no {package}")
    return ", ".join(names)
