"""Stage judge on single responses that people have labelled: the agreement of the judge's scores with the labels."""

import json
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.intervals import bootstrap_interval
from judgetrain.engines import lazy_model
from tests.builders.scripted import ScriptedEngine
from tests.judging.test_judging import answer, run

RUBRIC = "- {name: Length, text: it is long, guideline: g}\n- {name: Tone, text: it is kind, guideline: g}\n"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ScriptedEngine:
    """Scores a response by its number of words (1 to 5), and one that says "right" with 5."""
    scripted = ScriptedEngine(answer)
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: scripted)
    return scripted


def row(words: int, label: Any, place: int = 0, **more: Any) -> dict[str, Any]:
    return {"id": str(place), "query": f"q{place}", "response": " ".join(["word"] * words), "label": label, **more}


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_agreement_is_of_levels_over_prompts_beside_the_commonest_label(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    # Five words pass, one fails; two of twelve are labelled otherwise.
    rows = [row(5 if place % 2 else 1, "pass" if place % 2 or place < 4 else "fail", place) for place in range(12)]
    directory = run(tmp_path, rows, "judge.reads=one")
    scores = list(read_rows(directory, "scores"))
    assert [(r["score"], r["label"], r["labels"]) for r in scores[:3]] == [(0, 1, {}), (1, 1, {}), (0, 1, {})]
    summary = json.loads((directory / "summary.json").read_text())
    figures = summary["agreement"][""]
    assert (figures["labelled"], figures["agreed"], figures["labelled_prompts"]) == (12, 10, 12)
    assert (figures["commonest"], figures["commonest_share"]) == ("pass", pytest.approx(8 / 12))
    agreed = [place not in (0, 2) for place in range(12)]
    assert figures["agreement_ci"] == list(bootstrap_interval(agreed, 2000, 0) or ())
    assert "agreement: 10 of 12 labels, 83.3% (95%: " in told(capsys)
    run(tmp_path, rows, "judge.reads=one")
    assert "always pass, the commonest label: 66.7%" in told(capsys), "a finished stage says it again"


@pytest.mark.parametrize(
    ("right", "others", "verdict"),
    [
        # 25 of 60 on five levels: below a coin's half, and above the commonest fifth.
        ({1: 5, 2: 5, 3: 5, 4: 5, 5: 5}, 7, "; always 5, the commonest label"),
        # 48 of 60 over two levels, 54 of which are a pass: above a half, and below always saying pass.
        ({1: 0, 5: 48}, 6, ": not shown to be above always pass, the commonest label: 90.0%"),
    ],
)
def test_agreement_is_held_against_the_commonest_label_and_not_against_a_coin(
    tmp_path: Path,
    engine: ScriptedEngine,
    capsys: pytest.CaptureFixture[str],
    right: dict[int, int],
    others: int,
    verdict: str,
) -> None:
    """``right`` counts by level the responses of so many words whose label the score is; ``others`` are off by most."""
    names: dict[int, Any] = {level: level for level in right}
    if len(right) == 2:
        names = {1: "fail", 5: "pass"}
    rows: list[dict[str, Any]] = []
    for level, count in right.items():
        for _ in range(count):
            rows.append(row(level, names[level], len(rows)))
        # As far away as the scale goes: 1 is said of a 5 and of all between, and 5 of a 1.
        words = 1 if level > 1 else 5
        for _ in range(others):
            rows.append(row(words, names[level], len(rows)))
    run(tmp_path, rows, "judge.reads=one")
    output = told(capsys)
    assert f"agreement: {sum(right.values())} of {len(rows)} labels" in output
    assert verdict in output and "coin" not in output


def test_rows_that_label_one_response_are_votes_on_it_and_count_once(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = ["pass", "fail", "pass"]
    repeated = [{**row(5, label), "id": f"r{place}"} for place, label in enumerate(labels)]
    # A tie, equal labels, the same response to another prompt, and another response to the same prompt.
    tied = [{**row(1, label, 1), "id": f"t{place}"} for place, label in enumerate(labels[:2])]
    alike = [{**row(1, "fail", 2), "id": f"a{place}"} for place in range(4)]
    rows = [*repeated, *tied, *alike, row(5, "fail", 3), row(1, "pass", 0)]
    directory = run(tmp_path, rows, "judge.reads=one")
    figures = json.loads((directory / "summary.json").read_text())["agreement"][""]
    # Right: five words of the three rows, one word of the four; wrong: the two others; the tie is no label.
    assert (figures["labelled"], figures["agreed"], figures["labelled_prompts"]) == (4, 2, 3)
    output = told(capsys)
    assert "3 responses stand in several rows with labels, 9 in all, such as mine:r0; of 2 the labels differ" in output
    own = [scored["label"] for scored in read_rows(directory, "scores")]
    assert own == [1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1], "the rows keep their own"


def test_a_scale_of_five_and_annotators_in_columns(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {**row(words, None, words), "ann": words, "bo": other}
        for words, other in [(1, 1), (2, 4), (3, 3), (4, 5), (5, 4)]
    ]
    directory = run(tmp_path, rows, "judge.reads=one", "++verdicts.source.fields={label: [ann, bo]}")
    scores = list(read_rows(directory, "scores"))
    assert [r["label"] for r in scores] == pytest.approx([0, 0.5, 0.5, 0.875, 0.875])
    # A mean halfway between two levels is the better one: 4.5 is 5.
    assert [r["score"] for r in scores] == [0, 0.25, 0.5, 0.75, 1]
    assert "agreement: 3 of 5 labels, 60.0% (no interval: 5 prompts, and 10 are needed)" in told(capsys)


def test_a_label_a_criterion_stands_beside_the_score_by_it(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.yaml").write_text(RUBRIC)
    rows = [row(5, {"length": 5, "Taste": "good"}, 0), row(1, {"length": 3, "Taste": "poor"}, 1)]
    directory = run(tmp_path, rows, "judge.reads=one", f"criteria={tmp_path / 'r.yaml'}")
    first, second = read_rows(directory, "scores")
    assert first["label"] is None
    assert first["labels"] == {"length": {"label": 1.0, "score": 1.0}, "Taste": {"label": 1.0, "score": None}}
    assert second["labels"]["length"] == {"label": 0.5, "score": 0.0}
    output = told(capsys)
    assert "length: agreement: 1 of 2 labels, 50.0%" in output
    assert "labels of 'Taste' are compared with nothing: the judge went by no criterion of this name" in output
    assert output.count("criterion 'Tone' has no label, so that nothing is measured of it alone") == 1


def test_a_criterion_without_a_name_is_labelled_by_the_one_that_its_text_begins_with(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    criteria = ["Length: it is long", "Tone: it is kind", "Tone: it is calm", "it is long: Length"]
    rows = [row(5, {"length": 5, "tone": 2}, 0, criteria=criteria), row(1, {"length": 3}, 1, criteria=criteria)]
    directory = run(tmp_path, rows, "judge.reads=one")
    first, second = read_rows(directory, "scores")
    # Of which of two criteria the labels of Tone are nobody can tell.
    assert first["labels"] == {"length": {"label": 1.0, "score": 1.0}, "tone": {"label": 0.25, "score": None}}
    assert second["labels"]["length"] == {"label": 0.5, "score": 0.0}
    output = told(capsys)
    assert "length: agreement: 1 of 2 labels, 50.0%" in output
    assert "labels of 'tone' are compared with nothing" in output
    assert "criterion 'Length: it is long' has no label" not in output
    assert "criterion 'it is long: Length' has no label" in output


def test_a_label_without_a_meaning_costs_no_row(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row(5, "pass", 0), row(1, "maybe", 1), row(1, None, 2), row(1, "fail", 3)]
    scores = list(read_rows(run(tmp_path, rows, "judge.reads=one"), "scores"))
    assert [(r["score"], r["label"]) for r in scores] == [(1, 1), (0, None), (0, None), (0, 0)]
    output = told(capsys)
    assert "mine: the labels of 1 response are not used: label 'maybe' of one response is not one of pass," in output
    assert "agreement: 2 of 2 labels" in output


def test_published_rows_with_a_rubric_each_are_judged_by_its_levels(tmp_path: Path, engine: ScriptedEngine) -> None:
    levels = {str(level): f"level {level}, word for word" for level in range(1, 6)}
    published = {
        "id": "v", "query": "q", "response": "is right", "reference": "yes", "criterion": "Is it right?",
        "levels": levels, "gpt4_scores": [5, 5, 4], "model": "m", "category": "c",
    }  # fmt: skip
    directory = run(tmp_path, [published], "judge.reads=one", "verdicts.source.adapter=rubric_scores")
    (scored,) = read_rows(directory, "scores")
    assert (scored["score"], scored["label"]) == (1.0, pytest.approx(11 / 12))
    (request,) = engine.requests
    prompt = request.messages[-1]["content"]
    assert all(text in prompt for text in levels.values()), "nothing else is asked, and every level is shown"
    assert "Is it right?" in prompt and "yes" in prompt


def test_rows_without_labels_have_no_columns_for_them(tmp_path: Path, engine: ScriptedEngine) -> None:
    unlabelled = {"query": "q", "response": "is right"}
    (scored,) = read_rows(run(tmp_path, [unlabelled], "judge.reads=one"), "scores")
    assert "label" not in scored and "labels" not in scored
