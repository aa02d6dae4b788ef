"""recipe=people_pairs with one thing changed at a time, and its seeds together, by one measure.

    python -m tests.benchmarks.people_pairs_arms --results FILE --arms half rank_0 rank_1 two -- data_dir=DIR OVERRIDES
    python -m tests.benchmarks.people_pairs_arms --results FILE --arms recipe --seeds 1 2 3 -- data_dir=DIR OVERRIDES

An arm is one run of the main command with ``seed=SEED`` and the arm's overrides, on development rows. With ``--test``
it is on the test rows, which are looked at once. Finished stages are reused, a killed run is resumed, and FILE keeps
what every finished run was right about, a line each, so that none is made again. What was measured with other overrides
is another run. ``--dry-run`` prints the commands.

The measure is one: *right of decided* is forced choice on the rows that people decided, of which a judge that is even
is half right (``judgetrain.evaluate.metrics.verdicts.forced``); *length-balanced* is the mean of its halves where the
longer and where the shorter response is better, within rows that ask the same of people (which helps more, which harms
less), which count by their number: over both together, a rule that takes the longer response of the ones and the
shorter of the others would be above half; *strict* counts ties and needs both orders. Benchmarks count together.
Intervals are 95% bootstrap ones over prompts. Each method is also compared with the first arm's last judge, and with
``longer``, on the same rows. Of several seeds there is a row of their margins' mean: three judges as one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from judgetrain.artifacts.integrity import MANIFEST, lineage
from judgetrain.data.benchmarks.benchmark import load_benchmark
from judgetrain.data.intervals import Resampling
from judgetrain.evaluate.metrics.intervals import resampled_interval
from judgetrain.evaluate.metrics.verdicts import forced
from judgetrain.schema import Comparison
from tests.benchmarks.common import made_by, parser_of
from tests.benchmarks.quickstart_table import commit_here
from tests.builders.pipeline import configured

RESAMPLING = Resampling(2000, 0)
Floats = NDArray[np.float64]
Numbers = Sequence[float | None]

FEWER = ("teacher.comparisons=600", "evaluate.methods=[initial+given]")
"""600 pairs for the Initial judge, which alone is measured."""
OWN_CRITERIA = (
    "criteria=null",
    "teacher.engine.by_criteria=false",
    "tree.criteria_sampling.max_new_tokens=64",
    "tree.guideline_sampling.max_new_tokens=40",
    "judge.criteria_tokens=64",
    "judge.guideline_tokens=40",
    "teacher.comparisons=600",
)
"""The judge names three criteria for each query, as the teacher's rule does."""
RUBRIC = "{rubric}"
"""In an override: the rubric that stage rubric draws from trees and labels, by the overrides of ``none``."""
ARMS: dict[str, tuple[str, ...]] = {
    "recipe": (),
    "half": FEWER,
    "rank_0": (*FEWER, "train.initial.ranking_weight=0"),
    "rank_1": (*FEWER, "train.initial.ranking_weight=1"),
    "two": (
        "teacher.comparisons=600",
        "tree.reads=two",
        "tree.judgment_sampling.max_new_tokens=32",
        "train.initial.ranking_weight=0",
        "train.sft.ranking_weight=0",
        "judge.reads=two",
        "judge.reasons=true",
        "judge.score=expected",
        "judge.judgment_tokens=32",
        "evaluate.methods=[initial+given]",
    ),
    "own_trees": (
        "teacher.comparisons=400",
        "tree.max_comparisons=200",
        "evaluate.methods=[initial+given,sft+given,dpo+given]",
    ),
    "none": (*OWN_CRITERIA, "evaluate.methods=[initial]"),
    "drawn": (*FEWER, f"criteria={RUBRIC}"),
    "labels_70": ("teacher.comparisons=70", "train.initial.num_train_epochs=3", "evaluate.methods=[initial+given]"),
    "labels_200": ("teacher.comparisons=200", "train.initial.num_train_epochs=3", "evaluate.methods=[initial+given]"),
    # On a CPU with bfloat16 instructions.
    "three_passes": (
        "train.base.dtype=bfloat16",
        "teacher.comparisons=4000",
        "train.initial.num_train_epochs=3",
        "train.initial.freeze_embeddings=true",
        "train.initial.regional_compilation=true",
        "evaluate.methods=[initial+given]",
    ),
    "labels_all": ("teacher.comparisons=4000", "evaluate.methods=[initial+given]"),
    "baselines": (
        "prompts=examples",
        "judge.judgment_tokens=16",
        "judge.reasons=true",
        "evaluate.pairwise.sampling.max_new_tokens=8",
        'evaluate.methods=[longer,surface,"scorer:sentprob_mean","prompted:base","rubric:70","fewshot:70"]',
    ),
    "base": ("evaluate.methods=[base+given]",),
    "probe": ('evaluate.methods=["probe:70","probe:200","probe:600","probe:2000"]',),
}
"""What an arm sets beside the recipe. ``half``, the Initial judge of 600 pairs, is what others are compared with."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """One method's verdicts on the rows of a run.

    Args:
        margins: how far response A is ahead; None: not known [n].
        right: by forced choice, 0, 0.5 or 1 [n].
        strict: whether both orders give the label [n].
    """

    margins: Numbers
    right: Sequence[float]
    strict: Sequence[bool]


def commands(arm: str, overrides: Sequence[str], rubric: str) -> list[list[str]]:
    """Return the main commands of an arm, the last of which measures; ``rubric``: the file that the first one wrote."""
    recipe = "tables/people_pairs_test" if "--test" in overrides else "people_pairs"
    rest = [word for word in overrides if word != "--test"]
    start = [sys.executable, "-m", "judgetrain", f"recipe={recipe}"]
    of_arm = [word.replace(RUBRIC, rubric) for word in ARMS[arm]]
    measuring = [*start, "stage=evaluate", *of_arm, *rest]
    if not any(RUBRIC in word for word in ARMS[arm]):
        return [measuring]
    return [[*start, "stage=rubric", *OWN_CRITERIA, *rest], measuring]


def run(command: Sequence[str], name: str) -> Path:
    """Run a main command and return its artifact's directory (SystemExit: it failed; the same command resumes it)."""
    try:
        return made_by(command, name)
    except RuntimeError as error:
        sys.exit(f"{error}; the same command resumes it")


