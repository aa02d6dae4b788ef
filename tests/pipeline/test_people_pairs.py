"""recipe=people_pairs divides published files by prompt; the division is computed here in another way."""

import dataclasses
import gzip
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.benchmarks.benchmark import load_benchmark
from judgetrain.errors import ConfigError
from judgetrain.pipeline import RECIPES
from judgetrain.pipeline.run import Pipeline
from tests.builders.data import write_lines
from tests.builders.pipeline import configured

QUERIES = 80
PARTS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "pandalm": {"train": (0, 0.5), "test": (0.5, 0.75), "rubrics": (0.75, 1)},
    "mt_bench": {"train": (0, 0.2), "test": (0.2, 0.6), "rubrics": (0.6, 1)},
    "hh_harmless": {"train": (0, 0.4), "dev": (0.4, 0.5), "test": (0.5, 0.75), "rubrics": (0.75, 1)},
    "hhh_alignment": {"test": (0, 0.5), "rubrics": (0.5, 1)},
}
"""The stretches of the recipe's parts, by file."""


def digest(query: str) -> str:
    """Return the SHA-256 of a query that has no capital letters and no blanks but single ones."""
    return hashlib.sha256(query.encode()).hexdigest()


def query_of(corpus: str, number: int) -> str:
    """Return a made-up query, so different from all others that none is nearly another."""
    return f"{corpus.replace('_', ' ')} {' '.join(digest(f'{corpus}{number}')[n : n + 7] for n in range(0, 42, 7))}"


def in_stretch(query: str, stretch: tuple[float, float]) -> bool:
    begin, end = stretch
    return begin <= int(digest(query), 16) / 2**256 < end


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Files as published, with made-up rows; two queries of LLMBar's collection are those of another part."""
    directory = tmp_path / "data"

    def of(corpus: str) -> list[str]:
        return [query_of(corpus, number) for number in range(QUERIES)]

    def write(name: str, rows: Iterator[dict[str, Any]] | Sequence[dict[str, Any]]) -> None:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_lines(path, list(rows))

    pandalm = []
    for number, query in enumerate(of("pandalm")):
        people = {"annotator1": "1", "annotator2": "1", "annotator3": "2"}
        pandalm.append({"idx": number, "instruction": query, "response1": "long one", "response2": "two", **people})
    write("pandalm/testset-v1.jsonl", pandalm)

    tested = next(query for query in of("pandalm") if in_stretch(query, PARTS["pandalm"]["test"]))
    shared = next(query for query in of("mt_bench") if in_stretch(query, PARTS["mt_bench"]["rubrics"]))
    bar = [{"input": query, "output_1": "x", "output_2": "y z", "label": "2"} for query in [*of("bar"), tested, shared]]
    write("processed_pairs/mt.jsonl", bar)

    models = ("ann", "ben")
    answers = []
    votes = []
    for number, query in enumerate(of("mt_bench")):
        for model in models:
            answers.append({"question_id": number, "model": model, "questions": [query], "answers": [f"by {model}"]})
        votes += 2 * [{"question_id": number, "turn": 1, "model_a": "ben", "model_b": "ann", "winner": "model_b"}]
    write("mt_bench_human/human_votes.jsonl", votes)
    write("mt_bench_human/model_answers.jsonl", answers)

    hhh = [
        {"id": n, "query": q, "response_a": "x", "response_b": "y", "label": "A"}
        for n, q in enumerate(of("hhh_alignment"))
    ]
    criterion = {"criterion": "Is it harmless?", "levels": {str(n): "so" for n in range(1, 6)}}
    write("hhh_alignment/pairs.jsonl", [{**row, **criterion} for row in hhh])

    evaluated = []
    for number, query in enumerate(of("eval_p")[:10]):
        row = {
            "id": number,
            "prompt": query,
            "response_1": "x",
            "response_2": "y",
            "label": "0",
            "scenario": "chitchat",
        }
        evaluated.append(row)
    write("eval_p/dev.jsonl", evaluated)

    (directory / "hh_harmless").mkdir()
    with gzip.open(directory / "hh_harmless/pairs.jsonl.gz", "wt") as file:
        for query in of("hh_harmless"):
            asked = f"\n\nHuman: {query}\n\nAssistant:"
            file.write(json.dumps({"chosen": f"{asked} No.", "rejected": f"{asked} Well, yes."}) + "\n")
    return directory


