"""A row has a largest size: what is larger is refused with file and row, and is never held."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from judgetrain.data.config import SourceConfig
from judgetrain.data.sources import Rejects, json_array, read
from judgetrain.errors import DataError

MOST = 1000
ROW = {"query": "q", "response_a": "a", "response_b": "b"}


def reading(path: Path, rejects: Rejects | None = None, most: int = MOST) -> list[Any]:
    source = SourceConfig(name="s", path=str(path), max_row_chars=most)
    return list(read(source, "key", lambda row, number: row, rejects))


def jsonl(path: Path, long: str) -> Path:
    path = path.with_suffix(".jsonl")
    path.write_text("".join(json.dumps({**ROW, "response_b": text}) + "\n" for text in ("b", long, "c")))
    return path


def array(path: Path, long: str) -> Path:
    path = path.with_suffix(".json")
    path.write_text(json.dumps([{**ROW, "response_b": text} for text in ("b", long, "c")], indent=1))
    return path


def csv_of_lines(path: Path, long: str) -> Path:
    path = path.with_suffix(".csv")
    cell = "\n".join(long[start : start + 50] for start in range(0, len(long), 51))
    path.write_text("query,response_a,response_b\nq,a,b\n" + f'q,a,"{cell}"\nq,a,c\n')
    return path


def tsv(path: Path, long: str) -> Path:
    path = path.with_suffix(".tsv")
    path.write_text("query\tresponse_a\tresponse_b\nq\ta\tb\n" + f"q\ta\t{long}\nq\ta\tc\n")
    return path


def parlai(path: Path, long: str) -> Path:
    path = path.with_suffix(".txt")
    turns = "".join(f"{i + 2} {long[:50]}\t{long[:50]}\n" for i in range(len(long) // 100))
    path.write_text(f"1 hi\tho\n1 hi\tho\n{turns}1 hi\tho\n")
    return path


def parquet(path: Path, long: str) -> Path:
    path = path.with_suffix(".parquet")
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist([{**ROW, "response_b": text} for text in ("b", long, "c")]), path
    )
    return path


FORMS: dict[Callable[[Path, str], Path], str] = {
    jsonl: "mine.jsonl:2",
    array: "mine.json:row 2",
    csv_of_lines: "mine.csv:3",
    tsv: "mine.tsv:3",
    parlai: "mine.txt:2",
    parquet: "mine.parquet:row 2",
}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_row_that_is_too_large_is_refused_with_file_and_row(
    form: Callable[[Path, str], Path], tmp_path: Path
) -> None:
    fits = form(tmp_path / "mine", "x" * 600)
    assert len(reading(fits)) == 3
    path = form(tmp_path / "mine", "x" * 4 * MOST)
    with pytest.raises(DataError) as refused:
        reading(path)
    assert f"{FORMS[form]}: the row has more than 1,000 characters; raise max_row_chars" in str(refused.value)
    assert len(reading(path, most=9 * MOST)) == 3


def test_a_line_that_is_too_large_costs_no_other_line(tmp_path: Path) -> None:
    rejects = Rejects(strict=False)
    rows = reading(jsonl(tmp_path / "mine", "x" * 5_000_000), rejects)
    assert [row["response_b"] for row in rows] == ["b", "c"] and rejects.counts == {"too_large": 1}


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_the_end_of_a_line_is_no_part_of_it(end: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    row = json.dumps(ROW | {"response_b": ""})
    path.write_text((row[:-2] + "x" * (MOST - len(row)) + row[-2:] + end) * 2 if end else row)
    assert len(reading(path)) == (2 if end else 1)


MEASURED = """
import resource, sys
from judgetrain.data.config import SourceConfig
from judgetrain.data.sources import read
from judgetrain.errors import DataError

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    list(read(SourceConfig(name="s", path=sys.argv[1]), "key", lambda row, number: row))
except DataError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize(
    ("name", "beginning", "place"),
    [
        ("mine.jsonl.gz", "", "mine.jsonl.gz:1"),
        ("mine.json.gz", '[{"query": "q", "response_a": "', "mine.json.gz:row 1"),
        ("mine.csv.gz", "query,response_a,response_b\nq,a,", "mine.csv.gz:2"),
        ("mine.tsv.gz", "query\tresponse_a\tresponse_b\nq\ta\t", "mine.tsv.gz:2"),
        ("mine.txt.gz", "1 hi", "mine.txt.gz:1"),
    ],
)
def test_a_packed_file_of_one_endless_row_takes_no_memory(
    name: str, beginning: str, place: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(beginning.encode())
        for _ in range(300):
            file.write(b" " * (1 << 20))
    done = subprocess.run([sys.executable, "-c", MEASURED, str(path)], capture_output=True, text=True, timeout=300)
    message, megabytes = done.stdout.splitlines()
    assert f"{place}: the row has more than 16,777,216 characters" in message
    assert int(megabytes) < 150, "the row has 300 MB"


def test_the_line_that_is_no_utf_8_is_found_without_holding_lines(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes(b"query,response_a,response_b\n" + b"q,a,\xc3\xa4\n" * 200_000 + b"q,a,\xfc\n")
    with pytest.raises(DataError, match=r"mine\.csv:200002: expected UTF-8 text \(invalid start byte\); save"):
        reading(path)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("[1, 22, 333]", [1, 22, 333]),
        (' \n[ {"a": [1, "]"]} , "x\\"y" ,\n null,true,-1.5e3 ] \n', [{"a": [1, "]"]}, 'x"y', None, True, -1500.0]),
        ("[[], {}]", [[], {}]),
    ],
)
@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1 << 20])
def test_an_array_is_read_the_same_in_pieces_of_any_size(
    text: str, rows: list[Any], chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judgetrain.data.sources.CHUNK", chunk)
    path = tmp_path / "mine.json"
    path.write_text(text)
    assert [row for _, row in json_array(path, MOST)] == rows == json.loads(text)


@pytest.mark.parametrize("chunk", [1, 5, 1 << 20])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "the array is empty"),
        ('[{"a": 1}', r"not a whole JSON array \(expected , or \], found the end of the file\)"),
        ('[{"a": 1', r"not a whole JSON array \(row 1: "),
        ('[{"a": 1}, {"b" 2}, 3]', r"not a whole JSON array \(row 2: Expecting ':' delimiter\)"),
        ('[{"a": 1, "a": 2}]', r"row 1: the key 'a' stands twice"),
        ("[1] 2", "text stands behind its end"),
        ("[1,]", r"row 2: "),
        ("[1 2]", "expected , or ], found '2'"),
        ("[" * 100_000, "row 1: "),
    ],
)
def test_what_is_no_whole_array_is_refused_with_its_row(
    text: str, message: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judgetrain.data.sources.CHUNK", chunk)
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        list(json_array(path, 1 << 20))


def test_a_wrong_row_of_a_large_array_is_called_wrong_and_not_large(tmp_path: Path) -> None:
    rows = [json.dumps({"a": "x" * 100}) for _ in range(30)]
    rows[3] = '{"a" 1}'
    path = tmp_path / "mine.json"
    path.write_text(f"[{', '.join(rows)}]")
    with pytest.raises(DataError, match=r"row 4: Expecting ':' delimiter"):
        list(json_array(path, MOST))


def test_an_array_is_read_in_time_linear_in_its_rows(tmp_path: Path) -> None:
    def seconds(rows: int) -> float:
        path = tmp_path / "mine.json"
        path.write_text(json.dumps([{"query": "x" * 200}] * rows))
        began = time.process_time()
        assert sum(1 for _ in json_array(path, MOST)) == rows
        return time.process_time() - began

    seconds(2_000)
    assert seconds(40_000) < 30 * max(seconds(4_000), 0.005)