def rows_of(directory: Path) -> tuple[list[str], dict[str, Rows]]:
    """Return the ids of the rows that a finished evaluation measured, and each method's verdicts in their order."""
    frame = pd.read_parquet(directory / "predictions.parquet")
    frame = frame[frame.label.notna()].astype(object).where(lambda column: column.notna(), None)
    by_method = {}
    ids: list[str] = []
    for method, of_method in frame.groupby("method", sort=False):
        # Where weights are fitted, their verdict stands for both orders.
        ab = [row.summed or row.verdict_ab for row in of_method.itertuples()]
        ba = [row.summed or row.verdict_ba for row in of_method.itertuples()]
        margins = [None if margin is None else float(margin) for margin in of_method.margin]
        labels = list(of_method.label)
        strict = [first == second == label for first, second, label in zip(ab, ba, labels, strict=True)]
        right = forced(ab, ba, margins, labels).tolist()
        by_method[str(method)] = Rows(margins=margins, right=right, strict=strict)
        ids = [f"{b}/{c}" for b, c in zip(of_method.benchmark, of_method.comparison_id, strict=True)]
    return ids, by_method


def line_of(directory: Path, of: Mapping[str, Any]) -> dict[str, Any]:
    """Return a finished run as a line of the file of results, without any text of the data."""
    ids, by_method = rows_of(directory)
    manifests = [json.loads((made / MANIFEST).read_text()) for made in lineage(directory)]
    stages = {manifest["stage"]: round(manifest["seconds"]) for manifest in manifests}
    methods = {}
    for name, rows in by_method.items():
        margins = [None if margin is None else round(margin, 4) for margin in rows.margins]
        methods[name] = {"margins": margins, "right": rows.right, "strict": [int(value) for value in rows.strict]}
    return {**of, "seconds": stages, "ids": ids, "methods": methods}


