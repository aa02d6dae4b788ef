"""Reading sources: shapes, bad rows with their place, counts, duplicates."""

import gzip
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data import dialogues
from judgetrain.data.config import DialoguesConfig, DialogueSourceConfig
from judgetrain.data.sources import read, read_comparisons, sampled
from judgetrain.data.stages import DialoguesSettings
from judgetrain.errors import ConfigError, DataError, JudgetrainError
from judgetrain.pipeline.compose import recipe_overrides
from tests.builders.data import run_dialogues, write_lines
from tests.builders.pipeline import configured


def run(tmp_path: Path, content: str | list[dict[str, Any]], strict: bool = True, **source: Any) -> StageRun:
    path = tmp_path / source.pop("file", "in.jsonl")
    text = content if isinstance(content, str) else "".join(json.dumps(row) + "\n" for row in content)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, errors="surrogateescape")
    read_from = DialogueSourceConfig(**{"name": "src", "path": str(path), **source})
    return run_dialogues(tmp_path, DialoguesConfig([read_from], strict=strict))


@pytest.mark.parametrize(
    ("row", "query", "context"),
    [
        ({"query": "hi"}, "hi", ""),
        ({"prompt": "hi"}, "hi", ""),
        ({"instruction": "translate", "input": "chat", "output": "cat"}, "translate\n\nchat", ""),
        ({"instruction": "hi", "input": "", "output": "x"}, "hi", ""),
        ({"messages": [{"role": "user", "content": "hi"}]}, "hi", ""),
        (
            {"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "a"},
                          {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]},
            "c", "System: be kind\nUser: a\nAssistant: b",
        ),
        (
            {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"},
                               {"from": "human", "value": "c"}]},
            "c", "User: a\nAssistant: b",
        ),
        (
            {"messages": [{"role": "developer", "content": "be kind"},
                          {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
            "a\nb", "System: be kind",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("file", ["in.jsonl", "in.jsonl.gz"])
def test_published_shapes(row: dict[str, Any], query: str, context: str, file: str, tmp_path: Path) -> None:
    out = run(tmp_path, [row], file=file)
    from judgetrain.schema import Dialogue

    dialogue = Dialogue.from_row(next(read_rows(out.directory, "dialogues")))
    assert (dialogue.query, dialogue.context, dialogue.source, dialogue.id) == (query, context, "src", "src:0000001")


BAD = [
    ("not json", "not_json", "expected a JSON object a line"),
    ("[1, 2]", "not_an_object", "expected a JSON object, found list"),
    ('{"other": "x"}', "missing_field", "field query"),
    ('{"query": 5}', "wrong_type", "found int"),
    ('{"query": "  "}', "empty_query", "only white space"),
    ('{"messages": [{"role": "assistant", "content": "x"}]}', "last_not_user", "last message"),
    ('{"messages": [{"role": "robot", "content": "x"}]}', "wrong_message", "'robot'"),
    ('{"messages": []}', "wrong_type", "list of messages"),
    *(
        (f'{{"{name}": "half \\ud83d", "query": "a"}}', "not_utf8", "half of a surrogate pair")
        for name in ("note", "id", "category", "reference")
    ),
    ('{"query": "a", "query": "b"}', "not_json", "the key 'query' stands twice"),
    ('{"query": "a", "note": ' + "9" * 4301 + "}", "not_json", "Exceeds the limit"),
    ('{"query": "a", "messages": "[5"}', "wrong_type", "expected a list of messages, found '[5'"),
    ("[" * 100_000, "not_json", "expected a JSON object"),
]


@pytest.mark.parametrize(("line", "reason", "message"), BAD)
def test_a_bad_row_stops_with_its_place_or_is_kept_aside(line: str, reason: str, message: str, tmp_path: Path) -> None:
    content = f'{{"query": "fine"}}\n{line}\n{{"query": "also fine"}}\n'
    with pytest.raises(DataError, match=r"in\.jsonl:2: .*") as error:
        run(tmp_path, content)
    assert message in str(error.value)
    out = run(tmp_path, content, strict=False)
    assert out.totals()["counts"] == {"in": 3, "out": 2, "dropped": {reason: 1}}
    reject = next(read_rows(out.directory, "rejects"))
    assert reject["place"].endswith("in.jsonl:2")
    assert (reject["reason"], reject["raw"].strip()) == (reason, line[:500])


@pytest.mark.parametrize(
    ("content", "options", "error", "message"),
    [
        ("", {}, DataError, "the file is empty"),
        ('{"query": "a"}\n', {"fields": {"query": "nope"}}, DataError, "expected the column 'nope'"),
        (
            '{"query": "a", "response_a": "b", "response_b": "c"}\n',
            {"fields": {"query": "q", "response_a": "response_a", "response_b": "b.c", "group": "kind"}},
            DataError,
            r"in\.jsonl:1: expected the columns 'q' \(field query\), 'b\.c' \(field response_b\), "
            r"'kind' \(field group\); found query, response_a, response_b",
        ),
        (
            '{"frage": "a", "x": 1}\n',
            {},
            DataError,
            r"field query, found nothing: looked for query, prompt.*messages.*; found frage, x; say '.*query: COLUMN",
        ),
        ('{"query": null}\n', {}, DataError, r"field query, found nothing \("),
        ('{"query": "a"}\n', {"fields": {"qury": "a"}}, ConfigError, "unknown field 'qury'"),
        ("query,x\na,b\n\udce4,b\n", {"file": "in.csv"}, DataError, r"in\.csv:3: expected UTF-8 text .* save the file"),
    ],
)
def test_unusable_sources(
    content: str, options: dict[str, Any], error: type[JudgetrainError], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        run(tmp_path, content, **options)


PLAIN = {
    "jsonl": b'{"query": "a"}\n' * 5000,
    "json": b"[" + b'{"query": "a"},' * 5000 + b'{"query": "b"}]',
    "csv": b"query,x\n" + b"a,b\n" * 5000,
    "txt": b"1 hello\thi\n" * 5000,
}


@pytest.mark.parametrize("form", PLAIN)
@pytest.mark.parametrize("damage", ["cut off", "another byte", "no gzip", "latin-1"])
def test_a_damaged_file_of_any_form_is_said_in_a_line(tmp_path: Path, form: str, damage: str) -> None:
    packed = gzip.compress(PLAIN[form])
    place = tmp_path / f"in.{form}.gz"
    if damage == "latin-1":  # far behind what tells the form of a file
        place = tmp_path / f"in.{form}"
        message = rf"in\.{form}:\d+: expected UTF-8 text"
        place.write_bytes(PLAIN[form][:-4] + "é".encode("latin-1") + PLAIN[form][-4:])
    else:
        message = "not a whole gzip file"
        wrong = {
            "cut off": packed[:40],
            "another byte": packed[:20] + b"\xff\xff\xff" + packed[23:],
            "no gzip": b"junk",
        }
        place.write_bytes(wrong[damage])
    with pytest.raises(DataError, match=message):
        list(read(DialogueSourceConfig(name="src", path=str(place)), "src", lambda row, number: row))


def test_a_damaged_parquet_file_is_said_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"query": [f"hello {i}" for i in range(3000)]}), path)
    damaged = bytearray(path.read_bytes())
    damaged[100:3000] = bytes(byte ^ 0x5A for byte in damaged[100:3000])
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=r"in\.parquet: not a whole Parquet file; after row 0: "):
        run_dialogues(tmp_path, DialoguesConfig([DialogueSourceConfig(name="src", path=str(path))]))


def test_a_parquet_file_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    columns = [pyarrow.array([text]) for text in ("q", "a", "b", "another")]
    names = ["query", "response_a", "response_b", "response_a"]
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, names=names), tmp_path / "in.parquet")
    source = DialogueSourceConfig(name="src", path=str(tmp_path / "in.parquet"))
    with pytest.raises(DataError, match=r"in\.parquet: two columns are called 'response_a'; give each a name"):
        run_dialogues(tmp_path, DialoguesConfig([source]))


