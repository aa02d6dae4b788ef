"""Several rows on one pair of responses with different labels: votes on one comparison, counted once and said."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.benchmarks.benchmark import Benchmark, load_benchmark
from judgetrain.data.config import BenchmarkConfig, DialoguesConfig, DialogueSourceConfig, SourceConfig
from judgetrain.errors import DataError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.pipeline.config import Config
from tests.builders.data import run_dialogues, write_lines
from tests.builders.evaluate import run as run_stage
from tests.builders.judging import judge_stage

Labelled = dict[str, Any]
SHORT = "Seven."
LONG = "Seven is a prime number, and so are eleven and thirteen."


def pair(label: str | None, query: str = "Name a prime.", swapped: bool = False, **others: Any) -> Labelled:
    """Return a row on the short response against the long one; the label is of this order, whichever the row has."""
    row = {"query": query, "response_a": SHORT, "response_b": LONG, "label": label, **others}
    if swapped:
        mirrored = {"A": "B", "B": "A"}.get(str(label), label)
        row |= {"response_a": LONG, "response_b": SHORT, "label": mirrored}
    return row


OTHERS = [pair("B", f"Name the prime number {i}.") for i in range(3)]
"""Rows on other prompts, of which a judge that takes the longer response is right."""


def loaded(directory: Path, rows: Sequence[Labelled], **source: Any) -> Benchmark:
    path = write_lines(directory / "rows.jsonl", rows)
    return load_benchmark(BenchmarkConfig("mine", SourceConfig(name="mine", path=path, **source)), 0, 1, None)


@pytest.mark.parametrize(
    ("labels", "expected", "left_out"),
    [
        ("AB", None, {"repeated": 1, "no_majority": 1}),
        ("BA", None, {"repeated": 1, "no_majority": 1}),
        (["A", "tie"], None, {"repeated": 1, "no_majority": 1}),
        ("ABA", "A", {"repeated": 2}),
        ("BAABB", "B", {"repeated": 4}),
        ("AA", "A", {"repeated": 1}),
        ("AAA", "A", {"repeated": 2}),
        ("A", "A", {}),
    ],
)
@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_benchmark_takes_labels_of_a_pair_as_votes(
    labels: Sequence[str], expected: str | None, left_out: dict[str, int], is_swapped: bool, tmp_path: Path
) -> None:
    rows = [pair(label, swapped=is_swapped and place % 2 == 1) for place, label in enumerate(labels)]
    benchmark = loaded(tmp_path, [*rows, *OTHERS])
    first = benchmark.comparisons[0]
    assert (first.response_a, first.label) == (SHORT, expected)
    assert benchmark.left_out == left_out
    assert len(benchmark.comparisons) == 1 + len(OTHERS)


def test_other_spellings_of_a_pair_are_votes_on_it(tmp_path: Path) -> None:
    """Blanks at the ends, ends of lines and forms of characters are the program's that wrote the rows."""
    query = "Où est le café?\nEt quand?"
    rows = [
        {"query": query, "response_a": "Ici, à midi.", "response_b": "Là.", "label": "A"},
        {"query": query.replace("\n", "\r\n"), "response_a": " Ici, à midi.\n", "response_b": "Là.", "label": "B"},
        {
            "query": unicodedata.normalize("NFD", query),
            "response_a": unicodedata.normalize("NFD", "Là."),
            "response_b": unicodedata.normalize("NFD", "Ici, à midi."),
            "label": "A",
        },
    ]
    benchmark = loaded(tmp_path, [*rows, *OTHERS])
    assert (benchmark.comparisons[0].label, benchmark.left_out) == ("B", {"repeated": 2})
    # They are one prompt, too, where their responses are others.
    others = [row | {"response_b": f"Ailleurs {place}."} for place, row in enumerate(rows)]
    apart = loaded(tmp_path, [*others, *OTHERS])
    assert len({apart.prompt_of(comparison) for comparison in apart.comparisons}) == 1 + len(OTHERS)


