"""What stage judge reads: files of comparisons, and systems' answers in the shapes that they are published in."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.data.config import SourceConfig
from judgetrain.errors import ConfigError, DataError, JudgetrainError
from judgetrain.extras.server.client import RemoteJudge
from judgetrain.judging.config import VerdictsConfig
from judgetrain.judging.items import JudgedRow, read_items
from judgetrain.pipeline.run import Pipeline
from tests.builders.judging import alpaca_eval, arena_hard, judge_stage, judged, lines
from tests.builders.pipeline import configured

COLUMNS = ("id", "query", "response_a", "response_b", "model_a", "label")
ROWS: list[dict[str, Any]] = [
    dict(zip(COLUMNS, row, strict=True))
    for row in (("q1", "Why?", "Because,\nso.", 'It "is".', "x", "A"), ("q2", "Où?", "Là.", "Ici.", "x", "C"))
]


def of(path: Path, **source: Any) -> list[JudgedRow]:
    return read_items(VerdictsConfig(source=SourceConfig(path=str(path), **source)), None, 1)


def from_systems(*paths: Path, baseline: str | None = None) -> list[JudgedRow]:
    return read_items(VerdictsConfig(systems=[*map(str, paths)], baseline=baseline), None, 1)


def test_a_file_of_any_kind_gives_the_same_comparisons(tmp_path: Path) -> None:
    import pandas

    table = pandas.DataFrame(ROWS)
    lines(tmp_path / "mine.jsonl", ROWS)
    (tmp_path / "mine.json").write_text(json.dumps(ROWS), encoding="utf-8")
    table.to_csv(tmp_path / "mine.csv", index=False, encoding="utf-8-sig")
    table.to_csv(tmp_path / "mine.tsv", index=False, sep="\t")
    table.to_parquet(tmp_path / "mine.parquet")
    for path in tmp_path.iterdir():
        first, second = (item.comparison for item in of(path))
        assert (first.id, first.label, first.response_a, first.response_b) == (
            *("mine:q1", "A", "Because,\nso.", 'It "is".'),
        )
        assert (second.dialogue.query, second.response_b, second.label) == ("Où?", "Ici.", None)


def test_columns_may_be_named_and_one_that_is_missing_is_told_with_file_and_line(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [{"ask": "Why?", "left": "yes", "right": "no"}])
    fields = {"query": "ask", "response_a": "left", "response_b": "right"}
    assert of(path, fields=fields)[0].comparison.response_b == "no"
    with pytest.raises(
        DataError,
        match=r"a\.jsonl:1: no column for query: looked for query, .*; no column for response_a: .*; found ask, left",
    ):
        of(path)
    with pytest.raises(
        DataError, match=r"response_b: looked for wrong; found ask, .* say 'verdicts\.source\.fields=\{res"
    ):
        of(path, fields=fields | {"response_b": "wrong"})


def test_a_row_that_cannot_be_judged_stands_in_its_place_with_its_reason(tmp_path: Path) -> None:
    good = {"query": "Why?", "response_a": "yes", "response_b": "no"}
    rows = [good, {**good, "response_b": " "}, {**good, "query": None}, {"query": "x"}]
    path = lines(tmp_path / "a.jsonl", rows)
    with path.open("a") as file:
        file.write("{broken\n[1]\n" + json.dumps(good) + "\n")
    items = of(path)
    reasons = [re.split(": (?:expected|no column for response_a)", item.failure or "")[0] for item in items]
    assert reasons[2:] == [*(f"missing_field: a.jsonl:{n}" for n in (3, 4)), "not_json: a.jsonl:5", reasons[5], ""]
    assert reasons[:2] == ["", ""] and reasons[5].startswith("not_an_object: a.jsonl:6")
    assert [item.comparison.forfeit for item in items[:2]] == [None, "A"], "an empty response loses, and is no failure"
    assert len({item.comparison.id for item in items}) == len(items)


PAIR = ("Why?", "yes, so", "no")
_TURN = '[{"role": "user", "content": "Why?"}]'
FORMS = {
    "JSON lines in .json": ("a.json", '{"query": "Why?", "response_a": "yes, so", "response_b": "no"}\n' * 2),
    "a first column that is a list": (
        *("a.json", f'{{"messages": {_TURN}, "response_a": "yes, so", "response_b": "no"}}\n' * 2),
    ),
    "an array in .jsonl": ("a.jsonl", '[\n{"query": "Why?", "response_a": "yes, so", "response_b": "no"}]'),
    "semicolons": ("a.csv", "query;response_a;response_b\nWhy?;yes, so;no\n"),
    "tabs in .csv": ("a.csv", "query\tresponse_a\tresponse_b\nWhy?\tyes, so\tno\n"),
    "a table by another name": ("a.dat", 'query,response_a,response_b\nWhy?,"yes, so",no\n'),
    "JSON in a cell": ("a.tsv", f"messages\tresponse_a\tresponse_b\n{_TURN}\tyes, so\tno\n"),
    "a list a turn in cells": ("a.csv", 'prompt,response_a,response_b\n"[""Why?""]","[""yes, so""]","[""no""]"\n'),
    "NaN for what is missing": (
        *("a.jsonl", '{"id": NaN, "query": "Why?", "response_a": "yes, so", "response_b": "no", "label": NaN}'),
    ),
}


@pytest.mark.parametrize(("name", "text"), FORMS.values(), ids=FORMS)
def test_a_file_s_form_is_found_by_trying(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    for item in of(path):
        comparison = item.comparison
        assert (comparison.dialogue.query, comparison.response_a, comparison.response_b, item.failure) == (*PAIR, None)
        assert (comparison.model_a, comparison.group, comparison.label) == ("", None, None)
        assert comparison.id.startswith("a:000000")


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        (('"I came, I saw', "so"), ('"I came, I saw', "so")),
        (("a", 'he said "b"'), ("a", 'he said "b"')),
        (("a", '"he said ""b"""'), ("a", 'he said "b"')),
        (("a", '"two\nlines"'), ("a", "two\nlines")),
    ],
)
def test_a_quotation_mark_in_tabs_is_text(fields: tuple[str, str], read: tuple[str, str], tmp_path: Path) -> None:
    # The row after it, which closes the quotation, is a row of its own.
    rows = ("query\tresponse_a\tresponse_b", "\t".join(("Why?", *fields)), "How?\tI conquered\tx")
    path = tmp_path / "a.tsv"
    path.write_text("\n".join(rows) + '\nWho?\tcame"\tx\n' * ('"I' in fields[0]))
    responses = [(i.comparison.response_a, i.comparison.response_b) for i in of(path)]
    assert responses[:2] == [read, ("I conquered", "x")]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "query,response_a,response_a\nq,a,b\n", r"a\.csv:1: two columns are called 'response_a'"),
        ("a.jsonl", '{"query": "q", "response_a": "a", "response_a": "c"}', "'response_a' stands tw"),
        ("a.json", '[{"query": "q", "query": "b"}]', r"a\.json.*'query' stands twice"),
        ("a.csv", 'query,response_a,response_b\n"[""a"",""b""]","[""c"", null]","[""e"",""f""]"\n', "lists of 2 turns"),
        ("a.jsonl", '{"query": [null], "response_a": ["a"], "response_b": ["b"]}', "query, found nothing"),
    ],
)
def test_what_may_be_meant_in_two_ways_is_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        of(path)


