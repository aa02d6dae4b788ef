"""The teacher's stage with the world's annotator: what it teaches, and that a kill changes nothing."""

import functools
import json
import operator
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.fingerprint import plain
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import RunOptions, StageRun
from judgetrain.data import world
from judgetrain.data.config import BenchmarkConfig, DialoguesConfig, SourceConfig, WorldConfig
from judgetrain.data.prompt_keys import is_held_out
from judgetrain.data.rubrics import read_rubric
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.engine import WorldEngine
from judgetrain.data.world.language import load_language
from judgetrain.engines import config as engines
from judgetrain.engines.answers import described
from judgetrain.engines.loading import load_tokenizer
from judgetrain.engines.openai import engine as openai_engine
from judgetrain.engines.openai.gate import Clock
from judgetrain.errors import ConfigError, DataError, EngineError
from judgetrain.judges.prompting.parsing import parse_criteria, render_criteria
from judgetrain.judges.prompting.prompts import judgment_slots, load_prompt_set
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.judges.trees.grow import Shape, TreeModel, grow
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label import teacher_stage
from judgetrain.label.config import GivenEngineConfig, TeacherConfig
from judgetrain.label.examples import Prompter
from judgetrain.label.stages import TeacherSettings, check_teacher
from judgetrain.label.teacher_stage import estimate, read_evaluations
from judgetrain.pipeline.config import Config
from judgetrain.schema import Comparison
from tests.builders.faulty_server import KEY, FaultyServer, serving
from tests.builders.judges import SAMPLING
from tests.builders.label import TAUGHT, run_teacher, teacher_config
from tests.builders.scripted import Ending, ScriptedEngine, comparison, criteria, judged, noisy
from tests.builders.served import Served, free_port, served
from tests.builders.train import templated
from tests.builders.watched import contents, interrupted

PROMPTS = load_prompt_set("compact")


@pytest.mark.parametrize("orders", [1, 2])
def test_every_taught_comparison_gets_its_branches_and_the_others_remain(orders: int, tmp_path: Path) -> None:
    out = run_teacher(tmp_path / "teacher", teacher_config(both_orders=orders == 2))
    trees = [EvaluationTree.from_row(r) for r in read_rows(out.directory, "evaluations")]
    remaining = [r["id"] for r in read_rows(out.directory, "remaining")]
    assert len(trees) == 14
    assert sorted([t.comparison.id for t in trees] + remaining) == sorted(c.id for c in TAUGHT)
    assert all(len(list(t.judgments())) == 2 * orders for t in trees)
    examples = list(read_rows(out.directory, "examples"))
    assert Counter(r["level"] for r in examples) == {"criteria": 14, "guideline": 28, "judgment": 28 * orders}
    assert {r["comparison_id"] for r in examples}.isdisjoint(remaining)
    totals = out.totals()
    assert totals["counts"] == {"in": 14, "out": 14, "dropped": {}}
    nodes = [node for t in trees for _, g in t.guidelines() for node in (g, *g.judgments)]
    by_hand = sum(t.criteria_generated_tokens for t in trees) + sum(node.generated_tokens for node in nodes)
    assert totals["tokens"]["generated"] == by_hand


@pytest.mark.parametrize(("asked", "listed", "expected"), [(6, 6, 6), (4, 6, 4), (6, 3, 3)])
def test_a_prompt_asks_for_as_many_criteria_as_its_list_has(
    asked: int, listed: int, expected: int, tmp_path: Path
) -> None:
    """Otherwise "List 4 criteria." would be answered with six, and the judge would learn to ignore the number."""
    out = run_teacher(tmp_path / "teacher", teacher_config(asked=asked, listed=listed))
    trees = {r["comparison"]["id"]: r for r in read_rows(out.directory, "evaluations")}
    for row in (r for r in read_rows(out.directory, "examples") if r["level"] == "criteria"):
        lines = row["completion"][0]["content"].splitlines()
        assert len(lines) == expected
        assert row["prompt"][-1]["content"].startswith(f"List {expected} criteria.")
        assert lines == trees[row["comparison_id"]]["criteria_text"].splitlines()[:expected]


