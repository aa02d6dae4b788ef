"""What criteria are worth: what decides about a kind of queries is found over trees that each know little of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.schema import DISCOUNT, EvaluationTree
from judgetrain.label.config import LabelConfig
from judgetrain.label.examples import Prompter
from judgetrain.label.labels import ensemble_label
from judgetrain.label.stage import TrainingData
from judgetrain.label.worth import FEWEST, Worth, learn
from judgetrain.schema import Comparison, Verdict
from tests.builders.label import tree_of

NAMES = [f"{word}: the response {word}s" for word in "add bend call dig end fit get hit kick load mix nod".split()]
NAMES += [f"{word}: has {word} enough" for word in "salt wit charm depth pace tone".split()]
KINDS = {"how do i cook {} for my {}": NAMES[0], "write a poem about {} to my {}": NAMES[13]}
THINGS, PEOPLE = ["soup", "rain", "bread", "stars", "tea", "snow", "corn"], ["boss", "aunt", "class", "friend", "team"]


def world(number: int, seed: int) -> tuple[list[EvaluationTree], dict[str, str], dict[str, Verdict]]:
    """Trees of six criteria: one decides about the query and errs in 10% of them, the others say what they like."""
    rng, trees, deciding, truth = random.Random(seed), [], {}, {}
    for i in range(number):
        kind = list(KINDS)[i % 2]
        listed = rng.sample([KINDS[kind], *rng.sample([n for n in NAMES if n != KINDS[kind]], 5)], 6)
        side = rng.choice("AB")
        said = [
            (side if rng.random() < 0.9 else "ABt"[i % 3]) if n == KINDS[kind] else rng.choice("ABtt") for n in listed
        ]
        tree = tree_of(*[(word * 2,) for word in said], index=i)
        query = kind.format(rng.choice(THINGS), rng.choice(PEOPLE)) + f" , number {i}"
        criteria = tuple(replace(c, text=text) for c, text in zip(tree.criteria, listed, strict=True))
        comparison = replace(Comparison.of(query, f"one {i}", f"two {i}"), id=f"d{i}", label=side)  # type: ignore[arg-type]
        trees.append(replace(tree, comparison=comparison, criteria=criteria))
        deciding[comparison.id], truth[comparison.id] = KINDS[kind], side  # type: ignore[assignment]
    return trees, deciding, truth


def by_vote(tree: EvaluationTree) -> Verdict | None:
    return ensemble_label(tree, LabelConfig()).verdict


def learned(trees: list[EvaluationTree], label_of: Callable[[EvaluationTree], Verdict | None], relabel: bool) -> Worth:
    found = learn(trees, label_of, relabel)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_decides_is_found_without_a_label_and_the_labels_get_better(seed: int) -> None:
    trees, deciding, truth = world(400, seed)
    found = learned(trees, by_vote, relabel=True)
    first = [found.ranked(tree)[0].text == deciding[tree.comparison.id] for tree in trees]
    labels = [found.label(tree, ensemble_label(tree, LabelConfig())) for tree in trees]
    right = [label.verdict == truth[tree.comparison.id] for tree, label in zip(trees, labels, strict=True)]
    voted = [by_vote(tree) == truth[tree.comparison.id] for tree in trees]
    assert sum(first) > 0.95 * len(trees) and 0.1 < found.explained < 1
    assert sum(voted) < 0.7 * len(trees) and sum(right) > 0.8 * len(trees), "nine in ten is the ceiling"
    assert all(0.5 <= label.share <= 1 for label in labels)


def test_given_labels_stay_what_they_are_and_teach_as_well() -> None:
    trees, deciding, truth = world(300, 5)
    found = learned(trees, lambda tree: truth[tree.comparison.id], relabel=False)
    assert sum(found.ranked(t)[0].text == deciding[t.comparison.id] for t in trees) > 0.95 * len(trees)


def test_a_tree_has_no_part_in_what_its_own_criteria_are_worth() -> None:
    trees, _, truth = world(200, 3)
    mirrored = tree_of(*[("BB" if c.judgments[0].verdict == "A" else "AA",) for c in trees[0].criteria], index=0)
    judged = [replace(c, guidelines=m.guidelines) for c, m in zip(trees[0].criteria, mirrored.criteria, strict=True)]
    other = [replace(trees[0], criteria=tuple(judged)), *trees[1:]]
    one, two = (learned(each, lambda tree: truth[tree.comparison.id], relabel=False) for each in (trees, other))
    for criterion in trees[0].criteria:
        assert two.criteria[criterion.id] == pytest.approx(one.criteria[criterion.id], abs=1e-9)
    assert two.sides["d0"] != one.sides["d0"], "but what they say of this comparison is theirs"


def test_where_there_is_nothing_to_learn_there_is_no_worth() -> None:
    trees, _, _ = world(FEWEST - 1, 0)
    assert learn(trees, by_vote, relabel=True) is None
    rng = random.Random(0)
    noise = [
        replace(t, criteria=tuple(replace(c, guidelines=tree_of((rng.choice(["AA", "BB"]),)).criteria[0].guidelines)
                                  for c in t.criteria))
        for t in world(120, 0)[0]
    ]  # fmt: skip
    labels = {t.comparison.id: rng.choice("AB") for t in noise}
    assert learn(noise, lambda t: labels[t.comparison.id], relabel=False) is None  # type: ignore[arg-type,return-value]
    same = [replace(t, comparison=replace(Comparison.of("one", "a", "b"), id=t.comparison.id)) for t in world(80, 0)[0]]
    assert learn(same, by_vote, relabel=True) is None, "there is no other query to learn from"


def test_what_could_not_be_read_is_ranked_by_what_others_say_of_its_like() -> None:
    trees, deciding, _ = world(200, 4)
    unread = tree_of(*[("??",)] * 6, index=0).criteria
    blind = [replace(c, guidelines=u.guidelines) for c, u in zip(trees[0].criteria, unread, strict=True)]
    found = learned([replace(trees[0], criteria=tuple(blind)), *trees[1:]], by_vote, relabel=True)
    assert found.ranked(trees[0])[0].text == deciding["d0"] and found.sides["d0"] == (0.0, 0.0)


def test_lists_by_worth_are_taught_against_the_sampled_one_and_random_ones() -> None:
    trees, _, _ = world(120, 6)
    found = learned(trees, by_vote, relabel=True)
    data = TrainingData(Prompter(load_prompt_set("compact"), 6), LabelConfig(levels=["criteria"]), worth=found)
    for tree in trees:
        data.add(tree)
    listed = {t.comparison.id: [f"{i}. {c.text}" for i, c in enumerate(found.ranked(t), 1)] for t in trees}
    worth = {(t.comparison.id, c.text): found.criteria[c.id] for t in trees for c in t.criteria}
    assert len(data.pairs) >= 3 * len(trees)
    for pair in data.pairs:
        name = pair.comparison_id
        assert pair.chosen.splitlines() == listed[name], "what is worth most first"
        sides = [[line.split(". ", 1)[1] for line in side.splitlines()] for side in (pair.chosen, pair.rejected)]
        assert sorted(sides[0]) == sorted(sides[1])
        totals = [sum(worth[name, text] * DISCOUNT**i for i, text in enumerate(side)) for side in sides]
        assert pair.margin == pytest.approx(totals[0] - totals[1]) and pair.margin > 0
    taught = [row for row in data.sft if row["level"] == "criteria"]
    assert all(row["completion"][0]["content"].splitlines() == listed[row["comparison_id"]] for row in taught)
    sampled = {t.comparison.id: "\n".join(f"{i}. {c.text}" for i, c in enumerate(t.criteria, 1)) for t in trees}
    assert sum(p.rejected == sampled[p.comparison_id] for p in data.pairs) > 0.9 * len(trees)
    assert 0 < data.table()["criteria_worth"]["explained"] < 1