def test_trl_s_preferences_are_comparisons_whose_better_side_is_drawn(tmp_path: Path) -> None:
    # Each of TRL's forms: texts, messages, and messages that hold the prompt.

    def said(*texts: str) -> list[dict[str, str]]:
        return [{"role": r, "content": t} for r, t in zip(("user", "assistant"), texts, strict=False)]

    texts = [{"prompt": f"q{i}", "chosen": f"good {i}", "rejected": f"bad {i}"} for i in range(20)]
    messages = [
        {"prompt": said(r["prompt"]), **{n: [said("", r[n])[1]] for n in ("chosen", "rejected")}} for r in texts
    ]
    whole = [{n: said(r["prompt"], r[n]) for n in ("chosen", "rejected")} for r in texts]
    forms = [of(lines(tmp_path / "a.jsonl", rows)) for rows in (texts, messages, whole)]
    assert forms[0] == forms[1] == forms[2]
    labels = [item.comparison.label for item in forms[0]]
    assert set(labels) == {"A", "B"}
    for i, item in enumerate(forms[0]):
        better = item.comparison if item.comparison.label == "A" else item.comparison.swapped()
        assert (better.dialogue.query, better.response_a, better.response_b) == (f"q{i}", f"good {i}", f"bad {i}")


def test_csv_rows_with_other_cells_are_kept_aside_and_what_is_no_csv_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,query,response_a,response_b\nx,why,"two\nlines",b\n,why,a\n,why,a,b,c\nx7,why,,b\nx,why,a,b\n')
    items = of(path, name="mine")
    assert [(item.failure or "").partition(": expected")[0] for item in items] == [
        *("", "wrong_cells: a.csv:4", "wrong_cells: a.csv:5", "", "")
    ]
    assert [item.comparison.forfeit for item in items[3:]] == ["B", None], "an empty cell is an empty response"
    assert [item.comparison.id for item in items] == [
        *("mine:x", "mine:a.csv:4", "mine:a.csv:5", "mine:x7", "mine:x#2")
    ], "an id of its own, where it can be read"
    for row, message in (('why,"open,b\n', r"a\.csv:2: not a row of CSV"), ("", r"a\.csv: the file has no rows")):
        path.write_text(f"query,response_a,response_b\n{row}")
        with pytest.raises(DataError, match=message):
            of(path)


