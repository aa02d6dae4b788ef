"""The paper's letter: pairs by the label alone, labels by plurality and mean score, one switch, disjoint dialogues."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.errors import ConfigError, DataError
from judgetrain.judges.config import TreeConfig
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label import stage as label_stage
from judgetrain.label.by_label import LabelPairBuilder, PreferredPairBuilder, pair_builder
from judgetrain.label.config import ExternalConfig, LabelConfig
from judgetrain.label.labels import ensemble_label
from judgetrain.label.pairs import PairBuilder
from judgetrain.label.rewards import Rewards
from judgetrain.label.stages import LabelSettings
from judgetrain.label.training_data import TrainingData
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.graph import STAGES
from judgetrain.pipeline.options import CONF
from tests.builders.label import ANY_EVIDENCE, PROMPTER, tree_of
from tests.builders.pipeline import configured

LETTER = LabelConfig(pairs_by="label", ties="wrong", keep_digit_pairs=True)


def judgment_pairs(builder: PairBuilder, word: str) -> int:
    """How many judgment pairs one guideline makes whose judgments say ``word``, where the label is A."""
    return len(list(builder.judgment_pairs(tree_of((word,)), "A")))


def expected_yield(builder: PairBuilder, p: float) -> float:
    """Pairs a node of 2 judgments in each of 2 orders, each right with probability ``p``, over all 16 outcomes."""
    return sum(
        p ** word.count("A") * (1 - p) ** word.count("B") * judgment_pairs(builder, word)
        for word in map("".join, itertools.product("AB", repeat=4))
    )


def test_the_consensus_halves_the_yield() -> None:
    """Two orders of two judgments: 2 · 2pq pairs by the label, 4p³q with a consensus of the node (0.84 and 0.41)."""
    p = 0.7
    letter, ours = LabelPairBuilder(PROMPTER, LETTER), PairBuilder(PROMPTER, LabelConfig(**ANY_EVIDENCE))
    assert expected_yield(letter, p) == pytest.approx(4 * p * (1 - p)) == pytest.approx(0.84)
    assert expected_yield(ours, p) == pytest.approx(4 * p**3 * (1 - p)) == pytest.approx(0.4116)


def test_evidence_of_a_whole_criterion_leaves_few() -> None:
    """Of a criterion's eight judgments seven must agree to be sure by 0.95: 8p⁷q, one pair of two guidelines (0.10)."""
    p, builder, made = 0.7, PairBuilder(PROMPTER, LabelConfig(min_evidence=0.95, keep_digit_pairs=True)), 0.0
    for word in map("".join, itertools.product("AB", repeat=8)):
        pairs = len(list(builder.judgment_pairs(tree_of((word[:4], word[4:])), "A")))
        made += p ** word.count("A") * (1 - p) ** word.count("B") * pairs / 2
    assert made == pytest.approx(4 * p**7 * (1 - p))


def test_a_simulation_of_many_nodes_gives_the_same_yield() -> None:
    rng = random.Random(3)
    words = ["".join("A" if rng.random() < 0.7 else "B" for _ in range(4)) for _ in range(3000)]
    letter, ours = LabelPairBuilder(PROMPTER, LETTER), PairBuilder(PROMPTER, LabelConfig(**ANY_EVIDENCE))
    for builder, known in ((letter, 0.84), (ours, 0.41)):
        made = Counter({word: judgment_pairs(builder, word) for word in set(words)})
        assert sum(made[word] for word in words) / len(words) == pytest.approx(known, abs=0.05)


