"""A judge as somebody who writes Python would guess it: names, rows of any shape, data frames, figures."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from datasets import Dataset

import judgetrain
from judgetrain import Comparison, Criterion, Rubric, evaluate_judge, load_judge
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.errors import ConfigError, DataError
from judgetrain.evaluate.metrics import agreement
from judgetrain.judges import rows as judged_rows
from judgetrain.judges.base import Judge
from judgetrain.judges.predictions import Prediction, Score
from judgetrain.schema import Candidates

PAIRS = [
    ("Name a prime.", "7 is one, as nothing but 1 divides it.", "8"),
    ("Name a bird.", "A wren.", "A wren, a robin and a jay."),
    ("Name a stone.", "Flint.", ""),
]
"""The longer response is the first, the second and the first."""


class CountingJudge(Judge):
    """Prefers what has more words, scores by words, and notes what it is asked."""

    name = "counting"
    goes_by_criteria = True

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.is_closed = False

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        self.asked += comparisons
        predictions = []
        for comparison in comparisons:
            lead = len(comparison.response_a.split()) - len(comparison.response_b.split())
            verdict = "A" if lead > 0 else "B"
            predictions.append(Prediction.of(comparison, self.name, verdict, verdict, margin=float(lead)))
        return predictions

    def score_batch(self, groups: Sequence[Candidates], seed: int = 0) -> list[list[Score]]:
        self.asked += groups
        return [[Score(value=len(text.split()) / 10) for text in group.responses] for group in groups]

    def close(self) -> None:
        self.is_closed = True


def test_the_names_of_the_package_are_there_and_completed_and_cost_nothing_before_they_are_used() -> None:
    code = (
        "import sys, judgetrain\n"
        "names = dir(judgetrain)\n"
        "print('torch' in sys.modules, 'pandas' in sys.modules)\n"
        "print(all(hasattr(judgetrain, name) for name in judgetrain.__all__))\n"
        "print({'load_judge', 'Comparison', 'Rubric'} <= {*names})\n"
        "import judgetrain.judges\n"
        "print(not {'TYPE_CHECKING', 'lazy_names'} & {*names, *dir(judgetrain.judges)})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True", "True", "True"]
    with pytest.raises(AttributeError, match="has no attribute 'load_juge'"):
        judgetrain.load_juge  # noqa: B018
    assert (Path(judgetrain.__file__).parent / "py.typed").is_file()


def test_a_judge_says_what_it_is_and_closes_at_the_end_of_a_with_statement() -> None:
    judge = CountingJudge()
    with judge as inside:
        assert inside is judge and repr(judge) == "<CountingJudge counting>"
        assert not judge.is_closed
    assert judge.is_closed


def test_a_keyword_that_a_judge_does_not_know_is_refused() -> None:
    """``citeria=[...]`` was ignored, and the judge went by other criteria without a word."""
    judge = CountingJudge()
    with pytest.raises(TypeError, match="citeria"):
        judge(*PAIRS[0], citeria=["accuracy"])  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="citeria"):
        judge.explain(*PAIRS[0], citeria=["accuracy"])  # type: ignore[call-arg]
    assert not judge.asked


@pytest.mark.parametrize(
    "shape",
    [
        lambda rows: rows,
        lambda rows: [list(row) for row in rows],
        lambda rows: (row for row in rows),
        lambda rows: [Comparison.of(*row) for row in rows],
        lambda rows: [dict(zip(("query", "response_a", "response_b"), row, strict=True)) for row in rows],
        lambda rows: pd.DataFrame(rows, columns=["query", "response_a", "response_b"]),
        lambda rows: Dataset.from_list(
            [dict(zip(("query", "response_a", "response_b"), row, strict=True)) for row in rows]
        ),
    ],
    ids=["tuples", "lists", "generator", "records", "mappings", "data frame", "data set"],
)
def test_rows_of_any_shape_get_the_same_verdicts_in_their_order(shape: Any) -> None:
    verdicts = [prediction.verdict for prediction in CountingJudge().compare_all(shape(PAIRS))]
    assert verdicts == ["A", "B", "A"]


def test_a_data_frame_of_answers_has_the_columns_of_the_rows_and_what_was_found() -> None:
    rows = pd.DataFrame(PAIRS, columns=["query", "response_a", "response_b"])
    rows["team"] = ["x", None, "y"]
    rows["verdict"] = ["mine"] * 3
    found = CountingJudge().compare_all(rows, frame=True)
    assert found["verdict"].tolist() == ["A", "B", "A"]
    assert found["given_verdict"].tolist() == ["mine"] * 3
    assert found["team"].tolist()[::2] == ["x", "y"] and pd.isna(found["team"][1])
    # An empty response loses whatever is said of it, so that it has no margin.
    assert found["margin"].tolist()[:2] == [8.0, -5.0] and pd.isna(found["margin"][2])
    assert found["query"].tolist() == [query for query, *_ in PAIRS]


def test_an_empty_response_loses_without_being_read() -> None:
    """Stage judge asks nobody about it; Python asked, and gave the judge's reasons beside the other verdict."""
    judge = CountingJudge()
    one_call = judge("q", "one two", " ")
    assert (one_call.verdict, one_call.cost.calls, one_call.reasons) == ("A", 0, ())
    assert judge.compare(Comparison.of("q", "", "one")).verdict == "B"
    assert judge.explain("q", "", "\n").verdict == "tie"
    assert not judge.asked

    frame = judge.compare_all([("q", "", "one"), PAIRS[0], ("q", " ", "")], frame=True)
    assert [comparison.response_a for comparison in judge.asked] == [PAIRS[0][1]]
    assert frame["verdict"].tolist() == ["B", "A", "tie"]
    assert frame["note"].tolist() == ["the other response has no text", "", "neither response has a text"]
    scores = judge.score_all([("q", ""), ("q", "one")], frame=True)
    assert scores["note"].tolist() == ["the response has no text", ""]


