"""Stored verdicts as methods: both orders, one verdict for both, matching by id, and what cannot be known."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import RunOptions, StageRun
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.errors import ConfigError, DataError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.stages import EVALUATE, EvaluateSettings
from judgetrain.extras.stored.config import StoredConfig, StoredVerdictsConfig
from judgetrain.pipeline.config import Config
from tests.builders.evaluate import check
from tests.builders.evaluate import run as run_stage
from tests.builders.evaluate import write_rows as write

LABELS = {"0": "A", "1": "B", "2": "tie", "-1": "unreadable"}
GPT4 = {"model_a": "A", "model_b": "B", "tie": "tie", "tie (inconsistent)": "conflict"}


def run(config: Config, tmp_path: Path) -> list[dict[str, Any]]:
    check(config, "evaluate")
    out = run_stage("evaluate", config, {}, tmp_path / "out")
    return json.loads((out.directory / "metrics.json").read_text())


def two_orders(tmp_path: Path, **changes: Any) -> Config:
    """Labels and verdicts in one file, as Auto-J publishes them; the second verdict is numbered as shown."""
    rows = [
        {"prompt": f"q{n}", "response 1": "x", "response 2": "yy", "label": n % 3, "scenario": "chitchat"}
        | {"out": (0, 1, 2, 0, -1)[n % 5], "swapped": (1, 1, 2, 0, 0)[n % 5]}
        for n in range(45)
    ]
    source = SourceConfig(path=write(tmp_path / "rows.jsonl", rows))
    benchmark = BenchmarkConfig(name="eval_p", source=replace(source, adapter="eval_p"))
    stored = StoredConfig(name="auto-j", benchmark="eval_p", verdict_ab="out", verdict_ba="swapped", labels=LABELS)
    for name, value in changes.items():
        setattr(stored, name, value)
    evaluate = EvaluateConfig([benchmark], ["stored:auto-j", "first"], bootstrap=50)
    return Config(evaluate=evaluate, stored=StoredVerdictsConfig([stored]))


def test_a_file_is_read_once_by_the_check_and_the_stage(tmp_path: Path) -> None:
    settings = EvaluateSettings.of(two_orders(tmp_path))
    EVALUATE.check_here(settings)
    rows = Path(settings.evaluate.benchmarks[0].source.path)
    rows.unlink()
    out = StageRun(tmp_path / "out", "evaluate", 1, Console(), RunOptions(home=tmp_path))
    EVALUATE.run(settings, {}, out)
    assert out.path("metrics.json").is_file()


def test_two_orders_equal_an_independent_count(tmp_path: Path) -> None:
    row, baseline = run(two_orders(tmp_path), tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    swap = {0: 1, 1: 0, 2: 2}
    items = [(r["out"], swap[r["swapped"]], r["label"]) for r in rows]
    read = [(a, b, y) for a, b, y in items if a != -1]
    assert row["agreement"] == pytest.approx(sum(a == b == y for a, b, y in items) / 45, abs=1e-6)
    assert row["consistency"] == pytest.approx(sum(a == b for a, b, _ in items) / 45, abs=1e-6)
    one_order = sum((a == y) + (b == y) for a, b, y in items) / 90
    assert row["single_order_accuracy"] == pytest.approx(one_order, abs=1e-6)
    assert row["conflict_as_tie"] == pytest.approx(sum((a if a == b else 2) == y for a, b, y in read) / 45, abs=1e-6)
    assert (row["unreadable_verdicts"], row["parse_failures"], row["judgments"]) == (9, 9, 90)
    assert (row["method"], baseline["method"]) == ("stored:auto-j", "first")
    mirrored = run(two_orders(tmp_path, ba_mirrored=True), tmp_path / "second")
    one_order = sum((r["out"] == r["label"]) + (r["swapped"] == r["label"]) for r in rows) / 90
    assert mirrored[0]["single_order_accuracy"] == pytest.approx(one_order, abs=1e-6)


def test_comparisons_count_once_for_every_method(tmp_path: Path) -> None:
    config = two_orders(tmp_path)
    config.evaluate.methods = ["stored:auto-j", "first", "random"]
    out = run_stage("evaluate", config, {}, tmp_path / "out")
    assert out.totals()["counts"] == {"in": 3 * 45, "out": 3 * 45, "dropped": {"stored:unreadable": 9}}


def votes(tmp_path: Path) -> Config:
    """MT-Bench: votes and GPT-4's one verdict for both orders, which may name the models the other way round."""
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    shared = {"turn": 1, "conversation_a": chat, "conversation_b": chat}
    rows = [
        {"question_id": 81 + n, "model_a": "m", "model_b": "w", "winner": winner, "judge": f"j{i}"} | shared
        for n, winners in enumerate([("model_a", "model_a"), ("model_b", "tie"), ("tie",), ("model_a",)])
        for i, winner in enumerate(winners)
    ]
    verdicts = [
        {"question_id": 81, "turn": 1, "model_a": "w", "model_b": "m", "winner": "model_b"},
        {"question_id": 82, "turn": 1, "model_a": "m", "model_b": "w", "winner": "model_b"},
        {"question_id": 83, "turn": 1, "model_a": "m", "model_b": "w", "winner": "tie (inconsistent)"},
    ]
    source = SourceConfig(path=write(tmp_path / "votes.jsonl", rows))
    benchmark = BenchmarkConfig(name="mt", source=replace(source, adapter="mt_bench_human"))
    where = SourceConfig(path=write(tmp_path / "gpt4.jsonl", verdicts))
    stored = StoredConfig(name="gpt4", benchmark="mt", source=where, verdict_ab="winner", labels=GPT4)
    evaluate = EvaluateConfig([benchmark], ["stored:gpt4"], bootstrap=50)
    return Config(evaluate=evaluate, stored=StoredVerdictsConfig([stored]))


