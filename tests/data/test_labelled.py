"""Labels of single responses: words, numbers and named scales, several annotators, a label a criterion, adapters."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from judgetrain.data.benchmarks.benchmark import load_benchmark
from judgetrain.data.benchmarks.responses import ResponseBenchmark, holds_single_responses, labels_of, load_responses
from judgetrain.data.cells import Pairing
from judgetrain.data.config import BenchmarkConfig, DialoguesConfig, DialogueSourceConfig, SourceConfig
from judgetrain.data.labelled import OVERALL, Scale
from judgetrain.errors import ConfigError, DataError
from judgetrain.schema import Comparison, Dialogue, Message, Rating
from tests.builders.data import run_dialogues, write_lines


def row(label: Any, place: int = 0, **more: Any) -> dict[str, Any]:
    return {"query": f"question {place}", "response": f"answer {place}", "label": label, **more}


def benchmark(path: str | Path, limit: int | None = None, unlabelled: bool = False, **source: Any) -> BenchmarkConfig:
    return BenchmarkConfig("mine", SourceConfig(path=str(path), **source), limit=limit, unlabelled=unlabelled)


def loaded(tmp_path: Path, rows: list[dict[str, Any]], **source: Any) -> ResponseBenchmark:
    path = write_lines(tmp_path / "mine.jsonl", rows)
    return load_responses(benchmark(path, **source), 0, seed=0)


@pytest.mark.parametrize(
    ("labels", "meanings", "names", "scores"),
    [
        (["pass", "FAIL"], {}, ("FAIL", "pass"), (0, 1)),
        (["good", "poor"], {}, ("poor", "good"), (0, 1)),
        ([0, 1, 1], {}, ("0", "1"), (0, 1)),
        ([True, False], {}, ("0", "1"), (0, 1)),
        (["2", 4], {}, ("1", "2", "3", "4", "5"), (0, 0.25, 0.5, 0.75, 1)),
        ([2.5, 4], {}, ("1", "2", "2.5", "3", "4", "5"), (0, 0.25, 0.375, 0.5, 0.75, 1)),
        (["fair"], {"good": "1", "fair": "0.3", "poor": "0"}, ("poor", "fair", "good"), (0, 0.3, 1)),
        ([7], {1: "0", 4: "1"}, None, None),
        ([3], {1: "0", 4: "1"}, ("1", "2", "3", "4"), (0, 1 / 3, 2 / 3, 1)),
    ],
)
def test_a_scale_has_the_levels_that_were_named_or_lie_between_in_their_order(
    labels: list[Any], meanings: dict[Any, str], names: tuple[str, ...] | None, scores: Any, tmp_path: Path
) -> None:
    rows = [row(label, place) for place, label in enumerate(labels)]
    if names is None:
        with pytest.raises(DataError, match=r"mine\.jsonl:1: label 7 of one response is not one of 1, 4"):
            loaded(tmp_path, rows, labels=meanings)
        return
    scale = loaded(tmp_path, rows, labels=meanings).scales[OVERALL]
    assert scale.names == names
    assert scale.scores == pytest.approx(scores)


def test_a_score_is_the_level_next_to_it_and_halfway_the_better_one() -> None:
    scale = Scale((0.0, 0.25, 0.5, 0.75, 1.0), ("1", "2", "3", "4", "5"))
    expected = {0.0: 0, 0.12: 0, 0.125: 1, 0.13: 1, 0.374999: 1, 0.375: 2, 0.6: 2, 0.875: 4, 1.0: 4}
    assert {score: scale.level(score) for score in expected} == expected
    # Sums of tenths miss the middle by rounding alone.
    assert Scale((0.0, 0.6), ("no", "yes")).level(0.1 + 0.1 + 0.1) == 1


@pytest.mark.parametrize(
    ("written", "fields"),
    [
        ({"label": ["pass", "fail", "pass"]}, {}),
        ({"label": '["pass", "fail", "pass"]'}, {}),
        ({"label": ["pass", "fail", "pass", None, ""]}, {}),
        ({"ann": "pass", "bo": "fail", "cy": "pass"}, {"label": ["ann", "bo", "cy"]}),
        ({"votes": {"ann": "pass", "bo": "fail", "cy": "pass"}}, {"label": ["votes.ann", "votes.bo", "votes.cy"]}),
    ],
)
def test_several_annotators_stand_in_a_list_or_in_columns(
    written: dict[str, Any], fields: dict[str, Any], tmp_path: Path
) -> None:
    (response,) = loaded(tmp_path, [{"query": "q", "response": "r", **written}], fields=fields).responses
    assert response.votes == {OVERALL: (1.0, 0.0, 1.0)}


def test_annotators_whose_copies_are_spelled_otherwise_vote_on_one_response(tmp_path: Path) -> None:
    """Blanks at the ends, ends of lines and forms of characters are the program's that wrote the rows."""
    texts = ["Zum Café.\nUm elf.", "Zum Café.\r\nUm elf.\n", " " + unicodedata.normalize("NFD", "Zum Café.\nUm elf.")]
    rows = [row(label, response=text) for label, text in zip(("pass", "fail", "fail"), texts, strict=True)]
    # What another group's label says may be about something else.
    rows.append(row("pass", response=texts[0], group="style"))
    mine = loaded(tmp_path, rows)
    assert [response.response for response in mine.responses] == [texts[0], texts[0]]
    assert [response.votes[OVERALL] for response in mine.responses] == [(1.0, 0.0, 0.0), (1.0,)]
    assert mine.left_out == {"same_response": 2}
    assert labels_of(mine) == [pytest.approx(1 / 3), 1.0]


