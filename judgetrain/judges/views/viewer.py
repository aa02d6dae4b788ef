"""Evaluation trees to look at: self-contained pages, light and dark, from a phone's width up.

    python -m judgetrain.judges.views.viewer outputs/artifacts/label/FINGERPRINT --comparison ID
    python -m judgetrain.judges.views.viewer outputs/artifacts/evaluate/FINGERPRINT --trees trees-BENCHMARK-METHOD

Stages ``label`` and ``evaluate`` write some pages by themselves (``label.view``, ``evaluate.view``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.shards import names_of, read_rows
from judgetrain.artifacts.stage_run import MANIFEST
from judgetrain.errors import DataError, JudgetrainError
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.judges.views.tree_page import View, escape, page, percent, tree_page, verdict_text

INDEX = "index.html"
DIRECTORY = "view"
"""Where in a stage's directory its pages are."""
LONGEST_QUERY = 160
"""Characters of a query in an index."""

Rows = Iterable[Mapping[str, Any]]


def views(trees: Iterable[EvaluationTree], labels: Rows = (), sft: Rows = (), pairs: Rows = ()) -> list[View]:
    """The trees, each with its own label, examples and pairs out of rows of many trees (by ``comparison_id``)."""
    chosen = {tree.comparison.id: tree for tree in trees}
    known = {row["comparison_id"]: row for row in labels if row["comparison_id"] in chosen}
    made: dict[str, tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]] = {i: ([], []) for i in chosen}
    for kind, rows in enumerate((sft, pairs)):
        for row in rows:
            if row["comparison_id"] in made:
                made[row["comparison_id"]][kind].append(row)
    return [View(tree, known.get(i), *made[i]) for i, tree in chosen.items()]


def write_views(found: Sequence[View], directory: Path, title: str) -> Path:
    """Write a page per tree (``00001.html``, ...) and ``index.html``, whose path is given; older pages are removed."""
    for stale in directory.glob("[0-9]" * 5 + ".html"):
        stale.unlink()
    names = [f"{number:05d}.html" for number in range(1, len(found) + 1)]
    for name, view in zip(names, found, strict=True):
        write_text_atomic(directory / name, tree_page(view, INDEX))
    write_text_atomic(directory / INDEX, _index(list(zip(names, found, strict=True)), title))
    return directory / INDEX


def _index(found: Sequence[tuple[str, View]], title: str) -> str:
    facts = list(dict.fromkeys(name for _, view in found for name in view.facts))
    headers = ["query", *facts]
    if any(view.tree.comparison.label for _, view in found):
        headers.append("right verdict")
    if any(view.label for _, view in found):
        headers += ["label", "winner's share", "pairs"]
    rows = "".join(
        f"<tr>{''.join(f'<td>{cells[h]}</td>' for h in headers)}</tr>" for cells in (_cells(*pair) for pair in found)
    )
    head = "".join(f"<th>{escape(header)}</th>" for header in headers)
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    return page(title, f"<h1>{escape(title)}</h1>{table if found else '<p>There are none.</p>'}")


def _cells(name: str, view: View) -> defaultdict[str, str]:
    """The cells of a tree's line by header, escaped; a dash for what is not known."""
    comparison, label = view.tree.comparison, view.label or {}
    query = " ".join(comparison.dialogue.query.split())
    short = query if len(query) <= LONGEST_QUERY else f"{query[:LONGEST_QUERY]}…"
    cells = {"query": f'<a href="{name}">{escape(short) or "(empty)"}</a>'}
    cells |= {fact: escape(value) for fact, value in view.facts.items()}
    if comparison.label:
        cells["right verdict"] = verdict_text(comparison.label)
    if view.label:
        verdict = label.get("verdict")
        cells["label"] = verdict_text(verdict) if verdict else f"none ({escape(label.get('reason'))})"
        cells |= {"winner's share": percent(label.get("share")), "pairs": str(len(view.pairs))}
    return defaultdict(lambda: "–", cells)


def read_views(directory: Path, name: str, ids: Sequence[str], limit: int) -> list[View]:
    """Trees of an artifact: those of ``ids``, or the first ``limit``; of stage ``label`` with what it made of them.

    Raises:
        DataError: the directory is no finished artifact, holds no such trees, or lacks one of ``ids``.
    """
    if not (directory / MANIFEST).is_file():
        raise DataError(f"{directory} holds no {MANIFEST}: give the directory of a finished stage, label or evaluate")
    manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    labelled = manifest["stage"] == "label"
    source = directory.resolve().parents[1] / "tree" / manifest["upstream"]["tree"] if labelled else directory
    _check_trees(source, name)
    trees = (EvaluationTree.from_row(row) for row in read_rows(source, name))
    found = list(islice((t for t in trees if not ids or t.comparison.id in ids), None if ids else limit))
    if missing := set(ids) - {t.comparison.id for t in found}:
        raise DataError(f"{source}: {name} hold no comparison {sorted(missing)[0]!r}; its id stands in their rows")
    if not labelled:
        return views(found)
    sft, pairs = (_both_splits(directory, kind) for kind in ("sft", "pairs"))
    return views(found, read_rows(directory, "labels"), sft, pairs)


def _check_trees(directory: Path, name: str) -> None:
    there = names_of(directory, "trees")
    if not there:
        raise DataError(f"{directory} holds no trees: floors, scorers and judges that are asked once grow none")
    if name not in there:
        raise DataError(f"{directory} has no rows called {name!r}: give --trees with one of {', '.join(there)}")


def _output(artifact: Path) -> Path:
    """Where pages go by default: ``view`` in the output directory that the artifact lies in, as seen from here."""
    place = artifact.absolute().parents
    output = place[2] if len(place) > 2 and place[1].name == "artifacts" else Path("outputs").absolute()
    here = Path.cwd()
    return (output.relative_to(here) if output.is_relative_to(here) else output) / DIRECTORY


def _both_splits(directory: Path, kind: str) -> Iterator[Mapping[str, Any]]:
    for split in ("train", "heldout"):
        yield from read_rows(directory, f"{kind}-{split}")


def main(argv: Sequence[str] | None = None) -> None:
    """The command line; see the module's first lines."""
    parser = argparse.ArgumentParser(
        prog="python -m judgetrain.judges.views.viewer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("artifact", type=Path, help="directory of a finished stage: label, tree, teacher or evaluate")
    parser.add_argument("--comparison", nargs="+", default=[], metavar="ID", help="which trees; else the first ones")
    parser.add_argument("--limit", type=int, default=20, help="how many, where none is named (default: 20)")
    parser.add_argument("--trees", default="trees", metavar="NAME", help="of stage evaluate: trees-BENCHMARK-METHOD")
    parser.add_argument("--output", type=Path, help="where the pages go (default: view in the artifact's output_dir)")
    options = parser.parse_args(argv)
    output = options.output or _output(options.artifact)
    try:
        found = read_views(options.artifact, options.trees, options.comparison, options.limit)
        print(write_views(found, output, f"Evaluation trees of {options.artifact.resolve().parent.name}"))
    except JudgetrainError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