@pytest.mark.parametrize(
    "other",
    [
        pair("A", group="style"),
        pair("A", criteria=["style: reads well"]),
        pair("A", query="Name a prime number."),
        pair("A", reference="Seven."),
        pair(None),
    ],
    ids=["group", "criteria", "query", "reference", "no label"],
)
def test_labels_of_another_question_are_no_votes_on_this_one(other: Labelled, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [pair("B"), other])
    config = BenchmarkConfig("mine", SourceConfig(name="mine", path=path), unlabelled=True)
    benchmark = load_benchmark(config, 0, 1, None)
    assert [comparison.label for comparison in benchmark.comparisons] == ["B", other["label"]]


def test_a_published_benchmark_counts_its_own_rows_and_says_what_they_are(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "prompt": "q", "chosen": "one", "rejected": "two", "subset": "s"},
        {"id": 2, "prompt": "q", "chosen": "two", "rejected": "one", "subset": "s"},
        {"id": 3, "prompt": "r", "chosen": "one", "rejected": "two", "subset": "s"},
        {"id": 4, "prompt": "r", "chosen": "one", "rejected": "two", "subset": "s"},
    ]
    path = write_lines(tmp_path / "rows.jsonl", rows)
    benchmark = BenchmarkConfig("mine", SourceConfig(name="mine", path=path, adapter="rewardbench"))
    loaded_benchmark = load_benchmark(benchmark, 0, 1, None)
    assert (loaded_benchmark.left_out, loaded_benchmark.labelled_differently) == ({}, 2)
    evaluate = EvaluateConfig([benchmark], ["longer"], bootstrap=20)
    out = run_stage("evaluate", Config(evaluate=evaluate), {}, tmp_path / "out")
    assert "n = 4, 2 on pairs with several labels" in out.path("report.md").read_text()
    assert out.notes["labelled_differently:mine"] == 2


def test_a_benchmark_of_contradictions_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no comparison with a label is left of 2 \(1 repeated, 1 no_majority\)"):
        loaded(tmp_path, [pair("A"), pair("B")])


@pytest.mark.parametrize(
    ("rows", "agreed", "labelled", "message"),
    [
        # Of three votes two are for the longer response, which the judge says.
        ([pair("B"), pair("A"), pair("B", swapped=True)], 4, 4, "1 pair of responses stands in several rows"),
        ([pair("B"), pair("B", swapped=True), pair("A", swapped=True)], 4, 4, "(B, B, A)"),
        ([pair("B"), pair("A", swapped=True)], 3, 3, "(B, A): of each the majority counts once, and 1 has none"),
        ([pair("B"), pair("B")], 4, 4, "1 pair of responses stands in several rows with the same label, 2 in all"),
        ([pair("A"), pair("A", swapped=True), pair("A")], 3, 4, "with the same label, 3 in all, such as rows:"),
        ([pair("B"), pair("A", group="style")], 4, 5, ""),
    ],
)
def test_stage_judge_counts_a_pair_once_and_says_so(
    rows: Sequence[Labelled],
    agreed: int,
    labelled: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [*rows, *OTHERS])
    directory = judge_stage(tmp_path / "out", f"verdicts.source.path={path}")
    summary = json.loads((directory / "summary.json").read_text())
    assert (summary["agreed"], summary["labelled"]) == (agreed, labelled)
    # What the file says stays in the rows.
    assert [row["label"] for row in read_rows(directory, "verdicts")][: len(rows)] == [row["label"] for row in rows]
    captured = capsys.readouterr()
    words = " ".join((captured.out + captured.err).split())
    assert message in words and bool(message) == ("in several rows" in words)
    differing = len(rows) if "with different labels" in words else 0
    assert summary["labelled_differently"] == differing


ALIKE = [
    pair("A") | {"response_a": f"<think>Two?</think>{SHORT}", "response_b": f"{SHORT} "},
    pair("B", "Name another.") | {"response_b": SHORT},
    # A tie is what a judge can say of them.
    pair("tie", "Name a third.") | {"response_b": SHORT},
]