def test_a_run_whose_prompts_would_all_be_held_out_is_told_before_the_teacher_is_asked() -> None:
    settings = replace(TeacherSettings.of(teacher_config()), seed=1, holdout=0.5)
    of_prompt = {name: Comparison.of(name, "x", "y") for name in map(str, range(20))}
    held_out = [c for c in of_prompt.values() if is_held_out(1, c.dialogue, 0.5)]
    others = [c for c in of_prompt.values() if c not in held_out]
    assert held_out and others
    # As many comparisons on one prompt as there may be.
    message = teacher_stage.all_held_out(settings, held_out[:1] * 100)
    assert message.startswith("label.holdout=0.5 holds out all 1 prompt ") and "set label.holdout=0" in message
    assert not teacher_stage.all_held_out(settings, [*held_out, others[0]])
    assert not teacher_stage.all_held_out(replace(settings, holdout=0.0), held_out)


def test_nothing_that_ran_out_of_tokens_is_taught() -> None:
    trees = grow(
        [comparison(0)], TreeModel(ScriptedEngine(noisy_but_readable), PROMPTS, SAMPLING), Shape(count=2, criteria=2), 0
    )
    row = json.loads(json.dumps(trees[0].to_row()))
    for judgment in (j for c in row["criteria"] for g in c["guidelines"] for j in g["judgments"]):
        judgment["finish_reason"] = "length"
    for tree, judgments in ((trees[0], {"judgment": 4}), (EvaluationTree.from_row(row), {})):
        levels = Counter(r["level"] for r in teacher_stage.teaching_examples(tree, Prompter(PROMPTS, 2)))
        assert levels == {"criteria": 1, "guideline": 2, **judgments}


@pytest.mark.parametrize(
    ("text", "reason", "taught"),
    [
        ("1. tone: kind\n2. depth: says mo", "length", ["tone: kind"]),
        ("1. tone: kind\n2. depth: says more\n", "length", ["tone: kind", "depth: says more"]),
        ("1. tone: kind\n2. depth: says more", "stop", ["tone: kind", "depth: says more"]),
        ("1. tone: ki", "length", []),
    ],
)
def test_of_a_list_that_ran_out_of_tokens_whole_lines_are_taught(text: str, reason: str, taught: list[str]) -> None:
    engine = Ending(lambda r, i: text if r.step == "criteria" else noisy_but_readable(r, i), {"criteria": reason})
    tree = grow([comparison(0)], TreeModel(engine, PROMPTS, SAMPLING), Shape(count=3, criteria=3), 0)[0]
    assert [c.text for c in tree.criteria] == (taught or ["tone: ki"])
    for read in (tree, EvaluationTree.from_row(json.loads(json.dumps(tree.to_row())))):
        rows = [r for r in teacher_stage.teaching_examples(read, Prompter(PROMPTS, 3)) if r["level"] == "criteria"]
        assert [r["completion"][0]["content"] for r in rows] == ([render_criteria(taught)] if taught else [])
        assert all(r["prompt"][-1]["content"].startswith(f"List {len(taught)} criteria.") for r in rows)
        assert all(r["nodes"] == [f"d0/c{i}" for i in range(len(taught))] for r in rows)


def noisy_but_readable(request, occurrence):  # type: ignore[no-untyped-def]
    return judged(4, 2) if request.step == "judgment" else noisy(request, occurrence)


@pytest.mark.parametrize("fatal", [2, 12])
def test_a_kill_within_any_shard_leaves_the_same_files_after_a_rerun(
    fatal: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_teacher(tmp_path / "whole" / "teacher", teacher_config())
    with monkeypatch.context() as patch:
        interrupted(patch, WorldEngine, "generate", fatal)
        with pytest.raises(KeyboardInterrupt):
            run_teacher(tmp_path / "killed" / "teacher", teacher_config())
    before = contents(tmp_path / "killed" / "teacher")
    finished = [n for n in before if n.startswith("evaluations-")]
    assert len(finished) == (fatal - 1) // 3, "three calls a shard: criteria, guidelines, judgments"
    assert "examples.jsonl" not in before
    resumed = run_teacher(tmp_path / "killed" / "teacher", teacher_config())
    assert contents(resumed.directory) == contents(whole.directory)
    assert resumed.totals() == whole.totals()


def test_when_nothing_remains_the_trees_are_grown_over_all(tmp_path: Path) -> None:
    out = run_teacher(tmp_path / "teacher", teacher_config(taught=100))
    assert {r["id"] for r in read_rows(out.directory, "remaining")} == {c.id for c in TAUGHT}
    assert out.notes["comparisons"] == {"teacher": 20, "remaining": 0}


def test_a_teacher_that_cannot_be_read_stops_the_run_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        teacher_stage, "make_engine", lambda config, **options: ScriptedEngine(lambda r, i: "I would rather not.")
    )
    with pytest.raises(DataError, match=r"nothing that can be read: 14 criteria:none; .*choose a teacher\.engine"):
        run_teacher(tmp_path / "teacher", teacher_config())


