"""How well each mode of a reward ranks a group of responses, and how many pairs it asks about.

    python -m tests.benchmarks.reward_modes [JUDGE ...] --groups 200 --branches 1

Groups of eight responses to held-out queries of the world, by writers of different skill, whose true quality is known.
Judges: the world's referee with stated shares of errors, each error independent of every other, asked once a pair
(``one_step``) or once a response (``rating``); and the judges named. For each mode the mean Spearman correlation of
scalars and true quality over the groups, its share of round robin's with a 95% bootstrap interval over groups, and the
share of round robin's pairs. A group whose scalars are all equal counts as 0, one whose truth is all equal not at all.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from judgetrain.data.config import WorldEngineConfig
from judgetrain.data.world.engine import WorldEngine
from judgetrain.data.world.language import load_language
from judgetrain.data.world.splits import queries
from judgetrain.data.world.writers import write_response
from judgetrain.extras.judge_reward.groups import MODES, Group, scalars
from judgetrain.judges import Judge, OneStepJudge, SingleRatingJudge, load_judge
from judgetrain.judges.base import Prediction
from judgetrain.schema import Comparison
from tests.benchmarks.common import parser_of

SIZE = 8
ERRORS = (0.0, 0.05, 0.1, 0.2, 0.4)


@dataclass(frozen=True)
class Case:
    """A group and the true quality of its responses."""

    group: Group
    truth: tuple[int, ...]


def cases(count: int, seed: int = 0, skill: float | None = None) -> list[Case]:
    """Groups whose responses are not all equally good; ``skill``: of every writer; None: drawn from 0.2 to 0.9."""
    language, rng = load_language(), random.Random(f"reward modes {seed}")
    found: list[Case] = []
    for query in rng.sample(queries("heldout"), 2 * count):
        skills = [rng.uniform(0.2, 0.9) if skill is None else skill for _ in range(SIZE)]
        responses = [write_response(language, query, each, rng) for each in skills]
        truth = tuple(language.quality(query, response) for response in responses)
        if len(set(truth)) > 1:
            found.append(Case(Group(query, responses), truth))
    return found[:count]


class Asked:
    """A judge that is asked about every comparison once, and counts what is asked since ``count`` was set to 0."""

    def __init__(self, judge: Judge) -> None:
        self._judge, self._known, self.count = judge, dict[str, Prediction](), 0

    def __call__(self, comparisons: Sequence[Comparison]) -> list[Prediction]:
        self.count += len(comparisons)
        new = [c for c in comparisons if c.id not in self._known]
        if new:
            self._known |= {c.id: p for c, p in zip(new, self._judge.compare_all(new), strict=True)}
        return [self._known[c.id] for c in comparisons]


def correlations(found: Sequence[Case], ask: Asked, mode: str) -> np.ndarray:
    """Spearman's correlation of scalars and truth in each group; what has no scalar stands in the middle."""
    result = []
    for case, row in zip(found, scalars([c.group for c in found], ask, mode), strict=True):
        known = [value for value in row if value is not None]
        middle = float(np.mean(known)) if known else 0.0
        values = np.round([middle if value is None else value for value in row], 9)
        result.append(0.0 if np.ptp(values) == 0 else float(spearmanr(values, case.truth)[0]))
    return np.array(result)


def interval(part: np.ndarray, whole: np.ndarray, draws: int = 2000) -> tuple[float, float]:
    """The 95% bootstrap interval of the ratio of two means over the same groups."""
    picked = np.random.default_rng(0).integers(len(part), size=(draws, len(part)))
    low, high = np.quantile(part[picked].mean(axis=1) / whole[picked].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


def rows(name: str, judge: Judge, found: Sequence[Case]) -> list[str]:
    """The lines of the table for one judge."""
    ask, lines = Asked(judge), []
    whole = correlations(found, ask, "round_robin")
    pairs = ask.count
    for mode in MODES:
        ask.count = 0
        part = correlations(found, ask, mode)
        low, high = interval(part, whole)
        lines.append(
            f"| {name} | {mode} | {part.mean():.3f} | "
            f"{100 * part.mean() / whole.mean():.1f} ({100 * low:.1f} to {100 * high:.1f}) | "
            f"{100 * ask.count / pairs:.1f} | {len(found)} |"
        )
    return lines


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("judges", nargs="*", help="judges by name, as for load_judge")
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--branches", type=int, default=1)
    parser.add_argument("--aggregation", default="clear")
    parser.add_argument("--skill", type=float, help="of every writer; by default each has its own")
    options = parser.parse_args()
    found = cases(options.groups, skill=options.skill)
    print("| judge | mode | Spearman | % of round robin's | % of its pairs | groups |\n" + "| --- " * 6 + "|")
    if options.judges:
        for name in options.judges:
            judge = load_judge(name, options.branches, aggregation=options.aggregation, temperature=0.0)
            print("\n".join(rows(f"{judge.name}, {options.branches} branches", judge, found)), flush=True)
        return
    for errors in ERRORS:
        engine = WorldEngine(WorldEngineConfig(error_rate=errors))
        for made in (OneStepJudge(engine), SingleRatingJudge(engine)):
            print("\n".join(rows(f"{made.name}, {errors:.0%} errors", made, found)), flush=True)


if __name__ == "__main__":
    main()
