"""Near-duplicates and benchmark queries are found, counted and removed; everything else stays."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data import duplicates
from judgetrain.data.config import BenchmarkConfig, DialoguesConfig, DialogueSourceConfig, SourceConfig
from judgetrain.data.duplicates import NearIndex, jaccard
from judgetrain.data.parts import place_of
from judgetrain.errors import ConfigError, DataError
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Comparison
from tests.builders.data import run_dialogues, write_lines

CAKE = "How do I cook an apple cake for my three sons on a rainy Sunday afternoon?"
PIE = "How do I cook an apple pie for my two sons on a rainy Monday afternoon?"


def configured(
    tmp_path: Path, rows: list[dict[str, Any]], benchmark: list[str] | None = None, **options: Any
) -> Config:
    source = DialogueSourceConfig(name="src", path=write_lines(tmp_path / "in.jsonl", rows))
    named = []
    if benchmark is not None:
        benchmark_rows = [{"query": q, "response_a": "x", "response_b": "y", "label": "A"} for q in benchmark]
        held_out = SourceConfig(
            name="bench", type="comparisons", path=write_lines(tmp_path / "bench.jsonl", benchmark_rows)
        )
        named = [BenchmarkConfig(name="held-out", source=held_out)]
    return Config(dialogues=DialoguesConfig([source], decontaminate=named, **options))


def run(tmp_path: Path, config: Config) -> StageRun:
    return run_dialogues(tmp_path, config.dialogues)


def by_hand(a: str, b: str) -> float:
    x, y = (" ".join(text.lower().split()) for text in (a, b))
    first, second = ({t[i : i + 5] for i in range(max(1, len(t) - 4))} for t in (x, y))
    return len(first & second) / len(first | second)


def test_the_similarity_is_of_five_character_shingles() -> None:
    assert jaccard(CAKE, PIE) == pytest.approx(by_hand(CAKE, PIE))
    assert jaccard("Hi", "hi  ") == 1.0
    assert jaccard("hi", "ho") == 0.0


def test_pairs_above_the_threshold_are_found_and_pairs_below_are_not() -> None:
    rng = random.Random(3)
    words = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in ("ll", "mn", "rst", "v")]
    counts = {True: [0, 0], False: [0, 0]}
    for _ in range(150):
        text = [rng.choice(words) for _ in range(60)]
        changed = list(text)
        for at in rng.sample(range(60), rng.choice([1, 2, 20, 30])):
            changed[at] = rng.choice(words)
        a = " ".join(text)
        b = " ".join(changed)
        similarity = by_hand(a, b)
        if 0.7 < similarity < 0.88:
            continue  # within three standard errors of the estimate
        index = NearIndex()
        assert index.add(a)
        same = similarity > 0.8
        counts[same][1 if index.add(b) else 0] += 1
    assert counts[True][0] >= 50 and counts[False][1] >= 50
    assert counts[True][1] <= 2 and counts[False][0] == 0


def test_near_duplicates_are_dropped_and_counted_when_asked_for(tmp_path: Path) -> None:
    rows = [{"query": q} for q in (CAKE, CAKE.replace("?", " ?!"), PIE, CAKE.lower(), "再帮我写一首关于秋天的诗歌")]
    off = run(tmp_path, configured(tmp_path, rows)).totals()["counts"]
    assert off == {"in": 5, "out": 4, "dropped": {"duplicate": 1}}
    on = run(tmp_path, configured(tmp_path, rows, near_dedup=True))
    assert on.totals()["counts"] == {"in": 5, "out": 3, "dropped": {"duplicate": 1, "near_duplicate": 1}}
    assert [r["messages"][0]["content"] for r in read_rows(on.directory, "dialogues")] == [CAKE, PIE, rows[4]["query"]]
    assert on.notes["sources"]["src"]["read"] == 5


def test_a_long_system_prompt_in_common_makes_no_near_duplicates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # All of a hundred unlike questions to one assistant are kept, and so are pairs of answers to one long query.
    rng = random.Random(5)
    words = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in ("ll", "mn", "rst", "v")]

    def text(number: int) -> str:
        return " ".join(rng.choices(words, k=number))

    system = {"role": "system", "content": f"You may call these functions: {text(300)}"}
    rows = [{"messages": [system, {"role": "user", "content": text(12)}]} for _ in range(50)]
    turns = [{"role": "user", "content": text(60)}, {"role": "assistant", "content": text(200)}]
    later = [{"messages": [*turns, {"role": "user", "content": text(12)}]} for _ in range(50)]
    assert run(tmp_path, configured(tmp_path, [*rows, *later], near_dedup=True)).totals()["counts"]["out"] == 100

    index = NearIndex()
    query = text(400)
    responses = [(text(40), text(40)) for _ in range(20)]
    assert all(index.add(query, "", a, b) for a, b in responses)
    a, b = responses[3]
    assert not index.add(query.upper(), "", f"{a} .", b), "the same pair once more"
    assert index.add(query, "", b, a), "the other way round it is another row"
    assert not index.add(query, "", b, a)


def test_the_same_last_question_in_other_dialogues_is_kept(tmp_path: Path) -> None:
    topics = ("the history of steam engines in mines", "baking bread without an oven", "what bats eat in winter")
    rows = [
        {"messages": [{"role": "user", "content": f"Tell me of {topic}."}, {"role": "assistant", "content": topic * 3}]}
        for topic in topics
    ]
    for row in rows:
        row["messages"].append({"role": "user", "content": "Please go on, with more detail than before."})
    counts = run(tmp_path, configured(tmp_path, [*rows, rows[0]], near_dedup=True)).totals()["counts"]
    assert (counts["out"], counts["dropped"]) == (3, {"duplicate": 1})


def test_a_loss_of_more_than_a_fifth_is_told_with_an_example_and_the_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    near = [{"id": f"n{i}", "query": f"{CAKE} {'!' * i}"} for i in range(4)]
    others = [{"query": f"{chr(97 + i) * 9} and {chr(97 + i) * 12}"} for i in range(7)]
    run(tmp_path, configured(tmp_path, [*near, *others], near_dedup=True))
    printed = capsys.readouterr()
    lines = [line for line in (printed.out + printed.err).splitlines() if "left out as near_duplicate" in line]
    assert len(lines) == 1 and "3 of 11" in lines[0] and "n1 ('How do I cook" in lines[0]
    assert "dialogues.near_dedup=false" in lines[0]
    run(tmp_path / "few", configured(tmp_path, [*near[:2], *others], near_dedup=True))
    assert "left out as" not in capsys.readouterr().out


def test_the_window_bounds_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "NEAR_WINDOW", 3)
    texts = [f"{chr(97 + i) * 12} something entirely of its own {chr(97 + i) * 12}" for i in range(8)]
    index = NearIndex()
    assert all(index.add(t) for t in texts)
    assert not index.add(texts[-1]), "remembered"
    assert index.add(texts[0]), "forgotten"


TURN = "Tell me, step by step, how a steam engine turns heat into motion."
BENCH = [CAKE, "hi", TURN]
CONTAMINATED: list[tuple[Any, bool, bool]] = [  # row, found word for word, found nearly
    ({"query": CAKE.upper()}, True, True),
    ({"query": CAKE.replace("?", " ?!")}, False, True),
    ({"query": PIE}, False, False),
    ({"query": "hi"}, True, True),
    ({"messages": ["hi", "hello", "What is the tallest mountain?"]}, False, False),
    ({"messages": [TURN, "It boils water.", "And then what?"]}, True, True),
    ({"messages": ["Be quick now.", "Yes?", TURN + "!!"]}, False, True),
]


def as_row(row: dict[str, Any]) -> dict[str, Any]:
    if "messages" not in row:
        return row
    roles = ("user", "assistant") * 2
    return {"messages": [{"role": r, "content": c} for r, c in zip(roles, row["messages"], strict=False)]}


@pytest.mark.parametrize(("row", "exact", "near"), CONTAMINATED)
def test_dialogues_that_hold_a_benchmark_query_are_removed(
    row: dict[str, Any], exact: bool, near: bool, tmp_path: Path
) -> None:
    rows = [as_row(row), {"query": "Something else altogether, on gardens."}]
    evaluated = configured(tmp_path, rows, BENCH)
    evaluated.evaluate.benchmarks = evaluated.dialogues.decontaminate
    evaluated.dialogues.decontaminate = []
    assert not run(tmp_path, evaluated).totals()["counts"]["dropped"], "evaluated on, and not named"
    out = run(tmp_path, configured(tmp_path, rows, BENCH))
    assert out.totals()["counts"]["dropped"] == ({"contaminated": 1} if near else {})
    matches = list(read_rows(out.directory, "contaminated"))
    assert len(matches) == near
    if matches:
        assert matches[0]["exact"] is exact
        assert (matches[0]["benchmark"], matches[0]["id"]) == ("held-out", "src:0000001")
        assert matches[0]["query"] in BENCH and matches[0]["similarity"] >= 0.8
    assert out.notes["benchmark_queries"] == {"held-out": 3}


@pytest.mark.parametrize("turn", [1, 2])
def test_a_published_benchmark_is_read_through_its_adapter(tmp_path: Path, turn: int) -> None:
    """Votes hold no query: it stands in the file of answers. A vote on the second turn is about the first, too."""
    config = configured(tmp_path, [{"query": CAKE}, {"query": "Something else."}])
    votes = [{"question_id": 81, "turn": turn, "model_a": "x", "model_b": "y", "winner": "tie", "judge": "j"}]
    answers = [
        {"question_id": 81, "model": m, "category": "writing", "questions": [CAKE, "Shorter."], "answers": [m, "z"]}
        for m in "xy"
    ]
    source = SourceConfig(path=write_lines(tmp_path / "votes.jsonl", votes), adapter="mt_bench_human")
    texts = write_lines(tmp_path / "answers.jsonl", answers)
    config.dialogues.decontaminate = [BenchmarkConfig("mt", source, answers=texts)]
    out = run(tmp_path, config)
    assert out.notes["benchmark_queries"] == {"mt": turn}
    assert [(r["benchmark"], r["query"]) for r in read_rows(out.directory, "contaminated")] == [("mt", CAKE)]
    marked = replace(config, output_dir=str(tmp_path / "outputs"))
    before = Pipeline(marked).plan("dialogues").fingerprint
    write_lines(tmp_path / "votes.jsonl", [votes[0] | {"winner": "model_a"}])
    assert Pipeline(marked).plan("dialogues").fingerprint == before
    write_lines(tmp_path / "answers.jsonl", [row | {"questions": [PIE, "Shorter."]} for row in answers])
    assert Pipeline(marked).plan("dialogues").fingerprint != before


def test_a_conversation_of_a_benchmark_counts_by_its_user_turns_together(tmp_path: Path) -> None:
    turns = ["Write a poem about the sea in autumn.", "Long ago …", "Shorter, please."]
    conversation = as_row({"messages": turns})
    config = configured(tmp_path, [conversation, {"query": "Shorter, please."}], [])
    rows = conversation | {"response_a": "x", "response_b": "y", "label": "A"}
    write_lines(tmp_path / "bench.jsonl", [rows])
    out = run(tmp_path, config)
    kept = [r["messages"][-1]["content"] for r in read_rows(out.directory, "dialogues")]
    assert kept == ["Shorter, please."]
    assert len(list(read_rows(out.directory, "contaminated"))) == 1


def test_a_malformed_benchmark_is_said_with_its_line(tmp_path: Path) -> None:
    config = configured(tmp_path, [{"query": "q"}], [])
    write_lines(tmp_path / "bench.jsonl", [{"query": CAKE, "response_a": False}, {"query": 3}])
    with pytest.raises(DataError, match=r"bench\.jsonl:2: expected text in field query, found int"):
        run(tmp_path, config)


def test_training_on_the_benchmark_itself_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no dialogue is left: 2 contaminated; .*dialogues\.decontaminate=\[\]"):
        run(tmp_path, configured(tmp_path, [{"query": CAKE}, {"query": TURN}], BENCH))


def test_rows_that_a_run_holds_out_of_its_own_file_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are no loss: what keeps them would teach what is measured on."""

    def place(query: str) -> float:
        return place_of(Comparison.of(query, "", "").dialogue)

    generator = random.Random(0)
    queries = ["".join(generator.choices("abcdefghij", k=40)) for _ in range(9)]
    held_out = [query for query in queries if place(query) < 0.5]
    assert 3 < len(held_out) < 9
    # A further row asks nearly the same, and is none of those that are held out.
    variants = [f"{held_out[0]}{letter}" for letter in "klmnopqrst"]
    near = next(query for query in variants if place(query) >= 0.5)
    config = configured(tmp_path, [{"query": query} for query in [*queries, near]], [])
    source = SourceConfig(path=config.dialogues.sources[0].path)
    config.dialogues.decontaminate = [BenchmarkConfig("own", source, part=[0.0, 0.5])]
    out = run(tmp_path, config)
    assert out.totals()["counts"]["dropped"] == {"held_out": len(held_out), "contaminated": 1}
    printed = "".join(capsys.readouterr())
    assert f"{len(held_out)} rows are held out to measure on, and not learned from" in printed
    assert "1 row beside these holds a query of a benchmark, or nearly, and is left out" in printed
    assert "left out as held_out" not in printed


