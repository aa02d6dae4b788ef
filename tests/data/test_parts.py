"""Parts of a data set by prompt: what is taught and what is measured share none."""

import hashlib
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.benchmarks.benchmark import load_benchmark
from judgetrain.data.config import BenchmarkConfig, DialoguesConfig, DialogueSourceConfig, SourceConfig
from judgetrain.data.parts import check_part, in_part, place_of
from judgetrain.data.stages import check_benchmarks
from judgetrain.errors import ConfigError, DataError
from judgetrain.schema import Dialogue, Message
from tests.builders.data import run_dialogues


def asking(*texts: str) -> Dialogue:
    """Return a conversation in which the user says these texts."""
    return Dialogue("id", "source", tuple(Message("user", text) for text in texts))


def test_a_place_is_a_hash_of_the_first_question() -> None:
    digest = hashlib.sha256(b"where is it?").hexdigest()
    expected = int(digest[:16], 16) / 2**64
    assert place_of(asking("Where  is it?", "And now?")) == place_of(asking(" where is IT?")) == expected
    assert place_of(asking("Where is that?")) != expected


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5, unique=True), st.text())
def test_parts_that_cover_everything_hold_each_prompt_once(cuts: list[float], text: str) -> None:
    ends = sorted({0.0, *cuts, 1.0})
    parts = [[begin, end] for begin, end in pairwise(ends)]
    assert sum(in_part(asking(text), part) for part in parts) == 1
    assert in_part(asking(text), [])


def test_parts_have_their_shares() -> None:
    """Of 10,000 prompts a fifth, give or take four standard deviations."""
    inside = sum(in_part(asking(f"question {number}"), [0.6, 0.8]) for number in range(10_000))
    assert abs(inside - 2000) < 4 * (10_000 * 0.2 * 0.8) ** 0.5


