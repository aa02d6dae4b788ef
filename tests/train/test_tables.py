"""Training rows are tokenised into a table on disk that all processes map: none holds them."""

from __future__ import annotations

import multiprocessing
import pickle
import tracemalloc
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.files import write_rows_atomic
from judgetrain.artifacts.shards import Rows
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_tokenizer
from judgetrain.errors import DataError
from judgetrain.train.data import Examples, dataset, digest, fitting, neutral
from tests.builders.train import config, pair_rows, run_initial, sft_rows


class Made(Collection[dict[str, Any]]):
    """Rows that are made when they are gone through."""

    def __init__(self, number: int, words: int) -> None:
        self.number, self.words = number, words

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for i in range(self.number):
            text = "".join((f"{i} ", "the cat reads " * self.words))
            yield {
                "prompt": [{"role": "user", "content": text}],
                "chosen": [{"role": "assistant", "content": "it gives"}],
                "rejected": [{"role": "assistant", "content": text}],
            }

    def __len__(self) -> int:
        return self.number

    def __contains__(self, row: object) -> bool:
        return False


@pytest.mark.parametrize("rows", [sft_rows(30), pair_rows(30)], ids=["supervised", "pairs"])
def test_the_table_on_disk_is_the_one_in_memory(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    here = fitting(rows, tokenizer, 256, "rows")
    there = fitting(rows, tokenizer, 256, "rows", place=tmp_path / "rows.arrow")
    assert there.data.to_list() == here.data.to_list() and there.lengths == here.lengths and len(here) == 30
    assert not here.data.cache_files and there.data.cache_files == [{"filename": str(tmp_path / "rows.arrow")}]
    order = [3, 3, 0, 29]
    assert dataset(there, order).to_list() == [dataset(here, [i])[0] for i in order]
    if "pair" in here.data.column_names:
        assert list(here.data["pair"]) == [digest(neutral(row, tokenizer)) for row in rows]
        assert "pair" not in dataset(there, order).column_names, "TRL's trainer gets what it reads"


def test_what_is_held_of_a_row_is_its_length(tmp_path: Path) -> None:
    """600 pairs of some 850 tokens, which were 40 MB as lists of numbers."""
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    fitting(Made(5, 5), tokenizer, 4096, "pairs", place=tmp_path / "warm.arrow")
    rows = Made(600, 140)
    tracemalloc.start()
    examples = fitting(rows, tokenizer, 4096, "pairs", place=tmp_path / "rows.arrow")
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(examples) == 600 and sum(examples.lengths) > 480_000
    assert kept < 1_000_000 and peak < 15_000_000, (kept, peak)
    assert len(pickle.dumps(examples)) < 100_000, "another process gets the file's name, and the lengths"


def seen(examples: Examples, answer: Any) -> None:
    answer.put(dataset(examples, range(len(examples))).to_list())


def test_another_process_reads_the_same_table(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    examples = fitting(pair_rows(20), tokenizer, 256, "pairs", place=tmp_path / "rows.arrow")
    examples = Examples(
        data=examples.data.add_column("ref_chosen_logps", [float(i) for i in range(20)]),
        lengths=examples.lengths,
        dropped={},
    )
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=seen, args=(examples, answer))
    process.start()
    found = answer.get(timeout=120)
    process.join()
    assert found == dataset(examples, range(20)).to_list() and found[7]["ref_chosen_logps"] == 7.0


def test_nothing_of_the_tables_is_left_in_the_artifact(tmp_path: Path) -> None:
    out = run_initial(tmp_path, config(max_steps=2), sft_rows(20))
    assert not [path for path in out.directory.rglob("*") if path.suffix == ".arrow"]


def test_rows_of_an_artifact_are_read_whenever_they_are_gone_through(tmp_path: Path) -> None:
    made = [{"n": i} for i in range(5)]
    write_rows_atomic(tmp_path / "some.jsonl", made)
    rows = Rows(tmp_path, "some")
    assert len(rows) == 5 and list(rows) == list(rows) == made and {"n": 3} in rows and {"n": 9} not in rows
    write_rows_atomic(tmp_path / "none.jsonl", [])
    assert not len(Rows(tmp_path, "none")) and not list(Rows(tmp_path, "none"))
    with pytest.raises(DataError, match=r"holds neither other\.jsonl nor shards of it"):
        len(Rows(tmp_path, "other"))
