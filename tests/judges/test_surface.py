"""The floor of surface statistics: it finds a word that tells the better response, never from a prompt's own label."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from judgetrain.judges import BASELINES
from judgetrain.judges.kinds.surface import STRENGTH, SurfaceJudge, differences
from judgetrain.schema import Comparison, Message
from tests.builders.scripted import comparison

WORDS = ("red", "green", "blue", "grey", "pink", "brown")


def made(count: int, seed: int, share: float = 1.0, ties: int = 0) -> list[Comparison]:
    """Comparisons in which the side that says "please" is the better one in a ``share``; the last ``ties`` are ties."""
    rng, found = random.Random(seed), []
    for i in range(count):
        a, b = (" ".join(rng.choices(WORDS, k=6)) for _ in range(2))
        polite = rng.choice("AB")
        a, b = (a + " please", b) if polite == "A" else (a, b + " please")
        label = polite if rng.random() < share else {"A": "B", "B": "A"}[polite]
        found.append(comparison(i, a, b, "tie" if i >= count - ties else label))
    return found


def verdicts(comparisons: list[Comparison]) -> list[str | None]:
    found = SurfaceJudge().compare_all(comparisons, 0)
    assert all(p.verdict_ab == p.verdict_ba for p in found)
    return [p.verdict_ab for p in found]


def test_a_telling_word_is_found_and_noise_is_not() -> None:
    items = made(200, 0, ties=20)
    assert verdicts(items)[:180] == [c.label for c in items[:180]]
    noise = made(600, 1, share=0.5)
    right = np.mean([v == c.label for v, c in zip(verdicts(noise), noise, strict=True)])
    assert abs(right - 0.5) < 0.08  # standard error 0.02


def test_exchanged_responses_exchange_the_verdicts() -> None:
    items = made(120, 2, share=0.8)
    mirrored = {"A": "B", "B": "A"}
    assert verdicts([c.swapped() for c in items]) == [mirrored[v] for v in verdicts(items) if v]


def test_a_prompts_own_labels_are_not_learned_from() -> None:
    """Each prompt has words of its own that tell its four comparisons apart: of other prompts they say nothing."""
    items = []
    for i in range(160):
        better, worse = f"good{i // 4}", f"poor{i // 4}"
        each = comparison(i, better, worse, "A") if i % 2 else comparison(i, worse, better, "B")
        items.append(replace(each, dialogue=replace(each.dialogue, messages=(Message("user", f"prompt {i // 4}"),))))
    assert verdicts(items) == ["tie"] * 160
    alone = [replace(c, dialogue=replace(c.dialogue, messages=(Message("user", c.id),))) for c in items]
    assert verdicts(alone) == [c.label for c in alone]


def test_verdicts_are_those_of_another_solver() -> None:
    items = made(150, 3, share=0.7)
    features = differences(items).toarray()
    signs = np.array([1 if c.label == "A" else -1 for c in items])
    prompts = np.unique([repr(c.dialogue.messages) for c in items], return_inverse=True)[1]
    found = np.zeros(len(items))
    for others, fold in GroupKFold(10).split(features, groups=prompts):
        strength = STRENGTH * 1000 / len(others)
        model = LogisticRegression(C=strength, fit_intercept=False, solver="lbfgs", tol=1e-8, max_iter=5000)
        both = np.vstack([features[others], -features[others]])
        model.fit(both, np.concatenate([signs[others], -signs[others]]))
        found[fold] = features[fold] @ model.coef_[0]
    assert verdicts(items) == ["A" if margin > 0 else "B" for margin in found]


def test_without_labels_there_is_no_verdict() -> None:
    found = SurfaceJudge().compare_all([comparison(i) for i in range(5)], 0)
    assert [(p.verdict_ab, p.failures) for p in found] == [(None, {"too_few_labels": 1})] * 5
    alone = SurfaceJudge().compare(comparison(0, label="A"))
    assert alone.verdict_ab is None
    assert BASELINES["surface"] is SurfaceJudge