def test_where_few_are_judged_the_others_teach_their_lists_alone(tmp_path: Path) -> None:
    whole = run_teacher(tmp_path / "whole", teacher_config())
    out = run_teacher(tmp_path / "few", teacher_config(judged=5))
    rows = {"whole": list(read_rows(whole.directory, "examples")), "few": list(read_rows(out.directory, "examples"))}
    lists = {
        name: [(r["prompt"], r["completion"]) for r in rows_of_level if r["level"] == "criteria"]
        for name, rows_of_level in rows.items()
    }
    assert lists["few"] == lists["whole"]
    assert Counter(r["level"] for r in rows["few"]) == {"criteria": 14, "guideline": 10, "judgment": 20}
    assert len({r["comparison_id"] for r in rows["few"] if r["level"] != "criteria"}) == 5
    assert list(read_rows(out.directory, "remaining")) == list(read_rows(whole.directory, "remaining"))


JUDGED = [{"text": judged(5, 1)}, {"order": "BA", "text": judged(2, 4)}, {"text": "I like the first one."}]
GUIDELINES = [{"guideline": "5 when right, else 1.", "judgments": JUDGED}, {"guideline": "Never judged by."}]
BRIEF = {"guideline": "5 for a number alone.", "judgments": [{"text": judged(4, 4.5)}]}
PLAIN: dict[str, Any] = {
    "query": "What is 2 + 2?",
    "response_a": "4",
    "response_b": "5",
    "criteria": [
        {"criterion": "Correctness: is the\n sum right?", "guidelines": GUIDELINES},
        {"criterion": "Brevity: no more than the number", "guidelines": [BRIEF]},
        "Tone: friendly",
    ],
}


SECOND = ["criteria", 1, "guidelines", 0]


def write(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def changed(place: list[Any], value: Any) -> dict[str, Any]:
    """Return the plain row with one value changed, or removed where the value is ``None``."""
    row: dict[str, Any] = json.loads(json.dumps(PLAIN))
    item: Any = functools.reduce(operator.getitem, place[:-1], row)
    item[place[-1]] = value
    if value is None:
        del item[place[-1]]
    return row


def test_a_plain_row_becomes_a_tree_in_its_own_order(tmp_path: Path) -> None:
    (tree,) = read_evaluations(write(tmp_path / "e.jsonl", PLAIN))
    assert tree.criteria_text == (
        "1. Correctness: is the sum right?\n2. Brevity: no more than the number\n3. Tone: friendly"
    )
    nodes = [(j.order, j.score_a, j.score_b, j.verdict) for _, _, j in tree.judgments()]
    assert nodes == [
        ("AB", 5, 1, "A"), ("BA", 4, 2, "A"), ("AB", None, None, None), ("AB", 4, 4.5, "B"),
    ]  # fmt: skip
    assert tree.failures == {"judgment:no_scores": 1}
    ids = [j.id for _, _, j in tree.judgments()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["criteria"], None, "expected the list criteria"),
        (["criteria"], [], "criteria is empty"),
        (["criteria", 2], 7, r"criteria\[2\]: expected an object with the text criterion, found None"),
        (["criteria", 0, "guidelines"], "one", r"criteria\[0\]: expected the list guidelines, found str"),
        ([*SECOND, "guideline"], " ", r"criteria\[1\]\.guidelines\[0\]: expected .* the text guideline"),
        ([*SECOND, "judgments", 0, "text"], 3, r"judgments\[0\]: expected .* the text text, found 3"),
        (["criteria", 0, "guidelines", 0, "judgments", 1, "order"], "ba", "order='ba': expected AB or BA"),
        (["criteria", 0, "guidelines", 0, "judgments", 1], "A", r"guidelines\[0\]\.judgments\[1\]: expected an object"),
        (["response_b"], None, "no column for response_b: looked for response_b"),
        (["criteria_text"], "1. x", "not an evaluation tree as stage teacher writes them"),
    ],
)
def test_a_malformed_row_is_named_with_file_line_and_place(
    place: list[Any], value: Any, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "e.jsonl", PLAIN | {"id": "1"}, changed(place, value))
    with pytest.raises(DataError, match=rf"e\.jsonl:2: .*{message}"):
        list(read_evaluations(path))