def test_a_benchmark_file_that_is_not_there_says_why_it_is_needed(tmp_path: Path) -> None:
    config = replace(configured(tmp_path, [{"query": "q"}], BENCH), output_dir=str(tmp_path / "outputs"))
    (tmp_path / "bench.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"dialogues\.decontaminate\[0\]\.source\.path=.*no such file.*leave the"):
        Pipeline(config).plan("dialogues")
    config.dialogues.decontaminate = []
    assert Pipeline(config).plan("dialogues").fingerprint


def test_the_fingerprint_holds_the_queries_that_are_taken_out_and_nothing_else_of_benchmarks(tmp_path: Path) -> None:
    def mark(config: Config) -> str:
        return Pipeline(replace(config, output_dir=str(tmp_path / "outputs"))).plan("dialogues").fingerprint

    def asked(query: str, **other: str) -> None:
        row = {"query": query, "response_a": "x", "response_b": "y", "label": "A"}
        write_lines(tmp_path / "bench.jsonl", [row | other])

    near = configured(tmp_path, [{"query": "q"}], [CAKE])
    off = configured(tmp_path, [{"query": "q"}])
    marks = mark(near), mark(off)
    assert marks[0] != marks[1]
    near.dialogues.decontaminate[0].limit = 1
    assert mark(near) == marks[0], "how many comparisons are evaluated changes no training"
    asked(CAKE, label="B", response_a="z")
    assert mark(near) == marks[0], "nor does a corrected label"
    asked(PIE)
    assert mark(near) != marks[0]
    off.evaluate.benchmarks = near.dialogues.decontaminate
    assert mark(off) == marks[1], "evaluated on, and not named"
    hub = BenchmarkConfig("j", SourceConfig(type="hub", adapter="judgebench"))
    on_hub = replace(off, dialogues=replace(off.dialogues, decontaminate=[hub]))
    assert mark(on_hub) not in marks, "by its place on the Hub, without a request"
