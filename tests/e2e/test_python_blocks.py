"""Every block of Python in README.md and docs/ runs as printed, or another test runs it."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.builders.debug_run import finished_once
from tests.builders.page_home import Block, blocks, furnish
from tests.pipeline.test_docs import PAGES, ROOT

ELSEWHERE = {
    "README.md": "tests/e2e/test_readme.py",
    "docs/extending.md": "tests/e2e/test_installed_rooms.py, and one line tests/evaluate/test_rows.py",
    "docs/frameworks.md": "tests/e2e/test_framework_blocks.py, where the frameworks are installed",
    "docs/tutorials/": "tests/e2e/test_tutorials.py",
}
"""What else runs the blocks of a page, or of a folder's pages."""
FRAMEWORKS = re.compile(r"^(?:from|import) (?:inspect_ai|verifiers)", re.MULTILINE)


def elsewhere(page: Path) -> str | None:
    """Return the test that runs a page's blocks; None of a page whose blocks are run here."""
    name = str(page.relative_to(ROOT))
    return next((test for place, test in ELSEWHERE.items() if name.startswith(place)), None)


def python_blocks(page: Path) -> list[Block]:
    """Return a page's blocks of Python."""
    return [block for block in blocks(page) if block.language == "python"]


ON_A_GPU = "GRPOTrainer("
"""What stands in blocks that ask for a GPU by TRL's defaults: tests/e2e/test_tutorials.py runs one that does not."""
RUN = [
    (page, block)
    for page in PAGES
    if not elsewhere(page)
    for block in python_blocks(page)
    if ON_A_GPU not in block.text
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a copy of a finished run and every file that a page names."""
    place = tmp_path_factory.mktemp("blocks")
    furnish(place, finished_once(tmp_path_factory))
    return place


@pytest.mark.parametrize(
    ("page", "block"), RUN, ids=lambda value: value.name if isinstance(value, Path) else value.line
)
def test_a_block_runs_as_printed(
    page: Path, block: Block, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home)
    text = block.text
    # Its lines count as they do in the page.
    code = compile("\n" * (block.line - 1) + text, str(page), "exec")
    exec(code, {"__name__": "__main__"})
    if "print(" in text:
        assert capsys.readouterr().out.strip()


def test_every_block_of_another_framework_is_on_the_page_whose_blocks_run_with_it() -> None:
    pages: Sequence[Path] = [page for page, block in RUN if FRAMEWORKS.search(block.text)]
    assert not pages, "move the example to docs/frameworks.md, or install the framework where it runs"