def test_spellings_of_one_rated_response_make_no_pair() -> None:
    dialogue = Dialogue("d", "s", (Message("user", "Coffee?"),))
    scores = {"Café": 0.0, unicodedata.normalize("NFD", "Café"): 1.0, " Café\n": 1.0, "Tee": 0.5}
    pairing = Pairing()
    pairs: list[Comparison] = []
    for text, score in scores.items():
        rated = Comparison("d", dialogue, text, "", rating_a=Rating(score))
        pairs.extend(pairing.add(rated))
    assert [(pair.response_a, pair.response_b, pair.label) for pair in pairs] == [("Café", "Tee", "B")]


def test_annotators_with_a_row_each_are_votes_on_one_response(tmp_path: Path) -> None:
    rows = [row("pass"), row("fail", 1), row("fail"), row("pass")]
    mine = loaded(tmp_path, rows)
    assert [response.votes[OVERALL] for response in mine.responses] == [(1.0, 0.0, 1.0), (0.0,)]
    assert mine.left_out == {"same_response": 2}
    with pytest.raises(DataError, match="the id 'mine:x' stands twice; ids must differ"):
        loaded(tmp_path, [row("pass", 0, id="x"), row("pass", 1, id="x")])


@pytest.mark.parametrize(
    ("written", "fields"),
    [
        ({"label": {"help": 4, "safe": ["pass", "fail"]}}, {}),
        ({"label": '{"help": 4, "safe": ["pass", "fail"]}'}, {}),
        ({"label": [{"help": 4, "safe": "pass"}, {"safe": "fail"}]}, {}),
        ({"h": "4", "s1": "pass", "s2": "fail"}, {"label": {"help": "h", "safe": ["s1", "s2"]}}),
    ],
)
def test_a_label_a_criterion_has_a_scale_of_its_own(
    written: dict[str, Any], fields: dict[str, Any], tmp_path: Path
) -> None:
    mine = loaded(tmp_path, [{"query": "q", "response": "r", **written}], fields=fields)
    (response,) = mine.responses
    assert response.votes == {"help": (0.75,), "safe": (1.0, 0.0)}
    assert {name: scale.names for name, scale in mine.scales.items()} == {
        "help": ("1", "2", "3", "4", "5"),
        "safe": ("fail", "pass"),
    }
    assert (labels_of(mine, "help"), labels_of(mine, "safe"), labels_of(mine)) == ([0.75], [None], [None])


