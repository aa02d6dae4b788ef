"""A stable place for what a run made: a link in ``output_dir`` to its judge, by the run's ``name``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from judgetrain.errors import ConfigError
from judgetrain.pipeline.config import Config, RunConfig

if TYPE_CHECKING:
    from judgetrain.pipeline.run import Pipeline


def check_name(config: Config) -> None:
    """Refuse (ConfigError) a name that is no name of a file, or that something else than such a link already has."""
    name = config.name
    if not name:
        return
    if name in (".", "..") or Path(name).name != name:
        raise ConfigError(f"name={name!r}: expected a name for the link in output_dir, without a slash; null: no link")
    place = Path(config.output_dir) / name
    # The default's name may be taken by something of the user's, which is then left alone.
    if name != RunConfig.name and place.exists() and not place.is_symlink():
        raise ConfigError(f"name={name!r}: {place} is there and no link to a judge: give the run another name")


def link_newest(pipeline: Pipeline, judges: Sequence[str]) -> None:
    """Let ``output_dir/NAME`` lead to the last judge that the run trained or measured.

    Nothing is said of it: a run's last line is its artifact, which scripts read.

    Args:
        pipeline: of the run.
        judges: the stages of the judges, in the order of the pipeline.
    """
    config = pipeline.config
    if not judges or not config.name:
        return
    place = Path(config.output_dir) / config.name
    target = os.path.relpath(pipeline.plan(judges[-1]).directory / "model", place.parent)
    if place.is_symlink() and os.readlink(place) == target:
        return
    if place.exists() and not place.is_symlink():
        return
    # Beside it and moved into place: whoever follows the link meanwhile finds the old judge or the new one.
    beside = place.with_name(f".{config.name}.{os.getpid()}.tmp")
    try:
        with suppress(FileNotFoundError):
            beside.unlink()
        beside.symlink_to(target, target_is_directory=True)
        beside.replace(place)
    except OSError as error:
        # A file system without links. Not among the lines of the run, of which the last is its artifact.
        print(f"{place}: no link to {target} could be made ({error.strerror})", file=sys.stderr)
