"""What stage stress finds on the generated world, where the truth is known.

    python -m tests.benchmarks.stressed_rubrics --rules 1 2 3 4 5

Each kind of query has a rubric of the two criteria that count and of a third that does not, with the weight of the
first. Of every held-out query sixteen responses of the world's writers are scored by its annotator, who errs in 15% of
its judgments, and valued by the hidden rule or by a referee, who errs as often. Marks and weights come from half of the
queries. A row a rule and value says how many of the twelve worthless criteria are marked, and how many of the
twenty-four that count; what their weights are multiplied by in the mean; and, on the other half of the queries, what
the best of sixteen gains in truth, in standard deviations, when it is chosen by the rubric, by the rubric with the
lowered weights, by weights fitted to the same values of the same responses (least squares within prompts, the peer that
needs no stress), and by the true criteria alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.rubric_kinds import RubricByKind, RubricKind
from judgetrain.data.world import SKILL, eval_comparisons, queries, true_rubric
from judgetrain.data.world.engine import Annotator, WorldEngine
from judgetrain.data.world.rule import World, load_world
from judgetrain.engines.base import Sampling
from judgetrain.extras.rubric.measure import NOTHING
from judgetrain.extras.rubric.stress_gains import LOWERED, Stressed, best_of, figures_of, lowered, stressed_of
from judgetrain.extras.rubric.stress_pools import Pool, key_of
from judgetrain.extras.rubric.stress_stage import Stressor, rubrics_of
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.kinds.pointwise import PointwiseJudge
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.rubrics import Criterion, Rubric
from tests.benchmarks.common import parser_of
from tests.builders.rubrics import ERRORS

PROMPTS = 1200
"""Held-out queries of a rule; half of them give the marks."""
SAMPLES = 16
"""Responses to each."""
TYPICAL = 40
"""Typical queries of a kind."""


@dataclass
class Counts:
    """What is counted over the kinds of a rule."""

    worthless: list[bool]
    counting: list[bool]
    worthless_factors: list[float]
    counting_factors: list[float]
    by_rubric: list[float]
    by_lowered: list[float]
    by_fitted: list[float]
    by_truth: list[float]


def rubric_of(world: World, rule: int) -> RubricByKind:
    """Return for each kind of query its two criteria that count, and one that does not."""
    rng = random.Random(f"worthless {rule}")
    annotator = Annotator(world.language, error_rate=0.0)
    by_kind: dict[str, list[str]] = {}
    for query in queries("train"):
        by_kind.setdefault(world.language.kind_of(query), []).append(query)
    kinds = []
    for kind, of_kind in by_kind.items():
        crucial = world.deciding_for(of_kind[0]).crucial
        others = [name for name in world.language.properties if name not in crucial]
        text = world.language.properties[rng.choice(others)].criteria[0]
        worthless = Criterion(text=text, weight=2.0, guideline=annotator.sound_guideline(text))
        criteria = (*true_rubric(world, of_kind[0]).criteria, worthless)
        typical = tuple(of_kind[:: max(1, len(of_kind) // TYPICAL)][:TYPICAL])
        kinds.append(RubricKind(kind, typical, Rubric(criteria)))
    return RubricByKind(kinds[0].rubric.criteria, tuple(kinds))


def rows_of(world: World, rule: int, rubric: Rubric, by_referee: bool) -> Iterator[dict[str, object]]:
    """Yield the rows that stage stress would write."""
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=PROMPTS, rule=rule), rule)
    pools = []
    for comparison in comparisons:
        rng = random.Random(f"stress {rule} {comparison.id}")
        query = comparison.dialogue.query
        responses = tuple(world.respond(query, SKILL, rng) for _ in range(SAMPLES))
        pools.append(Pool(comparison.id, comparison.dialogue, responses))
    engine = WorldEngine(WorldEngineConfig(error_rate=ERRORS), world)
    options = JudgeOptions.of_directory(None, {"reads": "one", "score": "parsed", "aggregation": "mean"})
    judge = BranchingJudge(engine, load_prompt_set("compact"), options)
    referee = PointwiseJudge(engine, load_prompt_set("pointwise", "pointwise")) if by_referee else None
    stressor = Stressor(
        rubric=rubric,
        judge=judge,
        seed=rule,
        valuer=referee,
        rates=by_referee,
        world=None if by_referee else world,
        sampling=Sampling(),
    )
    yield from stressor.shard(pools, rule).rows


def truth_by(weights: Mapping[str, float], prompts: Sequence[Stressed]) -> float:
    """Return what the best of all responses by weighted criteria gains in truth, in standard deviations."""
    size = fmean(float(np.var(one.truth)) for one in prompts) ** 0.5
    gains = []
    for one in prompts:
        total = np.sum([weight * one.scores[key] for key, weight in weights.items()], axis=0)
        # Sums that are equal in exact arithmetic are equal here.
        gains.append(best_of(len(total), np.round(total, 9), one.truth) - float(one.truth.mean()))
    return fmean(gains) / size


def fitted_weights(prompts: Sequence[Stressed], keys: Sequence[str]) -> dict[str, float]:
    """Return the weights by which criteria come nearest to the truth within prompts, by least squares; none below 0."""
    scores = []
    truths = []
    for one in prompts:
        of_prompt = np.column_stack([one.scores[key] for key in keys])
        scores.append(of_prompt - of_prompt.mean(axis=0))
        truths.append(one.truth - one.truth.mean())
    weights, _ = nnls(np.concatenate(scores), np.concatenate(truths))
    return dict(zip(keys, weights.tolist(), strict=True))


def weights_of(criteria: Sequence[Criterion]) -> dict[str, float]:
    """Return the weights of criteria by their keys."""
    return {key_of(criterion): criterion.weight for criterion in criteria}


def counted(world: World, rule: int, by_referee: bool) -> Counts:
    """Return what is counted of a rule."""
    rubric = rubric_of(world, rule)
    rubrics = rubrics_of(rubric)
    rows = list(rows_of(world, rule, rubric, by_referee))
    # Kinds of query take turns, so that every other turn is half of each kind.
    turn = len(world.deciding)
    first_half = [row for place, row in enumerate(rows) if place // turn % 2 == 0]
    second_half = [row for place, row in enumerate(rows) if place // turn % 2]
    marking = stressed_of(first_half, rubrics)
    # The truth itself says what is gained, whoever the marks are by.
    for row in second_half:
        for response in row["responses"]:  # type: ignore[attr-defined]
            response["truth"] = float(world.quality(str(row["query"]), response["text"]))
    measuring = stressed_of(second_half, rubrics)
    counts = Counts([], [], [], [], [], [], [], [])
    for kind, prompts in marking.items():
        if not kind:
            continue
        figures = figures_of(kind, prompts, rubrics[kind], rule)
        *counting, worthless = figures.criteria
        counts.worthless.append(worthless.mark in LOWERED)
        counts.counting.extend(one.mark in LOWERED for one in counting)
        counts.worthless_factors.append(worthless.factor)
        counts.counting_factors.extend(one.factor for one in counting)
        kept, _ = lowered(rubrics[kind], figures.criteria, NOTHING)
        criteria = rubrics[kind].criteria
        counts.by_rubric.append(truth_by(weights_of(criteria), measuring[kind]))
        counts.by_lowered.append(truth_by(weights_of(kept.criteria), measuring[kind]))
        keys = [key_of(criterion) for criterion in criteria]
        counts.by_fitted.append(truth_by(fitted_weights(prompts, keys), measuring[kind]))
        counts.by_truth.append(truth_by(weights_of(criteria[:-1]), measuring[kind]))
    return counts


def main() -> None:
    """Print a row for each rule and each way to value responses."""
    parser = parser_of(__doc__)
    parser.add_argument("--rules", type=int, nargs="+", required=True)
    arguments = parser.parse_args()
    columns = ("rule", "valued by", "worthless marked", "counting marked", "weights times", "by the rubric", "lowered")
    print(f"| {' | '.join((*columns, 'by fitted weights', 'by the true criteria'))} |")
    print(f"| {' | '.join(['---'] * (len(columns) + 2))} |")
    for rule in arguments.rules:
        world = load_world(rule)
        for by_referee in (False, True):
            with threadpool_limits(1):
                counts = counted(world, rule, by_referee)
            cells = (
                str(rule),
                "a referee" if by_referee else "the rule",
                f"{sum(counts.worthless)} of {len(counts.worthless)}",
                f"{sum(counts.counting)} of {len(counts.counting)}",
                f"{fmean(counts.worthless_factors):.2f}; {fmean(counts.counting_factors):.2f}",
                f"{fmean(counts.by_rubric):.2f}",
                f"{fmean(counts.by_lowered):.2f}",
                f"{fmean(counts.by_fitted):.2f}",
                f"{fmean(counts.by_truth):.2f}",
            )
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
