"""The README's table: the quickstart over several seeds, and what each stage gains on it.

    python -m tests.benchmarks.quickstart_table --seeds 101 102 103 104 105 --n 500

Each seed is one run of the main command (its world, models and sampling all follow the seed); finished runs are
reused. Prints a Markdown table of means ± standard deviations (n - 1) over seeds, the ceilings, and differences on the
seeds' held-out comparisons pooled: no two have a query in common, so that every comparison is a prompt of its own.
Judge rl is part of the table where evaluate.methods names it.
"""

import datetime
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from judgetrain.artifacts.integrity import MANIFEST, lineage
from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.language import Kind, load_language
from judgetrain.evaluate.metrics.intervals import paired_difference
from judgetrain.judges.base import verdict_of
from judgetrain.schema import Comparison
from tests.benchmarks.common import parser_of

Key = tuple[str, int]
Rows = dict[Key, dict[str, Any]]
STAGES = ("initial+vote", "sft", "dpo", "rl")
RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True)
class Seed:
    """One seed's run: its rows of ``metrics.json``, which comparisons each row got right (strict agreement), and the
    agreement of perfect readers of one criterion and of both."""

    rows: Rows
    right: Mapping[Key, Sequence[bool]]
    one: float = 0.0
    both: float = 0.0


def differences(seeds: Sequence[Seed]) -> list[str]:
    """Each judge against the one before it with as many branches, and trained ones against the Initial judge with the
    most, pooled: a line each."""
    counts = sorted({k for method, k in seeds[0].rows if method in STAGES})
    present = [s for s in STAGES if all((s, k) in seed.rows for seed in seeds for k in counts)]
    pairs = [((b, k), (a, k)) for a, b in pairwise(present) for k in counts]
    if STAGES[0] in present:
        pairs += [((judge, k), (STAGES[0], counts[-1])) for judge in present[1:] for k in counts]
    return [_difference(seeds, first, second) for first, second in dict.fromkeys(pairs)]


def _difference(seeds: Sequence[Seed], first: Key, second: Key) -> str:
    a, b = ([right for seed in seeds for right in seed.right[key]] for key in (first, second))
    found = paired_difference(a, b, RESAMPLES, 0)
    assert found is not None
    low, high = found.interval or (found.mean, found.mean)
    ends = f"[{100 * low:.1f}, {100 * high:.1f}]"
    names = f"{first[0]}@{first[1]} less {second[0]}@{second[1]}"
    return f"- {names}: {100 * found.mean:+.1f} {ends} points on {len(a)} comparisons"


def run(recipe: str, seed: int, output: Path, overrides: Sequence[str]) -> Path:
    """Run the main command for a seed, its lines passed on to standard error; gives the artifact's directory."""
    command = [sys.executable, "-m", "judgetrain", "stage=evaluate", f"recipe={recipe}", f"seed={seed}"]
    command += [f"output_dir={output}", *overrides]
    print("$ python", *command[1:], file=sys.stderr, flush=True)
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", file=sys.stderr, flush=True)
            last = line.strip() or last
    if process.returncode:
        sys.exit(f"seed {seed}: the main command ended with exit code {process.returncode}; see above")
    return Path(last.rsplit(": ", 1)[1])


def seconds(directory: Path) -> float:
    """Time of the evaluation and of everything it was made from, from the manifests."""
    return sum(json.loads((each / MANIFEST).read_text())["seconds"] for each in lineage(directory))


def spread(values: Sequence[float], scale: float = 100.0, digits: int = 1) -> str:
    """Mean ± standard deviation."""
    mean = scale * statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {scale * statistics.stdev(values):.{digits}f}"


def table(runs: Sequence[Rows]) -> str:
    """One row per method and number of branches."""
    lines = [
        "| judge | branches | agreement % | consistency % | tokens per verdict |",
        "| --- | --- | --- | --- | --- |",
    ]
    for method, branches in runs[0]:
        rows = [r[method, branches] for r in runs]
        cells = [spread([row[name] for row in rows]) for name in ("agreement", "consistency")]
        tokens = spread([row["generated_tokens"] for row in rows], 1.0, 0)
        lines.append(f"| {method} | {branches or '–'} | {cells[0]} | {cells[1]} | {tokens} |")
    return "\n".join(lines)


def reader(comparisons: Sequence[Comparison], criteria: Callable[[Kind], Sequence[str]]) -> float:
    """The agreement of a perfect reader of some criteria, which depend on the kind of query; by their vote."""
    language = load_language()

    def right(comparison: Comparison) -> bool:
        votes = 0
        for name in criteria(language.kinds[language.kind_of(comparison.dialogue.query)]):
            a, b = (language.grade(text, name) for text in (comparison.response_a, comparison.response_b))
            votes += (a > b) - (a < b)
        return verdict_of(votes) == comparison.label

    return statistics.mean(map(right, comparisons))


def load(directory: Path, seed: int) -> Seed:
    """A finished run: its rows on the world, which comparisons each got right, and the ceilings."""
    import pyarrow.parquet

    metrics = json.loads((directory / "metrics.json").read_text())
    rows = {(r["method"], r["branches"]): r for r in metrics if r["benchmark"] == "world"}
    right: dict[Key, list[bool]] = {}
    for row in pyarrow.parquet.read_table(directory / "predictions.parquet").to_pylist():
        if row["benchmark"] == "world":
            agreed = row["label"] == row["verdict_ab"] == row["verdict_ba"]
            right.setdefault((row["method"], row["branches"]), []).append(agreed)
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=next(iter(rows.values()))["n"]), seed)
    one, both = (reader(comparisons, by) for by in (lambda kind: [kind.primary], lambda kind: kind.crucial))
    return Seed(rows=rows, right=right, one=one, both=both)


def main() -> None:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103, 104, 105])
    parser.add_argument("--n", type=int, help="held-out comparisons of a seed; without it the recipe's")
    parser.add_argument("--recipe", default="quickstart")
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    # What is no option is an override of the main command, wherever it stands: --seeds would swallow what follows it.
    options, overrides = parser.parse_known_args([a for a in sys.argv[1:] if "=" not in a or a.startswith("--")])
    overrides += [a for a in sys.argv[1:] if "=" in a and not a.startswith("--")]
    if options.n:
        overrides.append(f"dialogues.world.eval_comparisons={options.n}")
    directories = [run(options.recipe, seed, options.output, overrides) for seed in options.seeds]
    found = [load(d, seed) for d, seed in zip(directories, options.seeds, strict=True)]
    rows = [seed.rows for seed in found]
    minutes = spread([seconds(d) / 60 for d in directories], 1.0)
    print(table(rows))
    for name, criteria in (("one", "the primary criterion"), ("both", "both crucial criteria")):
        ceiling = spread([getattr(seed, name) for seed in found])
        print(f"| perfect reader of {criteria} | – | {ceiling} | 100.0 | – |")
    n = " and ".join(sorted({str(next(iter(r.values()))["n"]) for r in rows}))
    print(
        f"\nRecipe {options.recipe}{''.join(f' {o}' for o in overrides)}, seeds "
        f"{', '.join(map(str, options.seeds))}, mean ± standard deviation; n = {n} held-out comparisons a seed, both "
        f"orders; {datetime.date.today().isoformat()}; {os.cpu_count()} cores; {minutes} min a run.\n"
    )
    print("\n".join(differences(found)))


if __name__ == "__main__":
    main()