def test_a_criterion_is_one_however_rows_write_its_name(tmp_path: Path) -> None:
    """Its numbers decide its scale together: 1 alone, as the second row has it, would mean nothing."""
    rows = [row({"Is  safe": 5}), row({"is safe": 1}, 1), row([{"IS SAFE": 3}, {"is safe ": 5}], 2)]
    mine = loaded(tmp_path, rows)
    assert {name: scale.names for name, scale in mine.scales.items()} == {"Is  safe": ("1", "2", "3", "4", "5")}
    assert [response.votes for response in mine.responses] == [
        {"Is  safe": (1.0,)},
        {"Is  safe": (0.0,)},
        {"Is  safe": (0.5, 1.0)},
    ]
    with pytest.raises(DataError, match=r"mine\.jsonl:1: labels 'Safe' and 'safe' are of one criterion"):
        loaded(tmp_path, [row({"Safe": "pass", "safe": "fail"})])


def test_a_label_of_several_is_their_mean_and_a_tie_over_two_levels_is_none(tmp_path: Path) -> None:
    mine = loaded(tmp_path, [row([1, 0, 1]), row([1, 0], 1), row(0, 2)])
    assert labels_of(mine) == [pytest.approx(2 / 3), None, 0.0]
    assert mine.left_out == {"no_majority": 1}
    assert labels_of(loaded(tmp_path, [row([3, 4]), row([5, 4, 4], 1)])) == pytest.approx([0.625, 5 / 6 * 1.0])


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            [row("fair"), row("good", 1)],
            r"mine\.jsonl:1: label 'fair' .*: say the order of your words, from 0 \(worst\) to 1, as in labels=",
        ),
        ([row("pass"), row("maybe", 1)], r"mine\.jsonl:2: label 'maybe' of one response is not one of pass, "),
        ([row([["pass"]])], r"mine\.jsonl:1: expected a label, a list of labels or a label a criterion, found \[\["),
        ([row(1), row(2, 1), row(7, 2)], r"its numbers, 1 to 7, are neither 0 and 1 nor 1 to 5"),
        ([row("pass"), row(None, 1)], r"\[0\]: 1 of 2 rows has no label, such as mine:0000002; name its column with"),
        ([row([0, 1])], r"no response with a label is left of 1 \(1 no_majority\)"),
    ],
)
def test_what_is_wrong_with_labels_is_one_sentence(rows: list[dict[str, Any]], told: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=told):
        loaded(tmp_path, rows)


def test_rows_without_a_label_stay_where_the_benchmark_allows_them(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "mine.jsonl", [row(1), row(0, 1), row(None, 2)])
    mine = load_responses(benchmark(path, unlabelled=True), 0, seed=0)
    assert (labels_of(mine), mine.left_out) == ([1.0, 0.0, None], {"no_label": 1})
    assert len(load_responses(benchmark(path, unlabelled=True, limit=2), 0, seed=0).responses) == 2


def test_one_field_alone_may_have_several_columns(tmp_path: Path) -> None:
    for columns in ({"query": ["a", "b"]}, {"label": []}, {"label": [1]}):
        with pytest.raises(ConfigError, match="label alone may be a list of annotators' columns, or a column a criter"):
            loaded(tmp_path, [row(1)], fields=columns)
    with pytest.raises(DataError, match=r"expected the column 'bo' \(field label\), found query, response, ann"):
        loaded(tmp_path, [{"query": "q", "response": "r", "ann": 1}], fields={"label": ["ann", "bo"]})


def test_a_column_that_is_called_by_a_number_is_named(tmp_path: Path) -> None:
    mine = loaded(tmp_path, [{"query": "q", "response": "r", "7": "pass"}], fields={"label": 7})
    assert labels_of(mine) == [1.0]


