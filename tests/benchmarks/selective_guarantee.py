"""How often the guarantee of selective judging is broken: what is answered agrees less often than was asked for.

    python -m tests.benchmarks.selective_guarantee [--resamples 1000]
    python -m tests.benchmarks.selective_guarantee outputs/artifacts/evaluate/FINGERPRINT --method dpo

Every resample draws calibration items and others (for the order of thresholds), sets the threshold, and looks how often
the whole population agrees at it. The population is a large simulated one, whose judges say how sure they are, rightly
or with noise; or with a directory, the labelled comparisons of a finished evaluation, drawn with replacement. Prints
Markdown: the share of resamples in which the guarantee was broken, and what was answered.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet

from judgetrain.extras.guarantees.selective import NEVER, Tiers, certified, thresholds
from tests.benchmarks.common import parser_of

POPULATION = 50_000


def simulated(seed: int, noise: float = 0.0) -> Tiers:
    """A population judged by 1, 3 and 10 branches: the more, the more often right.

    The confidence of a tier is its true chance to be right, of which a share is ``noise``. In a tenth of the items the
    orders differ.
    """
    rng = np.random.default_rng(seed)
    ease = rng.normal(0.6, 1.3, POPULATION)
    confidence, right = [], []
    for skill in (0.0, 0.4, 0.8):
        chance = 1 / (1 + np.exp(-(ease + skill + rng.normal(0, 0.5, POPULATION))))
        right.append(rng.random(POPULATION) < chance)
        sure = (1 - noise) * chance + noise * rng.random(POPULATION)
        confidence.append(np.where(rng.random(POPULATION) < 0.1, NEVER, sure))
    known = np.array(confidence)
    tokens = np.repeat([[60.0], [180.0], [600.0]], POPULATION, axis=1)
    return Tiers(known, np.array(right) & (known > NEVER), tokens)


def stored(directory: Path, method: str) -> Tiers:
    """The labelled comparisons of a finished evaluation, a tier a number of branches; sure by the margin."""
    rows = pyarrow.parquet.read_table(directory / "predictions.parquet").to_pylist()
    mine = [r for r in rows if r["method"] == method and r["label"] is not None]
    tiers = [[r for r in mine if r["branches"] == k] for k in sorted({r["branches"] for r in mine})]
    same = [[r["verdict_ab"] == r["verdict_ba"] is not None for r in tier] for tier in tiers]
    margin = [[abs(r["margin"] or 0.0) for r in tier] for tier in tiers]
    right = [[r["verdict_ab"] == r["verdict_ba"] == r["label"] for r in tier] for tier in tiers]
    tokens = [[r["generated_tokens"] for r in tier] for tier in tiers]
    return Tiers(np.where(same, margin, NEVER), np.array(right), np.array(tokens))


def broken(
    population: Tiers, items: int, agreement: float, risk: float, resamples: int, seed: int = 0
) -> tuple[float, float, float]:
    """The share of resamples whose threshold agrees less often than asked for over the whole population, the share that
    had a threshold at all, and the mean share answered."""
    rng, n = np.random.default_rng(seed), population.right.shape[1]
    worse, found, covered = [], [], []
    for _ in range(resamples):
        calibration, others = (rng.integers(n, size=items) for _ in range(2))
        drawn = Tiers(*(a[:, calibration] for a in (population.confidence, population.right, population.tokens)))
        sequence = thresholds(population.confidence[:, others], items, agreement, risk)
        threshold = certified(drawn, sequence, agreement, risk)
        found.append(threshold is not None)
        if threshold is None:
            worse.append(False)
            covered.append(0.0)
            continue
        asked = population.ask(threshold)
        worse.append(asked.agreement is not None and asked.agreement < agreement)
        covered.append(asked.coverage)
    return float(np.mean(worse)), float(np.mean(found)), float(np.mean(covered))


def main() -> None:
    """Measure and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("evaluation", type=Path, nargs="?")
    parser.add_argument("--method", default="dpo")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--risk", type=float, default=0.1)
    arguments = parser.parse_args()
    populations = {"rightly sure": simulated(0), "half of it noise": simulated(0, 0.5)}
    sizes = [100, 300]
    if arguments.evaluation:
        populations = {arguments.method: stored(arguments.evaluation, arguments.method)}
        sizes = [populations[arguments.method].right.shape[1] // 2]
    print("| judge | calibration items | asked for % | broken % | has a threshold % | answered % |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, population in populations.items():
        for items in sizes:
            for agreement in (0.7, 0.8, 0.9):
                shares = broken(population, items, agreement, arguments.risk, arguments.resamples)
                cells = " | ".join(f"{100 * share:.1f}" for share in shares)
                print(f"| {name} | {items} | {100 * agreement:g} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
