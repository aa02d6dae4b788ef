"""May a judge replace a person, on published votes: GPT-4 on MT-Bench's, and as a yardstick people themselves.

    python -m tests.benchmarks.annotators --data DIR [--epsilon 0.1 0.15 0.2]

DIR holds ``mt_bench_human/human_votes.jsonl`` and ``gpt4_pair.jsonl`` (each turn by itself, as recipe published has
it, and both), and ``pandalm/testset-v1.jsonl``, of whose three annotators each is tried as a judge in the place of the
other two. The rows are read here and not by an adapter, so that the figures are counted a second time. Prints a
Markdown table: omega is the share of people against whom the judge wins, rho how often it agrees with the others at
least as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from judgetrain.extras.guarantees.annotators import alternative_annotator
from tests.benchmarks.common import parser_of

People = dict[str, dict[str, str]]
"""By person, the annotation by item."""


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines.

    Raises:
        SystemExit: there is none; names it.
    """
    if not path.is_file():
        raise SystemExit(f"{path}: there is no such file (--data names the directory that it is looked for in)")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def vote(row: Mapping[str, Any]) -> tuple[str, str | None]:
    """The item and the name of the model that wins it, or ``tie``; None: the verdict changed with the order."""
    first, second = sorted((row["model_a"], row["model_b"]))
    item = f"{row['question_id']}/{row['turn']}/{first}/{second}"
    said = row["winner"]
    if said == "tie (inconsistent)":
        return item, None
    return item, said if said == "tie" else row[said]


def mt_bench(directory: Path, turns: Sequence[int]) -> tuple[dict[str, str | None], People]:
    """GPT-4's verdicts and the people's votes, on some turns; of a person's several votes on an item the first."""
    people: People = {}
    for row in rows_of(directory / "human_votes.jsonl"):
        item, said = vote(row)
        if row["turn"] in turns and said is not None:
            people.setdefault(row["judge"], {}).setdefault(item, said)
    judged = dict(vote(row) for row in rows_of(directory / "gpt4_pair.jsonl") if row["turn"] in turns)
    return judged, people


def pandalm(path: Path, judge: str) -> tuple[dict[str, str | None], People]:
    """One of the three annotators as the judge, and the other two as the people."""
    rows = rows_of(path)
    names = sorted(name for name in rows[0] if name.startswith("annotator"))
    said = {name: {str(row["idx"]): str(row[name]) for row in rows} for name in names}
    return {**said[judge]}, {name: said[name] for name in names if name != judge}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 0.15, 0.2])
    options = parser.parse_args(arguments)
    parts = {
        f"MT-Bench, turn{'s' if len(turns) > 1 else ''} {' and '.join(map(str, turns))} | GPT-4": mt_bench(
            options.data / "mt_bench_human", turns
        )
        for turns in ((1,), (2,), (1, 2))
    }
    for i in (1, 2, 3):
        judge = f"annotator{i}"
        parts[f"PandaLM | {judge}"] = pandalm(options.data / "pandalm" / "testset-v1.jsonl", judge)
    print("| votes | judge | epsilon | people | comparisons of each | omega | rho |")
    print("| --- " * 7 + "|")
    for name, (judged, people) in parts.items():
        for epsilon in options.epsilon:
            found = alternative_annotator(judged, people, epsilon)
            counts = [person.n for person in found.people]
            shown = "– | –" if found.winning_rate is None else f"{found.winning_rate:.2f} | {found.advantage:.2f}"
            of = f"{min(counts)} to {max(counts)}" if counts else "–"
            print(f"| {name} | {epsilon:g} | {len(counts)} | {of} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
