"""Takes the picture of two judges side by side, docs/figures/view.png, of a page that ``judgetrain view`` wrote.

    python -m judgetrain stage=evaluate
    python -m judgetrain view outputs 'view.judges=[dpo@1,initial+vote@1]'
    python -m tests.builders.view_picture 'outputs/views/dpo@1-initial+vote@1.html' 5

The number is the row's that stands open. Needs Chromium.
"""

import argparse
from pathlib import Path

from tests.builders.browser import Browser

PICTURE = Path(__file__).parents[2] / "docs" / "figures" / "view.png"
WIDTH = 1100
"""Of the picture, in pixels; the page's margins are within."""
OPEN = """(() => {
  document.getElementById("differ").value = "yes";
  document.getElementById("filters").dispatchEvent(new Event("input"));
  const row = document.querySelectorAll("details.row")[%d];
  row.open = true;
})()"""
"""Leaves the rows on which the judges disagree, and opens one of them by its place."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("row", type=int)
    parser.add_argument("--out", type=Path, default=PICTURE)
    options = parser.parse_args()
    with Browser() as browser:
        browser.open(options.page, WIDTH)
        browser.value(OPEN % (options.row - 1))
        height = browser.value("Math.ceil(document.querySelector('details.row[open]').getBoundingClientRect().bottom)")
        options.out.write_bytes(browser.picture(WIDTH, height + 16))


if __name__ == "__main__":
    main()