def test_a_frame_says_why_there_is_no_verdict() -> None:
    class Unsure(CountingJudge):
        def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
            first, second = comparisons
            return [
                Prediction.of(first, self.name, "A", "B"),
                Prediction.of(second, self.name, failures={"judgment:no_score_a": 2}),
            ]

        def score_batch(self, groups: Sequence[Candidates], seed: int = 0) -> list[list[Score]]:
            return [[Score(value=None, failures={"cut_off": 1})] for _ in groups]

    frame = Unsure().compare_all(PAIRS[:2], frame=True)
    assert frame["note"].tolist() == ["A (A shown first), B (B shown first)", "2 judgment:no_score_a (no score of A)"]
    scores = Unsure().score_all([("q", "one")], frame=True)
    assert scores["note"].tolist() == ["1 cut_off (cut at its limit of tokens)"]


def test_one_cell_that_cannot_be_judged_costs_no_other_row_its_verdict(caplog: pytest.LogCaptureFixture) -> None:
    """An empty query refused a whole data frame; stage judge goes on, and counts such rows."""
    rows = pd.DataFrame(PAIRS, columns=["query", "response_a", "response_b"], index=[4, 9, 2])
    rows["query"] = ["Name a prime.", None, " "]
    judge = CountingJudge()
    frame = judge.compare_all(rows, frame=True)
    assert frame.index.tolist() == [4, 9, 2] and len(judge.asked) == 1
    assert frame["verdict"].tolist() == ["A", "unreadable", "unreadable"]
    assert frame["failures"].tolist() == [{}, {"missing_field": 1}, {"empty_query": 1}]
    assert frame["note"].tolist() == [
        "",
        "expected text in field query, found nothing",
        "expected a query, found only white space",
    ]
    assert "2 of 3 rows cannot be judged and have no verdict or score, such as row 1: expected text" in caplog.text
    predictions = judge.compare_all(rows.to_dict("records")[::-1])
    assert [prediction.verdict for prediction in predictions] == ["unreadable", "unreadable", "A"]
    # What is measured is to be whole.
    with pytest.raises(DataError, match="row 1: expected text in field query"):
        judge.evaluate(rows)


