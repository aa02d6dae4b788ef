"""Labels by an external judge: both ways of asking, abstentions, disagreement, resume, and servers that fail."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tests.builders.client_pauses  # noqa: F401
from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import RunOptions, StageRun
from judgetrain.data.config import WorldEngineConfig
from judgetrain.engines.base import Request
from judgetrain.engines.config import OpenAIEngineConfig, SamplingConfig
from judgetrain.errors import ConfigError
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label import external
from judgetrain.label import stage as label_stage
from judgetrain.label.config import ExternalConfig, LabelConfig
from judgetrain.label.examples import near_identical
from judgetrain.label.external import cases_of, conflicting, estimate_external, external_labels
from judgetrain.label.external import estimated as dry_run
from judgetrain.label.labels import Label, ensemble_label
from judgetrain.label.stages import LabelSettings
from judgetrain.pipeline.config import Config
from tests.builders.judges import noisy_trees
from tests.builders.pipeline import check_stage
from tests.builders.scripted import ScriptedEngine, number

TREES = noisy_trees("AB" * 20)


def stage(tmp_path: Path, name: str = "label", trees: list[EvaluationTree] = TREES) -> tuple[Path, StageRun]:
    directory = tmp_path / "tree"
    StageRun(directory, "tree", 0, Console()).write_rows("trees", (t.to_row() for t in trees))
    return directory, StageRun(tmp_path / name, "label", 0, Console(), RunOptions(home=tmp_path))


def settings(prompts: str = "pairwise", **changes: object) -> LabelConfig:
    greedy = SamplingConfig(0.0, 1.0, 512)
    external_config = ExternalConfig(**{"prompts": prompts, "sampling": greedy} | changes)  # type: ignore[arg-type]
    return LabelConfig(source="external", external=external_config)


def label_all(config: LabelConfig, trees: Path, out: StageRun) -> dict[str, Label | None]:
    return {name: answer.label for name, answer in external_labels(config, trees, Config.seed, out).items()}


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external, "SHARD", 6)


def engine_of(monkeypatch: pytest.MonkeyPatch, answer) -> ScriptedEngine:  # type: ignore[no-untyped-def]
    engine = ScriptedEngine(answer)
    monkeypatch.setattr(external, "make_engine", lambda config, **options: engine)
    return engine


def says(request: Request, occurrence: int) -> str:
    """Verdicts that depend on what is shown; about a third lean to the first response, some cannot be read."""
    a = request.slots["response_a"]
    b = request.slots["response_b"]
    draw = number(*sorted((a, b)))
    if number(a, b) % 9 == 0:
        return "Both have merits."
    if draw % 3 == 0:
        return "[[A]]"
    return "[[C]]" if draw % 5 == 0 else f"[[{'A' if (draw % 2 == 0) == (a < b) else 'B'}]]"


def expected_verdict(a: str, b: str) -> str | None:
    """Return what the scripted judge says of two responses as shown, worked out again."""
    text = says(Request(messages=(), sampling=None, step="pairwise", slots={"response_a": a, "response_b": b}), 0)  # type: ignore[arg-type]
    return {"[[A]]": "A", "[[B]]": "B", "[[C]]": "tie"}.get(text)


def mirrored(verdict: str | None) -> str | None:
    return {"A": "B", "B": "A"}.get(verdict or "", verdict)


def test_a_label_is_what_both_orders_say_and_is_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine_of(monkeypatch, says)
    trees, out = stage(tmp_path)
    every = replace(settings(), min_evidence=0.5, balance=[])
    config = Config(prompts="compact", tree=TreeConfig(criteria=4), label=every)
    label_stage.run(LabelSettings.of(config), {"tree": trees}, out)
    labels = {row["comparison_id"]: row for row in read_rows(out.directory, "labels")}
    orders = compared = disagree = 0
    for tree in TREES:
        item = tree.comparison
        row = labels[tree.comparison.id]
        first = expected_verdict(item.response_a, item.response_b)
        second = mirrored(expected_verdict(item.response_b, item.response_a))
        reason = "external_orders_disagree" if first and second else "external_unreadable"
        expected = (first, None) if first and first == second else (None, reason)
        assert (row["verdict"], row["reason"], row["source"]) == (*expected, "external")
        ensemble = ensemble_label(tree, LabelConfig()).verdict
        assert row["ensemble_verdict"] == ensemble
        orders += bool(first and second)
        compared += bool(row["verdict"] and ensemble)
        disagree += bool(row["verdict"] and ensemble and row["verdict"] != ensemble)
    table = out.notes["external"]
    assert table == json.loads((out.directory / "external.json").read_text())
    assert table["orders"]["compared"] == orders
    assert table["orders"]["disagree"] == table["labels"]["external_orders_disagree"] > 0
    assert table["ensemble"] == {"compared": compared, "disagree": disagree, "rate": round(disagree / compared, 6)}
    assert table["failures"] == {"no_verdict": out.totals()["counts"]["dropped"]["external:no_verdict"]}
    pairs = [r for name in ("train", "heldout") for r in read_rows(out.directory, f"pairs-{name}")]
    nodes = {j.id: j for t in TREES for _, _, j in t.judgments()}
    chosen = [p for p in pairs if p["level"] == "judgment"]
    assert chosen
    for pair in chosen:
        assert nodes[pair["nodes"]["chosen"][0]].verdict in (labels[pair["comparison_id"]]["verdict"], "tie")
        assert set(pair["reward"]) == {"external"}
    without = [i for i, row in labels.items() if row["verdict"] is None]
    assert without
    assert not {p["comparison_id"] for p in pairs} & {*without}
    totals = out.totals()["counts"]
    assert totals["in"] == len(TREES)
    assert totals["dropped"]["external_orders_disagree"] == table["labels"]["external_orders_disagree"]


def prefers(request: Request, occurrence: int) -> str:
    """Prefers the critique that scores the first response higher; sometimes the first one shown; sometimes neither."""
    x = request.slots["judgment_x"]
    y = request.slots["judgment_y"]
    draw = number(*sorted((x, y)))
    if draw % 5 == 0:
        return "[[X]]"
    return "!error" if number(x, y) % 7 == 0 else f"[[{'X' if (draw % 2 == 0) == (x < y) else 'Y'}]]"


def test_the_responses_stand_as_the_critiques_saw_them() -> None:
    for tree in TREES[:8]:
        for conflict in conflicting(tree):
            shown = tree.comparison.swapped() if "/BA" in conflict.nodes[0] else tree.comparison
            assert (conflict.slots["response_a"], conflict.slots["response_b"]) == (shown.response_a, shown.response_b)
    assert {node.rpartition("/")[2][:2] for c in conflicting(TREES[0]) for node in c.nodes} == {"AB", "BA"}


def test_preferences_label_each_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 9: of every two critiques shown, that preferred in both orders is chosen; the branches choose for SFT."""
    engine = engine_of(monkeypatch, prefers)
    trees, out = stage(tmp_path)
    label = replace(settings("preference"), balance=[])
    config = Config(prompts="compact", tree=TreeConfig(criteria=4), label=replace(label, levels=["judgment"]))
    label_stage.run(LabelSettings.of(config), {"tree": trees}, out)
    leaves = {j.id: (t.comparison, j) for t in TREES for _, _, j in t.judgments()}
    expected = set()
    for row in read_rows(out.directory, "external"):
        for (x, y), (first, second) in zip(row["pairs"], row["replies"], strict=True):
            answers = {first["shown"]: first["answer"], second["shown"]: second["answer"]}
            if answers["XY"] and answers["XY"] == answers["YX"]:
                chosen, rejected = (x, y) if answers["XY"] == "X" else (y, x)
                same = near_identical(leaves[x][1].text, leaves[y][1].text) == "near_identical"
                if leaves[chosen][1].finish_reason == "stop" and not same:
                    expected.add((chosen, rejected))
    pairs = [r for name in ("train", "heldout") for r in read_rows(out.directory, f"pairs-{name}")]
    pairs_made = {(r["nodes"]["chosen"][0], r["nodes"]["rejected"][0]) for r in pairs}
    assert pairs_made == expected and len(pairs_made) > 20
    assert {r.step for r in engine.requests} == {"preference"}
    verdicts = {tree.comparison.id: ensemble_label(tree, LabelConfig()).verdict for tree in TREES}
    labels = {row["comparison_id"]: row for row in read_rows(out.directory, "labels")}
    assert {name: row["verdict"] for name, row in labels.items()} == verdicts
    assert {row["source"] for row in labels.values()} == {"ensemble"}
    assert out.notes["external"]["orders"]["compared"] > 20 and out.notes["external"]["labels"] == {}
    shown = engine.requests[0].slots, engine.requests[1].slots
    assert shown[0]["judgment_x"] == shown[1]["judgment_y"] != shown[1]["judgment_x"]
    _, plain = stage(tmp_path, "plain", trees=TREES)
    ensemble = replace(label, source="ensemble", levels=["criteria"], max_pairs_per_level=1)
    label_stage.run(replace(LabelSettings.of(config), label=ensemble), {"tree": trees}, plain)
    first, second = (
        {path.name: path.read_bytes() for path in stage_run.directory.glob("sft-*")} for stage_run in (out, plain)
    )
    assert first == second, "stage sft is not made again for other pairs"
    against = [c for c, _ in pairs_made if leaves[c][1].verdict not in (verdicts[leaves[c][0].id], "tie")]
    assert against, "the external judge and the branches disagree on some"


