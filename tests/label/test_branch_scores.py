"""Scores of branches under the judge that wrote them, on the shipped base in the Initial judge's place."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.world import engine as world_engine
from judgetrain.errors import ConfigError
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label import rewards as branch_scores
from judgetrain.label import stage as label_stage
from judgetrain.label.examples import Prompter
from judgetrain.label.rewards import branch_rewards, nodes_of, read_scores
from judgetrain.label.stages import LabelSettings
from judgetrain.pipeline.config import Config
from judgetrain.scorers.encode import Sample
from judgetrain.scorers.estimator import TokenStatistics
from judgetrain.scorers.statistics import TokenScorer
from tests.builders.label import ANY_EVIDENCE, tree_of
from tests.builders.pipeline import check_stage
from tests.builders.watched import contents, interrupted

BASE = Path(world_engine.__file__).parent / "base"
PROMPTER = Prompter(load_prompt_set("compact"), 2)
Prepared = tuple[Config, dict[str, Path], list[EvaluationTree]]


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    trees = [tree_of(("AAAA", "AABA"), ("BBB?", "AAtA"), index=i) for i in range(3)]
    trees = [replace(t, comparison=replace(t.comparison, label="A")) for t in trees]
    StageRun(tmp_path / "tree", "tree", 0, Console()).write_rows("trees", (t.to_row() for t in trees))
    shutil.copytree(BASE, tmp_path / "initial" / "model")
    config = Config(prompts="compact")
    config.tree.criteria = 2
    config.label.signals = ["probdiff", "sentprob_mean"]
    monkeypatch.setattr(branch_scores, "SHARD", 2)
    config.scorer.max_new_tokens = 6
    return config, {"tree": tmp_path / "tree", "initial": tmp_path / "initial"}, trees


def out(directory: Path) -> StageRun:
    return StageRun(directory, "label", 5, Console())


def test_percentiles_are_those_of_scores_read_off_one_by_one(prepared: Prepared, tmp_path: Path) -> None:
    config, inputs, trees = prepared
    rewards = branch_rewards(LabelSettings.of(config), inputs, PROMPTER, out(tmp_path / "label"))
    scorer = TokenScorer.from_pretrained(str(BASE))
    raw: dict[str, dict[str, float]] = {"judgment": {}, "guideline": {}}
    for tree in trees:
        for criterion, guideline, judgment in tree.judgments():
            texts = {("guideline", guideline.id): (PROMPTER.guideline(tree.comparison, criterion.text), guideline.text)}
            if judgment.verdict is not None:
                shown = PROMPTER.judgment(tree.comparison, criterion.text, guideline.text, judgment)
                texts["judgment", judgment.id] = shown, judgment.text
            for (level, node), (prompt, text) in texts.items():
                (found,) = scorer.statistics([Sample(tuple(prompt), text)])
                assert isinstance(found, TokenStatistics)
                raw[level][node] = found.mean_logprob
    scores = rewards.scores["sentprob_mean"]
    assert set(scores) == set(rewards.scores["probdiff"]) == {*raw["judgment"], *raw["guideline"]}
    for level, values in raw.items():
        ordered = sorted(values, key=lambda node: (round(values[node], 4), scores[node]))
        assert [scores[n] for n in ordered] == sorted(scores[n] for n in values), level
        assert fmean(scores[n] for n in values) == pytest.approx(0.5)
    rows = {row["node"]: row for row in read_scores(tmp_path / "label")}
    assert all(rows[n]["sentprob_mean"] == pytest.approx(v, abs=1e-4) for vs in raw.values() for n, v in vs.items())


def test_an_interrupted_run_goes_on_and_equal_texts_are_scored_once(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, inputs, trees = prepared
    label_stage.run(LabelSettings.of(config), inputs, out(tmp_path / "whole"))
    asked = interrupted(monkeypatch, branch_scores, "score", 2)
    with pytest.raises(KeyboardInterrupt):
        label_stage.run(LabelSettings.of(config), inputs, out(tmp_path / "killed" / "cut"))
    label_stage.run(LabelSettings.of(config), inputs, out(tmp_path / "killed" / "cut"))
    halves = [len({repr(n[2]) for t in ts for n in nodes_of(t, PROMPTER)}) for ts in (trees[:2], trees[2:])]
    one_cut_short = [halves[0], halves[1], halves[1]]
    assert [len(samples) for _, samples, *_ in asked] == [*one_cut_short, *halves]
    cut, whole = contents(tmp_path / "killed" / "cut"), contents(tmp_path / "whole")
    names = [name for name in whole if ".json" in name]
    assert "branch-scores-sentprob_mean-00001-of-00002.jsonl" in names
    for name in names:
        assert cut[name] == whole[name]


def test_pairs_keep_every_signal(prepared: Prepared, tmp_path: Path) -> None:
    config, inputs, _ = prepared
    config.label = replace(config.label, balance=[], **ANY_EVIDENCE)
    label_stage.run(LabelSettings.of(config), inputs, out(tmp_path / "label"))
    pairs = [r for name in ("pairs-train", "pairs-heldout") for r in read_rows(tmp_path / "label", name)]
    assert pairs
    assert all(set(p["reward"]) == {"ensemble", "branches", "probdiff", "sentprob_mean"} for p in pairs)
    assert all(p["margin"] >= 0 for p in pairs)


def test_a_text_without_a_score_is_counted_and_left_without(prepared: Prepared, tmp_path: Path) -> None:
    config, inputs, trees = prepared
    first = trees[0].criteria[0]
    empty = replace(first.guidelines[0], text="", judgments=())
    bare = replace(trees[0], criteria=(replace(first, guidelines=(empty,)),))
    StageRun(inputs["tree"], "tree", 0, Console()).write_rows("trees", [bare.to_row()])
    config.label.signals = ["sentprob_mean"]
    run = out(tmp_path / "label")
    rewards = branch_rewards(LabelSettings.of(config), inputs, PROMPTER, run)
    assert rewards.scores == {"sentprob_mean": {}}
    assert run.totals()["counts"]["dropped"] == {"reward:sentprob_mean:empty_response": 1}


def test_without_signals_no_model_is_loaded(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, inputs, _ = prepared
    config.label.signals = []
    monkeypatch.setattr(branch_scores, "load_scorer", lambda *given: pytest.fail("loaded"))
    label_stage.run(LabelSettings.of(config), {"tree": inputs["tree"]}, out(tmp_path / "label"))
    assert not list((tmp_path / "label").glob("*scores*"))


@pytest.mark.parametrize(
    ("signals", "prompt", "message"),
    [
        (["glassbox"], "full", "label.signals: 'glassbox' is no scorer"),
        (["decensem_exp"], "full", "label.signals: decensem_exp scores a model on a prompt"),
        (["probdiff"], "nosuch", "scorer.revision_prompt"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_the_stage(signals: list[str], prompt: str, message: str) -> None:
    config = Config(prompts="compact")
    config.label.signals, config.scorer.revision_prompt = signals, prompt
    with pytest.raises(ConfigError, match=message):
        check_stage("label", config)