def test_the_first_row_says_whether_a_file_holds_pairs_or_single_responses(tmp_path: Path) -> None:
    pair = {"query": "q", "response_a": "a", "response_b": "b", "label": "A"}
    for rows, is_single in (([row(1)], True), ([pair], False), ([{"query": "q", "label": 1}], False)):
        path = write_lines(tmp_path / "mine.jsonl", rows)
        assert holds_single_responses(benchmark(path), "evaluate.benchmarks[0]") is is_single


def test_what_is_measured_on_has_a_hash_of_its_content(tmp_path: Path) -> None:
    rows = [row(1), row(0, 1)]
    content = loaded(tmp_path, rows).content
    assert loaded(tmp_path, rows[::-1]).content == content
    assert loaded(tmp_path, [row(0), row(0, 1)]).content != content


# The columns that published rows of single responses and of rubrics have, with texts of our own.
LEVELS = {str(level): f"it is at level {level}:  two  blanks" for level in range(1, 6)}
RUBRIC_SCORES = {
    "id": "v-1", "category": "cooking", "model": "m", "query": "How long?", "response": "Ten minutes.",
    "reference": "Eleven minutes.", "criterion": "Is the time exact?", "levels": LEVELS, "gpt4_scores": [4, 5, 4],
}  # fmt: skip
FEEDBACK = {
    "orig_instruction": "How long?", "orig_response": "Ten minutes.", "orig_reference_answer": "Eleven minutes.",
    "orig_criteria": "Is the time exact?", "orig_score": "4", "instruction": "###Task ...", "output": "So [RESULT] 4",
    **{f"orig_score{level}_description": text for level, text in LEVELS.items()},
}  # fmt: skip


@pytest.mark.parametrize(
    ("adapter", "published", "votes", "model"),
    [("rubric_scores", RUBRIC_SCORES, (0.75, 1.0, 0.75), "m"), ("feedback_collection", FEEDBACK, (0.75,), "")],
)
def test_the_levels_of_a_published_rubric_reach_the_judge_word_for_word(
    adapter: str, published: dict[str, Any], votes: tuple[float, ...], model: str, tmp_path: Path
) -> None:
    mine = loaded(tmp_path, [published], adapter=adapter)
    (response,) = mine.responses
    assert (response.response, response.dialogue.query, response.model) == ("Ten minutes.", "How long?", model)
    assert (response.dialogue.reference, response.votes[OVERALL]) == ("Eleven minutes.", votes)
    assert mine.scales[OVERALL].names == ("1", "2", "3", "4", "5")
    assert response.candidates.rubric is not None
    (criterion,) = response.candidates.rubric.criteria
    assert criterion.text == "Is the time exact?"
    assert criterion.stated_guideline == "\n".join(f"{level}: {LEVELS[str(level)]}" for level in (5, 4, 3, 2, 1))

    (without,) = loaded(tmp_path, [published], adapter=adapter, fields={"criteria": ""}).responses
    assert without.candidates.rubric is None
    lacking = {name: cell for name, cell in published.items() if name not in ("levels", "orig_score3_description")}
    with pytest.raises(DataError, match=r"expected the column '.*' \(rubric\), found"):
        loaded(tmp_path, [lacking], adapter=adapter)