@pytest.mark.parametrize("prompts", ["pairwise", "preference"])
def test_the_estimate_is_of_the_calls_that_are_made(
    prompts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees, out = stage(tmp_path)
    config = settings(prompts)
    engine = engine_of(monkeypatch, says if prompts == "pairwise" else prefers)
    cases = list(cases_of(config, trees, prompts, out.seed))  # type: ignore[arg-type]
    costs = estimate_external(config.external, cases)
    first, *_, last = dry_run(LabelSettings.of(Config(seed=0, label=config)), lambda: {"tree": trees})
    assert first == f"label: dry run for {config.external.engine.model_name}: {len(cases)} comparisons, expected"
    assert f"{costs[prompts]['calls']:,} calls" in last  # type: ignore[index]
    label_all(config, trees, out)
    assert {step: cost["calls"] for step, cost in costs.items()} == {prompts: len(engine.requests)}
    characters = sum(len(m["content"]) for r in engine.requests for m in r.messages)
    assert costs[prompts]["prompt"] == pytest.approx(characters / 4, rel=0.2)  # type: ignore[index]
    assert costs[prompts]["at_most"] == 512 * len(engine.requests)  # type: ignore[index]


@pytest.mark.parametrize(
    ("prompts", "engine", "message"),
    [
        ("compact", WorldEngineConfig(), r"step 'pairwise' needs a 'user' template"),
        ("preference", OpenAIEngineConfig(), r"label\.external\.engine\.model is empty"),
        ("preference", WorldEngineConfig(), ""),
    ],
)
def test_the_prompts_and_the_judge_are_checked_before_anything_runs(prompts: str, engine: Any, message: str) -> None:
    config = Config(label=settings(prompts, engine=engine))
    with pytest.raises(ConfigError, match=message) if message else nullcontext():
        check_stage("label", config)
    config.label.source = "ensemble"
    check_stage("label", config)
