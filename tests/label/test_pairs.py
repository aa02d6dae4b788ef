"""Preference pairs by hand-made trees: who leads, what is skipped, what may not be chosen."""

import random
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from judgetrain.errors import ConfigError
from judgetrain.judges.prompting.parsing import parse_criteria
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.schema import EvaluationTree, JudgmentNode
from judgetrain.label import examples
from judgetrain.label.config import LabelConfig
from judgetrain.label.labels import ensemble_label
from judgetrain.label.pairs import Evidence, LabelPairBuilder, PairBuilder, PreferredPairBuilder, pair_builder
from judgetrain.label.training_data import Drawing, TrainingData
from judgetrain.pipeline import CONF
from tests.builders.label import ANY_EVIDENCE, PROMPTER, tree_of
from tests.builders.pipeline import check_stage, configured

LENIENT = LabelConfig(**ANY_EVIDENCE)


def with_leaves(tree: EvaluationTree, leaves: list[JudgmentNode]) -> EvaluationTree:
    """Return the tree with other judgments by the only guideline of its only criterion."""
    (guideline,) = tree.criteria[0].guidelines
    criterion = replace(tree.criteria[0], guidelines=(replace(guideline, judgments=tuple(leaves)),))
    return replace(tree, criteria=(criterion,))


@pytest.mark.parametrize("seed", range(20))
def test_each_criteria_pair_is_headed_by_another_criterion(seed: int) -> None:
    tree = tree_of(("AAAA",), ("AAAA",), ("AAAB",), ("BBBB",), ("BBBB",), ("AABB",))
    pairs = list(PairBuilder(PROMPTER, LENIENT).criteria_pairs(tree, "A", random.Random(seed), 5))
    assert len(pairs) == 3
    assert {p.chosen_nodes[0] for p in pairs} == {"d0/c0", "d0/c1", "d0/c2"}
    assert {p.rejected_nodes[0] for p in pairs} == {"d0/c3", "d0/c4", "d0/c5"}
    for pair in pairs:
        assert set(pair.chosen_nodes[:3]) == {"d0/c0", "d0/c1", "d0/c2"}, "all that lead to the label stand first"
        assert set(pair.rejected_nodes[:3]) == {"d0/c3", "d0/c4", "d0/c5"}, "all that do not, ties among them"
        assert pair.chosen_nodes == tuple(reversed(pair.rejected_nodes))
        net = {"d0/c0": 1, "d0/c1": 1, "d0/c2": 0.5, "d0/c3": -1, "d0/c4": -1, "d0/c5": 0}
        assert pair.margin == (net[pair.chosen_nodes[0]] - net[pair.rejected_nodes[0]]) / 2
        assert sorted(parse_criteria(pair.chosen, 9)) == sorted(parse_criteria(pair.rejected, 9))


@pytest.mark.parametrize(
    "criteria", [[("AAAA",), ("AAAA",)], [("BBBB",), ("AABB",)], [("AAAA",), ("BBBB",), ("????",)], []]
)
def test_no_ordering_without_a_contrast_or_with_unread_criteria(criteria: list[tuple[str, ...]]) -> None:
    builder = PairBuilder(PROMPTER, LENIENT)
    assert not list(builder.criteria_pairs(tree_of(*criteria), "A", random.Random(0), 5))
    assert +builder.skipped == {"criteria:no_contrast": 1}


def test_guidelines_need_a_difference_in_text_and_in_success() -> None:
    builder = PairBuilder(PROMPTER, LENIENT)
    (pair,) = builder.guideline_pairs(tree_of(("AAAB", "AAAA"), ("AAAA", "AAAA"), ("A??B", "??AB")), "A")
    assert (pair.chosen, pair.rejected, pair.margin) == ("guideline b", "guideline a", 0.25)
    tree = tree_of(("AAAB", "AAAA"))
    same = tuple(replace(g, text="one text") for g in tree.criteria[0].guidelines)
    tree = replace(tree, criteria=(replace(tree.criteria[0], guidelines=same),))
    assert not list(builder.guideline_pairs(tree, "A"))
    skipped = {"guideline:near_identical": 1, "guideline:no_evidence": 1, "guideline:no_consensus": 1}
    assert builder.skipped == skipped