def test_pairs_with_a_rubric_each_and_dialogues_of_pairs_are_read_by_their_adapters(tmp_path: Path) -> None:
    pair = {"id": "p", "response_a": "a", "response_b": "b", "label": "B"}
    hhh = {**pair, "subset": "honest", "query": "q", "criterion": "Is it true?", "levels": LEVELS}
    path = write_lines(tmp_path / "hhh.jsonl", [hhh])
    (comparison,) = load_benchmark(benchmark(path, adapter="hhh_alignment"), 0, 0, None).comparisons
    assert (comparison.label, comparison.group) == ("B", "honest")
    assert comparison.rubric is not None
    assert [level.text for level in comparison.rubric.criteria[0].scale] == list(LEVELS.values())

    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "y"},
        {"role": "user", "content": "z"},
    ]
    path = write_lines(tmp_path / "hh.jsonl", [{**pair, "messages": messages}])
    (comparison,) = load_benchmark(benchmark(path, adapter="hh_harmless"), 0, 0, None).comparisons
    assert [message.content for message in comparison.dialogue.messages] == ["x", "y", "z"]
    assert comparison.rubric is not None and comparison.rubric.criteria[0].name == "Harmlessness"
    without = BenchmarkConfig(name="hh", source=SourceConfig(path=path, adapter="hh_harmless", fields={"criteria": ""}))
    assert load_benchmark(without, 0, 0, None).comparisons[0].rubric is None
    path = write_lines(tmp_path / "own.jsonl", [{**pair, "messages": messages, "criteria": ["Is kind."]}])
    (comparison,) = load_benchmark(benchmark(path, adapter="hh_harmless"), 0, 0, None).comparisons
    assert comparison.rubric is not None and comparison.rubric.criteria[0].text != "Is kind.", "no column of it is read"


def test_the_criteria_of_an_adapter_are_those_of_rows_without_any(tmp_path: Path) -> None:
    adapter = tmp_path / "mine.yaml"
    kind = "kind: pair\nfields: {query: q, response_a: a, response_b: b, label: l}\nlabels: {A: A, B: B}\n"
    adapter.write_text(kind + "optional: {criteria: [asked]}\ncriteria: [Is short., Is kind.]\n")
    row = {"q": "q", "a": "1", "b": "2", "l": "A"}
    path = write_lines(tmp_path / "in.jsonl", [row, {**row, "a": "3", "asked": ["Is true."]}])
    compared = load_benchmark(benchmark(path, adapter=str(adapter)), 0, 0, None).comparisons
    texts = [[criterion.text for criterion in item.rubric.criteria] for item in compared if item.rubric]
    assert texts == [["Is short.", "Is kind."], ["Is true."]]
    for wrong, message in (
        ("Is short.", "expected a list of criteria, found 'Is short.'"),
        ("[{name: 3}]", "criteria: "),
    ):
        adapter.write_text(f"{kind}criteria: {wrong}\n")
        with pytest.raises(ConfigError, match=message):
            load_benchmark(benchmark(path, adapter=str(adapter)), 0, 0, None)


def test_an_adapter_of_your_own_names_annotators_columns_and_the_scale(tmp_path: Path) -> None:
    adapter = tmp_path / "mine.yaml"
    adapter.write_text(
        "kind: single\nfields: {query: q, response: r}\nlabel_columns: [ann, bo]\nlabels: {low: 0, high: 1}\n"
    )
    rows = [{"q": "q", "r": "r", "ann": "low", "bo": "high"}]
    (response,) = loaded(tmp_path, [{**rows[0], "bo": "low"}], adapter=str(adapter)).responses
    assert response.votes[OVERALL] == (0.0, 0.0)
    with pytest.raises(DataError, match=r"expected the column 'bo', found q, r, ann"):
        loaded(tmp_path, [{"q": "q", "r": "r", "ann": "low"}], adapter=str(adapter))
    adapter.write_text("kind: single\nfields: {query: q, response: r, label: l}\nlabels: {low: A, high: B}\n")
    with pytest.raises(ConfigError, match="labels must map every label to a score from 0"):
        loaded(tmp_path, rows, adapter=str(adapter))


