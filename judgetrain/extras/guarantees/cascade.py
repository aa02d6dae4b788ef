"""Selective judging as an evaluation reports it: thresholds set on some queries, numbers of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.extras.guarantees.selective import NEVER, Tiers, certified, lower_bound, thresholds
from judgetrain.judges.base import Prediction

LEAST = 20
"""Labelled comparisons on either side: of fewer nothing is said."""
RISK = 0.1
"""The chance that the guarantee is broken nevertheless."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a threshold comes to on ``n`` comparisons that did not set it.

    ``threshold`` None: none passed on the ``calibrated`` comparisons, and nothing is answered. ``coverage``: the share
    answered, ``agreement`` of the answers, ``bound`` its exact one-sided lower bound, which holds with a chance of
    1 - risk (of one answer a prompt, drawn by the seed: answers to one prompt are not independent);
    ``tokens``: generated per verdict in one order, abstentions included; ``tiers``: the share answered by each.
    """

    n: int
    calibrated: int
    threshold: float | None
    coverage: float = 0.0
    agreement: float | None = None
    bound: float | None = None
    tokens: float | None = None
    tiers: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Selective:
    """A method that may abstain.

    Its ``tiers`` by name, what was ``wanted`` at which ``risk``, and what it came to as a ``whole`` and by group.
    """

    tiers: tuple[str, ...]
    wanted: float
    risk: float
    whole: Answers
    groups: dict[str, Answers]
    told: str


def selective(
    benchmark: Benchmark,
    tiers: Sequence[Sequence[Prediction]],
    calibrating: NDArray[np.bool_],
    wanted: float,
    seed: int,
) -> Selective | None:
    """Selective judging by one method, None where either side has fewer than :data:`LEAST` labelled comparisons.

    Args:
        benchmark: what was judged.
        tiers: the predictions with each number of branches, the fewest first, in the benchmark's order.
        calibrating: which comparisons set thresholds, bool [n]; a query is on one side only.
        wanted: how often answers are to agree with the labels.
        seed: of the one comparison that calibrates where several share a prompt.
    """
    labelled = np.array([c.label is not None for c in benchmark.comparisons])
    prompts, ids = [benchmark.prompt_of(c) for c in benchmark.comparisons], [c.id for c in benchmark.comparisons]
    alone = partial(_one_a_prompt, prompts=prompts, ids=ids, seed=seed)
    calibrates = alone(labelled & calibrating)
    reported = labelled & ~calibrating
    if min(calibrates.sum(), reported.sum()) < LEAST:
        return None
    found = _tiers(benchmark, tiers)
    groups = np.array([c.group or "" for c in benchmark.comparisons], dtype=object)

    def answers(of: NDArray[np.bool_]) -> Answers:
        return _answers(found, calibrates & of, reported & of, alone, wanted)

    whole = answers(np.ones(len(labelled), dtype=bool))
    return Selective(
        tiers=tuple(f"{p.method}@{p.branches}" if p.branches else p.method for p, *_ in tiers),
        wanted=wanted,
        risk=RISK,
        whole=whole,
        groups={name: answers(groups == name) for name in sorted({*groups[reported]} - {""})},
        told=_told(whole, wanted),
    )


def _one_a_prompt(kept: NDArray[np.bool_], prompts: Sequence[str], ids: Sequence[str], seed: int) -> NDArray[np.bool_]:
    """Of the items of one prompt one alone, drawn by the seed: the binomial test needs independent items."""
    chosen: dict[str, tuple[int, int]] = {}
    for i in np.flatnonzero(kept).tolist():
        mine = derive_seed(seed, "calibrates", ids[i]), i
        chosen[prompts[i]] = min(mine, chosen.get(prompts[i], mine))
    result = np.zeros(len(kept), dtype=bool)
    result[[i for _, i in chosen.values()]] = True
    return result


def _tiers(benchmark: Benchmark, tiers: Sequence[Sequence[Prediction]]) -> Tiers:
    """The tiers as arrays. A larger number of branches holds the smaller ones, and so has spent their tokens."""
    labels = [c.label for c in benchmark.comparisons]
    right = [[p.verdict == y for p, y in zip(each, labels, strict=True)] for each in tiers]
    sure = [[_confidence(p) for p in each] for each in tiers]
    spent = [[p.cost.generated_tokens for p in each] for each in tiers]
    return Tiers(np.array(sure, dtype=float), np.array(right, dtype=bool), np.array(spent, dtype=float))


def _confidence(prediction: Prediction) -> float:
    """How sure a verdict is: the size of its margin, 0 where there is none."""
    if prediction.verdict not in ("A", "B", "tie"):
        return NEVER
    return 0.0 if prediction.margin is None else abs(prediction.margin)


def _answers(
    tiers: Tiers,
    calibrates: NDArray[np.bool_],
    reported: NDArray[np.bool_],
    alone: Callable[[NDArray[np.bool_]], NDArray[np.bool_]],
    wanted: float,
) -> Answers:
    n, items = int(reported.sum()), int(calibrates.sum())
    sequence = thresholds(tiers.confidence[:, reported], items, wanted, RISK) if n and items else []
    threshold = certified(tiers.part(calibrates), sequence, wanted, RISK)
    if threshold is None:
        return Answers(n=n, calibrated=items, threshold=None)
    everything, asked = tiers.ask(threshold), tiers.part(reported).ask(threshold)
    independent = everything.right[alone(reported & everything.answered)]
    tokens, answered = float(asked.tokens.mean()), len(independent)
    return Answers(
        n=n,
        calibrated=items,
        threshold=round(threshold, 6),
        coverage=round(asked.coverage, 6),
        agreement=None if asked.agreement is None else round(asked.agreement, 6),
        bound=round(lower_bound(int(independent.sum()), answered, RISK), 6) if answered else None,
        tokens=None if np.isnan(tokens) else round(tokens, 3),
        tiers=tuple(round(float((asked.tier == i).mean()), 6) for i in range(len(tiers.right))),
    )


def _told(whole: Answers, wanted: float) -> str:
    sure, asked = f"{100 * (1 - RISK):g}%", f"{100 * wanted:g}%"
    if whole.threshold is None:
        return f"abstains: no threshold passes for {asked} on {whole.calibrated} comparisons"
    seen = "–" if whole.agreement is None else f"{100 * whole.agreement:.1f}%"
    return (
        f"answers {100 * whole.coverage:.0f}% of the comparisons; of these at least {asked} agree, with {sure} "
        f"confidence ({seen} seen on {whole.n} others)"
    )