def test_ids_that_stand_twice_are_told_apart(tmp_path: Path) -> None:
    rows = [{"id": name, "query": "Why?", "response_a": "yes", "response_b": "no"} for name in ("a", "a", "a#2", "a")]
    items = of(lines(tmp_path / "f.jsonl", rows))
    assert [item.comparison.id for item in items] == ["f:a", "f:a#3", "f:a#2", "f:a#4"]
    assert {item.comparison.dialogue.id for item in items[:2]} == {"f:a"}


def test_judgebench_s_pairs_are_read_by_their_adapter_and_without(tmp_path: Path) -> None:
    row = {"pair_id": "81ec57f2", "original_id": "10", "source": "mmlu-pro-math", "question": "What is 2 + 2?"}
    row |= {"response_model": "gpt-4o", "response_A": "It is 4.", "response_B": "It is 5.", "label": "A>B"}
    path = lines(tmp_path / "dataset=judgebench,response_model=gpt-4o.jsonl", [row])
    (read,), (plain,) = ([item.comparison for item in of(path, **how)] for how in ({"adapter": "judgebench"}, {}))
    assert (read.label, read.group, plain.label, plain.response_b) == ("A", "mmlu-pro-math", None, "It is 5.")
    lines(path, [{name: value for name, value in row.items() if name != "response_B"}])
    with pytest.raises(DataError, match=r"gpt-4o\.jsonl:1: expected the column 'response_B'"):
        of(path, adapter="judgebench")


def test_alpaca_eval_outputs_are_paired_by_their_instructions(tmp_path: Path) -> None:
    items = from_systems(*alpaca_eval(tmp_path))
    assert [item.comparison.id for item in items] == [f"systems:0000{i}:gpt4_1106_preview:mine" for i in (1, 2)]
    comparison = items[1].comparison
    assert comparison.dialogue.query == "How did states get their names?"
    assert (comparison.response_a, comparison.model_b, comparison.group) == ("A full answer.", "mine", "helpful_base")