def test_single_responses_that_are_empty_score_nothing_and_an_empty_query_costs_its_row_alone() -> None:
    rows = pd.DataFrame({"query": ["q", "q", "", "q"], "response": ["one two", None, "one", " "]}, index=[*"abcd"])
    frame = CountingJudge().score_all(rows, frame=True)
    assert frame.index.tolist() == [*"abcd"]
    assert frame["score"].tolist()[:2] == [0.2, 0.0] and pd.isna(frame["score"]["c"])
    no_text = "the response has no text"
    assert frame["note"].tolist() == ["", no_text, "expected a query, found only white space", no_text]
    scores = CountingJudge().score_all(rows)
    assert [score.value for (score,) in scores] == [0.2, 0.0, None, 0.0]
    with pytest.raises(DataError, match="row 0: .*rename the column"):
        CountingJudge().score_all(pd.DataFrame({"query": ["q"]}))


def test_a_label_without_a_meaning_costs_no_verdict_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    rows = pd.DataFrame(PAIRS, columns=["query", "response_a", "response_b"])
    rows["label"] = [0, 1, 2]
    assert CountingJudge().compare_all(rows, frame=True)["verdict"].tolist() == ["A", "B", "A"]
    (record,) = caplog.records
    assert record.getMessage() == (
        "rows: 3 labels are none of A, B, tie and are not used: '0' (1), '1' (1), '2' (1); write one of these, or the "
        "name of the row's model_a or model_b"
    )
    with pytest.raises(DataError, match="row 0: label 0 is not one of A, B, tie: write one of these"):
        CountingJudge().evaluate(rows)


def test_verdicts_and_scores_stand_beside_the_rows_that_they_are_of() -> None:
    """Pandas puts columns side by side by the index, which rows that were filtered or shuffled keep."""
    rows = pd.DataFrame(PAIRS, columns=["query", "response_a", "response_b"], index=[2, 0, 7])
    rows["verdict"] = CountingJudge().compare_all(rows, frame=True)["verdict"]
    assert rows["verdict"].tolist() == ["A", "B", "A"]
    assert CountingJudge().compare_all(rows[:0], frame=True).index.tolist() == []

    named = pd.DataFrame({"query": ["q", "p"], "responses": [["one", "one two"], ["one two three"]]}, index=["b", "a"])
    scores = CountingJudge().score_all(named, frame=True)["score"]
    assert [*zip(scores.index, scores, strict=True)] == [("b", 0.1), ("b", 0.2), ("a", 0.3)]


@pytest.mark.parametrize("names", [("response_b", "response_b"), (1, "1")])
def test_two_columns_of_one_name_are_no_rows(names: tuple[Any, Any]) -> None:
    """A row would hold the second one alone: another response than the first."""
    columns = ["query", "response_a", *names]
    rows = pd.DataFrame([[*PAIRS[0], "another"]], columns=columns)
    with pytest.raises(DataError, match=rf"the data frame: two columns are called '{names[0]}'"):
        CountingJudge().compare_all(rows)


@pytest.mark.parametrize("kind", ["object", "string", "str"])
def test_a_missing_cell_of_a_data_frame_is_none_whatever_its_columns_type(kind: str) -> None:
    rows = pd.DataFrame(PAIRS[:2], columns=["query", "response_a", "response_b"])
    rows["label"] = pd.Series(["A", None], dtype=kind)
    rows["model_a"] = pd.Series([None, "m"], dtype=kind)
    rows["when"] = pd.to_datetime(pd.Series(["2026-01-01", None]))
    read = judged_rows.comparisons_in(rows)
    assert [one.label for one in read.items] == ["A", None]
    assert [one.model_a for one in read.items] == ["", "m"]
    assert read.cells[1]["when"] is None
    # Of the labelled row the longer response is the better one.
    assert evaluate_judge(CountingJudge(), rows, resamples=20)["n"] == 1


def test_single_responses_are_scored_and_shown_a_line_each() -> None:
    rows = [("Name a prime.", "7 is one"), {"query": "Name two birds.", "responses": ["A wren", "Jay and wren too"]}]
    scores = CountingJudge().score_all(rows)
    assert [[score.value for score in of_row] for of_row in scores] == [[0.3], [0.2, 0.4]]
    found = CountingJudge().score_all(rows, frame=True)
    assert found["response"].tolist() == ["7 is one", "A wren", "Jay and wren too"]
    assert found["score"].tolist() == [0.3, 0.2, 0.4]