def test_a_hub_id_without_network_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    settings = DialoguesConfig([DialogueSourceConfig(name="s", type="hub", path="no-such-owner/no-such-set")])
    with pytest.raises(DataError, match=r"dialogues\.sources\[0\]\.path=no-such-owner/no-such-set.*local file"):
        run_dialogues(tmp_path, settings)


def test_length_limits_duplicates_and_turns_are_counted(tmp_path: Path) -> None:
    rows = [{"query": q} for q in ("hello there", "HELLO   there", "\uff28ello there", "y" * 9000)]
    out = run(tmp_path, rows)
    assert out.totals()["counts"] == {"in": 4, "out": 1, "dropped": {"duplicate": 2, "too_long": 1}}
    assert out.notes["sources"]["src"] == {"read": 4, "kept": 1, "duplicate": 2, "too_long": 1}
    roles = ("user", "assistant") * 2
    rows = [{"messages": [{"role": r, "content": f"{n} {i}"} for i, r in enumerate(roles)]} for n in "ab"]
    out = run(tmp_path, [*rows, {"nothing": 1}], strict=False, turns="every")
    assert out.notes["sources"]["src"] == {"read": 3, "dialogues": 4, "kept": 4, "rejected:missing_field": 1}


@pytest.mark.parametrize("file", ["in.jsonl", "in.json", "in.jsonl.gz"])
def test_a_byte_order_mark_is_no_text(file: str, tmp_path: Path) -> None:
    text = '[{"query": "a"}]' if file == "in.json" else '{"query": "a"}\n'
    out = run(tmp_path, f"\ufeff{text}", file=file)
    assert [r["messages"][0]["content"] for r in read_rows(out.directory, "dialogues")] == ["a"]


