"""Comparisons whose better side is known, of dialogues that nobody was trained on, for ``evaluate.benchmarks``.

Right answers of gsm8k against themselves with a wrong final number, and pairs that stage responses constructs:

    python -m judgetrain recipe=gemma stage=responses data_dir=DIR output_dir=OUT
    python -m judgetrain recipe=gemma stage=responses data_dir=DIR output_dir=HELD seed=1 \
      'dialogues.sources=[{name: references, path: DIR/dialogues/dialogues.jsonl.gz, sample: 400}]'
    python -m tests.benchmarks.known_pairs DIR/dialogues/dialogues.jsonl.gz --to KNOWN \
      --trained OUT/artifacts/responses/FINGERPRINT --constructed HELD/artifacts/responses/FINGERPRINT

Prints what trivial rules get of each: a wrong number is as often smaller as larger, and as long.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.config import SourceConfig
from judgetrain.data.contrast import NUMBER, sentences, wrong_number
from judgetrain.data.readers import open_text
from judgetrain.data.rows import RowReader
from judgetrain.schema import Comparison, Dialogue
from tests.benchmarks.common import parser_of
from tests.builders.evaluate import write_rows


def wrong_end(answer: str, rng: random.Random) -> str | None:
    """The answer with another final number, wherever its last sentence has that number; None where it ends with none.

    What leads to it stays as it is: the working is right, and what it comes to is not.
    """
    last = sentences(answer)[-1:]
    numbers = NUMBER.findall(last[0]) if last else []
    if not numbers:
        return None
    right = numbers[-1]
    wrong = wrong_number(right, rng)
    head, _, tail = answer.rpartition(last[0])
    ended = NUMBER.sub(lambda found: wrong if found[0] == right else found[0], last[0])
    return head + ended + tail


def sums(dialogues: Iterable[Dialogue], n: int, seed: int) -> Iterator[Comparison]:
    """Of ``n`` dialogues the reference against itself with a wrong end, either side first as often."""
    ordered = sorted(dialogues, key=lambda d: derive_seed(seed, "sums", d.id))
    for dialogue in ordered:
        rng = random.Random(derive_seed(seed, "wrong", dialogue.id))
        wrong = wrong_end(dialogue.reference or "", rng)
        if n and wrong and dialogue.reference:
            n -= 1
            pair = Comparison(
                dialogue.id, dialogue, dialogue.reference, wrong, label="A", group="sums", made="wrong end"
            )
            yield pair if rng.random() < 0.5 else pair.swapped()


def digits(comparison: Comparison) -> tuple[int, int]:
    """The sums of all numbers of either response."""
    first, second = (sum(map(int, NUMBER.findall(text))) for text in (comparison.response_a, comparison.response_b))
    return first, second


RULES: dict[str, Callable[[Comparison], tuple[int, int]]] = {
    "the longer one": lambda c: (len(c.response_a), len(c.response_b)),
    "the larger numbers": digits,
}


def floors(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """What trivial rules get right; a tie is half."""
    for name, rule in RULES.items():
        right = 0.0
        for comparison in comparisons:
            a, b = rule(comparison)
            right += 0.5 if a == b else float((a > b) == (comparison.label == "A"))
        yield f"{name} is better in {100 * right / len(comparisons):.1f}%"


def queries(directories: Iterable[Path]) -> set[str]:
    """The queries of the comparisons of some directories of stage responses."""
    return {Comparison.from_row(r).dialogue.query.strip() for d in directories for r in read_rows(d, "comparisons")}


def main() -> None:
    """Write ``sums.jsonl`` and ``constructed.jsonl``, and say how many there are."""
    parser = parser_of(__doc__)
    parser.add_argument("dialogues", type=Path, help="rows with messages, a reference and source gsm8k")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--trained", type=Path, nargs="*", default=[], help="directories of stage responses")
    parser.add_argument("--constructed", type=Path, nargs="*", default=[], help="the same, whose pairs are taken")
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    seen, reader = queries(given.trained), RowReader(SourceConfig(name="gsm8k"))
    with open_text(given.dialogues) as lines:
        rows = [row for row in map(json.loads, lines) if row.get("source") == "gsm8k" and row.get("reference")]
    asked = [reader.dialogue(row, i) for i, row in enumerate(rows)]
    held = {
        "sums": [*sums((d for d in asked if d.query.strip() not in seen), given.n, given.seed)],
        "constructed": [
            c
            for directory in given.constructed
            for c in map(Comparison.from_row, read_rows(directory, "comparisons"))
            if c.made and c.dialogue.query.strip() not in seen
        ],
    }
    for name, comparisons in held.items():
        if comparisons:
            path = given.to / f"{name}.jsonl"
            write_rows(path, map(row_of, comparisons))
            print(f"{path}: {len(comparisons)} comparisons; {'; '.join(floors(comparisons))}")


def row_of(comparison: Comparison) -> dict[str, object]:
    """A row of a comparison file."""
    messages = [{"role": m.role, "content": m.content} for m in comparison.dialogue.messages]
    sides = {"response_a": comparison.response_a, "response_b": comparison.response_b}
    return {"id": comparison.id, "messages": messages, **sides, "label": comparison.label, "group": comparison.made}


if __name__ == "__main__":
    main()