def test_the_documented_row_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "dialogues.md").read_text(encoding="utf-8")
    block = next(b for b in page.split("```json\n") if "2 + 2" in b).split("```")[0]
    (tree,) = read_evaluations(write(tmp_path / "e.jsonl", json.loads(block)))
    assert [j.verdict for _, _, j in tree.judgments()] == ["A", "A"]
    assert not tree.failures


def test_a_comparison_stands_once_and_files_must_be_there(tmp_path: Path) -> None:
    path = write(tmp_path / "e.jsonl", PLAIN | {"id": "1"}, PLAIN | {"id": "1"})
    with pytest.raises(DataError, match=r"e\.jsonl:2: the comparison 'evaluations:1' stands twice"):
        list(read_evaluations(path))
    config = Config(output_dir=str(tmp_path / "outputs"), teacher=TeacherConfig(evaluations=str(tmp_path / "none")))
    with pytest.raises(ConfigError, match=r"teacher\.evaluations.*no such file"):
        list(read_evaluations(config.teacher.evaluations))


def test_what_a_teacher_wrote_teaches_the_same_when_it_is_read_back(tmp_path: Path) -> None:
    first = run_teacher(tmp_path / "first" / "teacher", teacher_config())
    config = teacher_config()
    config.teacher = TeacherConfig(
        engine=engines.OpenAIEngineConfig(), evaluations=str(first.directory / "evaluations-*.jsonl")
    )
    again = run_teacher(tmp_path / "again" / "teacher", config)
    for name in ("evaluations", "examples"):
        assert list(read_rows(again.directory, name)) == list(read_rows(first.directory, name))
    remaining = [{r["id"] for r in read_rows(out.directory, "remaining")} for out in (first, again)]
    assert remaining[0] == remaining[1]
    assert len(remaining[1]) == len(TAUGHT) - 14
    assert again.totals()["tokens"] == {"prompt": 0, "generated": 0}, "nobody was asked"


def taught(directory: Path, *rows: Any, **dialogues: Any) -> StageRun:
    """Run the stage over the first two comparisons, with these evaluations already written, and return it."""
    config = Config(
        prompts="compact",
        output_dir=str(directory / "outputs"),
        teacher=TeacherConfig(engine=engines.OpenAIEngineConfig(), evaluations=write(directory / "e.jsonl", *rows)),
        dialogues=DialoguesConfig(**dialogues),
        tree=TreeConfig(criteria=3),
    )
    return run(config, directory / "teacher", [comparison(0), comparison(1)])


def test_the_stage_teaches_what_plain_files_hold_and_leaves_the_rest(tmp_path: Path) -> None:
    annotated = comparison(0)
    row = PLAIN | {
        "query": annotated.dialogue.query,
        "response_a": annotated.response_a,
        "response_b": annotated.response_b,
    }
    out = taught(tmp_path, row)
    assert [r["id"] for r in read_rows(out.directory, "remaining")] == [comparison(1).id]
    assert out.totals()["counts"] == {"in": 1, "out": 1, "dropped": {"judgment:no_scores": 1}}
    examples = list(read_rows(out.directory, "examples"))
    assert Counter(e["level"] for e in examples) == {"criteria": 1, "guideline": 3, "judgment": 3}
    judgments = {e["nodes"][0]: e for e in examples if e["level"] == "judgment"}
    (tree,) = (EvaluationTree.from_row(r) for r in read_rows(out.directory, "evaluations"))
    swapped = next(j for _, _, j in tree.judgments() if j.order == "BA")
    shown = f"Response A: {annotated.response_b}\nResponse B: {annotated.response_a}"
    assert shown in judgments[swapped.id]["prompt"][-1]["content"]


