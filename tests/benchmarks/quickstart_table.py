"""The quickstart over several rules: its table, how it goes with labels, and the branching paper's letter beside it.

    python -m tests.benchmarks.quickstart_table --rules 1 2 3 --arms labels_0

Each rule is one world and, with every arm, one run of the main command with ``seed=RULE``: data, models and sampling
follow the seed too. Arms of a rule share what they have in common; finished runs are reused. Prints a Markdown table
of means ± standard deviations (n - 1) over rules, and every claim as a difference on the same comparisons with its
95% interval over rules (Student's t): what would be seen on another rule.

Rules 1 to 5 are for choosing; docs/results/world.md lists those that were reported and are spent.

    python -m tests.benchmarks.quickstart_table --rules 111 112 --arms labels_0 --results FILE

keeps what every run was right about, a line each, and makes no run again that FILE has. So a table of many hours can be
made on several machines; all of its runs are of one commit. ``--only-results`` prints what FILE has.
"""

import datetime
import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from judgetrain.artifacts.integrity import MANIFEST, lineage
from judgetrain.data.intervals import Resampling
from judgetrain.evaluate.metrics.intervals import paired_difference
from tests.benchmarks.common import made_by, parser_of

RESAMPLES = 2000
Key = tuple[str, int]
"""A method and its number of branches; 0 for methods without branches."""
Rows = Mapping[Key, Mapping[str, Any]]

OWN = ()
FEW_METHODS = ("evaluate.methods=[dpo,floor:highest,fitted_floor:highest]", "evaluate.branches=[1,3]")
"""What an arm is measured by that shares everything before stage label with the first."""
LETTER = (
    "label=paper",
    "judge=paper",
    "prompts=compact",
    "tree.guidelines=2",
    "tree.judgments=2",
    "tree.max_comparisons=300",
    "tree.judgment_sampling.temperature=1.0",
    "label.max_sft_per_tree=4",
    "label.max_pairs_per_level=4",
    "judge.tie=0",
    "evaluate.methods=[initial,sft,dpo,floor:highest]",
)
ARMS: dict[str, tuple[str, ...]] = {
    "labels_0": OWN,
    "labels_30": ("label.given=30", *FEW_METHODS),
    "labels_70": ("label.given=70", *FEW_METHODS),
    "labels_200": ("label.given=200", *FEW_METHODS),
    "labels_all": ("label.source=given", *FEW_METHODS),
    "letter": LETTER,
    "vote_labels": ("label.rule=paper", *FEW_METHODS),
    "all_levels": ("label.levels=[criteria,guideline,judgment]", *FEW_METHODS),
    "vote": ("judge.aggregation=vote", *FEW_METHODS),
}
"""What an arm sets beside the recipe. The letter: labels, judges, guidelines and judgments as the branching paper has
them, but its prompts, of which the base does not know a third of the words. The last three undo one thing each that we
do otherwise."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run on one rule.

    Args:
        rows: its rows of ``metrics.json``.
        right: which comparisons each row got right in both orders.
        minutes: what everything took that it was made from.
        labels: the share of the trees' labels that are the truth; None where labels were given.
    """

    rows: Rows
    right: Mapping[Key, Sequence[bool]]
    minutes: float
    labels: float | None

    def to_line(self, of: Mapping[str, Any]) -> str:
        """Return the run as a line of a file of results; ``of`` says which run it is."""
        rows = []
        for key, row in self.rows.items():
            kept = {name: row[name] for name in ("agreement", "consistency", "generated_tokens", "n")}
            rows.append({"key": list(key), **kept, "right": packed(self.right[key])})
        return json.dumps({**of, "minutes": round(self.minutes, 2), "labels": self.labels, "rows": rows})

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> "Run":
        """Return the run of a line of a file of results."""
        rows = {(row["key"][0], row["key"][1]): row for row in line["rows"]}
        right = {key: unpacked(row["right"], row["n"]) for key, row in rows.items()}
        return cls(rows=rows, right=right, minutes=line["minutes"], labels=line["labels"])


def packed(right: Sequence[bool]) -> str:
    """Return which comparisons were right as hexadecimal digits, the first one in the highest bit."""
    bits = "".join("01"[is_right] for is_right in right)
    return f"{int(bits, 2):0{-(-len(bits) // 4)}x}"


def unpacked(digits: str, number: int) -> list[bool]:
    """Return which of ``number`` comparisons were right, from the digits of :func:`packed`."""
    return [bit == "1" for bit in f"{int(digits, 16):0{number}b}"]