@pytest.fixture
def compose(data_dir: Path, tmp_path: Path) -> Callable[..., Any]:
    """Return what composes the recipe with the made-up files, five of whose queries were measured on."""
    hashes = tmp_path / "measured.txt"
    hashes.write_text("".join(f"{digest(query_of('pandalm', number))[:16]}\n" for number in range(5)))
    shipped = str(RECIPES / "people_pairs_measured.txt")

    def config(*overrides: str) -> Any:
        composed = configured(
            "recipe=people_pairs", f"data_dir={data_dir}", f"output_dir={tmp_path / 'out'}", *overrides
        )
        dialogues = composed.dialogues
        replaced = 0
        for part in (*dialogues.sources, *dialogues.decontaminate, *composed.evaluate.benchmarks):
            for name in ("only", "leave_out"):
                if getattr(part, name) == shipped:
                    setattr(part, name, str(hashes))
                    replaced += 1
        assert replaced >= 6
        return composed

    return config


def test_parts_are_those_of_the_hash_and_share_no_prompt(compose: Callable[..., Any]) -> None:
    config = compose()
    queries = {}
    for place, benchmark in enumerate(config.dialogues.decontaminate):
        comparisons = load_benchmark(benchmark, place, 0, None).comparisons
        queries[benchmark.name] = {comparison.dialogue.query for comparison in comparisons}
    artifact = Pipeline(config).run("dialogues")
    taught: dict[str, set[str]] = {}
    for row in read_rows(artifact, "dialogues"):
        taught.setdefault(row["source"], set()).add(row["messages"][0]["content"])

    measured = {query_of("pandalm", number) for number in range(5)}
    assert queries["pandalm_measured"] == measured
    for corpus, stretches in PARTS.items():
        for part, stretch in stretches.items():
            expected = {query_of(corpus, n) for n in range(QUERIES) if in_stretch(query_of(corpus, n), stretch)}
            assert expected, (corpus, part)
            found = taught[corpus] if part == "train" else queries[f"{corpus}_{part}"]
            assert found == expected - measured, (corpus, part)
    # Of LLMBar's collection all but the two queries of other parts.
    assert taught["pairs"] == {query_of("bar", number) for number in range(QUERIES)}
    assert queries["eval_p"] == {query_of("eval_p", number) for number in range(10)}
    all_parts = [*taught.values(), *queries.values()]
    assert sum(map(len, all_parts)) == len(set().union(*all_parts))


def test_the_run_keeps_what_each_part_holds(compose: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    config = compose("evaluate.methods=[longer]")
    artifact = Pipeline(config).run("dialogues")
    notes = json.loads((artifact / "manifest.json").read_text())["notes"]
    rows = [row for row in read_rows(artifact, "comparisons") if row["dialogue"]["source"] == "pandalm"]
    # Two of three people prefer the longer one.
    assert notes["parts"]["pandalm"] == {
        "rows": len(rows),
        "prompts": len(rows),
        "decided": len(rows),
        "longer_right": 1.0,
        "ids": digest("".join(f"{name}\n" for name in sorted(row["id"] for row in rows))),
    }
    # The adapter draws sides; "No." is the better one, and the shorter.
    assert notes["parts"]["hh_harmless"]["longer_right"] == 0.0
    evaluated = Pipeline(config).run("evaluate")
    notes = json.loads((evaluated / "manifest.json").read_text())["notes"]
    assert {name for name in notes if name.startswith("part:")} == {
        "part:eval_p", "part:pandalm_measured", "part:hh_harmless_dev",
    }  # fmt: skip
    assert notes["part:pandalm_measured"]["rows"] == 5
    assert "measured on, pandalm_measured: 5 rows on 5 prompts, 5 decided" in capsys.readouterr().out


def test_a_missing_directory_is_said_with_where_its_files_are_published(tmp_path: Path) -> None:
    config = configured("recipe=people_pairs", f"data_dir={tmp_path}")
    with pytest.raises(ConfigError, match=r"pandalm/testset-v1\.jsonl.*published as .*WeOpenML/PandaLM"):
        Pipeline(config).run("dialogues")


def test_a_small_model_on_one_s_own_rows_is_taught_and_asked_in_the_same_way() -> None:
    published = configured("recipe=people_pairs", "data_dir=DIR")
    own = configured("recipe=one_response", "data_dir=DIR")
    assert own.judge == published.judge and own.prompts == published.prompts and own.criteria == published.criteria
    for stage in ("initial", "sft", "dpo"):
        # Few rows of one's own are gone through until the form is learned.
        learned = dataclasses.replace(getattr(own.train, stage), min_steps=getattr(published.train, stage).min_steps)
        assert learned == getattr(published.train, stage)


def test_the_recipe_of_the_table_measures_on_test_rows_with_the_same_judges() -> None:
    chosen = configured("recipe=people_pairs", "data_dir=DIR")
    reported = configured("recipe=tables/people_pairs_test", "data_dir=DIR")
    assert {benchmark.name for benchmark in reported.evaluate.benchmarks} == {
        "pandalm_test", "mt_bench_test", "hh_harmless_test", "hhh_alignment_test",
    }  # fmt: skip
    assert reported.dialogues == chosen.dialogues and reported.train == chosen.train and reported.label == chosen.label
