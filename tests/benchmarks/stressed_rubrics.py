"""What stage stress finds on the generated world, where the truth is known.

    python -m tests.benchmarks.stressed_rubrics --rules 1 2 3 4 5
    python -m judgetrain -m stage=initial tree.reads=one judge.reads=one seed=1,2,3 output_dir=OUT
    python -m tests.benchmarks.stressed_rubrics --judges OUT/artifacts/initial/* --workers 2

Each kind of query has a rubric of the two criteria that count and of a third that does not, with the weight of the
first. Of every held-out query sixteen responses of the world's writers are scored by its annotator, who errs in 15% of
its judgments, or by a judge that was trained on that rule, which reads one response and gives scores alone. They are
valued by the hidden rule or by a referee, who errs as often. Marks and weights come from half of the queries.

A row a rule and value says how many of the twelve worthless criteria are marked, and how many of the twenty-four that
count; what their weights are multiplied by in the mean; what the best of sixteen by one of them alone gains in what
responses are valued by (a worthless one gains where a judge's score of it follows the others); what an edit gains by a
criterion, beyond its truth, that adds its words or says everything twice, and how many criteria are marked for it; and,
on the other half of the queries, what the best of sixteen gains in truth, in standard deviations, when it is chosen by
the rubric, by the rubric with the lowered weights, by weights fitted to the same values of the same responses (least
squares within prompts, the peer that needs no stress), by the true criteria alone, and by length alone. Below stand the
differences with their 95% intervals over rules (Student's t).
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from scipy.optimize import nnls
from scipy.stats import t as student
from threadpoolctl import threadpool_limits

from judgetrain.artifacts.integrity import checked
from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.rubric_kinds import RubricByKind, RubricKind
from judgetrain.data.world import SKILL, eval_comparisons, queries, true_rubric
from judgetrain.data.world.engine import Annotator, WorldEngine
from judgetrain.data.world.rule import BEST_QUALITY, World, load_world
from judgetrain.engines.base import Sampling
from judgetrain.extras.rubric.measure import NOTHING
from judgetrain.extras.rubric.stress_gains import LOWERED, Figures, Stressed, best_of, figures_of, lowered, stressed_of
from judgetrain.extras.rubric.stress_pools import Pool, key_of
from judgetrain.extras.rubric.stress_stage import Stressor, rubrics_of
from judgetrain.judges import load_judge
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.kinds.pointwise import PointwiseJudge
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.rubrics import Criterion, Rubric
from tests.benchmarks.common import parser_of
from tests.builders.rubrics import ERRORS

PROMPTS = 1200
"""Held-out queries of a rule, of which half give the marks."""
SAMPLES = 16
"""Responses to each."""
TYPICAL = 40
"""Typical queries of a kind."""
SHARD = 60
"""Prompts that are scored together."""
CHOOSERS = ("rubric", "lowered", "fitted weights", "true criteria", "length")


Row = dict[str, Any]
"""A prompt's row of stage stress."""


@dataclass
class Counts:
    """What is counted over the kinds of a rule.

    Args:
        worthless: the figures of criteria that count for nothing.
        counting: those of criteria that count.
        gains: in truth, by who chose the best of all responses.
    """

    worthless: list[Figures] = field(default_factory=list)
    counting: list[Figures] = field(default_factory=list)
    gains: dict[str, list[float]] = field(default_factory=dict)

    def gain(self, chooser: str) -> float:
        """Return the mean gain by one chooser over kinds."""
        return fmean(self.gains[chooser])


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


def annotator_of(world: World) -> BranchingJudge:
    """Return the world's annotator, who reads one response."""
    engine = WorldEngine(WorldEngineConfig(error_rate=ERRORS), world)
    options = JudgeOptions.of_directory(None, {"reads": "one", "score": "parsed", "aggregation": "mean"})
    return BranchingJudge(engine, load_prompt_set("compact"), options)


