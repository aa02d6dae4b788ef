"""Growth: exact numbers of branches, scores in the comparison's own order, failures by reason."""

from __future__ import annotations

from collections import Counter

import pytest

from judgetrain.engines.base import Request
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.listing import sample_criteria
from judgetrain.judges.trees.schema import EvaluationTree, cost_of
from tests.builders.judges import SAMPLING
from tests.builders.scripted import Ending, ScriptedEngine, comparison, criteria, judged, noisy

PROMPTS = load_prompt_set("compact")


@pytest.mark.parametrize(("k", "guidelines", "judgments"), [(1, 1, 1), (3, 2, 2), (10, 2, 2), (4, 3, 1)])
def test_a_complete_tree_has_k_times_8_branches(k: int, guidelines: int, judgments: int) -> None:
    engine = ScriptedEngine(noisy)
    shape = Shape(count=k, criteria=k, guidelines=guidelines, judgments=judgments)
    trees = grow([comparison(i) for i in range(3)], engine, PROMPTS, shape, SAMPLING, 0)
    for tree in trees:
        leaves = [j for _, _, j in tree.judgments()]
        assert len(leaves) == k * guidelines * judgments * 2
        assert len({j.id for j in leaves}) == len(leaves)
        unreadable = sum(j.verdict is None for j in leaves)
        assert sum(tree.failures.values()) == unreadable
    steps = Counter(r.step for r in engine.requests)
    assert steps == {"criteria": 3, "guideline": 3 * k * guidelines, "judgment": 3 * k * guidelines * judgments * 2}
    assert EvaluationTree.from_row(trees[0].to_row()) == trees[0]


def test_responses_are_shown_exchanged_in_order_ba_and_their_scores_are_put_back() -> None:
    engine = ScriptedEngine(lambda r, i: judged(5, 1) if r.step == "judgment" else noisy(r, i))
    tree = grow([comparison(0, "left", "right")], engine, PROMPTS, Shape(count=1, criteria=1), SAMPLING, 0)[0]
    verdicts = {j.order: (j.score_a, j.score_b, j.verdict) for _, _, j in tree.judgments()}
    assert verdicts == {"AB": (5, 1, "A"), "BA": (1, 5, "B")}
    shown = [(r.slots["response_a"], r.slots["response_b"]) for r in engine.requests if r.step == "judgment"]
    assert shown == [("left 0", "right 0"), ("right 0", "left 0")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. tone: kind\n2. depth: says mo", ["tone: kind"]),
        ("1. tone: kind\n2. depth: says more\n", ["tone: kind", "depth: says more"]),
        ("1. tone: ki", ["tone: ki"]),
    ],
)
def test_a_criterion_that_the_token_limit_cut_is_left_out(text: str, expected: list[str]) -> None:
    engine = Ending(lambda r, i: text if r.step == "criteria" else noisy(r, i), {"criteria": "length"})
    tree = grow([comparison(0)], engine, PROMPTS, Shape(count=3, criteria=3), SAMPLING, 0)[0]
    assert [c.text for c in tree.criteria] == expected
    assert sum(c.generated_tokens for c in tree.criteria) == tree.criteria_generated_tokens == len(text.split())


def test_no_criteria_gives_a_tree_without_branches() -> None:
    engine = ScriptedEngine(lambda r, i: "I will not." if r.step == "criteria" else noisy(r, i))
    tree = grow([comparison(0)], engine, PROMPTS, Shape(count=3, criteria=3), SAMPLING, 0)[0]
    assert tree.criteria == ()
    assert tree.failures == {"criteria:none": 1}


