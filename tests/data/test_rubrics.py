"""Rubrics in the shapes that are published, and what is refused."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from judgetrain.data.rubrics import given_rubric, read_rubric, rubric_of
from judgetrain.errors import ConfigError, DataError
from judgetrain.rubrics import Criterion, Level, Rubric, weighted
from judgetrain.schema import Candidates, Comparison

MET = [0.0, 1.0]


@pytest.mark.parametrize(
    ("raw", "line", "weight", "levels"),
    [
        ("Names the capital.", "Names the capital.", 1.0, [1, 2, 3, 4, 5]),
        ({"name": "Capital", "text": "names it", "weight": 2}, "Capital: names it", 2.0, [1, 2, 3, 4, 5]),
        ({"name": "C", "text": "t", "choices": {"yes": 1, "no": 0}}, "C: t", 1.0, MET),
        ({"title": "Capital", "description": "names it", "weight": 5}, "Capital: names it", 5.0, MET),
        ({"criterion": "Asks for the age", "points": -7, "tags": ["x"]}, "Asks for the age", -7.0, MET),
        (
            {"name": "D", "requirement": "r", "weight": 1.5, "scale_type": "ordinal", "options": [
                {"label": "poor", "value": 0}, {"label": "fair", "value": 0.5}, {"label": "good", "value": 1}]},
            "D: r", 1.5, [0, 0.5, 1],
        ),
    ],
)  # fmt: skip
def test_every_published_shape_is_read(raw: Any, line: str, weight: float, levels: list[float]) -> None:
    in_cells = ({"criteria": json.dumps([raw])}, {"rubric": json.dumps([raw])})
    for shape in ([raw], {"criteria": [raw]}, {"rubrics": [raw]}, json.dumps([raw]), [raw, "another"], *in_cells):
        first = rubric_of(shape).criteria[0]
        assert (first.line, first.weight, [level.score for level in first.scale]) == (line, weight, levels)
        assert first.source == "given"


def test_levels_texts_are_a_guideline_and_scores_are_read_on_their_own_scale() -> None:
    raw = {
        "text": "t",
        "options": [{"label": "poor", "value": 0}, {"label": "fair", "value": 3}, {"label": "good", "value": 4}],
    }
    (criterion,) = rubric_of([raw]).criteria
    assert criterion.stated_guideline == "5: good\n3: fair\n1: poor"
    assert [criterion.level(score) for score in (1, 2, 3, 4, 5)] == [0, 1.5, 3, 3.5, 4]
    assert Criterion(text="t").stated_guideline is None and Criterion(text="t").level(2.5) == 2.5


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([], "needs a criterion"),
        (3, "expected a list of criteria, found int"),
        ([3], "criterion 1: expected a text or an object"),
        (["a", ""], "criterion 2: text"),
        ([{"criterion": "a", "points": math.nan}], "criterion 1: weight: expected a number other than 0, found nan"),
        ([{"criterion": "a", "points": "much"}], "criterion 1: points: expected a number, found 'much'"),
        ([{"text": "a", "weight": 0}], "criterion 1: weight"),
        (["a", "A "], "two criteria are called"),
        ([{"text": "t", "scale": [{"score": 1}, {"score": 3}, {"score": 2}]}], "1: scale: expected levels from"),
        ([{"text": "t", "choices": ["yes", "no"]}], "criterion 1: choices: 'yes': say what the level counts"),
        ([{"text": "t", "wieght": 3}], "criterion 1: unknown column 'wieght'"),
        ([{"name": "t"}], "criterion 1: no column says what to look for"),
        ('["a", ', "expected a list of criteria as JSON"),
        ("['a', 'b']", "expected a list of criteria as JSON"),
        ({"criteria": ["a", "b"], "weights": [3, 1]}, "'weights' beside the list 'criteria': nothing reads it"),
        ({"rubrics": [{"text": "a"}], "scale": {"no": 0, "yes": 1}}, "'scale' beside the list 'rubrics'"),
        ({"criteria": '["a"]', "weight": 3}, "'weight' beside the list 'criteria'"),
        ({"criteria": ["a"], "rubric": ["b"]}, "two columns hold criteria: criteria and rubric"),
        ({"criteria": "a", "weights": [1]}, "criterion 1: unknown column 'weights'"),
        ({"criteria": "a", "score1_description": "bad"}, "criterion 1: scale: expected two levels"),
        (
            {"criteria": "a", "score1_description": "x", "score2_description": "y", "scale": [1, 2]},
            "criterion 1: scale: a criterion whose scores are described",
        ),
        # Two columns for one thing: one of them would be dropped.
        ([{"text": "Clarity", "description": "Is it clear?"}], "1: 'text' and 'description' are two names"),
        ([{"criterion": "c", "points": 3, "weight": 7}], "1: 'points' and 'weight' are two names of one thing"),
        ([{"text": "t", "name": "N", "title": "T"}], "1: 'name' and 'title' are two names of one thing"),
        ([{"text": "t", "scale": [0, 1], "choices": {"a": 0, "b": 5}}], "1: 'scale' and 'choices' are two names"),
        ([{"text": "t", "scale": [{"score": 1, "value": 7}, 9]}], "1: 'score' and 'value' are two names of one thing"),
        ([{"text": "t", "scale": [{"score": 1, "meaning": "bad"}, 2]}], "1: scale: .*nothing reads 'meaning'"),
        ('[{"text": "t", "weight": 1, "weight": 5}]', "the key 'weight' stands twice"),
        (['{"text": "t", "weight": 1, "weight": 5}'], "criterion 1: the key 'weight' stands twice"),
    ],
)  # fmt: skip
def test_bad_rubrics_are_refused_by_criterion_and_column(raw: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="(?s)" + message.replace("(", r"\(")):
        rubric_of(raw)


def test_a_file_is_yaml_or_json_and_named_in_errors(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("- Names the capital.\n- {text: Is short., weight: 2}\n")
    (tmp_path / "r.json").write_text('{"criteria": ["Names the capital.", {"text": "Is short.", "weight": 2}]}')
    assert read_rubric(tmp_path / "r.yaml") == read_rubric(tmp_path / "r.json") == given_rubric(tmp_path / "r.yaml")
    (tmp_path / "bad.yaml").write_text("- {text: t, weight: .nan}\n")
    with pytest.raises(DataError, match=r"bad.yaml: criterion 1: weight"):
        read_rubric(tmp_path / "bad.yaml")
    with pytest.raises(ConfigError, match=r"criteria=.*none.yaml: there is no such file"):
        read_rubric(tmp_path / "none.yaml")


def test_a_rubric_survives_a_row() -> None:
    rubric = Rubric((Criterion(text="a", scale=(Level(0.0, "no"), Level(1.0)), weight=-2.0), Criterion(text="b")))
    assert Rubric.from_row(json.loads(json.dumps(rubric.to_row()))) == rubric


@pytest.mark.parametrize(
    ("shares", "mean"),
    [
        ([], None),
        ([(1, 0.5), (3, 1.0)], 3.5 / 4),
        ([(10, 1.0), (5, 0.0), (-6, 1.0)], 4 / 15),  # HealthBench: what was earned over what could be
        ([(2, 0.0), (-6, 1.0)], 0.0),
        ([(-1, 0.25), (-3, 1.0)], 1 - 3.25 / 4),
    ],
)
def test_the_weighted_mean_by_hand(shares: list[tuple[float, float]], mean: float | None) -> None:
    assert weighted(shares) == (None if mean is None else pytest.approx(mean))


def test_words_that_yaml_reads_as_truths_are_labels_and_what_parquet_fills_is_absent() -> None:
    (criterion,) = rubric_of([{"text": "t", "weight": None, "points": None, "scale": {False: 0, True: 1}}]).criteria
    assert (criterion.stated_guideline, criterion.weight) == ("5: yes\n1: no", 1.0)
    (criterion,) = rubric_of(
        [{"text": "t", "scale": [{"label": False, "value": 0}, {"label": True, "value": 1}]}]
    ).criteria
    assert criterion.stated_guideline == "5: yes\n1: no"
    for labels in ([0, 1, 2], ["0", "1", "2"]):  # which would tell a judge, who writes 1 to 5, that 5 is 2
        (criterion,) = rubric_of([{"text": "t", "scale": {label: int(label) for label in labels}}]).criteria
        assert criterion.stated_guideline is None and [level.score for level in criterion.scale] == [0.0, 1.0, 2.0]
    assert rubric_of(['{"text": "a", "weight": 2}']).criteria[0].weight == 2.0


def test_a_file_of_plain_lines_has_a_criterion_a_line(tmp_path: Path) -> None:
    (tmp_path / "rubric.txt").write_text("1. is polite\n2. names a time\n")
    assert [c.text for c in read_rubric(tmp_path / "rubric.txt").criteria] == ["is polite", "names a time"]
    with pytest.raises(ConfigError, match="there is no such file"):
        read_rubric("x" * 5000)


DESCRIBED = {
    "criteria": "Does it stay polite?",
    "score1_description": "it insults",
    "score3_description": "it is neutral",
    "score5_description": "it is warm",
}


@pytest.mark.parametrize("raw", [DESCRIBED, [DESCRIBED], json.dumps(DESCRIBED), {"rubrics": [DESCRIBED]}])
def test_what_each_score_means_is_the_guideline(raw: Any) -> None:
    (criterion,) = rubric_of(raw).criteria
    assert criterion.text == "Does it stay polite?"
    assert criterion.stated_guideline == "5: it is warm\n3: it is neutral\n1: it insults"


def test_what_stands_beside_the_text_of_a_criterion_is_read() -> None:
    (criterion,) = rubric_of(
        {"rubric": "Is it short?", "guideline": "5: a line", "weight": 3, "criteria": None}
    ).criteria
    assert (criterion.text, criterion.guideline, criterion.weight) == ("Is it short?", "5: a line", 3.0)
    assert [c.text for c in rubric_of({"criteria": "- one\n- two", "name": None}).criteria] == ["one", "two"]
    three = {f"score_{score}_description": f"at {score}" for score in (10, 0, 5)}
    (criterion,) = rubric_of({"criteria": "x", **three}).criteria
    assert [(level.score, level.text) for level in criterion.scale] == [(0, "at 0"), (5, "at 5"), (10, "at 10")]


@pytest.mark.parametrize(
    "text",
    ["[Safety] warns of dangers", "{name} is filled in", "[1] is cited", "[1, 2] are both named", "{'a': 1} is parsed"],
)
def test_a_criterion_that_begins_with_a_bracket_is_a_text(text: str) -> None:
    assert [c.text for c in rubric_of([text, "another"]).criteria] == [text, "another"]
    if not text.startswith("{'"):
        assert [c.text for c in rubric_of(f"{text}\nanother").criteria] == [text, "another"]


@pytest.mark.parametrize("depth", [3_000, 100_000])
def test_criteria_nested_thousands_deep_are_refused_in_a_sentence(depth: int, tmp_path: Path) -> None:
    text = "[" * depth + "]" * depth
    with pytest.raises(DataError, match="nested too deeply"):
        rubric_of(text)
    file = tmp_path / "deep.yaml"
    file.write_text(text)
    with pytest.raises(DataError, match=r"deep.yaml: it is nested too deeply"):
        read_rubric(file)
    nested: Any = "a"
    for _ in range(depth):
        nested = [nested]
    with pytest.raises(DataError, match="expected a text or an object, found list"):
        rubric_of([nested])
    with pytest.raises(DataError, match="nested too deeply"):
        rubric_of([{"text": "a", "weight": nested}])


BY_KIND = {
    "criteria": ["is helpful"],
    "kinds": [
        {
            "name": "recipes",
            "queries": ["How do I bake a plum cake?", "A soup for six people"],
            "criteria": [{"text": "gives amounts", "name": "amounts", "weight": 3}, "warns of allergens"],
        },
        {"name": "repairs", "queries": ["My tap drips, how do I mend it?"], "criteria": ["says which tools"]},
    ],
}


def test_a_query_is_judged_by_the_criteria_of_the_kind_that_it_is_most_like(tmp_path: Path) -> None:
    file = tmp_path / "rubric.yaml"
    file.write_text(yaml.safe_dump(BY_KIND))
    rubric = read_rubric(file)
    expected = {
        "how do i bake an apple cake": ["gives amounts", "warns of allergens"],
        "The tap in my bath drips": ["says which tools"],
        "Tell me about Goethe": ["is helpful"],
    }
    for query, texts in expected.items():
        assert [criterion.text for criterion in rubric.for_query(query).criteria] == texts
    # What is judged in Python, too, gets the criteria of its own kind, and keeps no others.
    candidates = Candidates.of("My shower drips", ["a", "b"], rubric=rubric)
    comparison = Comparison.of("a cake of six eggs", "a", "b", rubric=rubric)
    assert candidates.rubric == Rubric((Criterion(text="says which tools"),))
    assert comparison.rubric is not None and len(comparison.rubric.criteria) == 2
    assert Comparison.from_row(comparison.to_row()) == comparison
    assert rubric.content != Rubric(rubric.criteria).content, "kinds decide verdicts, and so fingerprints"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kinds": []}, "expected a kind of query at least"),
        ({"kinds": "recipes"}, "kinds: expected a list of kinds of query, found str"),
        ({"kinds": ["recipes"]}, "kind 1: expected name, queries and criteria, found str"),
        ({"kinds": [BY_KIND["kinds"][0] | {"scale": 5}]}, "kind 1: 'scale': nothing reads it"),
        ({"kinds": [{"name": "a", "criteria": ["b"]}]}, "kind 1: queries: expected, and not there"),
        ({"kinds": [BY_KIND["kinds"][0] | {"queries": "a"}]}, "queries: expected a list of typical queries, found 'a'"),
        ({"kinds": [BY_KIND["kinds"][0] | {"queries": [" "]}]}, "kind 'recipes': queries: expected a typical query"),
        ({"kinds": [BY_KIND["kinds"][0]] * 2}, "two kinds of query are called 'recipes'"),
        ({"kinds": [BY_KIND["kinds"][0] | {"criteria": [{"weight": 1}]}]}, "kind 1: criterion 1"),
        ({"criteria": None}, "criteria: expected, and not there"),
        ({"levels": 5}, "'levels': nothing reads it"),
    ],
)
def test_a_rubric_by_kinds_that_is_wrong_is_refused(wrong: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "rubric.yaml"
    file.write_text(yaml.safe_dump(BY_KIND | wrong))
    with pytest.raises(DataError, match=re.escape(message)) as refusal:
        read_rubric(file)
    assert str(file) in str(refusal.value)


@pytest.mark.parametrize("guideline", ["Be strict.", "Be strict.\n5: good"])
def test_levels_that_are_described_stand_below_the_guideline_that_is_given(guideline: str) -> None:
    (criterion,) = rubric_of([{"text": "t", "guideline": guideline, "scale": {"bad": 0, "good": 10}}]).criteria
    assert criterion.stated_guideline is not None
    assert sorted(criterion.stated_guideline.splitlines()) == sorted(["Be strict.", "5: good", "1: bad"])
    (met,) = rubric_of([{"criterion": "t", "guideline": guideline}]).criteria
    assert met.stated_guideline == guideline, "nobody described the levels of what is met or not"
    assert met.scores == (0.0, 1.0)


def test_columns_that_say_the_same_twice_are_one() -> None:
    """As tables hold them that were made for two programs."""
    (criterion,) = rubric_of(
        [{"text": "t", "criterion": "t", "weight": 2, "points": 2.0, "name": "n", "title": ""}]
    ).criteria
    assert (criterion.text, criterion.weight, criterion.name) == ("t", 2.0, "n")


@pytest.mark.parametrize(
    "text", ["- text: t\n  weight: 1\n  weight: 5\n", "criteria: [t]\ncriteria: [u]\n", '[{"text": "t", "text": "u"}]']
)
def test_a_key_that_stands_twice_in_a_file_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(text)
    with pytest.raises(DataError, match=r"r\.yaml: .*line \d: the key '(weight|criteria|text)' stands twice"):
        read_rubric(file)


def test_a_key_that_is_merged_may_be_said_again(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("- &one {text: a, weight: 3}\n- {<<: *one, text: b}\n")
    assert [(c.text, c.weight) for c in read_rubric(file).criteria] == [("a", 3.0), ("b", 3.0)]