class Measured:
    """The rows that are measured on, with their labels: read from the data, which the results do not hold."""

    def __init__(self, overrides: Sequence[str]) -> None:
        recipe = "tables/people_pairs_test" if "--test" in overrides else "people_pairs"
        config = configured(f"recipe={recipe}", *(word for word in overrides if word != "--test"))
        self.by_id: dict[str, Comparison] = {}
        """The rows by the benchmark's name and their own id, benchmark by benchmark."""
        self.ids: dict[str, list[str]] = {}
        """The keys of ``by_id``, by the benchmark's name."""
        self._prompts: dict[str, str] = {}
        for place, benchmark in enumerate(config.evaluate.benchmarks):
            loaded = load_benchmark(benchmark, place, config.seed, None)
            of_benchmark = self.ids.setdefault(loaded.name, [])
            for comparison in loaded.comparisons:
                if comparison.label is not None:
                    row_id = f"{loaded.name}/{comparison.id}"
                    of_benchmark.append(row_id)
                    self.by_id[row_id] = comparison
                    self._prompts[row_id] = loaded.prompt_of(comparison)

    def take(self, ids: Sequence[str]) -> Rated:
        """Return the labels, lengths and prompts of rows, in their order."""
        rows = [self.by_id[name] for name in ids]
        labels = [str(row.label) for row in rows]
        longer = [str(row.longer) for row in rows]
        prompts = [self._prompts[name] for name in ids]
        return Rated(ids=list(ids), labels=labels, longer=longer, prompts=prompts, kinds=[kind_of(row) for row in rows])


def kind_of(comparison: Comparison) -> tuple[str, ...]:
    """Return the criteria that a row brings, which say what its people were asked; none: which response helps more."""
    if comparison.rubric is None:
        return ()
    return tuple(criterion.text for criterion in comparison.rubric.criteria)


@dataclass(frozen=True, kw_only=True)
class Rated:
    """Labels, longer responses, prompts and kinds (:func:`kind_of`) of the rows that are measured on, each [n]."""

    ids: Sequence[str]
    labels: Sequence[str]
    longer: Sequence[str]
    prompts: Sequence[str]
    kinds: Sequence[tuple[str, ...]]

    @property
    def decided(self) -> NDArray[np.bool_]:
        """Return which rows people decided, bool [n]."""
        return np.array([label != "tie" for label in self.labels])

    @property
    def right_of_longer(self) -> Floats:
        """Return how right the longer response is, by forced choice [n]."""
        return right_by([{"A": 1.0, "B": -1.0, "tie": 0.0}[side] for side in self.longer], self.labels)

    def only(self, places: Sequence[int]) -> Rated:
        """Return some of the rows, by their places."""
        return Rated(
            ids=[self.ids[place] for place in places],
            labels=[self.labels[place] for place in places],
            longer=[self.longer[place] for place in places],
            prompts=[self.prompts[place] for place in places],
            kinds=[self.kinds[place] for place in places],
        )

    def row(self, name: str, right: Floats, strict: Sequence[bool] | None) -> str:
        """Return a row of the table."""
        strict_text = "–"
        if strict is not None:
            strict_text = f"{100 * float(np.mean(strict)):.1f}"
        cells = [name, str(len(right)), str(int(self.decided.sum())), *self._measured(right, lowest=0.0)]
        return f"| {' | '.join([*cells, strict_text])} |"

    def differences(self, first: Floats, second: Floats) -> str:
        """Return by how many points the first is right more often, and more often length-balanced, on the same rows."""
        return " | ".join(self._measured(first - second, lowest=-1.0, sign="+"))

    def _measured(self, values: Floats, lowest: float, sign: str = "") -> list[str]:
        """Return the mean of values of decided rows, and their length-balanced mean, in percent with intervals."""
        mask = self.decided
        columns = np.column_stack([values * mask, mask.astype(float)])
        whole = resampled_interval(columns, _share, self.prompts, RESAMPLING, lowest)
        of_balanced = resampled_interval(self._halves(values), _balanced, self.prompts, RESAMPLING, lowest)
        return [_with(float(values[mask].mean()), whole, sign), _with(self.balanced(values), of_balanced, sign)]

    def balanced(self, values: Floats) -> float:
        """Return the length-balanced mean of values [n] (the module's description); NaN where there is none."""
        sums = self._halves(values).sum(axis=0)
        return float(_balanced(sums[:, None])[0])

    def _halves(self, values: Floats) -> Floats:
        """Return columns [n, 4 a kind]: values and counts where the longer, then where the shorter is better."""
        is_counted = self.decided & np.array([side != "tie" for side in self.longer])
        is_long = np.array([label == side for label, side in zip(self.labels, self.longer, strict=True)])
        columns = []
        for kind in dict.fromkeys(self.kinds):
            is_of_kind = is_counted & np.array([other == kind for other in self.kinds])
            for half in (is_of_kind & is_long, is_of_kind & ~is_long):
                columns += [values * half, half.astype(float)]
        return np.column_stack(columns)