def test_chosen_agrees_with_the_label_and_rejected_does_not() -> None:
    tree = tree_of(("ABtA", "BBBB"))
    builder = LabelPairBuilder(PROMPTER, LETTER)
    sides = {(p.chosen_nodes[0], p.rejected_nodes[0]) for p in builder.judgment_pairs(tree, "A")}
    assert sides == {("d0/c0/g0/0", "d0/c0/g0/1"), ("d0/c0/g0/3", "d0/c0/g0/2")}, "within an order, ties are wrong"
    assert all(p.chosen_verdict == "A" for p in builder.judgment_pairs(tree, "A"))
    neutral = LabelPairBuilder(PROMPTER, replace(LETTER, ties="neutral"))
    sides = {(p.chosen_nodes[0], p.rejected_nodes[0]) for p in neutral.judgment_pairs(tree, "A")}
    assert sides == {("d0/c0/g0/0", "d0/c0/g0/1")}, "a tie is in keeping with the label"
    assert not list(builder.judgment_pairs(tree_of(("A??A",)), "A")), "what cannot be read is neither"


def test_guidelines_of_the_highest_success_are_chosen() -> None:
    tree = tree_of(("AAAB", "AAAA", "ABBB"))
    pairs = list(LabelPairBuilder(PROMPTER, LETTER).guideline_pairs(tree, "A"))
    assert [(p.chosen, p.rejected, p.margin) for p in pairs] == [
        ("guideline b", "guideline a", 0.25),
        ("guideline b", "guideline c", 0.75),
    ], "and none of the second against the third"


@pytest.mark.parametrize(
    ("high", "low", "leads", "trails"),
    [(0.75, 0.25, {"d0/c0", "d0/c1"}, {"d0/c3"}), (1.0, 0.5, {"d0/c0"}, {"d0/c2", "d0/c3"})],
)
def test_the_thresholds_of_criteria_are_keys(high: float, low: float, leads: set[str], trails: set[str]) -> None:
    """Shares of judgments that give the label: 1, 0.75, 0.5 and 0."""
    tree = tree_of(("AAAA",), ("AAAB",), ("AABB",), ("BBBB",))
    config = replace(LETTER, high_success=high, low_success=low)
    pairs = list(LabelPairBuilder(PROMPTER, config).criteria_pairs(tree, "A", random.Random(0), 4))
    assert {p.chosen_nodes[0] for p in pairs} == leads
    assert {p.rejected_nodes[0] for p in pairs} == trails


def test_tie_labels_order_criteria_too() -> None:
    tree = tree_of(("tttt",), ("AAAA",), ("BBBB",))
    label = ensemble_label(tree, replace(LETTER, vote="plurality", min_vote_share=0.0))
    assert label.verdict == "tie"
    pairs = LabelPairBuilder(PROMPTER, LETTER).pairs(tree, label, random.Random(0))
    assert {p.level for p in pairs} == {"criteria"}
    assert {p.chosen_nodes[0] for p in pairs} == {"d0/c0"}


def test_thresholds_that_overlap_are_refused() -> None:
    config = configured("recipe=quickstart", "label=paper", "label.low_success=0.75")
    with pytest.raises(ConfigError, match=r"label.low_success=0.75: must be below label.high_success=0.75"):
        STAGES["label"].check(config)


def test_pairs_of_judgments_take_two_in_an_order() -> None:
    """The quickstart's trees have one: by the letter there would be no pair of judgments, and nothing would say so."""
    assert configured("recipe=quickstart").tree.judgments == 1
    preference = ("label.source=external", "label.external.prompts=preference")
    for changes in (("label=paper",), preference):
        with pytest.raises(ConfigError, match=r"set tree\.judgments=2"):
            STAGES["label"].check(configured("recipe=quickstart", *changes))
        STAGES["label"].check(configured("recipe=quickstart", *changes, "tree.judgments=2"))
    STAGES["label"].check(configured("recipe=quickstart", "label=paper", "label.levels=[criteria]"))


def labelled(word: str, vote: str) -> tuple[str | None, float]:
    tree = tree_of(("tA",))
    (guideline,) = tree.criteria[0].guidelines
    leaves = dict(zip("tA", guideline.judgments, strict=True))
    guideline = replace(guideline, judgments=tuple(leaves[letter] for letter in word))
    tree = replace(tree, criteria=(replace(tree.criteria[0], guidelines=(guideline,)),))
    label = ensemble_label(tree, LabelConfig(vote=vote, min_vote_share=0.0))
    return label.verdict, label.share


