"""Checkpoints that are whole: how they are marked and found. Nothing here needs PyTorch."""

from pathlib import Path

from judgetrain.artifacts.files import read_json

COMPLETE = "complete"
"""The file that marks a checkpoint as wholly written, by every process, with finite weights."""


def complete_checkpoints(directory: Path) -> list[tuple[int, Path]]:
    """Return the steps and directories of the complete checkpoints, oldest first.

    One whose files have other sizes than its mark says was cut after it was written, and is not complete.
    """
    checkpoints = []
    for path in directory.glob(f"*-*/{COMPLETE}"):
        checkpoint = path.parent
        # A mark that cannot be read is None.
        mark = read_json(path)
        if isinstance(mark, dict) and mark.get("bytes") == sizes(checkpoint):
            # checkpoint-50 is that of step 50.
            step = int(checkpoint.name.rsplit("-", 1)[1])
            checkpoints.append((step, checkpoint))
    return sorted(checkpoints)


def sizes(checkpoint: Path) -> dict[str, int]:
    """Return the size in bytes of each file of a checkpoint but its mark."""
    bytes_of_file = {}
    for path in sorted(checkpoint.rglob("*")):
        if path.is_file() and path.name != COMPLETE:
            bytes_of_file[str(path.relative_to(checkpoint))] = path.stat().st_size
    return bytes_of_file