def test_guidelines_that_were_cut_off_make_no_pair_and_are_counted() -> None:
    tree = tree_of(("AAAA", "AAAB", "BBBB"), ("AAAA", "AAAB"))
    first, second = tree.criteria
    cut = replace(first, guidelines=(replace(first.guidelines[0], finish_reason="length"), *first.guidelines[1:]))
    builder = PairBuilder(PROMPTER, LENIENT)
    pairs = list(builder.guideline_pairs(replace(tree, criteria=(cut, second)), "A"))
    assert [p.chosen_nodes + p.rejected_nodes for p in pairs] == [("d0/c0/g1", "d0/c0/g2"), ("d0/c1/g0", "d0/c1/g1")]
    assert builder.skipped == {"guideline:cut_off": 1}


def test_a_judgment_that_was_cut_off_is_never_chosen_but_may_be_rejected() -> None:
    tree = tree_of(("AABAA" + "A",))
    (guideline,) = tree.criteria[0].guidelines

    def cut(*which: int) -> EvaluationTree:
        ends = ["length" if i in which else "stop" for i in range(len(guideline.judgments))]
        return with_leaves(tree, [replace(j, finish_reason=e) for j, e in zip(guideline.judgments, ends, strict=True)])

    assert len(list(PairBuilder(PROMPTER, LENIENT).judgment_pairs(tree, "A"))) == 2
    builder = PairBuilder(PROMPTER, LENIENT)
    (rejecting,) = builder.judgment_pairs(cut(0), "A")
    assert rejecting.chosen_nodes == ("d0/c0/g0/1",)
    assert builder.skipped["judgment:chosen_cut_off"] == 1
    assert len(list(PairBuilder(PROMPTER, LENIENT).judgment_pairs(cut(2), "A"))) == 2
    data = TrainingData(PROMPTER)
    data.add(cut(0))
    assert "d0/c0/g0/0" not in {n for row in data.sft for n in row["nodes"]}


@pytest.mark.parametrize("cap", [0, 1, 3])
def test_caps_hold_at_every_level_and_prompts_are_shared(cap: int) -> None:
    tree = tree_of(("AAAA", "AABA"), ("AAAB", "AAAA"), ("BBBB", "BBAB"), ("AAAB", "AAAB"))
    config = LabelConfig(max_pairs_per_level=cap, **ANY_EVIDENCE)
    pairs = PairBuilder(PROMPTER, config).pairs(tree, ensemble_label(tree, config), random.Random(0))
    counts = Counter(p.level for p in pairs)
    assert all(n <= cap for n in counts.values())
    if cap:
        assert set(counts) == {"judgment", "guideline", "criteria"}
    for row in (p.to_row() for p in pairs):
        assert row["chosen"] != row["rejected"]
        assert [m["role"] for m in row["prompt"]] == ["user"]
        assert row["reward"] == {"ensemble": 21 / 32}  # As of all votes, counted above


@pytest.mark.parametrize(
    ("builder", "tree", "expected"),
    [
        (PairBuilder(PROMPTER, LENIENT), tree_of(("tttA",), ("AAAA",), ("BBBB",), ("Bttt",)), {"judgment"}),
        (LabelPairBuilder(PROMPTER, LENIENT), tree_of(("tttt",), ("AAAA",), ("BBBB",)), {"criteria"}),
    ],
)
def test_a_tie_label_orders_criteria_by_the_paper_s_letter_alone(
    builder: PairBuilder, tree: EvaluationTree, expected: set[str]
) -> None:
    label = ensemble_label(tree, LabelConfig(rule="paper" if isinstance(builder, LabelPairBuilder) else "evidence"))
    assert label.verdict == "tie"
    pairs = builder.pairs(tree, label, random.Random(0))
    assert {p.level for p in pairs} == expected
    assert {p.chosen_nodes[0] for p in pairs if p.level == "criteria"} <= {"d0/c0"}


@pytest.mark.parametrize(("builder", "kept"), [(PairBuilder, 0), (LabelPairBuilder, 4)])
def test_pairs_that_differ_in_digits_alone_are_left_out_and_counted(builder: type[PairBuilder], kept: int) -> None:
    """But by the paper's letter, which knows no such rule."""
    tree = tree_of(("AABAAB",))
    (guideline,) = tree.criteria[0].guidelines
    texts = [f"Response A Score: {j.score_a}\nResponse B Score: {j.score_b}" for j in guideline.judgments]
    flat = with_leaves(tree, [replace(j, text=t) for j, t in zip(guideline.judgments, texts, strict=True)])
    pair_maker = builder(PROMPTER, LENIENT)
    assert len(list(pair_maker.judgment_pairs(flat, "A"))) == kept
    assert pair_maker.skipped["judgment:score_digits_only"] == 4 - kept


