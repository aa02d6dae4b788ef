"""Forms of files that are met every day: Excel's first line, workbooks, files packed under another name."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from pathlib import Path
from typing import Any

import pytest

from judgetrain.data.benchmarks.benchmark import read_cases
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.data.rows.reader import RowReader
from judgetrain.data.sources import form_of, read, table
from judgetrain.errors import DataError
from judgetrain.judging.items import read_items
from tests.builders.data import write_lines
from tests.builders.pipeline import configured

ROWS = [{"query": "q, and more", "response_a": "7", "response_b": 'say "seven"'}, {"query": "r", "response_a": "a"}]


def rows_of(path: Path) -> list[tuple[str, Any]]:
    return [(place.rpartition(":")[2], row) for place, row in table(path, 1 << 20)]


@pytest.mark.parametrize("delimiter", [";", ",", "\t", "|", "~"])
@pytest.mark.parametrize("first", ["sep={}", '"sep={}"', "SEP={}", "sep={};;"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("ending", [".csv", ".txt", ".csv.gz"])
def test_excel_says_which_sign_stands_between_columns(
    delimiter: str, first: str, newline: str, ending: str, tmp_path: Path
) -> None:
    lines = [first.format(delimiter), delimiter.join(("query", "response_a", "response_b"))]
    lines.append(delimiter.join(('"q"', '"two\nlines"', "7")))
    lines.append(delimiter.join(("r", "a", "b")))
    content = ("\ufeff" + newline.join(lines) + newline).encode()
    path = tmp_path / f"mine{ending}"
    path.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    assert form_of(path) == "table"
    assert rows_of(path) == [
        ("3", {"query": "q", "response_a": "two\nlines", "response_b": "7"}),
        ("5", {"query": "r", "response_a": "a", "response_b": "b"}),
    ]


def test_a_column_may_be_called_sep(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("sep,query\n1,q\n")
    assert rows_of(path) == [("2", {"sep": "1", "query": "q"})]


def test_what_is_wrong_below_excels_line_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("sep=;\na;b\n1;2\n1;2;3\n")
    assert [place for place, _ in rows_of(path)] == ["3", "4"]
    path.write_text("sep=;\na;a\n1;2\n")
    with pytest.raises(DataError, match=r"mine\.csv:2: two columns are called 'a'"):
        rows_of(path)


def reading(path: Path) -> list[Any]:
    return list(read(SourceConfig(name="s", path=str(path)), "key", lambda row, number: row))


def test_texts_that_excel_cut_are_told() -> None:
    """Excel keeps 32,767 characters of a cell, of which one outside of the first 65,536 code points counts twice."""
    most = 32_767
    reader = RowReader(SourceConfig(name="s"))
    for text in ("a" * most, "\U0001f600" * (most // 2) + "a", "a" * (most - 1), "a" * (most + 1), "\U0001f600" * most):
        reader.comparison({"query": "q", "response_a": text, "response_b": "b"}, 1, labelled=False)
    reader.comparison({"query": "q" * most, "response_a": "a", "response_b": "b"}, 2, labelled=False)
    told: list[str] = []
    reader.tell(told.append)
    (line,) = told
    assert line.startswith(
        "s: 3 texts have exactly 32,767 characters, where Excel cuts a cell (response_a (2), query (1))"
    )


@pytest.mark.parametrize("ending", [".xlsx", ".XLSX", ".xls", ".xlsm", ".ods"])
def test_a_workbook_is_refused_by_its_name(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"mine{ending}"
    path.write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(DataError, match=r"mine\.\w+: a workbook, which is not read; save the sheet as CSV"):
        reading(path)


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.csv", "a,b\n1,2\n")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (zipped(), "a ZIP archive, which is not read; unpack it, or save the sheet"),
        (bz2.compress(b"{}"), "packed by bzip2, which is not read; unpack it"),
        (lzma.compress(b"{}"), "packed by xz"),
        (b"\x28\xb5\x2f\xfd\x00\x00", "packed by zstd"),
        (gzip.compress(b"{}", mtime=0), r"packed by gzip, which is not read; name it mine\.jsonl\.gz"),
    ],
)
def test_a_file_that_is_packed_under_another_name_is_refused_with_what_to_do(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        reading(path)


def test_all_columns_that_a_file_lacks_are_named_at_once(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "mine.jsonl", [{"ask": "q", "left": "a", "right": "b"}])
    with pytest.raises(DataError) as refused:
        read_items(configured("recipe=debug", f"verdicts.source.path={path}").verdicts, None, 1)
    message = str(refused.value)
    for field in ("query", "response_a", "response_b"):
        assert f"no column for {field}: looked for " in message
    assert message.endswith("say 'verdicts.source.fields={query: COLUMN, response_a: COLUMN, response_b: COLUMN}'")

    with pytest.raises(
        DataError, match="no column for label: looked for label, winner; found query, response_a, response_b"
    ):
        read_cases(BenchmarkConfig("b", SourceConfig(name="b", path=write_lines(tmp_path / "b.jsonl", ROWS))), "key")

    paths = [write_lines(tmp_path / f"{name}.jsonl", [{"ask": "q", "said": "a"}]) for name in ("one", "two")]
    with pytest.raises(DataError, match=r"one\.jsonl:1: no column of prompts: .*; no column of answers: .*; found ask"):
        read_items(configured("recipe=debug", f"verdicts.systems=[{','.join(paths)}]").verdicts, None, 1)
