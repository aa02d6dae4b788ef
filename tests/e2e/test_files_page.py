"""docs/files.md names every file that the stages of the debug recipe leave."""

import re
from pathlib import Path

import pytest

from tests.builders.debug_run import finished_once
from tests.pipeline.test_docs import ROOT

PAGE = ROOT / "docs" / "files.md"
SHARD = re.compile(r"^(\w+)-.*\d{5}-of-\d{5}")
"""The name of a shard: what its rows are, perhaps more, its number and how many there are."""


def listed(text: str) -> dict[str, set[str]]:
    """Return the names of files by stage, as the page's table has them."""
    names: dict[str, set[str]] = {}
    for line in text.partition("## Files that stages write")[2].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 2:
            # A word in backticks is a file if it has an ending, or is a folder.
            files = {name.rstrip("/") for name in re.findall(r"`([\w*-]+(?:\.\w+|/))`", cells[1])}
            for stage in re.findall(r"`(\w+)`", cells[0]) or ["every stage"]:
                names.setdefault(stage, set()).update(files)
    return names


def test_the_page_names_every_file_of_the_debug_recipe(tmp_path_factory: pytest.TempPathFactory) -> None:
    names = listed(PAGE.read_text(encoding="utf-8"))
    written: dict[str, set[str]] = {}
    # Hidden files are what a stopped run goes on from.
    for path in Path(finished_once(tmp_path_factory)).glob("artifacts/*/*/[!.]*"):
        written.setdefault(path.parts[-3], set()).add(SHARD.sub(r"\1-*", path.name))
    assert {"dialogues", "label", "dpo", "evaluate"} <= written.keys()
    for stage, files in written.items():
        assert files <= names[stage] | names["every stage"], (
            f"{stage}: {files - names[stage]} stand in no row of files.md"
        )
