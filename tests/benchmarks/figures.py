"""The comparisons with peers of one environment, measured anew in their places of docs/results/speed.md.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.figures

Takes about eight minutes of an otherwise idle machine. What stands between the marks of a program is made anew; all
else on the page is written by hand and stays. ``--tiny`` measures sizes that show nothing, ``--out`` writes elsewhere.
"""

import datetime
import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from tests.benchmarks import busy_machine, decoding_speed, scorers_speed, train_speed
from tests.benchmarks.common import Figure, parser_of, table

PAGE = """# How fast is it beside others?

```bash
OMP_NUM_THREADS=1 python -m tests.benchmarks.figures
```
"""
"""A page that is not there yet."""
BEGINNING = "<!-- made by tests.benchmarks.{name} -->"
END = "<!-- the end of what {name} made -->"

PROGRAMS: dict[str, tuple[str, Callable[..., list[Figure]], Mapping[str, Any]]] = {
    "Training": ("train_speed", train_speed.figures, {"comparisons": 12, "repeats": 1}),
    "Sampling": ("decoding_speed", decoding_speed.figures, {"comparisons": 1, "criteria": 8, "repeats": 1}),
    "Scoring": ("scorers_speed", scorers_speed.figures, {"prompts": 8, "repeats": 1}),
    "A busy machine": ("busy_machine", busy_machine.figures, {"busy": (1,), "seconds": 0.1, "repeats": 1}),
}
"""Each section's program, what measures, and its options under ``--tiny``. The last needs all cores: it goes first."""


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("docs/results/speed.md"))
    options = parser.parse_args()
    page = PAGE
    if options.out.is_file():
        page = options.out.read_text(encoding="utf-8")
    # Before minutes of measuring: a page without its marks is refused at once.
    for title, (name, _, _) in PROGRAMS.items():
        page = with_marks(page, title, name)
    for title, (name, figures, small) in reversed(PROGRAMS.items()):
        with redirect_stdout(StringIO()):
            measured = figures(**small if options.tiny else {})
        print(f"{title}\n\n{table(measured)}\n", flush=True)
        page = between_marks(page, name, f"`python -m tests.benchmarks.{name}`, {_made()}\n\n{table(measured)}")
    options.out.write_text(page, encoding="utf-8")
    print(f"{options.out}: what stands outside the marks is of earlier figures: read it again")


def with_marks(page: str, title: str, name: str) -> str:
    """Return a page that has a program's marks: as it is, or with a new section of this title at its end.

    Raises:
        ValueError: the page has such a section without the marks, or one mark alone.
    """
    beginning = BEGINNING.format(name=name)
    end = END.format(name=name)
    if 0 <= page.find(beginning) < page.find(end):
        return page
    if beginning in page or end in page or f"## {title}\n" in page:
        raise ValueError(f"section {title!r} of the page: expected what is made between {beginning} and {end}")
    return f"{page.rstrip()}\n\n## {title}\n\n{beginning}\n{end}\n"


def between_marks(page: str, name: str, text: str) -> str:
    """Return a page with a text in the place of what stands between a program's marks."""
    beginning = BEGINNING.format(name=name)
    end = END.format(name=name)
    before, _, rest = page.partition(beginning)
    _, _, after = rest.partition(end)
    return f"{before}{beginning}\n\n{text}\n\n{end}{after}"


def _made() -> str:
    """Return when and where figures are made, as a page says it."""
    described = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    commit = described.stdout.strip() or "unknown"
    machine = f"{_processor()} ({os.cpu_count()} cores), Python {platform.python_version()}"
    return f"{datetime.date.today()}, commit {commit}, {machine}."


def _processor() -> str:
    """Return the name that Linux gives the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