def test_systems_that_rows_do_not_name_are_called_as_their_files_one_by_one(tmp_path: Path) -> None:
    for name in ("gpt-4.1", "gpt-4.5"):
        lines(tmp_path / f"{name}.jsonl", [{"prompt": "Why?", "output": f"{name} says"}])
    for paths in ([tmp_path / "*.jsonl"], [tmp_path / "gpt-4.1.jsonl", tmp_path / "gpt-4.5.jsonl"]):
        (item,) = from_systems(*paths)
        assert (item.comparison.model_a, item.comparison.model_b) == ("gpt-4.1", "gpt-4.5")
        assert item.comparison.response_b == "gpt-4.5 says"


def test_arena_hard_s_answers_are_all_pairs_or_those_with_a_baseline(tmp_path: Path) -> None:
    answers = arena_hard(tmp_path)
    pairs = [(i.comparison.model_a, i.comparison.model_b) for i in from_systems(answers / "*.jsonl")]
    assert pairs == 2 * [("large", "o3-mini"), ("large", "small"), ("o3-mini", "small")]
    items = from_systems(answers / "*.jsonl", baseline="o3-mini")
    pairs = [(i.comparison.model_a, i.comparison.model_b) for i in items]
    assert pairs == 2 * [("o3-mini", "large"), ("o3-mini", "small")]
    assert items[0].comparison.dialogue.id == "systems:a1"
    assert (items[0].comparison.dialogue.query, items[0].comparison.response_a) == ("Write a parser.", "a middle one")
    warnings: list[str] = []
    read_items(VerdictsConfig(systems=[str(answers / "*.jsonl")]), None, 1, warnings.append)
    assert warnings == ["systems: columns that are not used (rows): ans_id (6), metadata (6), tstamp (6)"]


def test_what_one_of_two_systems_lacks_is_said(tmp_path: Path) -> None:
    answers = arena_hard(tmp_path)
    rows = [json.loads(line) for line in (answers / "small.jsonl").read_text().splitlines()]
    unsaid = {**rows[1], "uid": "c3", "messages": rows[1]["messages"][:1]}
    lines(answers / "small.jsonl", [rows[0], rows[0], {**rows[1], "uid": "d4"}, unsaid])
    items = from_systems(answers / "small.jsonl", answers / "large.jsonl")
    failures = [i.failure for i in items if i.failure]
    assert [f.partition(":")[0] for f in failures] == ["repeated", "no_answer", "no_answer", "no_answer"]
    assert failures[0] == "repeated: small.jsonl:2: small answers this prompt twice"
    assert failures[1] == "no_answer: small.jsonl:4: expected messages that end with the system's answer"
    assert set(failures[2:]) == {f"no_answer: {name} has no answer to this prompt" for name in ("small", "large")}
    assert sum(i.failure is None for i in items) == 1


def test_systems_without_what_is_needed_are_refused(tmp_path: Path) -> None:
    answers = arena_hard(tmp_path)
    small = answers / "small.jsonl"
    none = tmp_path / "none.json"
    other = lines(tmp_path / "x.jsonl", [{"prompt": "Why?", "text": "So."}])
    for paths, baseline, message in (
        ((small,), None, r"two or more are needed, found small in 1"),
        ((small, answers / "large.jsonl"), "gpt", r"baseline='gpt': there is no such system; .* small, large"),
        ((none,), None, r"verdicts\.systems='.*none\.json': no such file"),
        ((small, other), None, r"x\.jsonl:1: no column of answers: looked for output, .* found prompt, text"),
    ):
        with pytest.raises((ConfigError, DataError), match=message):
            from_systems(*paths, baseline=baseline)