@pytest.mark.parametrize("part", [[0.5], [0.5, 0.2], [0.3, 0.3], [-0.1, 0.5], [0.5, 1.5], [0, 0.5, 1]])
def test_what_is_no_stretch_is_refused(part: list[float]) -> None:
    with pytest.raises(ConfigError, match=r"evaluate.benchmarks\[0\].part=.*expected two numbers"):
        check_part(part, "evaluate.benchmarks[0].part")
    check_part([], "key")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Rows on 60 prompts, two on each: as published, without a division."""
    path = tmp_path / "pairs.jsonl"
    with path.open("w") as rows:
        for number in range(120):
            row = {
                "id": number,
                "query": f"What is thing {number % 60}?",
                "response_a": f"It is {number}.",
                "response_b": f"It may be {number}, or not.",
                "label": "AB"[number % 2],
            }
            rows.write(json.dumps(row) + "\n")
    return path


def taught_prompts(directory: Path, settings: DialoguesConfig) -> list[str]:
    """Return the prompts of the rows that stage dialogues keeps."""
    out = run_dialogues(directory, settings)
    return [row["messages"][0]["content"] for row in read_rows(out.directory, "dialogues")]


def test_a_benchmark_and_the_dialogues_divide_one_file(file: Path, tmp_path: Path) -> None:
    def prompts(begin: float, end: float) -> Counter[str]:
        benchmark = BenchmarkConfig("b", SourceConfig(name="b", path=str(file), format="comparison"), part=[begin, end])
        loaded = load_benchmark(benchmark, 0, 0, None)
        return Counter(comparison.dialogue.query for comparison in loaded.comparisons)

    measured = prompts(0.7, 1)
    source = DialogueSourceConfig(name="own", path=str(file), type="comparisons", part=[0, 0.7])
    taught = Counter(taught_prompts(tmp_path / "out", DialoguesConfig([source])))
    assert {*taught.values()} == {*measured.values()} == {2}, "a prompt's rows stay together"
    assert not set(taught) & set(measured) and len(taught) + len(measured) == 60
    assert prompts(0, 1).total() == 120 and prompts(0, 0.7) == taught
    with pytest.raises(DataError, match=r"no comparison with a label is left of 0 .*part=\[0\.5, 0\.5000001\]"):
        prompts(0.5, 0.5000001)


def test_only_the_measured_part_of_a_benchmark_is_taken_out_of_training(file: Path, tmp_path: Path) -> None:
    source = DialogueSourceConfig(name="own", path=str(file), type="comparisons")
    benchmark = BenchmarkConfig("b", SourceConfig(path=str(file), format="comparison"), part=[0.7, 1])
    kept = taught_prompts(tmp_path / "out", DialoguesConfig([source], decontaminate=[benchmark]))
    everything = {f"What is thing {number}?" for number in range(60)}
    assert {*kept} == {text for text in everything if not in_part(asking(text), [0.7, 1])}


def test_the_generated_world_has_no_parts() -> None:
    benchmark = BenchmarkConfig("w", SourceConfig(name="w", type="world"), part=[0, 0.5])
    with pytest.raises(ConfigError, match=r"benchmarks\[0\]\.part: the generated world is divided already"):
        check_benchmarks("evaluate.benchmarks", [benchmark])


def hash_of(text: str) -> str:
    """Return a prompt's hash, by another way than the code's."""
    return hashlib.sha256(" ".join(text.split()).casefold().encode()).hexdigest()[:16]


def test_rows_that_a_file_names_are_left_out_or_are_the_only_ones(file: Path, tmp_path: Path) -> None:
    seen = [f"What is thing {number}?" for number in (3, 5, 8)]
    hashes = tmp_path / "seen.txt"
    hashes.write_text("# looked at\n\n" + "".join(f"{hash_of(text)} # {place}\n" for place, text in enumerate(seen)))
    source = DialogueSourceConfig(name="s", path=str(file), leave_out=str(hashes))
    kept = taught_prompts(tmp_path / "kept", DialoguesConfig([source]))
    assert {*kept} == {f"What is thing {number}?" for number in range(60)} - {*seen}
    source = DialogueSourceConfig(name="s", path=str(file), only=str(hashes))
    assert {*taught_prompts(tmp_path / "only", DialoguesConfig([source]))} == {*seen}

    measured = BenchmarkConfig(name="b", source=SourceConfig(path=str(file)), only=str(hashes))
    assert {c.dialogue.query for c in load_benchmark(measured, 0, 0, None).comparisons} == {*seen}
    # What is measured on is left out of training, by the same file.
    source = DialogueSourceConfig(name="s", path=str(file))
    settings = DialoguesConfig([source], decontaminate=[measured])
    assert {*taught_prompts(tmp_path / "taught", settings)} == {*kept}


def test_a_file_of_hashes_is_checked_before_anything_runs(file: Path, tmp_path: Path) -> None:
    hashes = tmp_path / "seen.txt"
    measured = BenchmarkConfig(name="b", source=SourceConfig(path=str(file)), leave_out=str(hashes))
    with pytest.raises(ConfigError, match=r"evaluate.benchmarks\[0\].leave_out=.*seen.txt': no such file"):
        check_benchmarks("evaluate.benchmarks", [measured])
    hashes.write_text(f"{hash_of('x')}\nWhat is thing 3?\n")
    with pytest.raises(ConfigError, match=r"seen.txt, line 2: expected a prompt's hash of 16 .* 'What is thing 3"):
        check_benchmarks("evaluate.benchmarks", [measured])


def test_votes_on_one_pair_are_learned_from_as_one_comparison(tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    with answers.open("w") as rows:
        for model in ("m", "n"):
            row = {"question_id": 1, "model": model, "questions": ["Name a tree."], "answers": [f"{model} says elm."]}
            rows.write(json.dumps(row) + "\n")
    votes = tmp_path / "votes.jsonl"
    # Two of three people prefer n, whichever model is named first.
    with votes.open("w") as rows:
        for first, second, winner in (("m", "n", "model_b"), ("n", "m", "model_a"), ("m", "n", "model_a")):
            row = {"question_id": 1, "turn": 1, "model_a": first, "model_b": second, "winner": winner}
            rows.write(json.dumps(row) + "\n")
    source = DialogueSourceConfig(name="s", path=str(votes), adapter="mt_bench_human", answers=str(answers))
    out = run_dialogues(tmp_path / "out", DialoguesConfig([source]))
    (comparison,) = read_rows(out.directory, "comparisons")
    assert comparison[f"response_{comparison['label'].lower()}"] == "n says elm."
    assert {comparison["response_a"], comparison["response_b"]} == {"m says elm.", "n says elm."}