def _share(sums: Floats) -> Floats:
    """Return the first of two sums over the second [resamples]."""
    return np.asarray(sums[0] / sums[1])


def _balanced(sums: Floats) -> Floats:
    """Return the mean over kinds, by their number of rows, of the mean of both halves' means [resamples].

    A kind without a row in one of its halves is left out.

    Args:
        sums: of :meth:`Rated._halves` [4 a kind, resamples].
    """
    total = np.zeros(sums.shape[1])
    weight = np.zeros(sums.shape[1])
    for place in range(0, len(sums), 4):
        of_long, longs, of_short, shorts = sums[place : place + 4]
        has_both = (longs > 0) & (shorts > 0)
        of_kind = (of_long / np.maximum(longs, 1) + of_short / np.maximum(shorts, 1)) / 2
        number = (longs + shorts) * has_both
        total += number * of_kind
        weight += number
    # Without any such kind there is nothing to balance.
    with np.errstate(invalid="ignore"):
        return np.asarray(total / weight)


def _with(value: float, interval: tuple[float, float] | None, sign: str = "") -> str:
    """Return a share, or a difference of shares, in percent with its interval."""
    if np.isnan(value):
        return "–"
    if interval is None:
        return f"{100 * value:{sign}.1f}"
    return f"{100 * value:{sign}.1f} ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"


def together(lines: Sequence[Mapping[str, Any]], method: str, labels: Sequence[str]) -> Floats | None:
    """Return how right the mean margin of several seeds' judges is by forced choice; None where margins are missing."""
    margins = [line["methods"][method]["margins"] for line in lines]
    if any(margin is None for of_seed in margins for margin in of_seed):
        return None
    return right_by(np.mean(np.array(margins, dtype=float), axis=0).tolist(), labels)


def right_by(margins: Sequence[float], labels: Sequence[str]) -> Floats:
    """Return how right margins are, of which there are no verdicts, by forced choice: 0, 0.5 or 1 [n]."""
    nothing: list[None] = [None] * len(labels)
    return forced(nothing, nothing, margins, labels)