def test_an_answer_s_prompt_may_have_earlier_turns_and_one_id_for_two_prompts_is_no_pair(tmp_path: Path) -> None:
    turns = [{"role": r, "content": c} for r, c in (("user", "Hi"), ("assistant", "Yes?"), ("user", "Why?"))]
    for name in "ab":
        rows = [{"model": name, "messages": [*turns, {"role": "assistant", "content": name}]}]
        rows.append({"model": name, "uid": "1", "prompt": name, "output": "x"})
        lines(tmp_path / f"{name}.jsonl", rows)
    item, other = from_systems(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert item.comparison.dialogue.context == "User: Hi\nAssistant: Yes?"
    assert other.failure == "other_prompt: b was asked something else under this id"


def conversation(first: str, reply: str, last: str, answer: str) -> list[dict[str, str]]:
    roles = ("user", "assistant", "user", "assistant")
    return [{"role": role, "content": text} for role, text in zip(roles, (first, reply, last, answer), strict=True)]


@pytest.mark.parametrize(
    ("first", "reply", "reason"),
    [
        ("Tell of a cat.", "Once there was a cat.", None),
        ("Give a recipe.", "Once there was a cat.", "other_prompt: b was asked something else under this id"),
        ("Tell of a cat.", "A cat went to sea.", "other_turns: b answers a conversation in which it had said"),
    ],
)
def test_answers_to_conversations_that_differ_before_the_last_turn_are_no_pair(
    first: str, reply: str, reason: str | None, tmp_path: Path
) -> None:
    """A judge is shown one conversation: the other system's answer would stand behind what it never said."""
    of_a = conversation("Tell of a cat.", "Once there was a cat.", "Shorter, please.", "A cat.")
    of_b = conversation(first, reply, "Shorter, please.", "It.")
    for name, messages in (("a", of_a), ("b", of_b)):
        lines(tmp_path / f"{name}.jsonl", [{"model": name, "uid": 7, "messages": messages}])
    (item,) = from_systems(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert (item.failure is None) if reason is None else str(item.failure).startswith(reason)


def test_a_system_s_name_is_one_with_blanks_around_it_and_as_a_number(tmp_path: Path) -> None:
    rows = [{"id": n, "prompt": f"p{n}", "output": "x", "generator": name} for n, name in enumerate(("a", "a ", " a"))]
    lines(tmp_path / "a.jsonl", rows)
    rows = [{"id": n, "prompt": f"p{n}", "output": "y", "generator": name} for n, name in enumerate((3, 3.0, "3"))]
    lines(tmp_path / "b.jsonl", rows)
    items = from_systems(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert [(item.comparison.model_a, item.comparison.model_b) for item in items] == [("a", "3")] * 3


ROW = {"query": "q", "response_a": "a", "response_b": "longer"}


def refused(home: Path, message: str, *overrides: str, judge: str = "longer", kind: type = DataError) -> None:
    """Check that the stage is refused with this message, and leaves nothing behind."""
    with pytest.raises(kind, match=message):
        judge_stage(home, *overrides, judge=judge)
    assert not list(home.glob("artifacts/judge/*"))


def test_the_world_is_limited_like_any_source_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(judged(tmp_path, "verdicts.source.type=world", "verdicts.source.limit=3")) == 3
    assert "3 comparisons of the generated world; verdicts.source.path=FILE takes yours" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.dat", "why\nhow\n", r"none of the 2 rows .* first: not_json: a\.dat:1: expected a JSON object"),
        ("blank.jsonl", "\n\n", r"blank\.jsonl: there is no row; expected a comparison a line"),
        ("x.jsonl", '"a"\n"b"\n', r"none of the 2 rows holds a comparison; the first: not_an_object: x\.jsonl:1"),
        ("x.jsonl", json.dumps(ROW | {"messages": "hello"}), "none of the 1 row .* wrong_type: x.jsonl:1"),
        ("x.jsonl", json.dumps(ROW | {"query": {"text": "q"}}), "none of the 1 row .* wrong_type: x.jsonl:1"),
        ("x.csv", "query,response_a,response_b\nä,b,c\n", "save the file as UTF-8"),
    ],
)
def test_a_file_without_any_comparison_is_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="latin-1")
    refused(tmp_path / "out", message, f"verdicts.source.path={tmp_path / name}")


