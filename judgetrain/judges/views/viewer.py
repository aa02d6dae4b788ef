"""Evaluation trees to look at: self-contained pages, light and dark, from a phone's width up.

    python -m judgetrain.judges.views.viewer outputs/artifacts/label/FINGERPRINT --comparison ID
    python -m judgetrain.judges.views.viewer outputs/artifacts/evaluate/FINGERPRINT --trees trees-BENCHMARK-METHOD
    python -m judgetrain.judges.views.viewer outputs/artifacts/judge/FINGERPRINT --comparison ID

Stages ``label``, ``evaluate`` and ``judge`` write some pages by themselves.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from judgetrain.artifacts.fingerprint import fingerprint
from judgetrain.artifacts.integrity import MANIFEST, checked
from judgetrain.artifacts.shards import names_of, read_rows
from judgetrain.errors import DataError, JudgetrainError
from judgetrain.judges.trees.schema import OFFSETS, trees_of
from judgetrain.judges.views.tree_page import DIRECTORY, View, views, write_views
from judgetrain.judges.views.verdict_rows import VERDICTS, verdict_views

T = TypeVar("T")
TREES = "trees"
"""The name of the trees of stages teacher and tree."""


def read_views(directory: Path, name: str, ids: Sequence[str], limit: int) -> list[View]:
    """Trees of an artifact: those of ``ids``, or the first ``limit``; of stage ``label`` with what it made of them.

    Raises:
        DataError: the directory is no finished artifact, holds no such trees, or lacks one of ``ids``.
    """
    if (manifest := checked(directory)) is None:
        raise DataError(f"{directory} holds no {MANIFEST}: give the directory of a finished stage, label or evaluate")
    if manifest["stage"] == "judge":
        rows = ((row["id"], row) for row in read_rows(directory, VERDICTS))
        return verdict_views(_chosen(rows, ids, limit, f"{directory}: {VERDICTS}"))
    labelled = manifest["stage"] == "label"
    source = directory.resolve().parents[1] / "tree" / manifest["upstream"]["tree"] if labelled else directory
    if labelled:
        checked(source)
    there = names_of(source, "trees")
    if not there:
        raise DataError(f"{source} holds no trees: baselines, scorers and judges that are asked once grow none")
    if name not in there:
        raise DataError(f"{source} has no rows called {name!r}: give --trees with one of {', '.join(there)}")
    offset = manifest.get("notes", {}).get(OFFSETS, {}).get(name)
    trees = (tree for row in read_rows(source, name) for tree in trees_of(row, offset))
    found = _chosen(((t.comparison.id, t) for t in trees), ids, limit, f"{source}: {name}")
    if not labelled:
        return views(found)
    sft, pairs = (
        chain(read_rows(directory, f"{kind}-train"), read_rows(directory, f"{kind}-heldout"))
        for kind in ("sft", "pairs")
    )
    return views(found, read_rows(directory, "labels"), sft, pairs)


def _chosen(rows: Iterable[tuple[str, T]], ids: Sequence[str], limit: int, place: str) -> list[T]:
    """The rows of these comparisons, or the first ``limit``."""
    found = list(islice((pair for pair in rows if not ids or pair[0] in ids), None if ids else limit))
    if missing := set(ids) - {name for name, _ in found}:
        raise DataError(f"{place} hold no comparison {sorted(missing)[0]!r}; its id stands in their rows")
    return [row for _, row in found]


def _output(artifact: Path, trees: str, ids: Sequence[str], limit: int) -> Path:
    """Where pages go by default, as seen from here: a folder of ``view`` for each artifact and choice of its trees.

    ``view`` is in the output directory that the artifact lies in. What others look at is left as it is.
    """
    place = artifact.absolute().parents
    output = place[2] if len(place) > 2 and place[1].name == "artifacts" else Path("outputs").absolute()
    here = Path.cwd()
    chosen = fingerprint({"ids": sorted(ids)})[:8] if ids else f"first-{limit}"
    name = "-".join((artifact.resolve().parent.name, artifact.resolve().name, *([trees] * (trees != TREES)), chosen))
    return (output.relative_to(here) if output.is_relative_to(here) else output) / DIRECTORY / name


def main(argv: Sequence[str] | None = None) -> None:
    """The command line; see the module's first lines."""
    parser = argparse.ArgumentParser(
        prog="python -m judgetrain.judges.views.viewer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "artifact", type=Path, help="directory of a finished stage: label, tree, teacher, evaluate or judge"
    )
    parser.add_argument("--comparison", nargs="+", default=[], metavar="ID", help="which trees; else the first ones")
    parser.add_argument("--limit", type=int, default=20, help="how many, where none is named (default: 20)")
    parser.add_argument("--trees", default=TREES, metavar="NAME", help="of stage evaluate: trees-BENCHMARK-METHOD")
    parser.add_argument("--output", type=Path, help="where the pages go (default: a folder in output_dir/view)")
    options = parser.parse_args(argv)
    output = options.output or _output(options.artifact, options.trees, options.comparison, options.limit)
    try:
        found = read_views(options.artifact, options.trees, options.comparison, options.limit)
        print(write_views(found, output, f"Evaluation trees of {options.artifact.resolve().parent.name}"))
    except JudgetrainError as error:
        parser.exit(2, f"judgetrain: {error}\n")


if __name__ == "__main__":
    main()