class Results:
    """A file of finished runs of one commit, a line each; without a path nothing is kept.

    Raises:
        SystemExit: the file has runs of another commit.
    """

    def __init__(self, path: Path | None, commit: str) -> None:
        self._path = path
        self._commit = commit
        self._lines: dict[str, Mapping[str, Any]] = {}
        self._lock = threading.Lock()
        if path is None or not path.exists():
            return
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if line["commit"] != commit:
                sys.exit(f"{path} has runs of commit {line['commit']}, and this is {commit}: give another file")
            self._lines[self._name(line)] = line

    def get(self, of: Mapping[str, Any]) -> Run | None:
        """Return the finished run of this rule, arm and overrides, if there is one."""
        line = self._lines.get(self._name(of))
        return None if line is None else Run.from_line(line)

    def add(self, of: Mapping[str, Any], run: Run) -> None:
        """Keep a finished run."""
        if self._path is None:
            return
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(run.to_line({**of, "commit": self._commit}) + "\n")

    @staticmethod
    def _name(of: Mapping[str, Any]) -> str:
        return json.dumps([of[part] for part in ("recipe", "rule", "arm", "overrides")])


def commit_here() -> str:
    """Return the commit that this program is of; with a plus where tracked files differ from it."""
    where = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", where, *words], capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short=8", "HEAD") + ("+" if changed else "")


def run(recipe: str, rule: int, output: Path, overrides: Sequence[str]) -> Path:
    """Run the main command for a rule and return the artifact's directory.

    Raises:
        RuntimeError: the command failed; the message says of which rule.
    """
    command = [sys.executable, "-m", "judgetrain", "stage=evaluate", f"recipe={recipe}", f"seed={rule}"]
    command += [f"output_dir={output}", *overrides]
    return made_by(command, f"rule {rule}")


def load(directory: Path) -> Run:
    """Read a finished run."""
    import pyarrow.parquet

    metrics = json.loads((directory / "metrics.json").read_text())
    rows = {(row["method"], row["branches"]): row for row in metrics if row["benchmark"] == "world"}
    right: dict[Key, list[bool]] = {}
    for row in pyarrow.parquet.read_table(directory / "predictions.parquet").to_pylist():
        if row["benchmark"] == "world":
            agreed = row["label"] == row["verdict_ab"] == row["verdict_ba"]
            right.setdefault((row["method"], row["branches"]), []).append(agreed)
    manifests = [json.loads((made / MANIFEST).read_text()) for made in lineage(directory)]
    minutes = sum(manifest["seconds"] for manifest in manifests) / 60
    truth = next((m["notes"]["yield"].get("label_vs_truth") for m in manifests if m["stage"] == "label"), None)
    labels = truth["right"] / sum(truth.values()) if truth else None
    return Run(rows=rows, right=right, minutes=minutes, labels=labels)


def spread(values: Sequence[float], scale: float = 100.0, digits: int = 1) -> str:
    """Return mean ± standard deviation."""
    mean = scale * statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {scale * statistics.stdev(values):.{digits}f}"


def table(runs: Sequence[Run]) -> str:
    """Return one row per method and number of branches."""
    lines = [
        "| judge | branches | agreement % | consistency % | tokens per verdict |",
        "| --- | --- | --- | --- | --- |",
    ]
    for method, branches in runs[0].rows:
        rows = [of_rule.rows[method, branches] for of_rule in runs]
        agreement = spread([row["agreement"] for row in rows])
        consistency = spread([row["consistency"] for row in rows])
        tokens = spread([row["generated_tokens"] for row in rows], 1.0, 0)
        lines.append(f"| {method} | {branches or '–'} | {agreement} | {consistency} | {tokens} |")
    return "\n".join(lines)


def difference(first: Sequence[Run], second: Sequence[Run], key: Key, than: Key) -> str:
    """Return by how much a row is right more often than another, on the same comparisons of each rule.

    The interval is over rules: a rule's data, models and labels are as one. Of a single rule it is over its
    comparisons, and says nothing of other rules.
    """
    differences = [
        statistics.mean(a.right[key]) - statistics.mean(b.right[than]) for a, b in zip(first, second, strict=True)
    ]
    mean = statistics.mean(differences)
    if len(differences) < 2:
        paired = paired_difference(first[0].right[key], second[0].right[than], Resampling(RESAMPLES, 0))
        assert paired is not None
        low, high = paired.interval or (mean, mean)
        return f"{100 * mean:+.1f} points (95% over one rule's comparisons: {100 * low:.1f} to {100 * high:.1f})"
    error = statistics.stdev(differences) / len(differences) ** 0.5
    half = float(student.ppf(0.975, len(differences) - 1)) * error
    return f"{100 * mean:+.1f} points (95%: {100 * (mean - half):.1f} to {100 * (mean + half):.1f})"


