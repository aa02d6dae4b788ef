"""The README's table: the quickstart over several seeds, and whether the method's claims hold on it.

    python tests/benchmarks/quickstart_table.py --seeds 17 18 19

Each seed is one run of the main command (its world, models and sampling all follow the seed); finished runs are
reused. Prints a Markdown table of means ± standard deviations (n - 1) over seeds, and the three claims.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Rows = dict[tuple[str, int], dict[str, Any]]


def run(recipe: str, seed: int, output: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Run the main command for a seed; gives its manifest and metrics."""
    command = [sys.executable, "-m", "judgetrain", "stage=evaluate", f"recipe={recipe}", f"seed={seed}"]
    command += [f"output_dir={output}", *overrides]
    print("$", " ".join(command[1:]), file=sys.stderr, flush=True)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    directory = Path(done.stdout.strip().splitlines()[-1].rsplit(": ", 1)[1])
    metrics = json.loads((directory / "metrics.json").read_text())
    return {"rows": {(r["method"], r["branches"]): r for r in metrics}, "seconds": seconds(directory, output)}


def seconds(directory: Path, output: Path) -> float:
    """Time of the evaluation and of everything it was made from, from the manifests."""
    total, waiting, seen = 0.0, [directory / "manifest.json"], set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        manifest = json.loads(path.read_text())
        total += manifest["seconds"]
        waiting += [output / "artifacts" / s / f / "manifest.json" for s, f in manifest["upstream"].items()]
    return total


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


def claims(runs: Sequence[Rows]) -> list[str]:
    """The paper's claims on these runs, each with its figures."""

    def mean(method: str, branches: int, name: str) -> float:
        return statistics.mean(r[method, branches][name] for r in runs)

    most = max(branches for _, branches in runs[0])
    gain = 100 * (mean("initial", most, "agreement") - mean("initial", 1, "agreement"))
    lines = [f"1. Initial, {most} branches against 1: {gain:+.1f} points of agreement (target: at least +5)"]
    for branches in (1, most):
        values = [100 * mean(m, branches, "consistency") for m in ("initial", "sft", "dpo")]
        lines.append(
            f"2. Consistency, {branches} branches, Initial → SFT → DPO: " + " → ".join(f"{v:.1f}" for v in values)
        )
    dpo, initial = 100 * mean("dpo", 1, "agreement"), 100 * mean("initial", most, "agreement")
    share = 100 * mean("dpo", 1, "generated_tokens") / mean("initial", most, "generated_tokens")
    lines.append(
        f"3. DPO, 1 branch: {dpo:.1f} against Initial, {most} branches: {initial:.1f} "
        f"(target: at least as good), at {share:.1f}% of its generated tokens (target: at most 15%)"
    )
    return lines


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[17, 18, 19])
    parser.add_argument("--recipe", default="quickstart")
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("overrides", nargs="*", help="further overrides of the main command")
    options = parser.parse_args()
    done = [run(options.recipe, seed, options.output, options.overrides) for seed in options.seeds]
    rows = [d["rows"] for d in done]
    n = next(iter(rows[0].values()))["n"]
    print(table(rows))
    print(
        f"\nRecipe {options.recipe}, seeds {', '.join(map(str, options.seeds))}, mean ± standard deviation; "
        f"n = {n} held-out comparisons a seed, both orders; {datetime.date.today().isoformat()}; "
        f"{os.cpu_count()} cores; "
        f"{spread([d['seconds'] / 60 for d in done], 1.0)} min a run.\n"
    )
    print("\n".join(claims(rows)))


if __name__ == "__main__":
    main()