@pytest.mark.parametrize(("judge", "key"), [("external", "evaluate.external"), ("pointwise:teacher", "teacher.engine")])
def test_the_quickstarts_referee_is_not_asked_about_real_text(judge: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(ROW), encoding="utf-8")
    message = rf"verdicts\.judge={judge}: {key}\.type=world knows what the generated world says and nothing else"
    refused(tmp_path / "out", message, f"verdicts.source.path={path}", judge=judge, kind=ConfigError)


def test_what_labels_mean_is_a_verdict(tmp_path: Path) -> None:
    file = lines(tmp_path / "x.jsonl", [ROW])
    source = (f"verdicts.source.path={file}", "+verdicts.source.labels={A: C}")
    refused(tmp_path / "out", r"verdicts\.source\.labels\.A='C': allowed are A, B, tie", *source, kind=ConfigError)


def ranked(home: Path, *overrides: str) -> None:
    words = ("recipe=debug", f"output_dir={home}", "track.tracker=none", "verdicts.judge=longer", *overrides)
    Pipeline(configured(*words), Console()).run("leaderboard")


def test_a_leaderboard_looks_for_its_systems_before_it_judges(tmp_path: Path) -> None:
    file = lines(tmp_path / "x.jsonl", [ROW])
    answers = [lines(tmp_path / f"{n}.json", [{"prompt": f"p{n}", "model": n, "output": "text"}]) for n in "ab"]
    for overrides, message in (
        ([f"verdicts.source.path={file}"], "expected the names of two systems in model_a and model_b, found '' and ''"),
        ([f"verdicts.systems=[{','.join(map(str, answers))}]"], "none of .* can be judged; the first: no_answer"),
    ):
        with pytest.raises(DataError, match=message):
            ranked(tmp_path / "out", *overrides)
        assert not list((tmp_path / "out").glob("artifacts/judge/*"))


@pytest.mark.parametrize(
    ("files", "message"), [(60, "=/.*/model: holds more than 50 files"), (0, "='.*/model': an empty directory; give")]
)
def test_a_huge_or_empty_directory_is_refused_by_its_key(
    files: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    for number in range(files):
        (tmp_path / "model" / str(number)).touch()
    monkeypatch.setattr("judgetrain.artifacts.fingerprint.MOST", 50)
    pipeline = Pipeline(configured("recipe=debug", f"train.base.path={tmp_path / 'model'}", f"output_dir={tmp_path}"))
    with pytest.raises(ConfigError, match=rf"train\.base\.path{message}"):
        pipeline.plan("initial")


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8765", "localhost", "ftp://host", "", "any:a-token@host", "http://any:a-token@host:port"]
)
def test_an_address_without_http_is_refused_before_anything_is_asked(url: str) -> None:
    with pytest.raises(ConfigError, match="url is no server's address: give one that begins with http://") as error:
        RemoteJudge(url)
    assert "a-token" not in str(error.value), "what stands before the host is a secret, with http:// or without"


def test_a_dry_run_looks_at_what_is_to_be_measured_on(tmp_path: Path) -> None:
    from judgetrain.pipeline.commands import show_cost as show

    lines(tmp_path / "train.jsonl", [ROW | {"label": "A"}] * 3)
    lines(tmp_path / "test.jsonl", [ROW | {"label": "1"}])
    tokens = [f"judge.{step}_tokens=24" for step in ("criteria", "guideline", "judgment")]
    words = (
        "teacher=openai",
        "teacher.engine.model=m",
        "train.base.path=world",
        "dry_run=true",
        *tokens,
        "stage=evaluate",
    )
    config = configured("recipe=pairs", f"data_dir={tmp_path}", f"output_dir={tmp_path / 'out'}", *words)
    with pytest.raises(JudgetrainError, match=r"test\.jsonl:1: label '1' is not one of A, B, tie"):
        show(Pipeline(config))