def test_written_evaluations_of_a_benchmarks_queries_teach_nothing(tmp_path: Path) -> None:
    benchmark = {"query": PLAIN["query"], "response_a": "x", "response_b": "y", "label": "A"}
    source = SourceConfig(name="b", path=write(tmp_path / "b.jsonl", benchmark), format="comparison")
    held = {"decontaminate": [BenchmarkConfig("b", source)]}
    out = taught(tmp_path, PLAIN, PLAIN | {"query": "What is the capital of France?", "id": "2"}, **held)
    (tree,) = (EvaluationTree.from_row(r) for r in read_rows(out.directory, "evaluations"))
    assert tree.comparison.dialogue.query == "What is the capital of France?"
    assert out.totals()["counts"]["dropped"]["contaminated"] == 1
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="all 1 hold a benchmark's"):
        taught(tmp_path / "none", PLAIN, **held)


COMPARISONS = eval_comparisons(WorldConfig(eval_comparisons=10), seed=5)


def reply(text: str) -> str:
    if text.startswith("List "):
        return criteria(4)
    return "Full marks for all of it." if text.startswith("Write ") else judged(4, 2)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    monkeypatch.setenv("TEST_KEY", KEY)
    with serving() as server:
        server.reply = reply
        yield server


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses and limits are those that are shipped; only their time passes faster."""
    monkeypatch.setattr(openai_engine, "Clock", lambda: Clock(500.0))


def configured(server: FaultyServer, tmp_path: Path, taught: int = 4, **options: Any) -> Config:
    engine = engines.OpenAIEngineConfig(
        model="strong-model", base_url=f"http://127.0.0.1:{server.server_port}/v1",
        api_key_env="TEST_KEY", concurrency=options.pop("concurrency", 4),
    )  # fmt: skip
    sampling = engines.SamplingConfig(max_new_tokens=40)
    teacher = TeacherConfig(engine=engine, comparisons=taught, criteria=4, branches=2, sampling=sampling, **options)
    tree = TreeConfig(criteria=4, shard_size=3)
    return Config(prompts="compact", teacher=teacher, tree=tree, output_dir=str(tmp_path / "outputs"))


def run(config: Config, directory: Path, comparisons: list[Any] = COMPARISONS) -> StageRun:
    responses = StageRun(directory.parent / "responses", "responses", 0, Console())
    responses.write_rows("comparisons", (c.to_row() for c in comparisons))
    out = StageRun(directory, "teacher", config.seed, Console(), RunOptions(home=Path(config.output_dir)))
    teacher_stage.run(TeacherSettings.of(config), {"responses": responses.directory}, out)
    return out


CALLS = 4 * (1 + 2 + 2 * 2)


def test_the_dry_run_expects_the_calls_that_are_made(server: FaultyServer, tmp_path: Path) -> None:
    config = configured(server, tmp_path)
    seed = StageRun(tmp_path / "x", "teacher", config.seed, Console()).seed
    taught, remaining = teacher_stage.divided(COMPARISONS, config.teacher, seed)
    assert len(taught) == 4
    costs = estimate(TeacherSettings.of(config), taught)
    run(config, tmp_path / "teacher")
    starts = Counter(body["messages"][-1]["content"].split()[0] for body in server.billed)
    calls = {"criteria": starts["List"], "guideline": starts["Write"], "judgment": starts["Score"]}
    assert {step: cost["calls"] for step, cost in costs.items()} == calls
    assert sum(calls.values()) == CALLS
    assert [r["id"] for r in read_rows(tmp_path / "teacher", "remaining")] == [c.id for c in remaining]
    characters = sum(len(m["content"]) for b in server.billed for m in b["messages"])
    prompt = sum(cost["prompt"] for cost in costs.values())
    assert prompt == pytest.approx(characters / 4, rel=0.35)
    assert all(
        cost["generated"] == 20 * cost["calls"] and cost["at_most"] == 40 * cost["calls"] for cost in costs.values()
    )
    config.teacher.max_requests = 10
    config.teacher.max_tokens = 10**6
    *_, total, warning = described(costs, config.teacher, "teacher")
    assert f"{CALLS} calls" in total
    assert re.search(r"teacher\.max_requests=10 does not suffice", warning)


def test_comparisons_that_the_judge_could_not_read_are_not_paid_for(
    server: FaultyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = Path(templated(tmp_path / "base", (engines.WORLD_BASE / "chat_template.jinja").read_text()))
    model_config = json.loads((base / "config.json").read_text())
    config = configured(server, tmp_path, taught=10)
    config.train.base.path = str(base)
    tokenizer = load_tokenizer(config.train.base)
    config.tree.judgment_sampling.max_new_tokens = 50
    prompts = load_prompt_set("compact")
    slots = [judgment_slots(c, "AB", "", "") for c in COMPARISONS]
    prompt_tokens = [
        tokenizer.apply_chat_template(list(prompts.render("judgment", s)), add_generation_prompt=True) for s in slots
    ]
    needed = sorted(len(ids["input_ids"]) + 50 for ids in prompt_tokens)

    def reading(tokens: int) -> Config:
        (base / "config.json").write_text(json.dumps(model_config | {"max_position_embeddings": tokens}))
        return config

    with pytest.raises(DataError, match=r"the teacher was not asked: 10 of 10 .*/base \(.*max_query_chars"):
        run(reading(needed[0] - 1), tmp_path / "none")
    assert not server.bodies
    run(reading(needed[7]), tmp_path / "some")
    long = sum(count > needed[7] for count in needed)
    assert f"teacher: {long} of 10 comparisons are too long" in capsys.readouterr().out and server.bodies


BASE = str(Path(world.__file__).parent / "base")
SECRET = "sk-of-this-test"


@pytest.fixture(scope="module")
def serving_base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from transformers.utils.import_utils import is_serve_available

    if not is_serve_available():
        pytest.skip("transformers serve is not installed: pip install 'judgetrain[serving]'")
    port = str(free_port())
    start = "from transformers.cli.transformers import main; main()"
    command = [sys.executable, "-c", start, "serve", BASE, "--host", "127.0.0.1", "--port", port, "--device", "cpu"]
    log = tmp_path_factory.mktemp("server") / "log"
    with served(command, log, f"http://127.0.0.1:{port}", HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1") as running:
        yield running


def test_the_teachers_stage_completes_and_needs_the_server_once(
    serving_base: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVED_KEY", SECRET)
    served_engine = engines.OpenAIEngineConfig(
        model=BASE, base_url=f"{serving_base.url}/v1", api_key_env="SERVED_KEY", concurrency=2
    )
    greedy = engines.SamplingConfig(0.0, 1.0, max_new_tokens=120)
    # Ten criteria are what the base has read, and so writes itself.
    teacher = TeacherConfig(engine=served_engine, comparisons=2, criteria=10, branches=2, sampling=greedy)
    config = Config(prompts="compact", teacher=teacher, tree=TreeConfig(criteria=10))
    config.output_dir = str(tmp_path / "outputs")
    out = run(config, tmp_path / "teacher")
    trees = trees_of(out)
    calls = sum(1 + len([*t.guidelines()]) + len([*t.judgments()]) for t in trees)
    assert [len(parse_criteria(t.criteria_text, 10)) for t in trees] == [10, 10], "the world's base writes such lists"
    assert calls == 2 * (1 + 2 + 2 * 2)
    assert serving_base.log.count('"POST /v1/chat/completions HTTP/1.1" 200') >= calls
    totals = out.totals()["tokens"]
    refused = serving_base.log.count('"POST /v1/chat/completions HTTP/1.1" 422')  # a parameter it does not know
    assert out.notes["spent"] == {
        "requests": calls + refused, "prompt_tokens": totals["prompt"], "generated_tokens": totals["generated"],
    }  # fmt: skip
    assert refused <= 2, "the two that are under way at once"
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]
    serving_base.process.kill()
    serving_base.process.wait()
    again = run(config, tmp_path / "again")
    assert again.notes["spent"]["requests"] == 0
    assert trees == trees_of(again)
    teacher.engine = engines.TransformersEngineConfig(model=engines.ModelConfig(BASE, dtype="float32"))
    local = trees_of(run(config, tmp_path / "local"))
    assert [written(t) for t in local] == [written(t) for t in trees], "the same weights on this machine, greedily"
    config.seed += 1
    teacher.engine = served_engine
    with pytest.raises(EngineError, match="check that it runs"):
        run(config, tmp_path / "other")


def trees_of(out: StageRun) -> list[EvaluationTree]:
    return [EvaluationTree.from_row(row) for row in read_rows(out.directory, "evaluations")]


def written(tree: EvaluationTree) -> list[str]:
    """Return all that the teacher wrote for a comparison."""
    texts = [g.text for _, g in tree.guidelines()] + [j.text for _, _, j in tree.judgments()]
    return [text.strip() for text in (tree.criteria_text, *texts)]


KINDS = """
criteria:
  - {name: time, text: plans the time}
