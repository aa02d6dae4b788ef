"""Pruning, labels, examples and pairs, against loops written here from the paper's definitions."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.artifacts import StageRun
from judgetrain.config import Config, LabelConfig, SamplingConfig, TreeConfig
from judgetrain.dialogues.schema import mirror
from judgetrain.shards import read_rows
from judgetrain.track import Console
from judgetrain.tree import label_stage
from judgetrain.tree.examples import Prompter
from judgetrain.tree.grow import Shape, StepSampling, grow
from judgetrain.tree.labels import ensemble_label, vote
from judgetrain.tree.pairs import criteria_pairs, guideline_pairs, judgment_pairs
from judgetrain.tree.parsing import parse_criteria
from judgetrain.tree.prompts import load_prompt_set
from judgetrain.tree.prune import prune
from judgetrain.tree.schema import EvaluationTree
from tests.scripted import ScriptedEngine, comparison, judged, noisy

PROMPTS = load_prompt_set("compact")
PROMPTER = Prompter(PROMPTS, 4)
SAMPLING = StepSampling(SamplingConfig(), SamplingConfig(), SamplingConfig())
TREES = grow(
    [comparison(i, label="A") for i in range(30)], ScriptedEngine(noisy), PROMPTS, Shape(4, 4, 2, 2), SAMPLING, 0
)


def verdict(a: float | None, b: float | None) -> str | None:
    return None if a is None or b is None else "tie" if a == b else "A" if a > b else "B"


def test_pruning_equals_an_independent_loop() -> None:
    for tree in TREES:
        fates = {}
        for criterion in tree.criteria:
            for guideline in criterion.guidelines:
                by_order = {
                    o: [verdict(j.score_a, j.score_b) for j in guideline.judgments if j.order == o]
                    for o in ("AB", "BA")
                }
                agreed = {}
                for order, found in by_order.items():
                    counts = Counter(v for v in found if v)
                    best = [v for v, n in counts.items() if n == max(counts.values())]
                    agreed[order] = best[0] if len(best) == 1 else None
                position = agreed["AB"] is not None and agreed["AB"] == agreed["BA"]
                for judgment in guideline.judgments:
                    siblings = by_order[judgment.order]
                    same = None not in siblings and len(set(siblings)) == 1
                    fates[judgment.id] = (same, position)
        branches = prune(tree)
        assert {k: (b.self_consistent, b.positionally_consistent) for k, b in branches.items()} == fates
        assert {k for k, b in branches.items() if b.kept} == {k for k, (s, p) in fates.items() if s and p}


@given(st.lists(st.sampled_from(["A", "B", "tie", None]), max_size=30))
def test_vote_counts_and_mirrors(verdicts: list[str | None]) -> None:
    winner, share, votes = vote(verdicts)  # type: ignore[arg-type]
    a, b = verdicts.count("A"), verdicts.count("B")
    expected = None if a + b + verdicts.count("tie") == 0 else "A" if a > b else "B" if b > a else "tie"
    assert winner == expected
    assert votes == {"A": a, "B": b, "tie": verdicts.count("tie"), "unreadable": verdicts.count(None)}
    if winner in ("A", "B"):
        assert share == max(a, b) / (a + b) > 0.5
    mirrored, same_share, _ = vote([None if v is None else mirror(v) for v in verdicts])  # type: ignore[arg-type]
    assert (mirrored, same_share) == (None if winner is None else mirror(winner), share)


@settings(max_examples=20)
@given(st.integers(0, 29), st.randoms(use_true_random=False))
def test_the_order_of_branches_changes_no_label(index: int, rng: random.Random) -> None:
    tree = TREES[index]
    shuffled = list(tree.criteria)
    rng.shuffle(shuffled)
    other = replace(tree, criteria=tuple(shuffled))
    assert ensemble_label(other, LabelConfig()) == ensemble_label(tree, LabelConfig())


def test_abstention_by_vote_share_and_by_readability() -> None:
    labels = [ensemble_label(t, LabelConfig(min_vote_share=0.7)) for t in TREES]
    assert {x.reason for x in labels} == {None, "low_vote_share"}
    assert all((x.verdict is None) == (x.reason is not None) for x in labels)
    assert all(x.share > 0.7 for x in labels if x.verdict in ("A", "B"))
    unreadable = ensemble_label(TREES[0], LabelConfig(min_readable=1.0))
    assert (unreadable.verdict, unreadable.reason) == (None, "too_few_readable")


def consensus_of(guideline) -> str | None:  # type: ignore[no-untyped-def]
    """The verdict of over half of the readable judgments, given in both orders; written out from the definition."""
    found = [(j.order, verdict(j.score_a, j.score_b)) for j in guideline.judgments]
    readable = [v for _, v in found if v]
    for candidate in ("A", "B", "tie"):
        orders = {o for o, v in found if v == candidate}
        if readable.count(candidate) > len(readable) / 2 and orders == {"AB", "BA"}:
            return candidate
    return None


@pytest.mark.parametrize(("ties", "allowed"), [("neutral", {"A", "tie"}), ("wrong", {"A"})])
def test_judgment_pairs_prefer_a_corroborated_verdict_under_one_prompt(ties: str, allowed: set[str]) -> None:
    total = 0
    for tree in TREES:
        nodes = {j.id: (c, g, j) for c, g, j in tree.judgments()}
        for pair in judgment_pairs(tree, "A", PROMPTER, Counter(), ties):
            (c1, g1, chosen), (c2, g2, rejected) = nodes[pair.chosen_nodes[0]], nodes[pair.rejected_nodes[0]]
            assert (c1.id, g1.id, chosen.order) == (c2.id, g2.id, rejected.order)
            assert chosen.verdict == consensus_of(g1) != rejected.verdict
            assert chosen.verdict in allowed
            assert rejected.verdict is not None
            assert pair.chosen == chosen.text
            shown = tree.comparison if chosen.order == "AB" else tree.comparison.swapped()
            assert f"Response A: {shown.response_a}\n" in pair.prompt[-1]["content"]
            total += 1
    expected = 0
    for tree in TREES:
        for criterion in tree.criteria:
            for guideline in criterion.guidelines:
                agreed = consensus_of(guideline)
                if agreed not in allowed:
                    continue
                for order in ("AB", "BA"):
                    found = [verdict(j.score_a, j.score_b) for j in guideline.judgments if j.order == order]
                    right = found.count(agreed)
                    expected += right * (len(found) - right - found.count(None))
    assert total == expected > 0


def test_a_leaning_to_the_first_response_is_not_rewarded() -> None:
    """A judge that sees no difference but sometimes favours what it sees first: no pair may choose the slip."""

    def leaning(request, occurrence):  # type: ignore[no-untyped-def]
        if request.step != "judgment":
            return noisy(request, occurrence)
        return judged(5, 1, " slip") if occurrence == 0 else judged(3, 3, " even")

    comparisons = [comparison(i, label="A") for i in range(10)]
    trees = grow(comparisons, ScriptedEngine(leaning), PROMPTS, Shape(4, 4, 1, 3), SAMPLING, 0)
    found = [p for t in trees for p in judgment_pairs(t, "A", PROMPTER, Counter())]
    assert found
    assert all("even" in p.chosen and "slip" in p.rejected for p in found)
    assert not [p for t in trees for p in judgment_pairs(t, "A", PROMPTER, Counter(), "wrong")]


def test_guideline_pairs_prefer_the_higher_success_rate() -> None:
    found = [p for tree in TREES for p in guideline_pairs(tree, "A", PROMPTER, Counter())]
    assert found
    nodes = {g.id: g for tree in TREES for c in tree.criteria for g in c.guidelines}

    def rate(identifier: str) -> float:
        verdicts = [v for j in nodes[identifier].judgments if (v := verdict(j.score_a, j.score_b))]
        return verdicts.count("A") / len(verdicts)

    for pair in found:
        assert rate(pair.chosen_nodes[0]) - rate(pair.rejected_nodes[0]) == pytest.approx(pair.margin)
        assert pair.margin > 0


def test_criteria_pairs_reorder_the_same_lines_good_ones_first() -> None:
    made = 0
    for tree in TREES:
        rates = {}
        for criterion in tree.criteria:
            verdicts = [v for g in criterion.guidelines for j in g.judgments if (v := verdict(j.score_a, j.score_b))]
            rates[criterion.id] = verdicts.count("A") / len(verdicts)
        for pair in criteria_pairs(tree, "A", PROMPTER, random.Random(0), 3, Counter()):
            chosen, rejected = (parse_criteria(t, 10) for t in (pair.chosen, pair.rejected))
            assert sorted(chosen) == sorted(rejected) == sorted(c.text for c in tree.criteria)
            assert rates[pair.chosen_nodes[0]] >= 0.75
            assert rates[pair.rejected_nodes[0]] <= 0.25
            assert pair.margin == rates[pair.chosen_nodes[0]] - rates[pair.rejected_nodes[0]]
            made += 1
    assert made


def test_pairs_that_differ_in_digits_alone_are_left_out_and_counted() -> None:
    tree = TREES[0]
    nodes = [(c, g, j) for c, g, j in tree.judgments()]
    assert nodes

    def flat(t: EvaluationTree) -> EvaluationTree:
        def leaf(j):  # type: ignore[no-untyped-def]
            return replace(j, text=f"Response A Score: {j.score_a}\nResponse B Score: {j.score_b}")

        def guideline(g):  # type: ignore[no-untyped-def]
            return replace(g, judgments=tuple(map(leaf, g.judgments)))

        criteria = (replace(c, guidelines=tuple(map(guideline, c.guidelines))) for c in t.criteria)
        return replace(t, criteria=tuple(criteria))

    skipped: Counter[str] = Counter()
    assert not [p for t in TREES for p in judgment_pairs(flat(t), "A", PROMPTER, skipped)]
    assert skipped["judgment:score_digits_only"] > 0


def test_label_stage_end_to_end(tmp_path: Path) -> None:
    trees = StageRun(tmp_path / "tree", "tree", 0, Console())
    trees.write_rows("trees", (t.to_row() for t in TREES))
    config = Config(
        prompts="compact",
        tree=TreeConfig(criteria=4),
        label=LabelConfig(max_sft_per_tree=3, max_pairs_per_level=2, holdout=0.3),
    )
    outs = []
    for name in ("one", "two"):
        out = StageRun(tmp_path / name, "label", 0, Console())
        label_stage.run(config, {"tree": tmp_path / "tree"}, out)
        outs.append(out)
    for name in ("sft-train", "sft-heldout", "pairs-train", "pairs-heldout", "labels"):
        first, second = (list(read_rows(o.directory, name)) for o in outs)
        assert first == second, "the stage depends on its inputs and seed alone"
    rows = {
        n: list(read_rows(outs[0].directory, n)) for n in ("sft-train", "sft-heldout", "pairs-train", "pairs-heldout")
    }
    train, heldout = (
        {r["comparison_id"] for n in rows if n.endswith(s) for r in rows[n]} for s in ("train", "heldout")
    )
    assert train
    assert heldout
    assert not train & heldout
    labels = {r["comparison_id"]: r["verdict"] for r in read_rows(outs[0].directory, "labels")}
    leaves = {j.id: (t, j) for t in TREES for _, _, j in t.judgments()}
    kept = {k for t in TREES for k, b in prune(t).items() if b.kept}
    sft = rows["sft-train"] + rows["sft-heldout"]
    for row in (r for r in sft if r["level"] == "judgment"):
        tree, node = leaves[row["nodes"][0]]
        assert node.id in kept
        assert node.verdict in (labels[tree.comparison.id], "tie")
    per_tree = Counter(r["comparison_id"] for r in sft if r["level"] == "judgment")
    assert max(per_tree.values()) <= 3
    pairs = rows["pairs-train"] + rows["pairs-heldout"]
    assert max(Counter((r["comparison_id"], r["level"]) for r in pairs).values()) <= 2
    assert {r["level"] for r in pairs} == {"judgment", "guideline", "criteria"}
    table = outs[0].notes["yield"]
    assert sum(table["branches"].values()) == 30 * 32
    assert sum(table["trees"].values()) == 30
    truth = Counter("right" if labels[t.comparison.id] == "A" else "wrong" for t in TREES if labels[t.comparison.id])
    assert table["label_vs_truth"] == dict(truth)
