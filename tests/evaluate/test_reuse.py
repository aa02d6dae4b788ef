"""Trees of earlier evaluations: taken over where nothing that they depend on has changed, and only there."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from judgetrain.engines import lazy_model
from judgetrain.engines.base import Completion, Request
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.judges.prompting.prompts import prompt_file
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.pipeline.config import Config
from judgetrain.scorers.config import ScorerConfig
from tests.builders.evaluate import UNATTACKED, judge, pairs, run
from tests.builders.scripted import ScriptedEngine, noisy

World = tuple[Config, dict[str, Path]]


class Counting(ScriptedEngine):
    asked = 0

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        Counting.asked += len(requests)
        return super().generate(requests, seed)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(lazy_model, "make_engine", lambda *a, **k: Counting(noisy))
    Counting.asked = 0
    evaluate = EvaluateConfig([replace(pairs(tmp_path, 20, "AB"), name="b")], ["sft"], [1, 3], bootstrap=20)
    inputs = {name: judge(tmp_path / name / mark) for name, mark in (("sft", "one"), ("dpo", "two"))}
    config = Config(
        evaluate=evaluate, robustness=UNATTACKED, tree=TreeConfig(criteria=4, shard_size=3), output_dir=str(tmp_path)
    )
    return config, inputs


def evaluated(config: Config, inputs: dict[str, Path], name: str) -> tuple[int, Path]:
    """Return how many requests an evaluation sent, and its directory."""
    before = Counting.asked
    out = run("evaluate", config, inputs, Path(config.output_dir) / "evaluate" / name, config.seed)
    return Counting.asked - before, out.directory


def test_other_metrics_and_more_methods_need_no_new_inference(world: World) -> None:
    config, inputs = world
    first, directory = evaluated(config, inputs, "a")
    assert first > 0
    more = replace(config.evaluate, methods=["dpo", "sft", "first"], branches=[1, 2, 3], bootstrap=50, dev_share=0.3)
    second, other = evaluated(replace(config, evaluate=more), inputs, "b")
    assert second == first, "only the new judge is asked"
    for name in ("trees-b-sft-00000-of-00004.jsonl", "trees-b-sft-00003-of-00004.jsonl"):
        assert (directory / name).read_bytes() == (other / name).read_bytes()
    _, whole = evaluated(replace(config, evaluate=replace(more, dev_share=0.0)), inputs, "c")
    rows = [
        {r["branches"]: r for r in json.loads((d / "metrics.json").read_text()) if r["method"] == "sft"}
        for d in (directory, whole)
    ]
    for k in (1, 3):
        for metric in ("agreement", "consistency", "parse_failures", "generated_tokens", "seconds"):
            assert rows[0][k][metric] == rows[1][k][metric]


def test_shards_that_lie_there_under_another_key_are_of_other_trees(world: World) -> None:
    config, inputs = world
    whole, directory = evaluated(config, inputs, "a")
    for change in (lambda key: key.write_text("another"), lambda key: key.unlink()):
        change(directory / ".trees-b-sft.key")
        again, _ = evaluated(config, inputs, "a")
        assert again == whole


CHANGES: dict[str, Callable[[Config], Config]] = {
    "seed": lambda c: replace(c, seed=5),
    "judge": lambda c: replace(c, judge=replace(c.judge, rubric="first")),
    "tree": lambda c: replace(c, tree=replace(c.tree, criteria=5)),
    "engine": lambda c: replace(c, engine=replace(c.engine, model=replace(c.engine.model, dtype="bfloat16"))),
    "branches": lambda c: replace(c, evaluate=replace(c.evaluate, branches=[1, 2])),
    "early stop": lambda c: replace(c, judge=replace(c.judge, early_stop=True)),
    "comparisons": lambda c: replace(
        c, evaluate=replace(c.evaluate, benchmarks=[replace(c.evaluate.benchmarks[0], limit=19)])
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_trees_depend_on_is_sampled_again(what: str, world: World) -> None:
    config, inputs = world
    evaluated(config, inputs, "a")
    assert evaluated(CHANGES[what](config), inputs, "b")[0] > 0


def test_another_judge_of_the_same_name_is_sampled_again(world: World) -> None:
    config, inputs = world
    first, _ = evaluated(config, inputs, "a")
    again, _ = evaluated(config, inputs | {"sft": inputs["dpo"]}, "b")
    assert again == first
    judge = inputs["sft"] / "model"
    named = replace(config, evaluate=replace(config.evaluate, methods=[str(judge)]))
    assert evaluated(named, {}, "c")[0] > 0
    assert evaluated(replace(named, evaluate=replace(named.evaluate, bootstrap=30)), {}, "d")[0] == 0
    (judge / "weights").write_text("others")
    assert evaluated(replace(named, evaluate=replace(named.evaluate, bootstrap=40)), {}, "e")[0] > 0


def test_replies_and_scores_are_taken_over_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(request: Request, occurrence: int) -> str:
        return {"pairwise": "[[A]]", "pointwise": "[[3]]"}.get(request.step) or noisy(request, occurrence)

    monkeypatch.setattr(lazy_model, "make_engine", lambda *a, **k: Counting(reply))
    config, inputs = world
    more_methods = replace(config.evaluate, methods=["base", "pairwise:base", "pointwise:sft", "scorer:sentprob"])
    monkeypatch.setattr(ScorerConfig, "shard_size", 8)
    config = replace(config, evaluate=more_methods)
    config.train.base = replace(config.train.base, path="world")
    first, directory = evaluated(config, inputs, "a")
    assert first > 2 * 20 * 2
    kept = sorted(path.name for path in directory.glob("*-of-*.jsonl"))
    assert {name.split("-")[0] for name in kept} == {"trees", "replies", "scores"}
    changed = replace(config, evaluate=replace(more_methods, bootstrap=50))
    second, other = evaluated(changed, inputs, "b")
    assert second == 0
    assert all((directory / name).samefile(other / name) for name in kept)
    rows = [
        {r["method"]: r["seconds"] for r in json.loads((d / "metrics.json").read_text()) if r["branches"] != 1}
        for d in (directory, other)
    ]
    assert rows[0] == rows[1]
    prompts = Path(config.output_dir) / "asked.yaml"
    prompts.write_text(prompt_file("pairwise").read_text() + "\n# changed\n")
    reworded = replace(
        more_methods, methods=["pairwise:base"], pairwise=replace(more_methods.pairwise, prompts=str(prompts))
    )
    assert evaluated(replace(config, evaluate=reworded), inputs, "c")[0] == 40