@pytest.mark.parametrize("reason", ["too_long", "error"])
def test_completions_that_never_came_are_counted_by_reason(reason: str) -> None:
    def failing(request: Request, occurrence: int) -> str:
        return f"!{reason}" if request.step == "judgment" else noisy(request, occurrence)

    tree = grow([comparison(0)], ScriptedEngine(failing), PROMPTS, Shape(count=2, criteria=2), SAMPLING, 0)[0]
    assert tree.failures == {f"judgment:{reason}": 4}
    no_guideline = ScriptedEngine(lambda r, i: f"!{reason}" if r.step == "guideline" else noisy(r, i))
    tree = grow([comparison(0)], no_guideline, PROMPTS, Shape(count=2, criteria=2), SAMPLING, 0)[0]
    assert tree.failures == {f"guideline:{reason}": 2}
    assert not list(tree.judgments())


def test_fewer_branches_stop_the_list_where_it_is_no_longer_needed() -> None:
    engine = ScriptedEngine(noisy)
    tree = grow([comparison(0)], engine, PROMPTS, Shape(count=10, criteria=2), SAMPLING, 0)[0]
    assert engine.requests[0].sampling.stop == ("\n3.",)
    assert tree.criteria_text == criteria(2)
    assert len(tree.criteria) == 2


def test_tokens_add_up() -> None:
    shape = Shape(count=3, criteria=3, guidelines=2, judgments=2)
    tree = grow([comparison(0)], ScriptedEngine(noisy), PROMPTS, shape, SAMPLING, 0)[0]
    assert sum(c.generated_tokens for c in tree.criteria) == tree.criteria_generated_tokens
    nodes = [node for c in tree.criteria for g in c.guidelines for node in (g, *g.judgments)]
    assert len(nodes) == 3 * 2 * (1 + 4)
    prompt = tree.criteria_prompt_tokens + sum(node.prompt_tokens for node in nodes)
    generated = tree.criteria_generated_tokens + sum(node.generated_tokens for node in nodes)
    found = cost_of(tree)
    assert (found.prompt_tokens, found.generated_tokens) == (prompt, generated)


def test_a_chooser_expands_only_some_criteria_the_same_in_every_run() -> None:
    rows, shape, choose = [comparison(i) for i in range(5)], Shape(count=6, criteria=6), sample_criteria(3, 2)
    first, again = (grow(rows, ScriptedEngine(noisy), PROMPTS, shape, SAMPLING, 0, choose) for _ in range(2))
    assert first == again
    assert all(len(t.criteria) == 2 and t.criteria_text == criteria(6) for t in first)
    assert len({tuple(c.rank for c in t.criteria) for t in first}) > 1


def listing(text: str):  # type: ignore[no-untyped-def]
    return lambda request, occurrence: text if request.step == "criteria" else noisy(request, occurrence)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_first_k_criteria_cost_what_stands_before_the_next_line(k: int) -> None:
    """Words of equal length, so that shares of characters are shares of tokens; a token is a word."""
    text = "here goes list\n1. aa: bb cc\n1. aa: bb dd\n2. ee: ff gg hh ii jj\n3. kk: ll\nthat is all"
    tree = grow([comparison(0)], ScriptedEngine(listing(text)), PROMPTS, Shape(count=3, criteria=3), SAMPLING, 0)[0]
    upto = {1: "1. aa: bb cc", 2: "hh ii jj", 3: "that is all"}[k]
    written = text[: text.index(upto) + len(upto)]
    assert abs(sum(c.generated_tokens for c in tree.criteria[:k]) - len(written.split())) <= 1
    assert sum(c.generated_tokens for c in tree.criteria) == tree.criteria_generated_tokens == len(text.split())


@pytest.mark.parametrize(("reason", "calls"), [("too_long", 1), ("error", 2)])
def test_a_list_that_never_came_is_one_failure_by_its_reason(reason: str, calls: int) -> None:
    engine = ScriptedEngine(listing(f"!{reason}"))
    tree = grow([comparison(0)], engine, PROMPTS, Shape(count=3, criteria=3, top_up=True), SAMPLING, 0)[0]
    assert tree.failures == {f"criteria:{reason}": calls}
    assert len(engine.requests) == calls, "a prompt that is too long stays too long; an error may pass"
