"""Training rows are tokenised into a table on disk that all processes map: none holds them."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_tokenizer
from judgetrain.train.data import dataset, fitting, neutral
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
        assert len(set(here.data["pair"])) == len({str(neutral(row, tokenizer)) for row in rows}), "one for equal ids"
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


def test_nothing_of_the_tables_is_left_in_the_artifact(tmp_path: Path) -> None:
    out = run_initial(tmp_path, config(max_steps=2), sft_rows(20))
    assert not [path for path in out.directory.rglob("*") if path.suffix == ".arrow"]