def test_criteria_of_a_call_are_those_of_rows_without_their_own() -> None:
    judge = CountingJudge()
    rows = [PAIRS[0], {"query": "q", "response_a": "a b", "response_b": "c", "criteria": ["own: is short"]}]
    judge.compare_all(rows, criteria=["given: is right"])
    texts = [[criterion.text for criterion in comparison.rubric.criteria] for comparison in judge.asked]
    assert "is right" in texts[0][0] and "is short" in texts[1][0]
    with pytest.raises(ConfigError, match="longer goes by no criteria"):
        load_judge("longer").compare_all(PAIRS, criteria=["given: is right"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("Name a prime.", "expected rows, as in a list or a data frame, found str"),
        ({"query": "q"}, "expected rows, as in a list or a data frame, found dict"),
        (7, "expected rows, as in a list or a data frame, found int"),
        ([PAIRS[0], PAIRS[1][:2]], r"row 1: expected \(query, response_a, response_b\)"),
        ([PAIRS[0], None], "row 1: expected .* found NoneType"),
        ([{"query": "q", "response_a": "a"}], "row 0: .*response_b.*rename the column"),
        ([{"response_a": "a"}], "row 0: no column for query: .*for response_b: .*; rename the columns that hold"),
        ([("q", "a", 7)], "row 0: expected responses that are texts, found int 7"),
    ],
)
def test_what_holds_no_rows_is_refused_by_the_row(rows: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        CountingJudge().compare_all(rows)


def test_no_rows_give_a_frame_with_the_columns_that_rows_have() -> None:
    pair = {"query": "q", "response_a": "one two", "response_b": "one"}
    for judge_all, row in (
        (CountingJudge().compare_all, pair),
        (CountingJudge().score_all, {"query": "q", "response": "a"}),
    ):
        empty = judge_all([], frame=True)
        assert len(empty) == 0
        assert [*empty.columns] == [*judge_all([row], frame=True).columns]


def test_many_rows_are_judged_under_a_bar_that_shows_only_when_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = CountingJudge()
    many = [(f"Name number {number}.", "one two", "one") for number in range(300)]
    assert [prediction.verdict for prediction in judge.compare_all(many)] == ["A"] * 300
    assert not capsys.readouterr().err
    monkeypatch.setattr(judged_rows, "SECONDS_BEFORE_PROGRESS", 0.0)
    assert len(judge.compare_all(many)) == 300
    assert "counting" in capsys.readouterr().err
    assert len(judge.compare_all(many, progress=False)) == 300
    assert not capsys.readouterr().err


def test_a_bar_changes_no_verdict_of_a_judge_that_learns_from_the_other_rows() -> None:
    """The better response is the longer one, which ``surface`` learns from all other prompts; fewer teach it less."""
    rows = []
    for number in range(130):
        texts = ["word " * (number % 7), "word " * (3 + number % 5)]
        label = "A" if len(texts[0]) > len(texts[1]) else "B"
        rows.append(Comparison.of(f"Say number {number}.", *texts, label=label))
    judge = load_judge("surface")
    at_once = judge.compare_batch(rows)
    assert [one.verdict for one in judge.compare_all(rows)] == [one.verdict for one in at_once]
    figures = evaluate_judge(judge, rows, resamples=20)
    right = sum(one.verdict == row.label for one, row in zip(at_once, rows, strict=True))
    assert figures["agreement"] == pytest.approx(right / len(rows), abs=1e-6)


def test_figures_in_python_are_those_of_metrics() -> None:
    rows = [{"query": f"q{i}", "response_a": "a " * i, "response_b": "b b b", "label": "AB"[i % 2]} for i in range(9)]
    figures = evaluate_judge(CountingJudge(), rows, resamples=50)
    said = ["A" if i > 3 else "B" for i in range(9)]
    right = [verdict == row["label"] for verdict, row in zip(said, rows, strict=True)]
    assert figures["n"] == 9 and figures["method"] == "counting"
    assert figures["agreement"] == pytest.approx(sum(right) / 9, abs=1e-6)
    assert sum(agreement(said, said, [row["label"] for row in rows])) == sum(right)


def test_a_judge_evaluates_itself() -> None:
    """The longer response wins: A, B, A, and on equal ones B; three of these four are what the labels say."""
    rows = [
        {"query": "q0", "response_a": "a a", "response_b": "b", "label": "A"},
        {"query": "q1", "response_a": "a", "response_b": "b b", "label": "B"},
        {"query": "q2", "response_a": "a a a", "response_b": "b", "label": "B"},
        {"query": "q3", "response_a": "a", "response_b": "b", "label": "B"},
        {"query": "q4", "response_a": "a", "response_b": "b", "label": None},
    ]
    judge = CountingJudge()
    figures = judge.evaluate(pd.DataFrame(rows), name="mine", criteria=["given: is right"], resamples=20)
    assert (figures["n"], figures["agreement"], figures["consistency"]) == (4, 0.75, 1.0)
    assert (figures["benchmark"], figures["method"]) == ("mine", "counting")
    assert all("is right" in comparison.rubric.criteria[0].text for comparison in judge.asked)
    by_function = evaluate_judge(CountingJudge(), rows)
    by_method = CountingJudge().evaluate(rows)
    # The clock alone tells two evaluations apart.
    assert {name for name, value in by_method.items() if value != by_function[name]} <= {"seconds"}
    with pytest.raises(DataError, match="none of the 3 rows has a label"):
        CountingJudge().evaluate(PAIRS)


def test_figures_need_labels_and_each_row_once() -> None:
    with pytest.raises(DataError, match="none of the 3 rows has a label"):
        evaluate_judge(CountingJudge(), PAIRS)
    labelled = [Comparison.of(*PAIRS[0], label="A"), Comparison.of(*PAIRS[0], label="A")]
    with pytest.raises(DataError, match="rows 0 and 1 are the same comparison"):
        evaluate_judge(CountingJudge(), labelled)


def test_rows_of_several_annotators_are_votes_on_one_comparison() -> None:
    def row(name: str, response_a: str, response_b: str, label: str, query: str = "q") -> dict[str, str]:
        return {"id": name, "query": query, "response_a": response_a, "response_b": response_b, "label": label}

    # Of three votes two are for the longer response, which the judge takes; and the shorter one of another prompt.
    rows = [row("1", "a a", "b", "A"), row("2", "b\n", "a a", "B"), row("3", "a a", "b", "B")]
    figures = evaluate_judge(CountingJudge(), [*rows, row("4", "a", "b b", "A", "other")], resamples=20)
    assert (figures["n"], figures["agreement"]) == (2, 0.5)
    with pytest.raises(DataError, match="as many rows say one as say the other"):
        evaluate_judge(CountingJudge(), rows[1:])


def test_the_page_on_using_a_judge_runs_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(judgetrain.__file__).parents[1] / "docs" / "using.md").read_text(encoding="utf-8")
    (block,) = [text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "compare_all" in text]
    exec(compile(block, "using.md", "exec"), {})
    printed = capsys.readouterr().out
    # Of "7 is one." and "8", and of "A wren." and "A stone.", the longer ones are the first and the second.
    assert printed.splitlines()[0] == "<LongerJudge longer>"
    assert printed.splitlines()[-1] == "0.5 1.0"