def test_a_leaning_to_the_first_response_is_not_rewarded() -> None:
    # A judge that sees no difference but once in each order favours what it sees first: no pair chooses the slip.
    tree = tree_of(("AttBtt",), ("AttBtt",))
    pairs = list(PairBuilder(PROMPTER, LENIENT).judgment_pairs(tree, "A"))
    assert {(p.chosen_verdict, p.rejected_verdict) for p in pairs} == {("tie", "A"), ("tie", "B")}


@pytest.mark.parametrize(("first", "second"), [((4, 0), (0, 4)), ((3, 1), (1, 3)), ((4, 0), (3, 1)), ((2, 2), (2, 2))])
def test_the_probability_is_that_of_an_integral(first: tuple[int, int], second: tuple[int, int]) -> None:
    """Net success is linear in the share of right judgments where none is neither, up to the prior's half a one."""

    def net_density(counts: tuple[int, int], seed: int) -> np.ndarray:
        gammas = np.random.default_rng(seed).gamma([counts[0] + 0.5, counts[1] + 0.5, 0.5], size=(200_000, 3))
        return (gammas[:, 0] - gammas[:, 1]) / gammas.sum(axis=1)

    expected = np.mean(net_density(first, 1) > net_density(second, 2))
    assert examples.better(examples.Outcomes(*first, 0), examples.Outcomes(*second, 0)) == pytest.approx(
        expected, abs=0.012
    )
    assert examples.better(examples.Outcomes(*first, 0), examples.Outcomes(*second, 0)) + examples.better(
        examples.Outcomes(*second, 0), examples.Outcomes(*first, 0)
    ) == (pytest.approx(1, abs=0.02))


def test_more_right_than_wrong_is_a_beta_integral() -> None:
    for right, wrong in product(range(5), repeat=2):
        assert examples.above_zero(examples.Outcomes(right, wrong, 3)) == stats.beta.sf(
            0.5, right + 0.5, wrong + 0.5
        ), "to the last bit"


@pytest.mark.parametrize(
    ("words", "sure", "expected"),
    [
        (("AAAA", "AAAA"), 0.9, "A"),
        (("tttt", "ttAt"), 0.9, "tie"),
        (("AAAA", "AABB"), 0.9, "A"),  # 6 of 8, in order BA no other more often
        (("AAAB", "AABB"), 0.5, None),  # 5 of 8, in order BA B more often
        (("AAAB", "ABAA"), 0.9, "A"),
        (("AAAB", "ABAB"), 0.9, None),  # 5 of 8: not sure enough
        (("AAAB", "AAAB"), 0.5, "A"),
        (("AABB", "AABB"), 0.5, None),  # each order its own
        (("AA??", "AA??"), 0.5, None),  # one order alone
        (("????", "????"), 0.5, None),
    ],
)
def test_a_consensus_is_of_both_orders_and_sure(words: tuple[str, str], sure: float, expected: str | None) -> None:
    (criterion,) = tree_of(words).criteria
    assert examples.consensus(criterion.judgments, sure) == expected


def test_a_difference_that_may_be_chance_makes_no_pair() -> None:
    tree = tree_of(("AAAA", "AAAB"), ("BBtB", "BBBB"))
    for sure, levels in ((0.5, {"judgment", "guideline"}), (0.9, {"judgment"}), (0.999, set())):
        config = LabelConfig(min_evidence=sure)
        builder = PairBuilder(PROMPTER, config)
        pairs = [*builder.judgment_pairs(tree, "A"), *builder.guideline_pairs(tree, "A")]
        assert {p.level for p in pairs} == levels


def pair(chosen: str, rejected: str, level: str = "judgment", order: str = "AB", query: str = "q") -> examples.Pair:
    node = f"d/c0/g0/{order}0" if level == "judgment" else "d/c0"
    of = {"prompt": [{"role": "user", "content": query}], "margin": 1.0, "comparison_id": "d"}
    nodes: dict[str, Any] = {"chosen_nodes": (node,), "rejected_nodes": (node,)}
    return examples.Pair(chosen=chosen, rejected=rejected, level=level, **of, **nodes)  # type: ignore[arg-type]


