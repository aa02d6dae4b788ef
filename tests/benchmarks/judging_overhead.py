"""What stage judge takes by itself, beside the judge's work: seconds of the process for rows of the generated world.

    python -m tests.benchmarks.judging_overhead [--rows 10000] [key=value ...]

Stage judge runs as the command line runs it, whole: it reads a file of JSON lines, judges it shard by shard, writes the
shards, ``verdicts.jsonl``, ``verdicts.parquet``, pages and the summary. The judge answers at once with as much text as
a branch has, and its seconds are left out.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
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
from tests.benchmarks.harness_overhead import Clock, measure


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
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--rows", type=int, default=10_000)
    options = parser.parse_intermixed_args(arguments)
    for name in ("pyarrow.parquet", "jinja2", "transformers"):  # every command pays imports once
        importlib.import_module(name)
    judge, comparing = InstantJudge(), Clock()
    answer = judge.compare_all
    judge.compare_all = lambda *rows: comparing.time(answer, *rows)  # type: ignore[method-assign]
    judging.judge_of = lambda *_: nullcontext(lambda: judge)
    with tempfile.TemporaryDirectory() as output:
        source = Path(output) / "rows.jsonl"
        write_rows(source, options.rows)
        asked = ["verdicts.judge=longer", f"verdicts.source.path={source}", f"output_dir={output}"]
        found = measure([*asked, "track.tracker=none", *options.overrides], "judge", judging)
    print(f"{options.rows} rows: the stage's own work: {found.whole.process - comparing.process:.2f} s of the process")


if __name__ == "__main__":
    main(sys.argv[1:])
