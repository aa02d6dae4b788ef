"""A directory that has what the examples of README.md and docs/ name, and the blocks of a page."""

import csv
import json
import re
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow
import pyarrow.parquet

from judgetrain.artifacts.files import write_bytes_atomic
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons, train_dialogues
from judgetrain.engines.config import WORLD_BASE
from judgetrain.evaluate.predictions_file import parquet, prediction_table
from judgetrain.judges import LongerJudge
from judgetrain.judges.deciding import Thresholds
from judgetrain.schema import Comparison
from tests.builders.judging import arena_hard

JUDGES = ("my-judge", "my_judge", "DIR", "DIR1", "DIR2", "DIR3")
"""What examples call a judge's directory."""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code of a page.

    Args:
        language: behind its opening fence.
        text: its lines.
        line: the number of its first line in the page, from 1.
        before: the paragraph above it, which may say what it is.
    """

    language: str
    text: str
    line: int
    before: str


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page that name a language."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        above = text[: found.start()]
        before = above.rstrip().rpartition("\n\n")[2]
        yield Block(found[1], textwrap.dedent(found[2]), above.count("\n") + 2, before)


def rows(n: int) -> list[Comparison]:
    """Return labelled comparisons of the generated world."""
    return list(eval_comparisons(WorldConfig(eval_comparisons=n), seed=4))


def furnish(place: Path, done: Path) -> None:
    """Fill a directory with a copy of a finished run and every file that a page names.

    Args:
        place: the directory.
        done: the ``output_dir`` of a run of the debug recipe.
    """
    # Links stay links: outputs/judge leads to the newest judge.
    for name in ("outputs", "finished"):
        shutil.copytree(done, place / name, symlinks=True)
    (judge,) = done.glob("artifacts/dpo/*/model")
    for name in JUDGES:
        (place / name).symlink_to(judge)
    (place / "path" / "to" / "fixed").mkdir(parents=True)
    for name in ("my-model", "path/to/fixed/model"):
        (place / name).symlink_to(WORLD_BASE)
    _tables(place)
    (place / "rubric.yaml").write_text("- {name: numbers, text: gives exact numbers}\n")
    thresholds = Thresholds(units="points", error=0.1, delta=0.1, n=40, undecided=0.5, decided=20, wrong=0, margin=1.0)
    thresholds.save(place)
    write_bytes_atomic(place / "predictions.parquet", _predictions())
    arena_hard(place)


def _tables(place: Path) -> None:
    """Write comparisons, single responses, dialogues, battles and systems' answers, as examples call their files."""
    comparisons = rows(28)
    labelled = [
        {"query": c.dialogue.query, "response_a": c.response_a, "response_b": c.response_b, "label": c.label}
        for c in comparisons
    ]
    dialogues = [{"query": d.query} for d in train_dialogues(WorldConfig(train_dialogues=60), 3)]
    answers = [{"query": row["query"], "response": row["response_a"]} for row in labelled[:4]]
    ratings = []
    for row in labelled:
        for side in ("a", "b"):
            # The better one of two passes: of a tie both.
            label = "pass" if row["label"] in (side.upper(), "tie") else "fail"
            ratings.append({"query": row["query"], "response": row[f"response_{side}"], "label": label})
    files = {"mine": labelled[:4], "labelled": labelled, "answers": answers, "chats": dialogues, "ratings": ratings}
    for name, lines in files.items():
        (place / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    # A folder of nothing but dialogues, as recipe=corpus reads all of a folder's files.
    (place / "dialogues").mkdir()
    shutil.copy(place / "chats.jsonl", place / "dialogues")
    questions = pyarrow.table({"question": [d["query"] for d in dialogues[:30]]})
    pyarrow.parquet.write_table(questions, place / "chats.parquet")
    battles = [{"model_a": "a", "model_b": "b", "winner": "model_a"}, {"model_a": "b", "model_b": "c", "winner": "tie"}]
    for name, lines in (("mine", labelled[:4]), ("battles", battles)):
        with (place / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, lines[0])
            writer.writeheader()
            writer.writerows(lines)
    (place / "verdicts.jsonl").write_text(json.dumps({"model_a": "a", "model_b": "c", "verdict": "A"}) + "\n")
    for name in "abc":
        outputs = [
            {"instruction": row["query"], "output": f"{row['response_a']} {name} .", "generator": name}
            for row in labelled[:2]
        ]
        (place / name).mkdir()
        (place / name / "outputs.json").write_text(json.dumps(outputs))


def _predictions() -> bytes:
    """Return a file of predictions of which every other comparison has a label, as examples read it."""
    comparisons = rows(40)
    predictions = LongerJudge().compare_batch(comparisons)
    some = []
    for number, comparison in enumerate(comparisons):
        some.append(comparison if number % 2 else replace(comparison, label=None))
    benchmark = Benchmark(name="mine", split="test", comparisons=some)
    return parquet([prediction_table(benchmark, [replace(p, method="stored:judge") for p in predictions])])