def test_labels_that_prefer_one_of_two_equal_responses_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "2 comparisons have two responses that read the same and a label that prefers one, such as {}:0000001"
    path = write_lines(tmp_path / "rows.jsonl", [*ALIKE, *OTHERS])
    judge_stage(tmp_path / "out", f"verdicts.source.path={path}")
    captured = capsys.readouterr()
    assert told.format("rows") in " ".join((captured.out + captured.err).split())

    benchmark = BenchmarkConfig("mine", SourceConfig(name="mine", path=path))
    for rows, number in ((path, 1), (write_lines(tmp_path / "others.jsonl", OTHERS), 0)):
        benchmark.source.path = rows
        run_stage(
            "evaluate", Config(evaluate=EvaluateConfig([benchmark], ["longer"], bootstrap=20)), {}, Path(rows + "d")
        )
        captured = capsys.readouterr()
        words = " ".join((captured.out + captured.err).split())
        assert words.count(told.format("mine")) == number and words.count("read the same") == number


def trained_on(directory: Path, rows: Sequence[Labelled], **source: Any) -> list[dict[str, Any]]:
    """Return the comparisons that stage dialogues leaves for training."""
    path = write_lines(directory / "rows.jsonl", rows)
    config = DialoguesConfig([DialogueSourceConfig(name="src", path=path, **source)])
    return list(read_rows(run_dialogues(directory, config).directory, "comparisons"))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([pair("A"), pair("B")], None),
        ([pair("A"), pair("B"), pair("B")], "B"),
        ([pair("A"), pair("B", swapped=True), pair("B")], "B"),
        ([pair("A", swapped=True), pair("B"), pair("B")], "A"),
        ([pair(None), pair("B")], "B"),
        ([pair("A"), pair("A", swapped=True)], "A"),
        ([pair("A"), pair(None)], "A"),
    ],
)
def test_training_learns_the_majority_of_a_pair(rows: Sequence[Labelled], expected: str | None, tmp_path: Path) -> None:
    kept = trained_on(tmp_path, [*rows, *OTHERS])
    # The first row is kept, in its own order.
    assert kept[0]["response_a"] == rows[0]["response_a"]
    assert [row["label"] for row in kept] == [expected, "B", "B", "B"]


def test_responses_that_differ_in_case_alone_are_told_apart_in_both_orders(tmp_path: Path) -> None:
    """Both rows say that the one with a capital is better."""
    rows = [
        {"query": "The capital of France?", "response_a": "Paris", "response_b": "paris", "label": "A"},
        {"query": "The capital of France?", "response_a": "paris", "response_b": "Paris", "label": "B"},
    ]
    (kept, *_) = trained_on(tmp_path, [*rows, *OTHERS])
    assert (kept["response_a"], kept["label"]) == ("Paris", "A")


@pytest.mark.parametrize(("long", "label"), [((3, 4), "B"), ((2, 3), "A"), ((3, 3), None)])
def test_rated_responses_that_rows_order_both_ways_are_a_pair_of_their_means(
    tmp_path: Path, long: Sequence[int], label: str | None
) -> None:
    def rated(response: str, score: int) -> Labelled:
        return {"query": "Name a prime.", "response": response, "label": score}

    # One annotator finds the short response worse, and the other one better.
    rows = [rated(SHORT, 1), rated(SHORT, 5), *(rated(LONG, score) for score in long)]
    kept, *alone = trained_on(tmp_path, rows, labels={"1": "0", "5": "1"})
    # Equal means make no pair: each response stands by itself.
    assert (kept["label"], len(alone)) == (label, label is None)


def test_a_row_that_is_left_out_votes_on_nothing_else(tmp_path: Path) -> None:
    # The second row is left out for its id; that the third is on its pair must not change the first one's label.
    rows = [pair("B", id="x"), pair("A", "Another.", id="x"), pair("B", "Another.", id="y")]
    (kept,) = trained_on(tmp_path, rows)
    assert (kept["id"], kept["label"]) == ("src:x", "B")


def test_a_pair_under_other_criteria_is_another_one_in_training(tmp_path: Path) -> None:
    rows = [pair("A", criteria=["style: reads well"]), pair("B", criteria=["length: is long"])]
    assert [row["label"] for row in trained_on(tmp_path, rows)] == ["A", "B"]
