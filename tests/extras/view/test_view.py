"""``judgetrain view``: two judges side by side, what the filters leave, and what each row opens."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.files import write_bytes_atomic
from judgetrain.artifacts.shards import read_rows
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.errors import ConfigError
from judgetrain.evaluate.predictions_file import parquet, prediction_table
from judgetrain.extras.view import comparing
from judgetrain.extras.view.command import page, view
from judgetrain.extras.view.comparing import of_evaluation, of_verdicts, place_of
from judgetrain.judges.predictions import Prediction
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Comparison, Verdict
from tests.builders import view_picture
from tests.builders.browser import DESK, PHONE, Browser, needs_chromium
from tests.builders.evaluate import manifest
from tests.builders.judging import judge_stage, lines
from tests.builders.label import tree_of
from tests.builders.pages import parse
from tests.builders.pipeline import configured, here

LABELS: Sequence[Verdict] = ("A", "B", "tie", "A", "B", "A")
LEFT = ("AA", "BB", "tt", "AB", "AA", "??")
"""What the left judge says in either order: right three times, once inconsistent, once wrong, once unreadable."""
RIGHT = ("AA", "AA", "AA", "AA", "BB", "BB")
"""Right three times: of the first, the fourth and the fifth."""
RESPONSES = (
    ("longer by far", "no"),
    ("no", "longer by far"),
    ("x", "y"),
    ("no", "longer by far"),
    ("a" * 99, "b"),
    ("", "b"),
)
ATTACK = "</script><script>document.title='owned'</script>"


def comparison(index: int) -> Comparison:
    response_a, response_b = RESPONSES[index]
    tree = tree_of(("AA",), index=index)
    changes = {"response_a": response_a, "response_b": response_b, "label": LABELS[index]}
    return replace(tree.comparison, id=f"c{index}", **changes)


def tree(index: int, word: str, criterion: str) -> EvaluationTree:
    grown = tree_of((word,), index=index)
    (node,) = grown.criteria
    return replace(grown, comparison=comparison(index), criteria=(replace(node, text=f"{criterion}: {ATTACK}"),))


def prediction(index: int, method: str, word: str) -> Prediction:
    verdicts: dict[str, Verdict | None] = {"A": "A", "B": "B", "t": "tie", "?": None}
    first, second = (verdicts[letter] for letter in word)
    return Prediction(comparison_id=f"c{index}", method=method, branches=1, verdict_ab=first, verdict_ba=second)


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    return evaluated(tmp_path, {"dpo": LEFT, "initial": RIGHT})


def evaluated(tmp_path: Path, methods: Mapping[str, Sequence[str]]) -> Path:
    """Write an evaluation of two methods, given what each says of the six comparisons in either order."""
    directory = manifest(tmp_path / "artifacts", "evaluate", "e1", {})
    benchmark = Benchmark(name="mine", split="test", comparisons=[comparison(i) for i in range(6)])
    tables = []
    for (method, words), criterion in zip(methods.items(), ("facts", "tone"), strict=True):
        tables.append(prediction_table(benchmark, [prediction(i, method, word) for i, word in enumerate(words)]))
        rows = [tree(i, word, criterion).to_row() for i, word in enumerate(words)]
        lines(directory / f"trees-mine-{method}-00000-of-00001.jsonl", rows)
    write_bytes_atomic(directory / "predictions.parquet", parquet(tables))
    return directory


def test_two_judges_of_an_evaluation_stand_side_by_side(evaluation: Path, tmp_path: Path) -> None:
    assert place_of(tmp_path) == evaluation
    pairing = of_evaluation(evaluation, [], None, 100)
    assert (pairing.left, pairing.right, pairing.total) == ("dpo@1", "initial@1", 6)
    verdicts = [(item.left.verdict, item.right.verdict) for item in pairing.items]
    assert verdicts == [
        ("A", "A"), ("B", "A"), ("tie", "A"), ("inconsistent", "A"), ("A", "B"), ("unreadable", "B"),
    ]  # fmt: skip
    assert [item.differ for item in pairing.items] == [False, True, True, True, True, True]
    # Of the first three the better response is the longer one, the longer one, and neither; of the fourth the shorter.
    assert [item.better for item in pairing.items] == ["longer", "longer", "", "shorter", "shorter", "shorter"]
    assert pairing.items[0].criteria == ["facts", "tone"]

    turned = of_evaluation(evaluation, ["initial@1", "dpo"], "mine", 2)
    assert (turned.left, turned.right, len(turned.items), turned.total) == ("initial@1", "dpo@1", 2, 6)


def test_the_trees_of_a_judge_are_read_once(evaluation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = Benchmark(name="mine", split="test", comparisons=[comparison(i) for i in range(6)])
    tables = []
    for method, words in (("dpo", LEFT), ("initial", RIGHT)):
        for branches in (1, 3, 10):
            asked = [replace(prediction(i, method, word), branches=branches) for i, word in enumerate(words)]
            tables.append(prediction_table(benchmark, asked))
    tables.append(prediction_table(benchmark, [replace(prediction(i, "longer", "AA"), branches=0) for i in range(6)]))
    write_bytes_atomic(evaluation / "predictions.parquet", parquet(tables))
    names: list[str] = []

    def counted(directory: Path, name: str) -> Iterator[dict[str, Any]]:
        names.append(name)
        return read_rows(directory, name)

    monkeypatch.setattr(comparing, "read_rows", counted)
    pairing = of_evaluation(evaluation, [], None, 100)
    assert pairing.left == "dpo@1" and pairing.right == "initial@1"
    assert sorted(names) == ["trees-mine-dpo", "trees-mine-initial"]
    # The texts of a judge without trees come from one that has some.
    names.clear()
    assert of_evaluation(evaluation, ["longer", "initial@3"], None, 100).total == 6
    assert names == ["trees-mine-initial"]


def test_the_last_trained_judge_comes_first_also_where_it_goes_by_given_criteria(tmp_path: Path) -> None:
    """Though the Initial judge agrees with more labels."""
    directory = evaluated(tmp_path, {"initial+given": RIGHT, "dpo+given": ("BB",) * 6})
    pairing = of_evaluation(directory, [], None, 100)
    assert (pairing.left, pairing.right) == ("dpo+given@1", "initial+given@1")


@pytest.mark.parametrize(
    ("judges", "benchmark", "message"),
    [
        (["dpo@3", "initial@1"], None, r"'dpo@3' was not evaluated on mine; there are dpo@1, initial@1, dpo, initial"),
        (["dpo"], None, "name two judges"),
        ([], "other", r"view\.benchmark='other': the evaluation has mine"),
    ],
)
def test_what_is_not_there_is_refused(judges: list[str], benchmark: str | None, message: str, evaluation: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        of_evaluation(evaluation, judges, benchmark, 100)


def test_a_directory_without_an_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no finished evaluation of comparisons"):
        place_of(tmp_path)
    with pytest.raises(ConfigError, match="there is no such directory"):
        place_of(tmp_path / "nowhere")


def test_an_evaluation_of_single_responses_is_told_from_none(tmp_path: Path) -> None:
    place = tmp_path / "artifacts" / "evaluate" / "f00d"
    place.mkdir(parents=True)
    (place / "manifest.json").write_text("{}")
    with pytest.raises(ConfigError, match=f"are of single responses.*{place / 'report.html'} has the figures"):
        place_of(tmp_path)


def test_the_command_writes_a_page_beside_the_artifacts(evaluation: Path, tmp_path: Path) -> None:
    done = here("view", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "dpo@1 beside initial@1 on 6 comparisons; they disagree on 5: " in done.stdout
    text = (tmp_path / "views" / "dpo@1-initial@1.html").read_text(encoding="utf-8")
    document = parse(text, allowed=("script", "form"))
    rows = document.all(kind="row")
    assert len(rows) == 6
    assert json.loads(rows[0].attributes["data-criteria"]) == ["facts", "tone"]
    # What a judge wrote is text; the page's own script is the only one.
    assert len(document.all("script")) == 1 and "owned" in rows[0].text()


def test_two_runs_of_stage_judge_are_matched_by_their_texts(tmp_path: Path) -> None:
    pairs = [{"id": i, "query": f"q{i}", "response_a": "ab", "response_b": "abc" if i % 2 else "a"} for i in range(4)]
    source = f"verdicts.source.path={lines(tmp_path / 'mine.jsonl', pairs)}"
    # The second judge read them in another order, and one less.
    other_source = f"verdicts.source.path={lines(tmp_path / 'other.jsonl', pairs[:0:-1])}"
    left = judge_stage(tmp_path / "out", source, judge="longer")
    right = judge_stage(tmp_path / "out", other_source, judge="first")
    config = configured("stage=view", f"view.of={left}", f"view.beside={right}", f"output_dir={tmp_path / 'out'}")
    view(Pipeline(config))
    text = (tmp_path / "out" / "views" / "longer-first.html").read_text(encoding="utf-8")
    document = parse(text, allowed=("script", "form"))
    assert len(document.all(kind="row")) == 3
    with pytest.raises(ConfigError, match="name another judge's directory in view.beside"):
        view(Pipeline(configured("stage=view", f"view.of={left}")))


def test_rows_of_several_annotators_are_one_label_on_the_page(tmp_path: Path) -> None:
    pairs = []
    for place, (response_a, response_b, label) in enumerate((("ab", "a", "A"), ("ab", "a", "B"), ("a\n", "ab", "B"))):
        pairs.append({"id": place, "query": "q", "response_a": response_a, "response_b": response_b, "label": label})
    pairs.append({"id": 3, "query": "other", "response_a": "ab", "response_b": "a", "label": "B"})
    source = f"verdicts.source.path={lines(tmp_path / 'mine.jsonl', pairs)}"
    left = judge_stage(tmp_path / "out", source, judge="longer")
    right = judge_stage(tmp_path / "out", source, judge="first")
    items = of_verdicts(left, right, most=9).items
    # Of three votes on the first pair two are for "ab".
    assert [item.comparison.label for item in items] == ["A", None, None, "B"]


@needs_chromium
@pytest.mark.parametrize("width", [DESK, PHONE])
def test_filters_leave_what_they_say_and_a_row_opens_its_trees(width: int, evaluation: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(of_evaluation(evaluation, [], None, 100)), encoding="utf-8")
    with Browser() as browser:
        browser.open(file, width)
        shown = "[...document.querySelectorAll('details.row')].map((r, i) => r.hidden ? 0 : i + 1).filter(Boolean)"

        def rows_with(**values: str) -> list[int]:
            browser.value("document.getElementById('filters').reset()")
            for name, value in values.items():
                browser.value(f"document.getElementById('{name}').value = {json.dumps(value)}")
            browser.value("document.getElementById('filters').dispatchEvent(new Event('input'))")
            rows: list[int] = browser.value(shown)
            return rows

        assert rows_with() == [1, 2, 3, 4, 5, 6]
        # The left judge is right of 1, 2 and 3, the right one of 1, 4 and 5.
        assert browser.text("#count") == "6 of 6 comparisons: dpo@1 is right in 50%, initial@1 in 50%"
        assert rows_with(differ="yes") == [2, 3, 4, 5, 6] and rows_with(differ="no") == [1]
        assert rows_with(right="left") == [2, 3] and rows_with(right="right") == [4, 5]
        assert rows_with(right="both") == [1] and rows_with(right="none") == [6]
        assert rows_with(label="A") == [1, 4, 6] and rows_with(label="tie") == [3]
        assert rows_with(better="shorter") == [4, 5, 6]
        # By characters: 1, 2, then 15 three times, then 100.
        assert rows_with(length="short") == [3, 6] and rows_with(length="long") == [4, 5]
        assert rows_with(criterion="facts") == [1, 2, 3, 4, 5, 6]
        assert rows_with(differ="yes", label="B") == [2, 5]
        assert browser.text("#count") == "2 of 6 comparisons: dpo@1 is right in 50%, initial@1 in 50%"
        assert rows_with(words="longer FAR") == [1, 2, 4]

        is_seen = "document.querySelectorAll('details.row')[1].querySelector('.criterion').checkVisibility()"
        assert browser.value(is_seen) is False
        browser.value("document.querySelectorAll('details.row')[1].firstElementChild.click()")
        assert browser.value(is_seen) is True
        opened = browser.text("details.row[open]")
        assert "facts:" in opened and "tone:" in opened and "B shown first" in opened
        assert browser.value("document.title") == "dpo@1 beside initial@1", "no text runs as a script"
        assert browser.value("document.documentElement.scrollWidth <= window.innerWidth")
        assert not [event for event in browser.events if event["method"] == "Runtime.exceptionThrown"]


@needs_chromium
def test_the_picture_of_a_page_has_the_open_row(
    evaluation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(of_evaluation(evaluation, [], None, 100)), encoding="utf-8")
    sizes = []
    # The judges disagree on the second and the fifth row; the picture ends below the open one.
    for row in ("2", "5"):
        picture = tmp_path / f"{row}.png"
        monkeypatch.setattr(sys, "argv", ["view_picture", str(file), row, "--out", str(picture)])
        view_picture.main()
        content = picture.read_bytes()
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        sizes.append(struct.unpack(">II", content[16:24]))
    (width, second), (_, fifth) = sizes
    assert width == view_picture.WIDTH and fifth > second > 400
