"""Where the criteria that decide stand in the lists of the quickstart's judges, out of a finished evaluation.

    python -m tests.benchmarks.criteria_places outputs/artifacts/evaluate/FINGERPRINT --methods dpo rl

Each held-out query of the world has a primary and a second crucial property. Prints in how many of a method's lists the
primary one is named first, and in how many both are named among the first two, and the first three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.world.language import Language, load_language
from tests.benchmarks.common import parser_of

BENCHMARK = "world"


def lists(directory: Path, method: str, language: Language) -> Iterator[tuple[str, list[str | None]]]:
    """Each list's query and the properties that it names, in its order; None for what is no property."""
    names = {text: name for name, known in language.properties.items() for text in known.criteria}
    for row in read_rows(directory, f"trees-{BENCHMARK}-{method}"):
        query = row["comparison"]["dialogue"]["messages"][-1]["content"]
        lines = (line.partition(". ")[2].strip() for line in row["criteria_text"].split("\n"))
        yield query, [names.get(line) for line in lines]


def places(found: Sequence[tuple[str, list[str | None]]], language: Language) -> dict[str, float]:
    """Shares of lists, in percent."""
    counts: Counter[str] = Counter()
    for query, named in found:
        kind = language.kinds[language.kind_of(query)]
        counts["primary first"] += named[:1] == [kind.primary]
        for upto in (2, 3):
            counts[f"both in the first {upto}"] += {*kind.crucial} <= {*named[:upto]}
    return {name: 100 * count / len(found) for name, count in counts.items()}


def main() -> None:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("evaluation", type=Path)
    parser.add_argument("--methods", nargs="+", default=["initial", "sft", "dpo"])
    options = parser.parse_args()
    language = load_language()
    for number, method in enumerate(options.methods):
        found = list(lists(options.evaluation, method, language))
        shares = places(found, language)
        if not number:
            print(
                f"| judge | lists | {' | '.join(f'{name} %' for name in shares)} |\n"
                + "| --- " * (2 + len(shares))
                + "|"
            )
        print(f"| {method} | {len(found)} | {' | '.join(f'{share:.1f}' for share in shares.values())} |")


if __name__ == "__main__":
    main()