def builder(*balance: str) -> PairBuilder:
    return PairBuilder(examples.Prompter(load_prompt_set("compact"), 4), LabelConfig(balance=[*balance]))


def selected(builder: PairBuilder, pairs: list[examples.Pair]) -> list[examples.Pair]:
    return [pairs[i] for i in builder.selected(pairs, 0)]


def balanced(pairs: list[examples.Pair], by: list[str], seed: int = 0) -> list[examples.Pair]:
    left_out = examples.surplus(pairs, by, random.Random(seed))
    return [p for i, p in enumerate(pairs) if i not in left_out]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("Score: 3. Good!", "score 3  good", "near_identical"),
        ("Score: 3. Good!", "Score: 4.5. Good!", "score_digits_only"),
        ("Score: 3. Good!", "Score: 3. Bad!", None),
        ("", "", "near_identical"),
        ("all of it", "none of it", None),
    ],
)
def test_near_identical_texts_have_a_reason(first: str, second: str, reason: str | None) -> None:
    assert examples.near_identical(first, second) == examples.near_identical(second, first) == reason


def test_pairs_that_differ_in_case_punctuation_and_spacing_alone_are_repeats() -> None:
    first = pair("Response A Score: 5. It is good", "x y")
    others = [
        pair("Response A Score: 4. It is good", "x y"),
        pair("Response A Score: 5. It is good", "xy"),
        pair("Response A Score: 5. It is good", "x y", query="q?"),
        pair("x y", "Response A Score: 5. It is good"),
    ]
    pair_maker = builder()
    again = [pair("Response A Score: 5.  It is good!", "x  y"), pair("response a score: 5 it is good", "X, y.")]
    assert selected(pair_maker, [first, *again, *others]) == [first, *others]
    assert pair_maker.skipped == {"judgment:repeated": 2}


@pytest.mark.parametrize("by", [["verdict", "order"], ["order", "verdict"]])
@pytest.mark.parametrize(("cells", "remaining"), [((10, 10, 0, 20), 20), ((15, 5, 0, 20), 30), ((10, 0, 10, 20), 20)])
def test_balancing_by_both_traits_leaves_no_leaning_to_either(
    cells: tuple[int, ...], remaining: int, by: list[str]
) -> None:
    # One trait after the other undoes the first: 0.7 of the chosen sides decide, or 0.7 stand in order AB.
    kinds = [("A", "AB"), ("tie", "AB"), ("A", "BA"), ("tie", "BA")]
    drawn = [kind for kind, n in zip(kinds, cells, strict=True) for _ in range(n)]
    pairs = [
        replace(pair("x", "y", order=order, query=str(i)), chosen_verdict=verdict)
        for i, (verdict, order) in enumerate(drawn)
    ]
    pair_maker = builder(*by)
    kept = selected(pair_maker, pairs)
    lean = examples.leanings(kept)["judgment"]
    assert (len(kept), lean["decides"], lean["order_ab"]) == (remaining, 0.5, 0.5)
    assert pair_maker.skipped == {"judgment:unbalanced_order_verdict": 40 - remaining}
    assert selected(builder(), pairs) == pairs


SAID = st.sampled_from(["A", "B", "tie", None])


@given(st.lists(st.tuples(st.sampled_from(["A", "B", "tie"]), SAID, st.sampled_from(["AB", "BA"])), max_size=40))
def test_neither_place_is_spoken_for_more_often(drawn: list[tuple[Any, Any, str]]) -> None:
    # The response shown first is A in order AB and B in order BA; what a pair says of the places, by its two sides.
    pairs = [
        replace(pair("x", "y", order=order, query=str(i)), chosen_verdict=chosen, rejected_verdict=rejected)
        for i, (chosen, rejected, order) in enumerate(drawn)
    ]

    def kinds(chosen_pairs: list[examples.Pair]) -> Counter[tuple[str, str, int]]:
        def seat(verdict: str | None, order: str) -> int:  # 1: shown first, -1: second, 0: neither
            return 0 if verdict not in ("A", "B") else 1 if (verdict == "A") == (order == "AB") else -1

        counts: Counter[tuple[str, str, int]] = Counter()
        for p in chosen_pairs:
            order = p.chosen_nodes[0][-3:-1]
            chosen = seat(p.chosen_verdict, order)
            rejected = seat(p.rejected_verdict, order)
            taught = chosen or (-rejected if p.rejected_verdict else 0)
            counts[("decides" if chosen else "-", "decides" if rejected else "-", taught)] += 1
        return counts

    before = kinds(pairs)
    kept = balanced(pairs, ["place"])
    after = kinds(kept)
    for (chosen, rejected, taught), n in before.items():
        assert after[chosen, rejected, taught] == min(n, before[chosen, rejected, -taught]) or not taught
        assert taught or after[chosen, rejected, 0] == n, "what speaks for no place is kept"
    assert all(p in pairs for p in kept)
    assert not kept or examples.leanings(kept)["judgment"]["first"] in (None, 0.5)


