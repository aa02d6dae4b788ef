"""Every comparison with a peer that the pages claim, in one page: docs/results/speed.md.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.figures

Takes about eight minutes of an otherwise idle machine. ``--tiny`` makes a page of sizes that show nothing.
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

How fast judgetrain is beside the best-configured peer, both measured in turns in one run. "Ours" and "peer" are
medians, with the least and the most in brackets. All but the last table count seconds of a processor, on one pinned
core.

```bash
OMP_NUM_THREADS=1 python -m tests.benchmarks.figures
```

Made on {date} at commit {commit}, on {machine} ({cores} cores), Python {python}.
What a GPU, memory and several processes take: [hardware](hardware.md)."""

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
    measured = {}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    facts = {"date": datetime.date.today(), "commit": commit or "unknown", "python": platform.python_version()}
    for title, (_, figures, small) in reversed(PROGRAMS.items()):
        with redirect_stdout(StringIO()):
            measured[title] = figures(**small if options.tiny else {})
        print(f"{title}\n\n{table(measured[title])}\n", flush=True)
    page = [PAGE.format(machine=_processor(), cores=os.cpu_count(), **facts)]
    page += [f"## {t}\n\n`python -m tests.benchmarks.{PROGRAMS[t][0]}`\n\n{table(measured[t])}" for t in PROGRAMS]
    options.out.write_text("\n\n".join(page) + "\n", encoding="utf-8")


def _processor() -> str:
    """Return the name that Linux gives the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