def test_one_verdict_for_both_orders_by_hand(tmp_path: Path) -> None:
    row = run(votes(tmp_path), tmp_path)[0]
    # Question 82 has no majority; 81 is right, 83 a conflict on a tie, 84 has no stored verdict.
    assert (row["n"], row["agreement"], row["consistency"]) == (
        3,
        pytest.approx(1 / 3, abs=1e-6),
        pytest.approx(1 / 3, abs=1e-6),
    )
    assert row["conflict_as_tie"] == pytest.approx(2 / 3, abs=1e-6)
    assert row["failures"] == {"not_stored": 2}
    for unknown in ("single_order_accuracy", "position_bias"):
        assert row[unknown] is None, "which order said what is not stored"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"labels": {"0": "A", "1": "B"}}, DataError, r"rows\.jsonl:3: out 2 is not one of 0, 1"),
        (
            {"labels": {"0": "a"}},
            ConfigError,
            r"stored\.verdicts\[0\]\.labels\.0='a': allowed are A, B, tie, unreadable",
        ),
        ({"verdict_ab": "outt"}, DataError, r"rows\.jsonl:1: expected the column 'outt' of verdicts"),
        ({"benchmark": "evalp"}, ConfigError, r"stored\.verdicts\[0\]\.benchmark='evalp': no such one"),
        ({"name": "x"}, ConfigError, r"'stored:auto-j': stored\.verdicts has no such entry, only x"),
    ],
)
def test_wrong_settings_and_rows_are_named(
    tmp_path: Path, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(two_orders(tmp_path, **change), tmp_path)


def test_verdicts_on_other_comparisons_are_refused(tmp_path: Path) -> None:
    other = SourceConfig(path=write(tmp_path / "other.jsonl", [{"id": "z", "out": 0, "swapped": 1}]))
    with pytest.raises(DataError, match=r"none of the 1 stored verdicts \(first 'eval_p:z'\) is about"):
        run(two_orders(tmp_path, source=other), tmp_path)


OWN_ROWS = [
    {"query": f"q{n}", "response_a": f"a{n}", "response_b": f"b{n}", "label": "A", "verdict_ab": "A"} for n in range(4)
]


def own_file(tmp_path: Path, rows: list[dict[str, Any]], benchmark_rows: list[dict[str, Any]]) -> Config:
    """Return the settings of rows of one's own, and a file of verdicts on them."""
    benchmark = BenchmarkConfig("mine", SourceConfig(path=write(tmp_path / "mine.jsonl", benchmark_rows)))
    stored = StoredConfig("last", "mine", SourceConfig(path=write(tmp_path / "last.jsonl", rows)))
    evaluate = EvaluateConfig([benchmark], ["stored:last"], bootstrap=50)
    return Config(evaluate=evaluate, stored=StoredVerdictsConfig([stored]))


def numbered(rows: list[dict[str, Any]], *columns: str) -> list[dict[str, Any]]:
    """Return rows with an id each, and of their columns those that are named."""
    return [{"id": number} | {column: row[column] for column in columns} for number, row in enumerate(rows)]


FULL = ("query", "response_a", "response_b", "label", "verdict_ab")


def called(rows: list[dict[str, Any]], **names: str) -> list[dict[str, Any]]:
    """Return rows with other names of columns."""
    return [{names.get(name, name): cell for name, cell in row.items()} for row in rows]


EXCHANGED = [row | {"response_a": row["response_b"], "response_b": row["response_a"]} for row in OWN_ROWS]
ALPACA = called(OWN_ROWS, query="instruction", response_a="output_1", response_b="output_2")
MT_BENCH = called(numbered(OWN_ROWS, *FULL), id="question_id")


@pytest.mark.parametrize(
    ("rows", "benchmark_rows", "message"),
    [
        # Sorted otherwise, known by its place or by ids that another file gave.
        (OWN_ROWS[::-1], OWN_ROWS, r"last\.jsonl:1: the verdict on '0000001' is about other responses than"),
        (numbered(OWN_ROWS[::-1], *FULL), numbered(OWN_ROWS, *FULL), r"verdict on '0' is about other responses than"),
        (numbered(EXCHANGED, *FULL), numbered(OWN_ROWS, *FULL), r"about the benchmark's responses in the other order"),
        (ALPACA[::-1], ALPACA, r"verdict on '0000001' is about other responses than"),
        ([{"verdict_ab": "A"}] * 4, OWN_ROWS, r"last\.jsonl:1: expected the comparison's id, or the two responses"),
    ],
)
def test_a_verdict_of_another_file_is_about_what_its_row_says(
    tmp_path: Path, rows: list[dict[str, Any]], benchmark_rows: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        run(own_file(tmp_path, rows, benchmark_rows), tmp_path)


@pytest.mark.parametrize(
    ("rows", "benchmark_rows"),
    [
        (OWN_ROWS, OWN_ROWS),
        # By the columns that benchmarks are read from, too.
        (ALPACA, ALPACA),
        ([{"question_id": row["question_id"], "verdict_ab": "A"} for row in MT_BENCH[::-1]], MT_BENCH),
        (numbered(OWN_ROWS, "verdict_ab")[::-1], numbered(OWN_ROWS, *FULL)),
        ([row | {"response_a": [{"role": "assistant", "content": row["response_a"]}]} for row in OWN_ROWS], OWN_ROWS),
    ],
    ids=["responses", "other names", "another id", "ids", "messages"],
)
def test_a_verdict_of_another_file_is_known_by_its_id_or_responses(
    tmp_path: Path, rows: list[dict[str, Any]], benchmark_rows: list[dict[str, Any]]
) -> None:
    (row,) = run(own_file(tmp_path, rows, benchmark_rows), tmp_path)
    assert (row["n"], row["agreement"]) == (4, 1.0)
