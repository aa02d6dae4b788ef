"""The README's table: the quickstart over several seeds, and whether the method's claims hold on it.

    python tests/benchmarks/quickstart_table.py --seeds 17 18 19

Each seed is one run of the main command (its world, models and sampling all follow the seed); finished runs are
reused. Prints a Markdown table of means ± standard deviations (n - 1) over seeds, and each claim with its figures,
whether it is met on the mean, and in how many of the seeds. Exit code 0 whether or not the claims are met.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Rows = dict[tuple[str, int], dict[str, Any]]
JUDGES = ("initial", "sft", "dpo")
GAIN = 0.05
SHARE = 0.15
EPSILON = 1e-9
"""Room for rounding: a target that is reached exactly is met."""


@dataclass(frozen=True)
class Claim:
    """A claim with its figures, and whether it holds on the mean and on each seed."""

    text: str
    met: bool
    by_seed: tuple[bool, ...]

    def __str__(self) -> str:
        seeds = f"{sum(self.by_seed)} of {len(self.by_seed)} seeds"
        return f"{self.text}: **{'met' if self.met else 'not met'}** ({seeds})"


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


def read(directory: Path, benchmark: str | None) -> Rows:
    """The metrics of one benchmark by method and branches; the first benchmark when none is named."""
    rows = json.loads((directory / "metrics.json").read_text())
    wanted = benchmark or rows[0]["benchmark"]
    found = {(r["method"], r["branches"]): r for r in rows if r["benchmark"] == wanted}
    if not found:
        sys.exit(f"no benchmark {wanted!r}; there are {', '.join(sorted({r['benchmark'] for r in rows}))}")
    return found


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


def claims(runs: Sequence[Rows]) -> list[Claim]:
    """The paper's claims on these runs; none when a judge of the three is missing."""
    counts = sorted({branches for method, branches in runs[0] if method in JUDGES})
    if not counts or any((judge, k) not in r for r in runs for judge in JUDGES for k in (counts[0], counts[-1])):
        return []
    few, most = counts[0], counts[-1]

    def mean(method: str, branches: int, name: str) -> float:
        return statistics.mean(r[method, branches][name] for r in runs)

    gain = 100 * (mean("initial", most, "agreement") - mean("initial", few, "agreement"))
    target = f"target: at least {100 * GAIN:+.0f}"
    text = f"1. Initial, {most} branches against {few}: {gain:+.1f} points of agreement ({target})"
    result = [_claim(text, runs, lambda at: _gain(at, few, most))]
    for k in dict.fromkeys((few, most)):
        values = " → ".join(f"{100 * mean(m, k, 'consistency'):.1f}" for m in JUDGES)
        text = f"2. Consistency with {k} branches, Initial → SFT → DPO: {values} (target: never falls)"
        result.append(_claim(text, runs, lambda at, k=k: _rises(at, k)))  # type: ignore[misc]
    dpo, initial = 100 * mean("dpo", few, "agreement"), 100 * mean("initial", most, "agreement")
    share = mean("dpo", few, "generated_tokens") / mean("initial", most, "generated_tokens")
    text = (
        f"3. DPO, {few} branch{'es' if few > 1 else ''}: agreement {dpo:.1f} against {initial:.1f} of Initial with "
        f"{most} (target: at least as good), with {share:.1%} of its generated tokens (target: at most {SHARE:.0%})"
    )
    return [*result, _claim(text, runs, lambda at: _cheaper(at, few, most))]


Mean = Callable[[str, int, str], float]


def _claim(text: str, runs: Sequence[Rows], holds: Callable[[Mean], bool]) -> Claim:
    def over(some: Sequence[Rows]) -> Mean:
        return lambda method, branches, name: statistics.mean(r[method, branches][name] for r in some)

    return Claim(text, holds(over(runs)), tuple(holds(over([r])) for r in runs))


def _gain(at: Mean, few: int, most: int) -> bool:
    return at("initial", most, "agreement") - at("initial", few, "agreement") >= GAIN - EPSILON


def _rises(at: Mean, branches: int) -> bool:
    initial, sft, dpo = (at(m, branches, "consistency") for m in JUDGES)
    return initial <= sft + EPSILON and sft <= dpo + EPSILON


def _cheaper(at: Mean, few: int, most: int) -> bool:
    as_good = at("dpo", few, "agreement") >= at("initial", most, "agreement") - EPSILON
    tokens = at("dpo", few, "generated_tokens"), at("initial", most, "generated_tokens")
    return as_good and tokens[0] <= SHARE * tokens[1] + EPSILON


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[17, 18, 19])
    parser.add_argument("--recipe", default="quickstart")
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--benchmark", help="of several, the one to print; the first by default")
    # What is no option is an override of the main command, wherever it stands: --seeds would swallow what follows it.
    options, overrides = parser.parse_known_args([a for a in sys.argv[1:] if "=" not in a or a.startswith("--")])
    overrides += [a for a in sys.argv[1:] if "=" in a and not a.startswith("--")]
    directories = [run(options.recipe, seed, options.output, overrides) for seed in options.seeds]
    rows = [read(directory, options.benchmark) for directory in directories]
    minutes = spread([seconds(d, options.output) / 60 for d in directories], 1.0)
    print(table(rows))
    n = " and ".join(sorted({str(next(iter(r.values()))["n"]) for r in rows}))
    print(
        f"\nRecipe {options.recipe}{''.join(f' {o}' for o in overrides)}, seeds "
        f"{', '.join(map(str, options.seeds))}, mean ± standard deviation; n = {n} held-out comparisons a seed, both "
        f"orders; {datetime.date.today().isoformat()}; {os.cpu_count()} cores; {minutes} min a run.\n"
    )
    print("\n".join(map(str, claims(rows))) or "The claims need the methods initial, sft and dpo.")


if __name__ == "__main__":
    main()
