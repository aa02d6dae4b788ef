"""``judgetrain init DIR``: what it finds in files, and a recipe that a run accepts as it is."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from judgetrain.extras.init.command import WEIGHTS
from judgetrain.extras.init.look import look
from judgetrain.pipeline.compose import composed_of
from judgetrain.pipeline.run import Pipeline
from tests.builders.pipeline import here

PAIR = {"query": "Why is it dark at night?", "response_a": "The sun is gone.", "response_b": "It is late."}


def pairs(n: int, **more: str) -> list[dict[str, str]]:
    return [PAIR | {"query": f"Question {i} of {i * i}: why?", "response_a": f"Since {i}."} | more for i in range(n)]


def written(place: Path, **files: Sequence[Mapping[str, object]]) -> Path:
    place.mkdir(exist_ok=True)
    for name, rows in files.items():
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


def labelled(n: int) -> list[dict[str, str]]:
    return [row | {"label": "AB"[i % 2]} for i, row in enumerate(pairs(n))]


WAYS = {
    "labels": (labelled(20), "given", []),
    "a strong model": (pairs(20), "openai", []),
    "nothing but dialogues": (
        [{"query": f"Question {i}?", "reference": f"Answer {i}."} for i in range(20)],
        "given",
        ["nearby", "errors"],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_recipe_that_is_written_is_accepted_as_it_is(way: str, tmp_path: Path) -> None:
    rows, teacher, contrast = WAYS[way]
    place = written(tmp_path / "my data", train=rows, test=[r | {"query": f"{r['query']} Now."} for r in labelled(8)])
    done = here("init", str(place), "train.base.path=world")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) <= 25
    assert "train.jsonl: 20" in done.stdout and "labels A 4, B 4" in done.stdout
    config = composed_of([f"recipe={place / 'judgetrain.yaml'}"])
    assert (config.teacher.engine.type, config.responses.contrast) == (teacher, contrast)
    assert config.recipe_name == "my data" and config.train.base.path == "world"
    Pipeline(config).check("evaluate")
    assert Pipeline(config).plan("evaluate").content  # every file that it names is there


def test_the_recipe_for_the_packaged_weights_is_accepted_too(tmp_path: Path) -> None:
    place = written(tmp_path / 'it\'s "mine"', **{"a ${b} c": labelled(20)})
    (place / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    done = here("init", str(place), f"train.base.path={WEIGHTS}")
    assert done.returncode == 0, done.stderr
    config = composed_of([f"recipe={place / 'judgetrain.yaml'}"])
    assert config.dialogues.sources[0].path == str(place / "a ${b} c.jsonl")
    train = config.train
    assert (train.base.path, train.initial.lora, train.sft.lora, train.dpo.lora) == (WEIGHTS, True, True, True)


def test_of_one_file_with_labels_some_rows_are_measured_on_and_not_trained_on(tmp_path: Path) -> None:
    place = written(tmp_path / "d", mine=labelled(40))
    printed = here("init", str(place), "train.base.path=world").stdout
    assert "the first 10 rows of mine.jsonl; 10 rows to learn from hold a query of it" in printed
    config = composed_of([f"recipe={place / 'judgetrain.yaml'}", f"output_dir={tmp_path / 'o'}", "track.tracker=none"])
    directory = Pipeline(config).run("dialogues")
    kept = [json.loads(line)["id"] for line in (directory / "dialogues.jsonl").read_text().splitlines()]
    assert len(kept) == 30 and "mine:0000010" not in kept and "mine:0000011" in kept


@pytest.mark.parametrize("own", [False, True])
def test_a_file_with_few_labels_is_trained_on_whole(own: bool, tmp_path: Path) -> None:
    rows = [*pairs(20), *(row | {"query": f"{row['query']} Then?"} for row in labelled(3))]
    place = written(tmp_path / "d", mine=pairs(20) if own else rows, **({"test": rows} if own else {}))
    printed = here("init", str(place), "train.base.path=world").stdout
    config = composed_of([f"recipe={place / 'judgetrain.yaml'}"])
    if own:
        assert [b.unlabelled for b in config.evaluate.benchmarks] == [True]
    else:
        assert config.evaluate.benchmarks == [] and "measures on nothing" in printed


def test_a_label_under_another_name_and_in_other_words_is_found(tmp_path: Path) -> None:
    with (tmp_path / "votes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt", "response_1", "response_2", "winner", "note"])
        writer.writerows(["Why?", f"So {i}.", "Thus.", ("model_a", "model_b", "tie")[i % 3], "x"] for i in range(9))
    findings = look(tmp_path / "votes.csv", {})
    assert findings.fields == {"label": "winner"}
    assert findings.labels == {"model_a": "A", "model_b": "B", "tie": "tie"}
    assert findings.verdicts == {"A": 3, "B": 3, "tie": 3}
    assert findings.roles | {} == {
        "query": "prompt",
        "response_a": "response_1",
        "response_b": "response_2",
        "label": "winner",
    }


def test_labels_of_which_some_are_written_as_here_are_read_alike(tmp_path: Path) -> None:
    rows = [row | {"label": ("a", "b", "tie")[i % 3]} for i, row in enumerate(pairs(9))]
    findings = look(written(tmp_path / "d", mine=rows) / "mine.jsonl", {})
    assert findings.verdicts == {"A": 3, "B": 3, "tie": 3} and not findings.unknown
    assert any("(a is A, b is B, tie is tie)" in line for line in findings.lines())


def test_duplicates_and_broken_rows_are_told(tmp_path: Path) -> None:
    train = labelled(12)
    train[3] |= {"label": "C", "note": "x"}
    place = written(tmp_path / "d", train=[*train, train[0], {"query": 3}], test=labelled(2))
    printed = here("init", str(place), "train.base.path=world").stdout
    assert (
        "1 duplicates" in printed and "1 labels are none of A, B, tie: C" in printed and "from column note" in printed
    )
    assert "; 3 rows to learn from hold a query of it, or nearly, and are left out" in printed
    assert "1 rows cannot be read" in printed and "train.jsonl:14: expected text in field query" in printed


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no data file"),
        ({"test": labelled(8)}, "the only file"),
        ({"train": [{"query": "Why?"}] * 3}, "neither two responses nor a good answer"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(
    files: dict[str, Sequence[Mapping[str, object]]], message: str, tmp_path: Path
) -> None:
    place = written(tmp_path / "d", **files)
    done = here("init", str(place))
    assert done.returncode == 2 and message in done.stderr
    assert not (place / "judgetrain.yaml").exists()


def test_a_recipe_that_is_there_is_left_alone(tmp_path: Path) -> None:
    place = written(tmp_path / "d", train=labelled(12))
    (place / "judgetrain.yaml").write_text("seed: 3\n")
    assert "is there already" in here("init", str(place)).stderr
    assert (place / "judgetrain.yaml").read_text() == "seed: 3\n"
