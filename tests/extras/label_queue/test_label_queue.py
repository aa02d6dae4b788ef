"""Stage label_queue: what it ranks by, what label tools read, and labels that come back as given ones."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.data.cells import RowError, label_studio
from judgetrain.data.config import SourceConfig
from judgetrain.data.sources import read_comparisons
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.label_queue.config import LabelQueueConfig
from judgetrain.extras.label_queue.stage import CHANCE, INFORMATION, information_of, ranked, read_rows_of
from judgetrain.pipeline.run import Pipeline
from tests.builders.judging import judge_stage, lines
from tests.builders.pipeline import configured


def row(name: str, verdicts: str = "AA", margin: float | None = 2.0, **more: Any) -> dict[str, Any]:
    """A row of stage judge: the verdicts of its branches, of which the first and the last are the orders'."""
    known: list[Any] = [{"A": "A", "B": "B", "t": "tie", "?": None}[v] for v in verdicts]
    texts = {"response_a": f"one {name}", "response_b": f"two {name}", "model_a": "x", "model_b": "y"}
    said = {"verdict_ab": known[0], "verdict_ba": known[-1], "margin": margin, "verdict": "A"}
    asked = [{"role": "user", "content": more.pop("query", f"query {name}")}]
    rest = {"reasons": [{"verdict": v} for v in known], "failure": None, "label": None, "group": None}
    return {"id": name, "messages": asked, **texts, **said, **rest, **more}


def test_information_by_hand() -> None:
    found = information_of(row("a", "ABt?", None))
    assert found == {"branches": pytest.approx(1.0), "orders": 1, "margin": None}
    p = 1 / (1 + math.exp(-4))
    bits = pytest.approx(-p * math.log2(p) - (1 - p) * math.log2(1 - p))
    assert information_of(row("b", "AAAA", -4.0)) == {"branches": 0, "orders": 0, "margin": bits}
    assert information_of(row("c", "AABA", 0.0))["margin"] == 1 == information_of(row("d", "??", 0.0))["orders"]
    uneven = -(0.75 * math.log(0.75, 3) + 0.25 * math.log(0.25, 3))
    assert information_of(row("e", "AABA"))["branches"] == pytest.approx(uneven)


def test_the_queue_has_the_unsure_first_and_a_fair_draw_among_them() -> None:
    rows = [row(f"s{i:03d}", "AAAA", 4.0) for i in range(300)] + [row(f"u{i:03d}", "ABAB", 0.0) for i in range(100)]
    config = LabelQueueConfig(labels=100)
    queue = ranked(rows, config, seed=1)
    assert [q["rank"] for q in queue] == list(range(1, 101)) and len({q["id"] for q in queue}) == 100
    ways = Counter(q["chosen_by"] for q in queue)
    assert ways == {INFORMATION: 80, CHANCE: 20}
    assert {q["id"][0] for q in queue if q["chosen_by"] == INFORMATION} == {"u"}
    assert abs(Counter(q["chosen_by"] for q in queue[:50])[CHANCE] - 10) <= 1, "whoever stops early has some of both"
    fair = [[q["id"] for q in ranked(rows, config, seed=s) if q["chosen_by"] == CHANCE] for s in range(40)]
    unsure = sum(name[0] == "u" for names in fair for name in names) / sum(map(len, fair))
    assert unsure == pytest.approx(0.25, abs=0.05), "a quarter of all rows are: the draw is from all"
    assert [q["id"] for q in ranked(rows, config, 1)] == [q["id"] for q in queue]


def queued(home: Path, *overrides: str) -> Path:
    """The directory of a finished stage label_queue."""
    words = ("recipe=debug", f"output_dir={home}", "track.tracker=none", *overrides)
    return Pipeline(configured(*words), Console()).run("label_queue")


def test_an_id_that_names_two_comparisons_is_refused_and_the_same_one_counts_once(tmp_path: Path) -> None:
    first = lines(tmp_path / "a.jsonl", [row("a", query="one"), row("b")])
    again, other = lines(tmp_path / "b.jsonl", [row("b")]), lines(tmp_path / "c.jsonl", [row("a", query="two")])
    assert [found["id"] for found in read_rows_of([str(first), str(again)])] == ["a", "b"]
    with pytest.raises(DataError, match=r"c\.jsonl:1: id 'a' is another comparison's in a file before it"):
        read_rows_of([str(first), str(other)])


def test_what_cannot_be_labelled_is_counted_and_files_are_what_the_tools_read(tmp_path: Path) -> None:
    multi = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]
    multi.append({"role": "user", "content": "<b>Why?</b>"})
    rows = [row("a", "AB", 0.0, messages=multi, group="g"), row("b"), row("c", label="A"), row("d", failure="x: y")]
    source = lines(tmp_path / "v.jsonl", rows)
    directory = queued(tmp_path, f"label_queue.files=[{source}]")
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest["counts"] == {"in": 4, "out": 2, "dropped": {"labelled": 1, "not_judged": 1}}
    first, second = read_rows(directory, "queue")
    noted, mean = manifest["notes"]["label_queue"], (first["information"] + second["information"]) / 2
    assert noted.pop("information") == pytest.approx(mean, abs=1e-5)
    assert noted.pop("information_of_first_tenth") == pytest.approx(first["information"])
    assert noted == {"by_chance": 0}
    assert (first["id"], second["id"]) == ("a", "b") and first["information"] > second["information"]
    tasks = json.loads((directory / "label_studio.json").read_text())
    assert tasks[0]["data"]["messages"] == multi and tasks[0]["data"]["group"] == "g"
    interface = ET.fromstring((directory / "label_studio.xml").read_text())
    shown = {tag.get("value", "")[1:] for tag in interface.iter() if tag.get("value", "").startswith("$")}
    assert shown <= set(tasks[0]["data"]) and {c.get("alias") for c in interface.iter("Choice")} == {"A", "B", "tie"}
    assert not re.search("verdict|margin", json.dumps(tasks)), "nobody is led by what the judge said"