def rows_of(world: World, rule: int, judge: Any, prompts: int) -> list[Row]:
    """Return the rows that stage stress would write, valued by a referee."""
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=prompts, rule=rule), rule)
    pools = []
    for comparison in comparisons:
        rng = random.Random(f"stress {rule} {comparison.id}")
        query = comparison.dialogue.query
        responses = tuple(world.respond(query, SKILL, rng) for _ in range(SAMPLES))
        pools.append(Pool(comparison.id, comparison.dialogue, responses))
    engine = WorldEngine(WorldEngineConfig(error_rate=ERRORS), world)
    stressor = Stressor(
        rubric=rubric_of(world, rule),
        judge=judge,
        seed=rule,
        valuer=PointwiseJudge(engine, load_prompt_set("pointwise", "pointwise")),
        rates=True,
        sampling=Sampling(),
    )
    rows = []
    for first in range(0, len(pools), SHARD):
        rows.extend(stressor.shard(pools[first : first + SHARD], rule).rows)
    return rows


def valued_by_rule(world: World, rows: Sequence[Row]) -> list[Row]:
    """Return rows in which responses and edits are worth what the rule says."""
    valued = copy.deepcopy(list(rows))
    for row in valued:
        for text in (*row["responses"], *row["edits"]):
            text["truth"] = world.quality(row["query"], text["text"]) / BEST_QUALITY
    return valued


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


def gained_by_length(rows: Sequence[Row]) -> float:
    """Return what the longest of all responses gains in truth, in standard deviations."""
    gains = []
    variances = []
    for row in rows:
        lengths = np.array([float(len(response["text"].split())) for response in row["responses"]])
        truth = np.array([response["truth"] for response in row["responses"]])
        gains.append(best_of(len(lengths), lengths, truth) - float(truth.mean()))
        variances.append(float(np.var(truth)))
    return fmean(gains) / fmean(variances) ** 0.5