def test_training_reads_the_same_labels(tmp_path: Path) -> None:
    def trained_on(rows: list[dict[str, Any]], **named: Any) -> list[Comparison]:
        path = write_lines(tmp_path / "in.jsonl", rows)
        out = run_dialogues(tmp_path, DialoguesConfig([DialogueSourceConfig(name="mine", path=path, **named)]))
        lines = (out.directory / "comparisons.jsonl").read_text().splitlines()
        return [Comparison.from_row(json.loads(line)) for line in lines]

    (comparison,) = trained_on([row([1, 5, 3])])
    assert comparison.rating_a is not None and comparison.rating_a.score == 0.5
    (pair,) = trained_on([RUBRIC_SCORES, {**RUBRIC_SCORES, "id": "v-2", "response": "No.", "gpt4_scores": [1]}],
                         adapter="rubric_scores")  # fmt: skip
    assert pair.label == "A" and pair.rubric is not None
    (by_criterion,) = trained_on([row({"help": 4})])
    assert by_criterion.rating_a is not None
    assert (by_criterion.rating_a.score, by_criterion.rating_a.whole) == (0.75, False)


def prompt(response: str, reference: str | None = "Eleven minutes.", query: str = "How long?") -> str:
    """A prompt in the form in which Feedback Collection is published, with texts of our own."""
    parts = ["###Task Description:\nAn instruction ...", f"###The instruction to evaluate:\n{query}"]
    parts.append(f"###Response to evaluate:\n{response}")
    if reference is not None:
        parts.append(f"###Reference Answer (Score 5):\n{reference}")
    levels = "\n".join(f"Score {level}: {text}" for level, text in LEVELS.items())
    return "\n\n".join([*parts, f"###Score Rubrics:\n[Is the time exact?]\n{levels}", "###Feedback: "])


def test_prompts_in_feedback_collection_s_form_are_taken_apart(tmp_path: Path) -> None:
    answer = "Ten minutes.\n\n### A heading\nScore 1: of a game, ###Feedback: inside a line"
    published = {
        "idx": 3,
        "response_source": "m",
        "category": "c",
        "instruction": prompt(answer),
        "gpt4_score": [4, 5, 4],
    }
    (response,) = loaded(tmp_path, [published], adapter="prometheus_scores").responses
    assert (response.response, response.dialogue.query, response.model) == (answer, "How long?", "m")
    assert (response.dialogue.reference, response.votes[OVERALL]) == ("Eleven minutes.", (0.75, 1.0, 0.75))
    assert response.candidates.rubric is not None
    (criterion,) = response.candidates.rubric.criteria
    assert criterion.text == "Is the time exact?"
    assert [level.text for level in criterion.scale] == list(LEVELS.values())


def test_pairs_of_such_prompts_are_comparisons_with_a_rubric(tmp_path: Path) -> None:
    pair = {
        "source": "honest",
        "chosen_instruction": prompt("better", None),
        "rejected_instruction": prompt("worse", None),
    }
    path = write_lines(tmp_path / "hhh.jsonl", [pair])
    (comparison,) = load_benchmark(benchmark(path, adapter="prometheus_hhh"), 0, 0, None).comparisons
    better = comparison.response_a if comparison.label == "A" else comparison.response_b
    assert ({comparison.response_a, comparison.response_b}, better) == ({"better", "worse"}, "better")
    assert (comparison.dialogue.query, comparison.group, comparison.dialogue.reference) == ("How long?", "honest", None)
    assert comparison.rubric is not None
    assert [level.text for level in comparison.rubric.criteria[0].scale] == list(LEVELS.values())


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("How long?", "expected a prompt with the line '###The instruction to evaluate:', found none"),
        (7, "expected a prompt in the column 'instruction', found int"),
        (prompt("x").replace("Score 4:", "Score 3:"), "a line 'Score N:' stands twice in the rubric"),
        (prompt("x\n###Response to evaluate:\ny"), "'###Response to evaluate:' begins 2 lines of the prompt, not one"),
        (
            prompt("x").replace("[Is the time exact?]", "Is it?"),
            r"expected \[criterion\] and lines 'Score 1: ...', found",
        ),
    ],
)
def test_what_is_no_such_prompt_is_refused(written: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"mine\.jsonl:1: .*{told}"):
        loaded(tmp_path, [{"instruction": written, "gpt4_score": [1]}], adapter="prometheus_scores")