kinds:
  - name: cooking
    queries: ["cook tomato soup", "recipe apple cake", "bake corn pie"]
    criteria:
      - {name: steps, text: goes step by step, weight: 2}
      - {name: numbers, text: states the amounts, guideline: 5 if exact}
"""


def test_a_file_of_criteria_is_what_the_teacher_writes_by_and_trees_grow_by(tmp_path: Path) -> None:
    """By kind of query; a list that was given teaches no list, and a guideline that was given no guideline."""
    file = tmp_path / "rubric.yaml"
    file.write_text(KINDS, encoding="utf-8")
    config = teacher_config()
    config.criteria = str(file)
    out = run_teacher(tmp_path / "teacher", config)
    trees = [EvaluationTree.from_row(row) for row in read_rows(out.directory, "evaluations")]
    remaining = [Comparison.from_row(row) for row in read_rows(out.directory, "remaining")]
    rubric = read_rubric(file)
    written = set()
    for one in [*(tree.comparison for tree in trees), *remaining]:
        assert one.rubric is not None
        assert one.rubric.criteria == rubric.for_query(one.dialogue.query).criteria
        written.add(tuple(criterion.name for criterion in one.rubric.criteria))
        if load_language().kind_of(one.dialogue.query) == "recipe":
            assert [criterion.name for criterion in one.rubric.criteria] == ["steps", "numbers"]
    assert written == {("steps", "numbers"), ("time",)}
    for tree in trees:
        assert tree.comparison.rubric is not None
        assert [node.given for node in tree.criteria] == list(tree.comparison.rubric.criteria)
        assert all(judgment.failure is None for node in tree.criteria for judgment in node.judgments)
    examples = list(read_rows(out.directory, "examples"))
    assert {example["level"] for example in examples} == {"guideline", "judgment"}
    taught_guidelines = [e["completion"][0]["content"] for e in examples if e["level"] == "guideline"]
    assert "5 if exact" not in taught_guidelines


def test_a_file_of_criteria_that_cannot_be_read_stops_the_run_before_it_begins(tmp_path: Path) -> None:
    config = teacher_config()
    config.criteria = str(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="no such file of criteria"):
        check_teacher(TeacherSettings.of(config))


def test_without_a_file_of_criteria_the_teachers_fingerprint_has_no_such_key() -> None:
    settings = TeacherSettings.of(teacher_config())
    assert "criteria_file" not in plain(settings)
    config = teacher_config()
    config.criteria = "rubric.yaml"
    assert plain(TeacherSettings.of(config))["criteria_file"]


def given_config(directory: Path, weight: float, **engine: Any) -> Config:
    """Return a configuration whose teacher writes known labels, with two criteria of a file."""
    path = directory / "criteria.json"
    rows = [
        {"name": "Helpfulness", "text": "Serves what was asked for"},
        {"name": "Other", "text": "o", "weight": weight},
    ]
    path.write_text(json.dumps(rows))
    config = teacher_config()
    teacher = replace(config.teacher, engine=GivenEngineConfig(name="given", **engine), criteria=2, branches=2)
    return replace(config, teacher=teacher, criteria=str(path))


def test_known_labels_are_written_under_general_criteria_of_a_file(tmp_path: Path) -> None:
    out = run_teacher(tmp_path / "by", given_config(tmp_path, 1.0, by_criteria=True))
    for row in read_rows(out.directory, "evaluations"):
        tree = EvaluationTree.from_row(row)
        assert [node.criterion.name for node in tree.criteria] == ["Helpfulness", "Other"]
        assert {judgment.verdict for _, _, judgment in tree.judgments()} == {tree.comparison.label}
    out = run_teacher(tmp_path / "aspects", given_config(tmp_path, 1.0))
    named = {
        c.criterion.name
        for row in read_rows(out.directory, "evaluations")
        for c in EvaluationTree.from_row(row).criteria
    }
    assert "Other" not in named


def test_a_label_is_not_written_under_a_criterion_that_says_what_must_not_be(tmp_path: Path) -> None:
    settings = TeacherSettings.of(given_config(tmp_path, -1.0, by_criteria=True))
    with pytest.raises(ConfigError, match="by_criteria=true: the criterion 'Other' says what must not be"):
        check_teacher(settings)
    settings = TeacherSettings.of(replace(given_config(tmp_path, 1.0, by_criteria=True), criteria=None))
    with pytest.raises(ConfigError, match="by_criteria=true: there are no criteria; name their file"):
        check_teacher(settings)