LETTER = LabelConfig(rule="paper")


def test_chosen_agrees_with_the_label_and_rejected_does_not() -> None:
    tree = tree_of(("ABtA", "BBBB"))
    builder = LabelPairBuilder(PROMPTER, LETTER)
    sides = {(p.chosen_nodes[0], p.rejected_nodes[0]) for p in builder.judgment_pairs(tree, "A")}
    assert sides == {("d0/c0/g0/0", "d0/c0/g0/1"), ("d0/c0/g0/3", "d0/c0/g0/2")}, "within an order, ties are wrong"
    assert all(p.chosen_verdict == "A" for p in builder.judgment_pairs(tree, "A"))
    assert not list(builder.judgment_pairs(tree_of(("A??A",)), "A")), "what cannot be read is neither"


def test_guidelines_of_the_highest_success_are_chosen() -> None:
    tree = tree_of(("AAAB", "AAAA", "ABBB"))
    pairs = list(LabelPairBuilder(PROMPTER, LETTER).guideline_pairs(tree, "A"))
    assert [(p.chosen, p.rejected, p.margin) for p in pairs] == [
        ("guideline b", "guideline a", 0.25),
        ("guideline b", "guideline c", 0.75),
    ], "and none of the second against the third"


def test_criteria_lead_from_three_quarters_and_trail_to_a_quarter() -> None:
    """Shares of judgments that give the label: 1, 0.75, 0.5 and 0."""
    tree = tree_of(("AAAA",), ("AAAB",), ("AABB",), ("BBBB",))
    pairs = list(LabelPairBuilder(PROMPTER, LETTER).criteria_pairs(tree, "A", random.Random(0), 4))
    assert {p.chosen_nodes[0] for p in pairs} == {"d0/c0", "d0/c1"}
    assert {p.rejected_nodes[0] for p in pairs} == {"d0/c3"}


def test_pairs_of_judgments_take_two_in_an_order() -> None:
    # The quickstart's trees have one: by the letter there would be no pair of judgments, and nothing would say so.
    assert configured("recipe=quickstart").tree.judgments == 1
    preference = ("label.source=external", "label.external.prompts=preference")
    for changes in (("label=paper",), preference):
        with pytest.raises(ConfigError, match=r"set tree\.judgments=2"):
            check_stage("label", configured("recipe=quickstart", *changes))
        check_stage("label", configured("recipe=quickstart", *changes, "tree.judgments=2"))
    check_stage("label", configured("recipe=quickstart", "label=paper", "label.levels=[criteria]"))


@pytest.mark.parametrize(
    ("word", "deciding", "plurality"),
    [
        ("t" * 79 + "A", ("A", 1.0), ("tie", 79 / 80)),
        ("AAB", ("A", 2 / 3), ("A", 2 / 3)),
        ("AABtt", ("A", 2 / 3), ("tie", 2 / 5)),  # A and ties lead alike
        ("AABB", ("tie", 0.5), ("tie", 0.0)),
        ("ABBt?", ("B", 2 / 3), ("B", 2 / 4)),
        ("??", (None, 0.0), (None, 0.0)),
    ],
)
def test_how_branches_become_a_label(word: str, deciding: object, plurality: object) -> None:
    shape = tree_of(("tA",), ("BB",), ("??",))
    judgments = [j for _, _, j in shape.judgments()]
    leaves = {"t": judgments[0], "A": judgments[1], "B": judgments[2], "?": judgments[4]}
    (guideline,) = shape.criteria[0].guidelines
    guideline = replace(guideline, judgments=tuple(leaves[letter] for letter in word))
    tree = replace(shape, criteria=(replace(shape.criteria[0], guidelines=(guideline,)),))
    for config, expected in ((LabelConfig(), deciding), (LETTER, plurality)):
        label = ensemble_label(tree, config)
        assert (label.verdict, label.share) == expected