def test_errors_name_the_argument_and_what_may_have_been_meant(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is no judge.*did you mean longer\?"):
        load_judge("longr")
    with pytest.raises(ConfigError, match="engine='vllm': expected an engine's configuration"):
        load_judge("external", engine="vllm")  # type: ignore[arg-type]
    server = OpenAIEngineConfig(model="m", base_url="http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"^temperature=-1: must be at least 0"):
        load_judge("external", engine=server, temperature=-1)


def test_what_is_no_judge_or_holds_one_response_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"judge='longer': expected a judge, as load_judge\('longer'\) .*found str"):
        evaluate_judge("longer", PAIRS)  # type: ignore[arg-type]
    mixed = [{"query": "q", "response_a": "a", "response_b": "b", "label": "A"}, {"query": "q", "response": "a"}]
    with pytest.raises(DataError, match="row 1: .*column for response_a.* holds a single response: .*score_all"):
        CountingJudge().evaluate(mixed)


def test_a_judge_is_measured_by_labels_of_single_responses() -> None:
    """Six words or more are a pass to the judge, who is wrong of one of four; two people say of one what it is."""
    rows = [
        {"query": "q0", "response": "one two", "label": "fail"},
        {"query": "q1", "response": "one two three four five six seven", "label": "pass"},
        {"query": "q2", "response": "one two three four five six", "label": "fail"},
        {"query": "q3", "response": "one", "label": "fail"},
        {"query": "q3", "response": "one", "label": "fail"},
        {"query": "q4", "response": "one", "label": None},
    ]
    judge = CountingJudge()
    figures = judge.evaluate(pd.DataFrame(rows), name="mine", criteria=["given: is right"], resamples=20)
    assert (figures["n"], figures["agreement"], figures["benchmark"]) == (4, 0.75, "mine")
    assert figures["prevalence"] == {"fail": 0.75, "pass": 0.25}
    assert (figures["sensitivity"], figures["specificity"]) == (1.0, pytest.approx(2 / 3))
    # The rule that says fail of every response is right of three of four without a judge.
    assert (figures["always"]["method"], figures["always"]["agreement"]) == ("always fail", 0.75)
    assert figures["by_criterion"] == {}
    assert len(judge.asked) == 5
    assert all("is right" in candidates.rubric.criteria[0].text for candidates in judge.asked)


def test_what_a_number_of_single_responses_means_is_read_off_all_rows() -> None:
    """On a scale of 1 to 5, which one row alone shows, 3 is half of the way: five of ten words."""
    texts = ["one two three four five", "one", "one two three four five six seven eight nine ten"]
    rows = []
    for number, (text, score) in enumerate(zip(texts, (3, 1, 5), strict=True)):
        rows.append({"query": f"q{number}", "response": text, "score": score})
    figures = CountingJudge().evaluate(iter(rows), resamples=20)
    assert (figures["n"], figures["agreement"], figures["spearman"]) == (3, 1.0, pytest.approx(1.0))


def test_single_responses_that_cannot_be_measured_are_refused_in_a_sentence() -> None:
    row = {"query": "q", "response": "a"}
    with pytest.raises(DataError, match="none of the 2 rows has a label to measure counting by: give a column label"):
        CountingJudge().evaluate([row, {**row, "response": "b"}])
    with pytest.raises(DataError, match="row 1: .*'perhaps'"):
        CountingJudge().evaluate([{**row, "label": "pass"}, {**row, "response": "b", "label": "perhaps"}])
    with pytest.raises(DataError, match="row 1: the id .* stands twice"):
        CountingJudge().evaluate([{**row, "id": "x", "label": 1}, {**row, "id": "x", "response": "b", "label": 0}])
    with pytest.raises(DataError, match="row 0: the columns 'Response' and 'RESPONSE' differ in nothing that counts"):
        CountingJudge().evaluate([{"query": "q", "Response": "a", "RESPONSE": "b", "label": 1}])
    with pytest.raises(ConfigError, match="compares two responses, and gives no score to one"):
        load_judge("surface").evaluate([{**row, "label": "pass"}])


def test_criteria_are_made_of_a_text_and_rubrics_of_criteria() -> None:
    assert Criterion("is right") == Criterion(text="is right")
    listed = Rubric([Criterion("is right")])  # type: ignore[arg-type]
    assert hash(listed) == hash(Rubric((Criterion("is right"),)))
    with pytest.raises(DataError, match=r"criteria: expected records of Criterion, .*found str 'is right'"):
        Rubric(["is right"])  # type: ignore[arg-type]
    with pytest.raises(DataError, match="text: expected a text, found int 3"):
        Criterion(3)  # type: ignore[arg-type]