def claims(arms: Mapping[str, Sequence[Run]]) -> list[str]:
    """Return every claim that the arms allow, a line each."""
    lines = []
    floor = ("floor:highest", 0)
    few = ("fitted_floor:highest", 0)
    for name, runs in arms.items():
        there = runs[0].rows
        initial = "initial+vote" if ("initial+vote", 1) in there else "initial"
        most = max((branches for method, branches in there if method == initial), default=0)
        pairs = [
            ((initial, most), (initial, 1)),
            (("dpo", 1), (initial, most)),
            (("dpo", 3), (initial, most)),
            (("dpo", 3), ("sft", 3)),
            (("dpo", 3), floor),
            (("dpo", 3), few),
            (("dpo", 3), ("dpo", most)),
        ]
        for key, than in pairs:
            if key in there and than in there:
                lines.append(f"- {name}: {shown(key)} less {shown(than)}: {difference(runs, runs, key, than)}")
        if most:
            tokens = statistics.mean(of_rule.rows["dpo", 3]["generated_tokens"] for of_rule in runs)
            whole = statistics.mean(of_rule.rows[initial, most]["generated_tokens"] for of_rule in runs)
            lines.append(f"- {name}: tokens of dpo@3 are {100 * tokens / whole:.0f}% of {shown((initial, most))}'s")
        labels = [of_rule.labels for of_rule in runs if of_rule.labels is not None]
        if labels:
            lines.append(f"- {name}: labels that are the truth, {spread(labels)}%")
    first, *others = arms
    for name in others:
        for key in (("dpo", 1), ("dpo", 3)):
            lines.append(f"- {name} less {first}, {shown(key)}: {difference(arms[name], arms[first], key, key)}")
    return lines


def shown(key: Key) -> str:
    """Return a row's name."""
    method, branches = key
    return f"{method}@{branches}" if branches else method


def main() -> None:
    """Run what is not there yet and print tables and claims."""
    parser = parser_of(__doc__)
    parser.add_argument("--rules", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--arms", nargs="+", default=["labels_0"], choices=[*ARMS])
    parser.add_argument("--n", type=int, help="held-out comparisons of a rule; without it the recipe's")
    parser.add_argument("--recipe", default="quickstart")
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--results", type=Path, help="file that keeps what finished runs were right about")
    parser.add_argument("--only-results", action="store_true", help="run nothing: print what the file has")
    parser.add_argument("--commit", help="that the file's runs are of; without it the one here")
    parser.add_argument("--jobs", type=int, default=1, help="rules at once; if several, each has one worker")
    # What is no option is an override of the main command, wherever it stands: --rules would swallow what follows it.
    options, overrides = parser.parse_known_args([a for a in sys.argv[1:] if "=" not in a or a.startswith("--")])
    overrides += [a for a in sys.argv[1:] if "=" in a and not a.startswith("--")]
    if options.n:
        overrides.append(f"dialogues.world.eval_comparisons={options.n}")
    workers = ["executor.workers=1"] if options.jobs > 1 else []
    results = Results(options.results, options.commit or commit_here())

    def arms_of(rule: int) -> list[Run]:
        # One after another: they share artifacts, which the first of them makes.
        runs = []
        for name in options.arms:
            of = {"recipe": options.recipe, "rule": rule, "arm": name, "overrides": overrides}
            finished = results.get(of)
            if finished is None and options.only_results:
                sys.exit(f"{options.results} has no run of rule {rule}, arm {name}")
            if finished is None:
                directory = run(options.recipe, rule, options.output, [*ARMS[name], *workers, *overrides])
                finished = load(directory)
                results.add(of, finished)
            runs.append(finished)
        return runs

    with ThreadPoolExecutor(options.jobs) as pool:
        by_rule = list(pool.map(arms_of, options.rules))
    arms = {name: [runs[place] for runs in by_rule] for place, name in enumerate(options.arms)}
    for name, runs in arms.items():
        minutes = spread([of_rule.minutes for of_rule in runs], 1.0)
        print(f"\n{name} ({' '.join(ARMS[name]) or 'the recipe as it is'}; {minutes} min a rule)\n")
        print(table(runs))
    n = sorted({row["n"] for runs in arms.values() for of_rule in runs for row in of_rule.rows.values()})
    print(
        f"\nRecipe {options.recipe}{''.join(f' {o}' for o in overrides)}, rules {', '.join(map(str, options.rules))}, "
        f"mean ± standard deviation; n = {' and '.join(map(str, n))} held-out comparisons a rule, both orders; "
        f"{datetime.date.today().isoformat()}; {os.cpu_count()} cores.\n"
    )
    print("\n".join(claims(arms)))


if __name__ == "__main__":
    main()