def trees(number: int) -> list[EvaluationTree]:
    return [tree_of(("AAAA", "ABAA"), ("BBBB",), ("AAAA",), index=i) for i in range(number)]


def test_sft_and_pairs_come_from_disjoint_comparisons() -> None:
    def data(**changes: Any) -> TrainingData:
        training_data = TrainingData(PROMPTER, replace(LETTER, balance=[], **changes), drawing=Drawing(seed=5))
        for tree in trees(40):
            training_data.add(tree)
        training_data.select_pairs()
        return training_data

    both = data()
    halves = data(sft_share=0.5)
    every = {f"d{i}" for i in range(40)}
    assert {r["comparison_id"] for r in both.sft} == {p.comparison_id for p in both.pairs} == every
    assert "comparisons_for" not in both.table()
    sft = {r["comparison_id"] for r in halves.sft}
    dpo = {p.comparison_id for p in halves.pairs}
    assert (len(sft), len(dpo)) == (20, 20)
    assert sft | dpo == every
    assert halves.table()["comparisons_for"] == {"sft": 20, "pairs": 20}
    assert [r for r in both.sft if r["comparison_id"] in sft] == [*halves.sft], "what is kept is what it was"
    third = data(sft_share=0.25)
    assert {len({r["comparison_id"] for r in third.sft}), len({p.comparison_id for p in third.pairs})} == {10, 30}


def test_preferences_make_the_pairs_and_lead_guidelines_and_criteria() -> None:
    """Under the first guideline B is preferred to A, against the label; under the second criterion A is."""
    tree = tree_of(("ABAA", "BBAA"), ("AAAB",), ("tttt",))
    preferred = {tree.comparison.id: [("d0/c0/g0/1", "d0/c0/g0/0"), ("d0/c1/g0/2", "d0/c1/g0/3")]}
    builder = pair_builder(PROMPTER, LabelConfig(), Evidence(preferred=preferred))
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
    # A is preferred under both guidelines: three of four judgments by the first give it, two of four by the second.
    tree = tree_of(("ABAA", "ABAB"))
    preferred = {tree.comparison.id: [("d0/c0/g0/0", "d0/c0/g0/1"), ("d0/c0/g1/0", "d0/c0/g1/1")]}
    builder = PreferredPairBuilder(PROMPTER, LabelConfig(), preferred=preferred)
    (pair,) = builder.guideline_pairs(tree, "A")
    assert (pair.chosen, pair.rejected, pair.margin) == ("guideline a", "guideline b", 0.25)
    even = {tree.comparison.id: [("d0/c0/g0/0", "d0/c0/g0/1"), ("d0/c0/g0/1", "d0/c0/g0/0")]}
    assert not list(PreferredPairBuilder(PROMPTER, LabelConfig(), preferred=even).guideline_pairs(tree, "A"))


@pytest.mark.parametrize("name", ["paper_ood", "paper_id", "paper_transfer"])
def test_the_papers_recipes_use_the_letter(name: str) -> None:
    label = configured(f"recipe={name}", "data_dir=DIR").label
    paper = yaml.safe_load((CONF / "label" / "paper.yaml").read_text())
    assert {key: getattr(label, key) for key in paper} == paper
    assert label.sft_share == (None if name == "paper_id" else 0.5), "table 6"


def test_the_letter_teaches_lists_as_sampled() -> None:
    """Ours: criteria with a kept branch that gives the label first."""
    tree = tree_of(("BBBB",), ("tttt",), ("AAAA",), ("AAAA",), ("BABA",), ("AAAA",))
    for config, order in ((LabelConfig(), [2, 3, 5, 0, 1, 4]), (LETTER, [0, 1, 2, 3, 4, 5])):
        data = TrainingData(PROMPTER, config)
        data.add(tree)
        (row,) = [row for row in data.sft if row["level"] == "criteria"]
        assert row["nodes"] == [f"d0/c{i}" for i in order]