def test_seventy_nine_ties_and_one_a() -> None:
    assert labelled("t" * 79 + "A", "deciding") == ("A", 1.0)
    assert labelled("t" * 79 + "A", "plurality") == ("tie", 79 / 80)
    assert labelled("t" * 79 + "A", "mean_score") == ("A", 1 / 80), "a mean difference of 2/80 points"


@pytest.mark.parametrize(
    ("word", "plurality", "mean_score"),
    [
        ("AAB", ("A", 2 / 3), ("A", 2 / 3)),
        ("AABtt", ("tie", 2 / 5), ("A", 2 / 5)),  # A and ties lead alike
        ("AABB", ("tie", 0.0), ("tie", 0.0)),
        ("ABBt?", ("B", 2 / 4), ("B", 2 / 4)),
        ("??", (None, 0.0), (None, 0.0)),
    ],
)
def test_plurality_and_mean_score(word: str, plurality: object, mean_score: object) -> None:
    config: dict[str, Any] = {"min_vote_share": 0.0, "min_readable": 0.0}
    for vote, expected in (("plurality", plurality), ("mean_score", mean_score)):
        label = ensemble_label(tree_of((word,)), LabelConfig(vote=vote, **config))
        assert (label.verdict, label.share) == expected


def test_a_mean_score_weighs_how_much_better() -> None:
    """Two judgments of +1 and one of -4: more branches say A, the mean of B is higher."""
    tree = tree_of(("AAB",))
    (guideline,) = tree.criteria[0].guidelines
    scores = [(3.0, 2.0), (3.0, 2.0), (1.0, 5.0)]
    leaves = tuple(replace(j, score_a=a, score_b=b) for j, (a, b) in zip(guideline.judgments, scores, strict=True))
    tree = replace(tree, criteria=(replace(tree.criteria[0], guidelines=(replace(guideline, judgments=leaves),)),))
    assert ensemble_label(tree, LabelConfig(vote="deciding")).verdict == "A"
    assert ensemble_label(tree, LabelConfig(vote="mean_score", min_vote_share=0.0)).verdict == "B"


@pytest.mark.parametrize(
    ("words", "ranked", "clear"),
    [
        # The first criterion decides, whatever the others say; each word is two judgments in order AB and two in BA.
        (("AAAA", "BBBB", "BBBB"), ("A", 1.0), ("A", 1.0)),
        # It sees no difference: the next that does decides, and by ``clear`` if its scores lie far enough apart.
        (("tttt", "BBBB", "AAAA"), ("B", 1.0), ("tie", 0.5)),
        (("tttt", "tttt"), ("tie", 0.5), ("tie", 0.5)),
        (("AABB", "BBBB"), (None, 0.0), (None, 0.0)),  # the orders differ
        (("??AA", "BBBB"), (None, 0.0), (None, 0.0)),  # order AB: only the second criterion, order BA: the first
        (("????", "????"), (None, 0.0), (None, 0.0)),
    ],
)
def test_labels_as_a_judge_would_read_the_tree(words: tuple[str, ...], ranked: object, clear: object) -> None:
    tree = tree_of(*((word,) for word in words))
    for vote, expected in (("ranked", ranked), ("clear", clear)):
        label = ensemble_label(tree, LabelConfig(vote=vote, min_readable=0.0))
        assert (label.verdict, label.share) == expected
        unread = all(word == "????" for word in words)
        assert label.reason == (None if label.verdict else "too_few_readable" if unread else "orders_disagree")


def trees(number: int) -> list[EvaluationTree]:
    return [tree_of(("AAAA", "ABAA"), ("BBBB",), ("AAAA",), index=i) for i in range(number)]


