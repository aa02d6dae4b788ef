"""Every page is of one kind: a tutorial, a how-to, reference or results (mkdocs.yml says which).

Guides hold no date and no commit, so that they never grow old. Results name what made their tables. The page of methods
has what the code has.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from judgetrain.judges.kinds.kind import kinds
from judgetrain.judges.method import BASELINE, BRANCHING, OPTIONS
from tests.pipeline.test_docs import ROOT

DOCS = ROOT / "docs"
KINDS = ("Tutorials", "How-to", "Reference", "Results")
MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
DATE = re.compile(rf"\b\d{{1,2}} {MONTH}\b|\b{MONTH} 20\d\d\b|\b20\d\d-\d\d-\d\d\b")
HASH = re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])(?:[0-9a-f]{7,10}|[0-9a-f]{40})\b")
"""A commit, short or whole: at least one digit and one letter, so that neither a number nor a word is one."""
MADE_BY = re.compile(r"```bash\n|`[^`\n]*(?:python -m |tests/|recipe=|stage=)[^`\n]*`|\barithmetic\b")
"""What a section of results names: a command, a program, a recipe, or that it is arithmetic."""


def pages_by_kind() -> dict[str, list[Path]]:
    """Return the pages of each kind, as the navigation has them."""
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    kinds = {}
    for part in navigation:
        ((title, content),) = part.items()
        if title in KINDS:
            kinds[title] = [DOCS / name for name in names_in(content)]
    return kinds


def names_in(part: Any) -> Iterator[str]:
    """Yield the names of the pages in a part of the navigation."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        for content in part.values():
            yield from names_in(content)
    else:
        for content in part:
            yield from names_in(content)


BY_KIND = pages_by_kind()
GUIDES = [page for kind in KINDS[:3] for page in BY_KIND[kind]]
MEASURED = [page for page in BY_KIND["Results"] if page.parent.name == "results" and page.name != "README.md"]


def name_of(page: Path) -> str:
    """Return a page's path under docs/."""
    return str(page.relative_to(DOCS))


def test_every_page_has_one_kind() -> None:
    listed = [page for kind in KINDS for page in BY_KIND[kind]]
    pages = set(DOCS.rglob("*.md")) - {DOCS / "README.md"}
    assert sorted(page for page in listed if page.suffix == ".md") == sorted(pages)


@pytest.mark.parametrize("page", [page for page in GUIDES if page.suffix == ".md"], ids=name_of)
def test_a_guide_has_no_date_and_no_commit(page: Path) -> None:
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        dated = DATE.search(line) or HASH.search(line)
        assert dated is None, f"{page.name}:{number}: {dated[0]} is of an experiment: move it to docs/results"


@pytest.mark.parametrize("page", MEASURED, ids=name_of)
def test_a_table_of_results_names_what_made_it(page: Path) -> None:
    # What stands before the first heading is a summary of the page, unless the page is one table.
    summary, *sections = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for section in sections or [summary]:
        assert "\n| ---" not in section or MADE_BY.search(section), f"{page.name}: {section.splitlines()[0]}"


@pytest.mark.parametrize("page", MEASURED, ids=name_of)
def test_commits_that_results_name_are_in_the_repository(page: Path) -> None:
    shallow = subprocess.run(
        ["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if shallow.stdout.strip() != "false":
        pytest.skip("this copy has no history to look into")
    for commit in sorted(set(HASH.findall(page.read_text(encoding="utf-8")))):
        known = subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, check=False)
        assert known.returncode == 0, f"{page.name}: commit {commit} is not in this repository"


def test_the_page_of_methods_has_every_kind_and_option() -> None:
    page = (DOCS / "methods.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`\+(\w+)`", page)) == set(OPTIONS)
    rows = [
        line.split(" | ") for line in page.partition("## Kinds of judges")[2].splitlines() if line.startswith("| `")
    ]
    for kind in kinds():
        if kind.name in (BRANCHING, BASELINE):
            forms = [kind.forms.evaluate.partition(",")[0]]
        else:
            forms = [f"{kind.name}:"]
        for form in forms:
            (row,) = [cells for cells in rows if f"`{form}" in cells[0]]
            # What cannot be built by itself is a method of an evaluation alone.
            assert (row[-1].rstrip(" |") == "E") == (kind.build is None), kind.name
    for name in ("initial", "sft", "dpo", "rl", "base", "teacher", "external", "random", "first", "longer", "surface"):
        assert any(f"`{name}`" in cells[0] for cells in rows), name