def counted(rule: int, rubric: RubricByKind, rows: Sequence[Row], rows_by_rule: Sequence[Row]) -> Counts:
    """Return what is counted of a rule.

    Args:
        rule: of the world.
        rubric: that is stressed.
        rows: of all prompts, by whose values criteria are marked.
        rows_by_rule: the same with the truth, which says what is gained, whoever the marks are by.
    """
    rubrics = rubrics_of(rubric)
    # Kinds of query take turns, so that every other turn is half of each kind.
    turn = len(rubric.kinds)
    marking = stressed_of([row for place, row in enumerate(rows) if place // turn % 2 == 0], rubrics)
    second_half = [row for place, row in enumerate(rows_by_rule) if place // turn % 2]
    measuring = stressed_of(second_half, rubrics)
    counts = Counts(gains={chooser: [] for chooser in CHOOSERS})
    for kind, prompts in marking.items():
        if not kind:
            continue
        figures = figures_of(kind, prompts, rubrics[kind], rule)
        *counting, worthless = figures.criteria
        counts.worthless.append(worthless)
        counts.counting.extend(counting)
        kept, _ = lowered(rubrics[kind], figures.criteria, NOTHING)
        criteria = rubrics[kind].criteria
        keys = [key_of(criterion) for criterion in criteria]
        weights = {
            "rubric": weights_of(criteria),
            "lowered": weights_of(kept.criteria),
            "fitted weights": fitted_weights(prompts, keys),
            "true criteria": weights_of(criteria[:-1]),
        }
        for chooser, of_chooser in weights.items():
            counts.gains[chooser].append(truth_by(of_chooser, measuring[kind]))
        of_kind = [row for row in second_half if row["kind"] == kind]
        counts.gains["length"].append(gained_by_length(of_kind))
    return counts


def cells_of(counts: Counts) -> list[str]:
    """Return the cells of a rule's row: marks, weights, what a criterion alone gains in truth, edits and gains."""
    groups = (counts.worthless, counts.counting)
    cells = []
    for figures in groups:
        cells.append(f"{sum(one.mark in LOWERED for one in figures)} of {len(figures)}")
    cells.append("; ".join(f"{fmean(one.factor for one in figures):.2f}" for figures in groups))
    cells.append("; ".join(f"{fmean(one.gains[-1].truth for one in figures):.2f}" for figures in groups))
    everything = [*counts.worthless, *counts.counting]
    for edit, mark in (("words", "by its words"), ("longer", "by length")):
        marked = sum(one.mark == mark for one in everything)
        cells.append(f"{mean_edit(everything, edit):.2f}; {marked} of {len(everything)}")
    cells.extend(f"{counts.gain(chooser):.2f}" for chooser in CHOOSERS)
    return cells


def mean_edit(figures: Sequence[Figures], edit: str) -> float:
    """Return what an edit, ``words`` or ``longer``, gains in the mean by the criteria that have it."""
    gains = []
    for one in figures:
        edited = getattr(one, edit)
        if edited is not None:
            gains.append(edited.gain)
    return fmean(gains)


def with_interval(values: Sequence[float]) -> str:
    """Return a mean over rules with its 95% interval."""
    mean = fmean(values)
    if len(values) < 2:
        return f"{mean:.2f}"
    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return f"{mean:.2f} ({mean - half:.2f} to {mean + half:.2f})"


def print_claims(valued_by: str, counts: Sequence[Counts]) -> None:
    """Print differences over rules."""
    parts = []
    for chooser in ("rubric", "fitted weights", "true criteria", "length"):
        differences = [of_rule.gain("lowered") - of_rule.gain(chooser) for of_rule in counts]
        parts.append(f"less {chooser} {with_interval(differences)}")
    for edit in ("words", "longer"):
        gains = [mean_edit([*of_rule.worthless, *of_rule.counting], edit) for of_rule in counts]
        parts.append(f"edit {edit} {with_interval(gains)}")
    print(f"- {valued_by}: lowered {', '.join(parts)}")


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A rule and who scores its responses; ``directory``: of a finished stage of a judge, None for the annotator."""

    rule: int
    directory: Path | None

    def judge(self, world: World) -> Any:
        """Return the judge, to be closed."""
        if self.directory is None:
            return annotator_of(world)
        # The score stands before its reasons, so that it is the same without them.
        return load_judge(self.directory / "model", reads="one", aggregation="mean", reasons=False)


def scored_of(rules: Sequence[int], directories: Sequence[Path]) -> Iterator[Scored]:
    """Yield who scores the responses of which rule.

    Args:
        rules: by the annotator.
        directories: of finished stages initial, sft or dpo, whose seed is their rule.
    """
    for rule in rules:
        yield Scored(rule=rule, directory=None)
    for directory in directories:
        manifest = checked(directory)
        assert manifest is not None, f"{directory} is not finished"
        yield Scored(rule=manifest["seed"], directory=directory)


def measured(scored: Scored, prompts: int) -> dict[str, Counts]:
    """Return what is counted on a rule, by how its responses are valued."""
    world = load_world(scored.rule)
    judge = scored.judge(world)
    rows = rows_of(world, scored.rule, judge, prompts)
    judge.close()
    rows_by_rule = valued_by_rule(world, rows)
    rubric = rubric_of(world, scored.rule)
    counts = {}
    for valued_by, valued in (("the rule", rows_by_rule), ("a referee", rows)):
        with threadpool_limits(1):
            counts[valued_by] = counted(scored.rule, rubric, valued, rows_by_rule)
    return counts


def main() -> None:
    """Print a row for each rule and each way to value responses."""
    parser = parser_of(__doc__)
    parser.add_argument("--rules", type=int, nargs="*", default=[])
    parser.add_argument("--judges", type=Path, nargs="*", default=[], help="directories of finished stages")
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    parser.add_argument("--workers", type=int, default=1, help="rules at a time, each in a process of its own")
    arguments = parser.parse_args()
    columns = (
        "rule",
        "valued by",
        "worthless marked",
        "counting marked",
        "weights times",
        "alone",
        "by words",
        "by length",
    )
    choosers = [f"by {chooser}" for chooser in CHOOSERS]
    print(f"| {' | '.join((*columns, *choosers))} |")
    print(f"| {' | '.join(['---'] * (len(columns) + len(choosers)))} |")
    all_counts: dict[str, list[Counts]] = {}
    of_all = list(scored_of(arguments.rules, arguments.judges))
    with ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn")) as workers:
        for scored, by_value in zip(
            of_all, workers.map(partial(measured, prompts=arguments.prompts), of_all), strict=True
        ):
            for valued_by, counts in by_value.items():
                all_counts.setdefault(valued_by, []).append(counts)
                print(f"| {' | '.join((str(scored.rule), valued_by, *cells_of(counts)))} |", flush=True)
    print()
    for valued_by, of_rules in all_counts.items():
        print_claims(valued_by, of_rules)


if __name__ == "__main__":
    main()