def test_rows_with_two_responses_become_comparisons_with_the_label_that_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``label.source=given`` alone learns from it; one that is written otherwise stops nothing."""
    labels = ["A", "tie", "first", None]
    rows = [{"query": f"q{y}", "response_a": "x", "response_b": "y", "label": y} for y in labels]
    out = run(tmp_path, [*rows, {"query": "q", "response_a": "x", "response_b": "y"}])
    assert [row["label"] for row in read_rows(out.directory, "comparisons")] == ["A", "tie", None, None, None]
    assert (
        "dialogues: src: 1 label is none of A, B, tie and is not used: 'first' (1); say what they mean with "
        "'dialogues.sources[0].labels={first: A, ...}'"
    ) in capsys.readouterr().out


def test_rows_are_numbered_over_all_files_and_repeated_ids_are_counted(tmp_path: Path) -> None:
    for name, query in (("a", "one"), ("b", "two")):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"query": query}) + "\n")
    settings = DialoguesConfig([DialogueSourceConfig(name="s", path=str(tmp_path / "[ab].jsonl"))])
    out = run_dialogues(tmp_path, settings)
    assert [r["id"] for r in read_rows(out.directory, "dialogues")] == ["s:0000001", "s:0000002"]
    rows = [{"id": 1, "query": "x"}, {"id": 1, "query": "y"}]
    assert run(tmp_path, rows).totals()["counts"]["dropped"] == {"repeated_id": 1}
    (tmp_path / "x[1].jsonl").write_text('{"query": "literal"}\n')
    literal = run(tmp_path, '{"query": "literal"}\n', file="y[1].jsonl")
    assert literal.totals()["counts"]["out"] == 1


def test_one_query_may_have_several_comparisons(tmp_path: Path) -> None:
    rows = [{"query": "q", "response_a": "x", "response_b": b} for b in ("y", "z", "y")]
    assert run(tmp_path, rows).totals()["counts"] == {"in": 3, "out": 2, "dropped": {"duplicate": 1}}


BY_NUMBER = {"0": "A", "1": "B", "2": "tie"}


@pytest.mark.parametrize(
    ("labels", "value", "expected"),
    [(BY_NUMBER, 2, "tie"), ({"1": "A"}, 1.0, "A"), ({}, "B", "B"), ({"A>B": "A"}, "A>B", "A"),
     *(({"1": "A"}, value, None) for value in (math.nan, math.inf, [1], None))],
)  # fmt: skip
def test_label_conventions(labels: dict[Any, str], value: Any, expected: str | None, tmp_path: Path) -> None:
    row = {"prompt": "q", "response_1": "x", "response_2": "y", "label": value}
    source = DialogueSourceConfig(name="s", path=write_lines(tmp_path / "in.jsonl", [row]), labels=labels)
    if expected:
        assert next(iter(read_comparisons(source, "key"))).label == expected
        return
    with pytest.raises(DataError, match=r"in\.jsonl:1: label"):
        list(read_comparisons(source, "key"))


@pytest.mark.parametrize("labels", ["{0: A, 1: B, 2: tie}", "{0.0: A, 1.0: B, 2.0: tie}"])
def test_labels_that_are_numbers_are_named_on_the_command_line(labels: str, tmp_path: Path) -> None:
    rows = [{"query": "q", "response_a": "x", "response_b": "y", "label": label} for label in (0, 1.0, "2", True)]
    path = write_lines(tmp_path / "in.jsonl", rows)
    config = configured(*recipe_overrides(["recipe=pairs", f"verdicts.source={{path: {path}, labels: {labels}}}"]))
    assert [c.label for c in read_comparisons(config.verdicts.source, "key")] == ["A", "B", "tie", "B"]


def drawn(tmp_path: Path, seed: int, **source: Any) -> list[str]:
    """Return the queries that stage dialogues keeps of 60 rows, of which the last cannot be read."""
    path = tmp_path / "rows.jsonl"
    tmp_path.mkdir()
    write_lines(path, [*({"query": f"query {i}"} for i in range(60)), {"nothing": 1}])
    config = DialoguesConfig([DialogueSourceConfig(name="src", path=str(path), **source)], strict=False)
    out = StageRun(tmp_path / "out", "dialogues", 0, Console())
    dialogues.run(DialoguesSettings(seed=seed, dialogues=config), {}, out)
    assert out.notes["sources"]["src"]["rejected:missing_field"] == 1, "all rows are read, whatever is drawn"
    return [row["messages"][-1]["content"] for row in read_rows(out.directory, "dialogues")]


def test_a_sample_is_drawn_by_the_seed_and_keeps_the_order(tmp_path: Path) -> None:
    first = drawn(tmp_path / "a", 1, sample=20)
    assert len(first) == len(set(first)) == 20
    assert [int(query.split()[1]) for query in first] == sorted(int(query.split()[1]) for query in first)
    assert first == drawn(tmp_path / "b", 1, sample=20)
    assert first != drawn(tmp_path / "c", 2, sample=20)
    assert first != [f"query {i}" for i in range(20)], "not the first rows"
    assert len(drawn(tmp_path / "d", 1, sample=500)) == 60


def test_every_row_has_the_same_chance_to_be_drawn() -> None:
    """5 of 20, 4,000 times: each row 1,000 times, give or take 4.5 standard deviations of 27."""
    counts = Counter(row for seed in range(4000) for row in sampled(range(20), 5, seed))
    assert set(counts) == set(range(20))
    assert all(abs(n - 1000) < 125 for n in counts.values())