def table(lines: Mapping[str, Sequence[Mapping[str, Any]]], measured: Measured) -> Iterator[str]:
    """Yield the table of all arms and seeds, and the differences on the same rows."""
    yield "| judge | n | decided | right of decided % | length-balanced % | strict % |"
    yield "| --- | --- | --- | --- | --- | --- |"
    compared: dict[str, Floats] = {}
    rated = measured.take(next(iter(lines.values()))[0]["ids"])
    is_longer = [side == label for side, label in zip(rated.longer, rated.labels, strict=True)]
    yield rated.row("longer", rated.right_of_longer, is_longer)
    for arm, of_seeds in lines.items():
        for method in of_seeds[0]["methods"]:
            for line in of_seeds:
                if line["ids"] != rated.ids:
                    sys.exit(f"{arm}: its rows are other ones than the first arm's; give it a file of its own")
                rows = line["methods"][method]
                name = f"{arm}, {method}, seed {line['seed']}"
                right = np.array(rows["right"])
                compared[name] = right
                yield rated.row(name, right, rows["strict"])
            if len(of_seeds) > 1:
                jury = together(of_seeds, method, rated.labels)
                if jury is not None:
                    name = f"{arm}, {method}, the mean of {len(of_seeds)}"
                    compared[name] = jury
                    yield rated.row(name, jury, None)

    first_arm, of_first = next(iter(lines.items()))
    last_method = list(of_first[0]["methods"])[-1]
    first = f"{first_arm}, {last_method}, seed {of_first[0]['seed']}"
    yield f"\n| less, on the same rows | longer: right | length-balanced | {first}: right | length-balanced |"
    yield "| --- | --- | --- | --- | --- |"
    for name, right in compared.items():
        beside_longer = rated.differences(right, rated.right_of_longer)
        yield f"| {name} | {beside_longer} | {rated.differences(right, compared[first])} |"
    # Benchmarks count together above; a row's id begins with the name of its own.
    benchmarks = [row_id.partition("/")[0] for row_id in rated.ids]
    for benchmark in dict.fromkeys(benchmarks):
        places = [place for place, name in enumerate(benchmarks) if name == benchmark]
        part = rated.only(places)
        columns = ["n", "decided", "right", "balanced", "strict"]
        differences = ["less longer", "balanced", f"less {first}", "balanced"]
        yield f"\n| on {benchmark} | {' | '.join([*columns, *differences])} |"
        yield f"|{' --- |' * 10}"
        for name, right in compared.items():
            beside_longer = part.differences(right[places], part.right_of_longer)
            beside_first = part.differences(right[places], compared[first][places])
            yield f"{part.row(name, right[places], None)} {beside_longer} | {beside_first} |"
    yield "\nMinutes by stage: " + "; ".join(
        f"{arm}, seed {line['seed']}: "
        + ", ".join(f"{stage} {seconds / 60:.1f}" for stage, seconds in line["seconds"].items())
        for arm, of_seeds in lines.items()
        for line in of_seeds
    )


def main() -> None:
    """Run what is not there yet, and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--arms", nargs="+", default=["half"], choices=[*ARMS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--results", type=Path, required=True, help="file that keeps finished runs, a line each")
    parser.add_argument("--test", action="store_true", help="on the test rows: once, by the final commit")
    parser.add_argument("--dry-run", action="store_true", help="print the commands that would be run")
    words = sys.argv[1:]
    place = words.index("--") if "--" in words else len(words)
    overrides = words[place + 1 :]
    options = parser.parse_args(words[:place])
    of_part = [*overrides, *(["--test"] if options.test else [])]

    kept: dict[str, dict[str, Any]] = {}
    if options.results.exists():
        for line in map(json.loads, options.results.read_text(encoding="utf-8").splitlines()):
            kept[json.dumps(line["name"])] = line
    commit = commit_here()
    lines: dict[str, list[dict[str, Any]]] = {}
    for arm in options.arms:
        for seed in options.seeds:
            # Where data and results lie changes nothing of a run.
            name = [arm, seed, [word for word in of_part if not word.startswith(("data_dir=", "output_dir="))]]
            finished = kept.get(json.dumps(name))
            if finished is None:
                directory = Path("RUBRIC")
                of_run = [f"seed={seed}", *of_part]
                for number in range(len(commands(arm, of_run, ""))):
                    command = commands(arm, of_run, str(directory / "rubric.yaml"))[number]
                    if options.dry_run:
                        print(*command[1:])
                        continue
                    directory = run(command, f"{arm}, seed {seed}")
                if options.dry_run:
                    continue
                finished = line_of(directory, {"name": name, "arm": arm, "seed": seed, "commit": commit})
                options.results.parent.mkdir(parents=True, exist_ok=True)
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(finished) + "\n")
            lines.setdefault(arm, []).append(finished)
    if options.dry_run:
        return
    for text in table(lines, Measured(of_part)):
        print(text)


if __name__ == "__main__":
    main()