def test_sft_and_pairs_come_from_disjoint_comparisons() -> None:
    def data(**changes: Any) -> TrainingData:
        made = TrainingData(PROMPTER, replace(LETTER, balance=[], max_chance=1.0, **changes), seed=5)
        for tree in trees(40):
            made.add(tree)
        made.select_pairs()
        return made

    both, halves = data(), data(sft_share=0.5)
    every = {f"d{i}" for i in range(40)}
    assert {r["comparison_id"] for r in both.sft} == {p.comparison_id for p in both.pairs} == every
    assert "comparisons_for" not in both.table()
    sft, dpo = {r["comparison_id"] for r in halves.sft}, {p.comparison_id for p in halves.pairs}
    assert (len(sft), len(dpo)) == (20, 20)
    assert sft | dpo == every
    assert halves.table()["comparisons_for"] == {"sft": 20, "pairs": 20}
    assert [r for r in both.sft if r["comparison_id"] in sft] == [*halves.sft], "what is kept is what it was"
    third = data(sft_share=0.25)
    assert {len({r["comparison_id"] for r in third.sft}), len({p.comparison_id for p in third.pairs})} == {10, 30}


def label_run(tmp_path: Path, label: LabelConfig, grown: list[EvaluationTree]) -> StageRun:
    """Stage label over trees."""
    source = StageRun(tmp_path / "tree", "tree", 0, Console())
    source.write_rows("trees", (tree.to_row() for tree in grown))
    out = StageRun(tmp_path / "label", "label", 0, Console())
    config = Config(prompts="compact", tree=TreeConfig(criteria=3), label=label)
    label_stage.run(LabelSettings.of(config), {"tree": source.directory}, out)
    return out


def test_the_stage_writes_files_of_disjoint_comparisons(tmp_path: Path) -> None:
    out = label_run(tmp_path, configured("recipe=paper_ood", "data_dir=DIR", "label.view=0").label, trees(60))
    ids = {
        kind: {
            row["comparison_id"] for part in ("train", "heldout") for row in read_rows(out.directory, f"{kind}-{part}")
        }
        for kind in ("sft", "pairs")
    }
    assert (len(ids["sft"]), len(ids["pairs"])) == (30, 30)
    assert not ids["sft"] & ids["pairs"]
    assert len(list(read_rows(out.directory, "labels"))) == 60
    assert out.notes["yield"]["comparisons_for"] == {"sft": 30, "pairs": 30}


def test_a_share_that_leaves_no_example_is_named(tmp_path: Path) -> None:
    nothing = [tree_of(("AB",), index=i) for i in range(10)]
    with pytest.raises(DataError, match=r"of 10 trees survived .*\(label.sft_share takes SFT examples of 1 of them\)"):
        label_run(tmp_path, LabelConfig(sft_share=0.01, view=0), nothing)


def test_preferences_make_the_pairs_and_lead_guidelines_and_criteria() -> None:
    """Under the first guideline B is preferred to A, against the label; under the second criterion A is."""
    tree = tree_of(("ABAA", "BBAA"), ("AAAB",), ("tttt",))
    preferred = {tree.comparison.id: [("d0/c0/g0/1", "d0/c0/g0/0"), ("d0/c1/g0/2", "d0/c1/g0/3")]}
    config = LabelConfig(high_success=0.75, low_success=0.25)
    builder = pair_builder(PROMPTER, config, Rewards(), preferred)
    assert isinstance(builder, PreferredPairBuilder)
    label = ensemble_label(tree, LabelConfig())
    assert label.verdict == "A"
    pairs = builder.pairs(tree, label, random.Random(0))
    sides = sorted((p.level, p.chosen_nodes, p.rejected_nodes) for p in pairs if p.level != "criteria")
    assert sides == [("judgment", ("d0/c0/g0/1",), ("d0/c0/g0/0",)), ("judgment", ("d0/c1/g0/2",), ("d0/c1/g0/3",))]
    (lists,) = [p for p in pairs if p.level == "criteria"]
    # Three of four judgments by the second criterion give the preferred A; one of four by the first gives the
    # preferred B; of the third nothing is known, so it stands in the middle.
    assert lists.chosen_nodes == ("d0/c1", "d0/c2", "d0/c0")
    assert lists.rejected_nodes == ("d0/c0", "d0/c2", "d0/c1")
    assert lists.margin == pytest.approx(0.75 - 0.25)
    assert not list(builder.judgment_pairs(tree_of(("AB",), index=1), "A")), "nobody was asked about it"


