"""Pairs published as two transcripts (hh-rlhf): the dialogue is what both have in common."""

import gzip
import json
from pathlib import Path

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.benchmarks.benchmark import load_benchmark
from judgetrain.data.config import BenchmarkConfig, DialoguesConfig, DialogueSourceConfig, SourceConfig
from judgetrain.errors import DataError
from tests.builders.data import run_dialogues, write_lines

TREE = "\n\nHuman: Name a tree.\n\nAssistant: An oak.\n\nHuman: Another?\n\nAssistant:"
BETTER = f"{TREE} An elm.\n\nIt is tall."
WORSE = f"{TREE} No."
DIALOGUE = [("user", "Name a tree."), ("assistant", "An oak."), ("user", "Another?")]


def benchmark(path: str) -> BenchmarkConfig:
    """Return a benchmark of such rows."""
    return BenchmarkConfig(name="hh", source=SourceConfig(path=path, adapter="hh_harmless"))


def test_a_published_file_is_read_with_its_adapter(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl.gz"
    with gzip.open(path, "wt") as file:
        for number in range(40):
            row = {"chosen": f"{BETTER} {number}", "rejected": f"{WORSE} {number}"}
            file.write(json.dumps(row) + "\n")
    comparisons = load_benchmark(benchmark(str(path)), 0, 0, None).comparisons
    assert len({comparison.id for comparison in comparisons}) == 40
    labels = [comparison.label for comparison in comparisons]
    # Each side is drawn with even chance: fewer than ten of forty have a chance below one in a thousand.
    assert min(labels.count("A"), labels.count("B")) >= 10
    for number, comparison in enumerate(comparisons):
        assert [(message.role, message.content) for message in comparison.dialogue.messages] == DIALOGUE
        texts = [comparison.response_a, comparison.response_b]
        if comparison.label == "B":
            texts.reverse()
        assert texts == [f"An elm.\n\nIt is tall. {number}", f"No. {number}"]


def test_a_source_without_an_adapter_reads_them_too(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "hh.jsonl", [{"chosen": BETTER, "rejected": WORSE}])
    out = run_dialogues(tmp_path, DialoguesConfig([DialogueSourceConfig(name="hh", path=path)]))
    (row,) = read_rows(out.directory, "comparisons")
    assert {row["response_a"], row["response_b"]} == {"An elm.\n\nIt is tall.", "No."}
    assert row[f"response_{row['label'].lower()}"].startswith("An elm.")


def test_what_follows_the_last_common_question_is_the_response(tmp_path: Path) -> None:
    """One transcript goes on after the answer that both have, the other does not."""
    row = {"chosen": f"{TREE} An elm.", "rejected": f"{TREE} An elm.\n\nHuman: Why?\n\nAssistant: Why not?"}
    (comparison,) = load_benchmark(benchmark(write_lines(tmp_path / "hh.jsonl", [row])), 0, 0, None).comparisons
    assert comparison.dialogue.query == "Another?"
    expected = {"An elm.", "Assistant: An elm.\n\nUser: Why?\n\nAssistant: Why not?"}
    assert {comparison.response_a, comparison.response_b} == expected


@pytest.mark.parametrize(
    ("rejected", "message"),
    [
        ("\n\nHuman: Name a bird.\n\nAssistant: A wren.", "begin with different questions"),
        ("\n\nHuman: Name a tree.\n\nAssistant: An oak.\n\nHuman: Another?", "column 'rejected': expected an answer"),
    ],
)
def test_what_is_no_pair_is_refused(tmp_path: Path, rejected: str, message: str) -> None:
    path = write_lines(tmp_path / "hh.jsonl", [{"chosen": BETTER, "rejected": rejected}])
    with pytest.raises(DataError, match=rf"hh\.jsonl:1: .*{message}"):
        load_benchmark(benchmark(path), 0, 0, None)
