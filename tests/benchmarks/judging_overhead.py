"""What stage judge costs over the judge's own work, in one run over rows of the generated world.

    python -m tests.benchmarks.judging_overhead JUDGE_DIR [--rows 10000] [key=value ...]

Stage judge runs as the command line runs it, whole: it reads a file of JSON lines, judges it shard by shard, writes the
shards, ``verdicts.jsonl``, ``verdicts.parquet``, pages and the summary. Timed inside of it: loading, the engine's
``generate``, and ``compare_all`` of the same rows in the same shards, which is what the same judge takes in Python
without the stage. Seconds on the clock / of the process.

    python -m tests.benchmarks.judging_overhead --own [--rows 10000] [key=value ...]

gives the stage's own work alone, with a judge that answers at once with as much text as a branch has: beside the
seconds a row of the judge, it is the share for so many rows where the judge would take too long.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from judgetrain.data.world.language import load_language
from judgetrain.data.world.splits import WRITER_SKILLS, queries
from judgetrain.data.world.writers import write_response
from judgetrain.judges.base import Cost, Judge, Prediction, Reason
from judgetrain.judging import judging
from judgetrain.schema import ORDERS, Comparison
from tests.benchmarks.common import parser_of
from tests.benchmarks.harness_overhead import Clock, Overhead, measure


def write_rows(path: Path, count: int) -> None:
    """Comparisons of the world's training queries, as a user's file: no labels, two writers' responses."""
    language, rng = load_language(), random.Random(0)
    names = list(WRITER_SKILLS)
    with path.open("w", encoding="utf-8") as file:
        for number, query in enumerate(islice(cycle(queries("train")), count)):
            pair = rng.sample(names, 2)
            a, b = (write_response(language, query, WRITER_SKILLS[name], rng) for name in pair)
            row = {"id": number, "query": query, "response_a": a, "response_b": b}
            file.write(json.dumps(row | {"model_a": pair[0], "model_b": pair[1]}) + "\n")


@dataclass(frozen=True)
class JudgingOverhead:
    """A run of stage judge, and in it the judge's own work: ``compare_all`` of its shards."""

    stage: Overhead
    comparing: Clock

    @property
    def shares(self) -> tuple[float, float]:
        """The stage over the judge's own work, on the clock and of the process."""
        parts = (self.stage.whole, self.stage.loading, self.comparing)
        wall, process = ([part.wall for part in parts], [part.process for part in parts])
        return tuple((whole - loading - own) / own for whole, loading, own in (wall, process))  # type: ignore[return-value]

    def __str__(self) -> str:
        own = f"{'compare_all':<20}{self.comparing.wall:8.1f} s / {self.comparing.process:8.1f} s, "
        wall, process = (100 * share for share in self.shares)
        told = f"stage over compare_all: {wall:.1f}% on the clock, {process:.1f}% of the process"
        return "\n".join([str(self.stage), f"{own}{self.comparing.calls} calls", told])


def measure_judging(arguments: Sequence[str]) -> JudgingOverhead:
    """Run stage judge with ``arguments`` in this process and time it.

    Raises:
        SystemExit: the command did not end well.
    """
    comparing, load = Clock(), judging.load

    def timed(*args: Any) -> Judge:
        judge = load(*args)
        compare_all = judge.compare_all
        judge.compare_all = lambda *rows: comparing.time(compare_all, *rows)  # type: ignore[method-assign]
        return judge

    judging.load = timed
    try:
        return JudgingOverhead(measure(arguments, "judge", judging), comparing)
    finally:
        judging.load = load


class InstantJudge(Judge):
    """Answers at once, with the reasons of one branch in both orders."""

    name = "instant"

    def compare_all(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """A tie on each, with the texts of the world's judges."""
        said = {"criterion": "empathy: cares about feelings", "guideline": "5 if it shows real empathy, 3 if little."}
        text = "Response A Score: 1\nAnalysis of Response A: it shows no empathy.\n" * 2 + "Comparison: both are equal."
        fixed: dict[str, Any] = {
            **said,
            "text": text,
            "score_a": 1.0,
            "score_b": 1.0,
            "verdict": "tie",
            "failure": None,
        }
        reasons = tuple(Reason(order=order, **fixed) for order in ORDERS)
        verdicts: dict[str, Any] = {"verdict_ab": "tie", "verdict_ba": "tie", "margin": 0.0, "reasons": reasons}
        return [Prediction(comparison_id=c.id, method=self.name, cost=Cost(90, 60, 3), **verdicts) for c in comparisons]


def main(arguments: Sequence[str]) -> None:
    """Measure the judge named on the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("arguments", nargs="*", metavar="JUDGE_DIR or key=value")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--own", action="store_true", help="the stage's own work alone")
    options = parser.parse_intermixed_args(arguments)
    overrides = [a for a in options.arguments if "=" in a]
    judges = [str(Path(a).resolve()) for a in options.arguments if "=" not in a]
    if len(judges) != (not options.own):
        parser.error("name one JUDGE_DIR, or none with --own")
    if options.own:
        judging.load = lambda *_: InstantJudge()
    for name in ("pyarrow.parquet", "jinja2", "transformers"):  # every command pays imports once
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as output:
        source = Path(output) / "rows.jsonl"
        write_rows(source, options.rows)
        asked = [f"verdicts.judge={judges[0] if judges else 'longer'}", f"verdicts.source.path={source}"]
        found = measure_judging([*asked, f"output_dir={output}", "track.tracker=none", *overrides])
        own = found.stage.whole.process - found.comparing.process
        print(f"the stage's own work: {own:.2f} s of the process" if options.own else found)


if __name__ == "__main__":
    main(sys.argv[1:])
