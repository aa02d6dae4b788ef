"""Auxiliary rewards on hand-made trees: percentiles, weights, ties, margins, what is taken and what is left out."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.judges.trees.prune import prune
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.config import LabelConfig, RewardConfig
from judgetrain.label.labels import ensemble_label
from judgetrain.label.pairs import PairBuilder
from judgetrain.label.reward_report import Evidence, rightness, summary
from judgetrain.label.rewards import Rewards, percentiles, vote_shares
from judgetrain.label.training_data import TrainingData
from tests.builders.label import ANY_EVIDENCE, PROMPTER, tree_of

ON = RewardConfig(signals=["glassbox"], break_ties=True, choose="best")


def scored(tree: EvaluationTree, config: RewardConfig = ON, **raised: float) -> Rewards:
    """Rewards in which every node has 0.5 but those named, as in ``c0_g0_1=0.9``."""
    scores = {j.id: 0.5 for _, _, j in tree.judgments()} | {g.id: 0.5 for c in tree.criteria for g in c.guidelines}
    named = {f"d0/{name.replace('_', '/')}": value for name, value in raised.items()}
    assert set(named) <= set(scores)
    return Rewards(config, {"glassbox": scores | named})


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=3), st.floats(-5, 5), max_size=12))
def test_percentiles_count_what_is_below(scores: dict[str, float]) -> None:
    found = percentiles(scores)
    for node, value in scores.items():
        below = sum(v < value for v in scores.values()) + 0.5 * sum(v == value for v in scores.values())
        assert found[node] == pytest.approx(below / len(scores))


def test_the_combined_reward_is_the_weighted_mean_of_what_is_known() -> None:
    config = RewardConfig(ensemble_weight=2.0, probdiff_weight=1.0, glassbox_weight=0.0)
    rewards = Rewards(config, {"probdiff": {}, "glassbox": {}})
    assert rewards.combined({"ensemble": 0.9, "probdiff": 0.3, "glassbox": 0.0}) == pytest.approx((1.8 + 0.3) / 3)
    assert rewards.combined({"ensemble": 0.9, "probdiff": None, "glassbox": 0.0}) == 0.9
    assert rewards.combined({"ensemble": None, "probdiff": None, "glassbox": 0.7}) is None, "weight 0: only reported"


def test_a_tied_vote_goes_to_the_side_with_the_better_scores_only_where_asked() -> None:
    tree = tree_of(("AABB",), ("tttt",))
    label = ensemble_label(tree, LabelConfig())
    assert (label.verdict, label.votes["A"], label.votes["B"]) == ("tie", 2, 2)
    for_b = scored(tree, c0_g0_2=0.9)
    broken = for_b.break_tie(tree, label, LabelConfig())
    assert (broken.verdict, broken.source, broken.share) == ("B", "reward", 0.5)
    assert scored(tree, c0_g0_0=0.9).break_tie(tree, label, LabelConfig()).verdict == "A"
    assert scored(tree).break_tie(tree, label, LabelConfig()) is label, "equal scores decide nothing"
    assert Rewards(ON).break_tie(tree, label, LabelConfig()) is label, "no scores"
    assert for_b.break_tie(tree, label, LabelConfig(min_vote_share=0.6)) is label
    off = replace(ON, break_ties=False)
    assert scored(tree, off, c0_g0_2=0.9).break_tie(tree, label, LabelConfig()) is label
    silent = replace(ON, glassbox_weight=0.0)
    assert scored(tree, silent, c0_g0_2=0.9).break_tie(tree, label, LabelConfig()) is label
    no_side = tree_of(("tttt",))
    assert scored(no_side, c0_g0_2=0.9).break_tie(no_side, ensemble_label(no_side, LabelConfig()), LabelConfig())
    assert ensemble_label(no_side, LabelConfig()).verdict == "tie"


def test_broken_ties_are_counted_and_every_tree_once() -> None:
    tree = tree_of(("AABB",), ("ABAB",))
    config = LabelConfig(reward=ON)
    data = TrainingData(PROMPTER, config, scored(tree, c0_g0_0=0.9))
    data.add(tree)
    assert data.table()["ties"] == {"broken": 1}
    assert data.table()["trees"] == {"label_A": 1}
    assert data.labels[0]["ensemble_verdict"] == "tie"
    assert "ties" not in TrainingData(PROMPTER).table()


def pairs_of(tree: EvaluationTree, config: LabelConfig, rewards: Rewards, skipped: Counter[str]) -> list:  # type: ignore[type-arg]
    builder = PairBuilder(PROMPTER, replace(config, **ANY_EVIDENCE), rewards, skipped)
    return builder.pairs(tree, ensemble_label(tree, config), random.Random(0))


def test_a_pair_keeps_every_part_and_its_margin_is_their_weighted_mean() -> None:
    tree = tree_of(("AAAB", "ABAB"), ("BBBB", "ABBB"), ("AAAA", "AAAA"))
    config = LabelConfig(reward=replace(ON, glassbox_weight=3.0))
    rewards = scored(tree, config.reward, c0_g0_2=0.9, c0_g0_3=0.1, c0_g0=0.8, c0_g1=0.6)
    plain = {(p.chosen_nodes, p.rejected_nodes): p for p in pairs_of(tree, LabelConfig(), Rewards(), Counter())}
    found = pairs_of(tree, config, rewards, Counter())
    assert {p.level for p in found} == {"judgment", "guideline", "criteria"}
    scores = rewards.scores["glassbox"]
    criteria = {c.id: [scores[j.id] for g in c.guidelines for j in g.judgments] for c in tree.criteria}
    for pair in found:
        sides = []
        for node in (pair.chosen_nodes[0], pair.rejected_nodes[0]):
            sides.append(sum(criteria[node]) / len(criteria[node]) if node in criteria else scores[node])
        share = ensemble_label(tree, config).share
        branches = pair.reward["branches"]
        assert pair.reward == {"ensemble": share, "branches": branches, "glassbox": pytest.approx(sides[0] - sides[1])}
        assert pair.margin == pytest.approx((branches + 3 * (sides[0] - sides[1])) / 4)
        assert pair.margin >= 0
        if (pair.chosen_nodes, pair.rejected_nodes) in plain:
            assert branches == plain[pair.chosen_nodes, pair.rejected_nodes].margin


def test_pairs_that_the_scores_speak_against_are_left_out_and_counted() -> None:
    tree = tree_of(("AAAB",))
    config = LabelConfig(reward=replace(ON, glassbox_weight=3.0))
    skipped: Counter[str] = Counter()
    assert pairs_of(tree, config, scored(tree, config.reward, c0_g0_3=1.0), skipped) == []
    assert skipped["judgment:low_margin"] == 1
    (kept,) = pairs_of(tree, config, scored(tree, config.reward, c0_g0_3=0.7), skipped)
    assert kept.margin == pytest.approx((1 - 3 * 0.2) / 4)
    strict = replace(config, reward=replace(config.reward, min_margin=0.2))
    assert pairs_of(tree, strict, scored(tree, strict.reward, c0_g0_3=0.7), skipped) == []
    assert skipped["judgment:low_margin"] == 2
    only = replace(config, reward=replace(config.reward, ensemble_weight=0.0))
    assert pairs_of(tree, only, Rewards(only.reward, {"glassbox": {}}), skipped) == []
    assert skipped["judgment:no_score"] == 1


def test_the_margin_alone_can_filter_without_any_signal() -> None:
    tree = tree_of(("AAAA", "AAAB"), ("BBBB",))
    counts = []
    for least in (0.0, 0.5):
        config = LabelConfig(reward=RewardConfig(min_margin=least))
        counts.append(Counter(p.level for p in pairs_of(tree, config, Rewards(config.reward), Counter())))
    assert counts[0]["guideline"] == 1
    assert counts[1]["guideline"] == 0, "success rates 1 and 0.75 are 0.25 apart"
    assert counts[1]["judgment"] == counts[0]["judgment"] > 0


def test_the_best_are_taken_under_the_cap() -> None:
    tree = tree_of(("AAABAAAB",), ("AABBAABB",), ("AAABAABB",))
    config = LabelConfig(max_pairs_per_level=3, max_sft_per_tree=2, reward=ON)
    rng = random.Random(5)
    scores = {j.id: rng.random() for _, _, j in tree.judgments()}
    rewards = Rewards(ON, {"glassbox": scores})
    everything = pairs_of(tree, replace(config, max_pairs_per_level=99), rewards, Counter())
    taken = pairs_of(tree, config, rewards, Counter())
    margins = sorted((p.margin for p in everything if p.level == "judgment"), reverse=True)
    assert len(margins) > 3
    assert [p.margin for p in taken if p.level == "judgment"] == margins[:3]
    consistent = tree_of(("AAAA", "AAAA"), ("AAAA", "BBBB"))
    scores = {j.id: rng.random() for _, _, j in consistent.judgments()}
    label = ensemble_label(consistent, config)
    data = TrainingData(PROMPTER, config, Rewards(ON, {"glassbox": scores}))
    rows = data.sft_examples(consistent, prune(consistent), label, rng)
    chosen = [r["nodes"][0] for r in rows if r["level"] == "judgment"]
    agreeing = [j.id for _, _, j in consistent.judgments() if j.verdict == "A"]
    assert sorted(chosen) == sorted(sorted(agreeing, key=scores.__getitem__)[-2:])


def test_shares_are_of_the_readable_votes() -> None:
    assert vote_shares(tree_of(("AAB?",), ("tt??",))) == {"A": 0.4, "B": 0.2, "tie": 0.4}


def test_evidence_finds_a_signal_that_knows_and_one_that_does_not() -> None:
    config = RewardConfig(signals=["probdiff", "glassbox"])
    scores: dict[str, dict[str, float]] = {"probdiff": {}, "glassbox": {}}
    trees = []
    rng = random.Random(0)
    for index in range(40):
        tree = tree_of(("AABB", "ABAB"), ("AAAt", "BBA?"), index=index)
        trees.append(replace(tree, comparison=replace(tree.comparison, label="A")))
        for _, _, j in trees[-1].judgments():
            scores["probdiff"][j.id] = 0.8 if j.verdict == "A" else 0.2
            scores["glassbox"][j.id] = rng.random()
    evidence = Evidence(Rewards(config, scores), "neutral")
    for tree in trees:
        evidence.add(tree, None)
    table = evidence.table(0)
    assert table["judgment"]["label"]["probdiff"]["n"] == 0, "no label, nothing to compare with"
    truth = table["judgment"]["truth"]
    assert truth["probdiff"]["auc"] == 1.0
    assert truth["probdiff"]["n"] == 40 * 14, "neither the unreadable judgment nor the tie"
    low, high = truth["glassbox"]["auc_ci"]
    assert low < 0.5 < high
    assert table["criterion"]["truth"]["probdiff"]["clusters"] == 40
    (line,) = summary(table)
    assert line.startswith("AUC of judgments against the truth (n = 560): ensemble ")
    assert "probdiff 1.000 (1.000–1.000)" in line


def test_a_neutral_tie_is_neither_right_nor_wrong() -> None:
    assert [rightness(v, "A", "neutral") for v in ("A", "B", "tie", None)] == [1.0, 0.0, None, None]
    assert [rightness(v, "A", "wrong") for v in ("A", "B", "tie", None)] == [1.0, 0.0, 0.0, None]
    assert [rightness(v, "tie", "neutral") for v in ("A", "tie")] == [0.0, 1.0]


def test_in_order_of_margin_means_the_largest_first() -> None:
    tree = tree_of(("AAAA",), ("AAAA",), ("BBBB",), ("BBAB",))
    config = LabelConfig(reward=ON, max_pairs_per_level=9)
    found = [p.margin for p in pairs_of(tree, config, scored(tree, c0_g0_0=0.9), Counter()) if p.level == "criteria"]
    assert len(found) > 1
    assert all(a >= b for a, b in pairwise(found))