def test_preferred_guidelines_are_those_with_more_right_judgments() -> None:
    """A is preferred under both guidelines: three of four judgments by the first give it, two of four by the second."""
    tree = tree_of(("ABAA", "ABAB"))
    preferred = {tree.comparison.id: [("d0/c0/g0/0", "d0/c0/g0/1"), ("d0/c0/g1/0", "d0/c0/g1/1")]}
    builder = PreferredPairBuilder(PROMPTER, LabelConfig(), preferred=preferred)
    (pair,) = builder.guideline_pairs(tree, "A")
    assert (pair.chosen, pair.rejected, pair.margin) == ("guideline a", "guideline b", 0.25)
    even = {tree.comparison.id: [("d0/c0/g0/0", "d0/c0/g0/1"), ("d0/c0/g0/1", "d0/c0/g0/0")]}
    assert not list(PreferredPairBuilder(PROMPTER, LabelConfig(), preferred=even).guideline_pairs(tree, "A"))


def test_one_switch_sets_the_letter_and_another_takes_it_back() -> None:
    ours, paper = configured("recipe=quickstart").label, configured("recipe=quickstart", "label=paper").label
    assert (paper.pairs_by, paper.vote, paper.ties, paper.criteria_order) == ("label", "plurality", "wrong", "sampled")
    assert (paper.high_success, paper.low_success, paper.min_vote_share) == (0.75, 0.25, 0.0)
    assert (paper.balance, paper.max_chance, paper.keep_digit_pairs) == ([], 1.0, True)
    assert paper.max_sft_per_tree == ours.max_sft_per_tree, "what the paper does not say stays the recipe's"
    groups = {name: yaml.safe_load((CONF / "label" / f"{name}.yaml").read_text()) for name in ("paper", "default")}
    assert set(groups["paper"]) == set(groups["default"])
    defaults = LabelConfig()
    known = {field.name for field in fields(LabelConfig)}
    assert set(groups["default"]) <= known
    assert groups["default"] == {name: getattr(defaults, name) for name in groups["default"]}
    back = configured("recipe=paper_ood", "data_dir=DIR", "label=default").label
    assert {name: getattr(back, name) for name in groups["default"]} == groups["default"]


@pytest.mark.parametrize("name", ["paper_ood", "paper_id", "paper_transfer"])
def test_the_papers_recipes_use_the_letter(name: str) -> None:
    label = configured(f"recipe={name}", "data_dir=DIR").label
    paper = yaml.safe_load((CONF / "label" / "paper.yaml").read_text())
    assert {key: getattr(label, key) for key in paper} == paper
    assert label.sft_share == (None if name == "paper_id" else 0.5), "table 6"


def test_defaults_stand_in_no_fingerprint() -> None:
    """Finished labels keep their fingerprints: keys of this page count only where they are used."""
    from judgetrain.artifacts.fingerprint import plain

    added = {"pairs_by", "vote", "high_success", "low_success", "sft_share"}
    assert not added & set(plain(LabelConfig()))
    assert "by" not in plain(ExternalConfig())
    assert added - {"sft_share"} <= set(plain(LabelConfig(pairs_by="label", vote="plurality")))
    assert plain(ExternalConfig(by="pair"))["by"] == "pair"
    preferred = LabelConfig(source="external", external=ExternalConfig(by="pair"))
    assert {"high_success", "low_success"} <= set(plain(preferred)), "preferences are weighed by them too"