def annotated(tasks: list[dict[str, Any]], labels: list[list[str | None]]) -> list[dict[str, Any]]:
    """Label Studio's JSON export of the tasks; None: skipped."""

    def annotation(number: int, label: str | None) -> dict[str, Any]:
        chosen = {"from_name": "label", "to_name": "response_a", "type": "choices", "value": {"choices": [label]}}
        who = {"id": 40 + number, "completed_by": number, "was_cancelled": label is None}
        return who | {"result": [chosen] if label else []}

    return [
        {"id": 7 + i, "predictions": [], **task, "annotations": [annotation(j, label) for j, label in enumerate(given)]}
        for i, (task, given) in enumerate(zip(tasks, labels, strict=True))
    ]


def test_labels_come_back_as_given_ones_that_train_and_measure(tmp_path: Path) -> None:
    """Stage dialogues keeps the labels for label.source=given; stage judge measures by them."""
    source = lines(tmp_path / "v.jsonl", [row(name, "AB", 0.0) for name in "abcd"])
    directory = queued(tmp_path, f"label_queue.files=[{source}]")
    exported = json.loads((directory / "label_studio.json").read_text())
    given = [["A"], ["B", "tie", "B"], ["A", "B"], [None]]
    (tmp_path / "export.json").write_text(json.dumps(annotated(exported, given)))
    config = SourceConfig(name="people", type="comparisons", path=str(tmp_path / "export.json"), format="label_studio")
    found = list(read_comparisons(config, "dialogues.sources[0]", labelled=None))
    asked = [q["id"] for q in read_rows(directory, "queue")]
    assert [c.id for c in found] == [f"people:{name}" for name in asked]
    assert [c.label for c in found] == ["A", "B", None, None]
    assert found[0].response_a == f"one {asked[0]}" and found[0].dialogue.query == f"query {asked[0]}"
    assert {c.model_a for c in found} == {"x"}
    where = f"path: {tmp_path}/export.json, format: label_studio, name: people"
    words = ("recipe=debug", f"output_dir={tmp_path}", "track.tracker=none", "responses.models=[]")
    sources = f"dialogues.sources=[{{type: jsonl, {where}}}]"
    made = Pipeline(configured(*words, "label.source=given", sources), Console()).run("dialogues")
    measured = judge_stage(tmp_path, f"verdicts.source={{type: comparisons, {where}}}")
    for place, name in ((made, "comparisons"), (measured, "verdicts")):
        assert [r["label"] for r in read_rows(place, name)] == ["A", "B", None, None]


@pytest.mark.parametrize(
    ("votes", "label"),
    [
        ([(7, "A"), (7, "A"), (8, "B")], None),
        ([(7, "A"), (7, "B")], "B"),
        ([(7, "A"), (8, "B"), (9, "B")], "B"),
        ([(None, "A"), (None, "A"), (8, "B")], "A"),
        ([({"id": 1}, "A"), ({"id": 1}, "B")], "B"),
    ],
)
def test_people_are_counted_and_not_their_annotations(votes: list[tuple[Any, str]], label: str | None) -> None:
    def result(choice: str) -> list[Any]:
        return [{"from_name": "label", "type": "choices", "value": {"choices": [choice]}}]

    annotations = [{"completed_by": who, "result": result(choice)} for who, choice in votes]
    assert label_studio({"data": {}, "annotations": annotations})["label"] == label


@pytest.mark.parametrize(
    ("tool", "row"),
    [
        ("label_studio", {"data": {}, "annotations": 5}),
        ("label_studio", {"data": {}, "annotations": [{"result": [{"from_name": "label", "type": "choices"}]}]}),
        ("questions", {"turns": 5}),
    ],
)
def test_a_row_of_no_known_shape_is_one_sentence_with_its_file_and_row(tool: str, row: Any, tmp_path: Path) -> None:
    path = lines(tmp_path / "export.jsonl", [row])
    with pytest.raises(DataError, match=r"export\.jsonl:1: (cannot be read \(\w+Error: |expected )"):
        list(read_comparisons(SourceConfig(path=str(path), format=tool), "key", labelled=None))


def test_exports_of_other_shapes_are_told(tmp_path: Path) -> None:
    with pytest.raises(RowError, match="task of Label Studio"):
        label_studio({"query": "x"})
    source = lines(tmp_path / "v.jsonl", [{"model_a": "x", "model_b": "y", "winner": "A"}])
    with pytest.raises(DataError, match="expected a row of stage judge"):
        queued(tmp_path, f"label_queue.files=[{source}]")
    labelled = lines(tmp_path / "l.jsonl", [row("a", label="A")])
    with pytest.raises(DataError, match="none of the 1 rows is left.*label_queue.relabel=true"):
        queued(tmp_path, f"label_queue.files=[{labelled}]")
    known = lines(tmp_path / "k.jsonl", [{"query": "q", "response_a": "x", "response_b": "y", "label": "A"}])
    with pytest.raises(ConfigError, match="none of the 1 comparisons is left to label.*relabel=true"):
        queued(tmp_path / "new", f"verdicts.source={{path: {known}, type: comparisons}}", "verdicts.judge=longer")
    assert not list((tmp_path / "new").rglob("judge")), "nothing is judged first"
    again = queued(tmp_path, f"label_queue.files=[{labelled}]", "label_queue.relabel=true")
    assert [q["id"] for q in read_rows(again, "queue")] == ["a"]
