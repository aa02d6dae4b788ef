"""How often prediction-powered intervals hold the truth: by judge, by number of labels, and where prompts are shared.

    python -m tests.benchmarks.powered_coverage [--simulations 20000] [--level 0.9]

Every simulation draws a world of labelled and unlabelled comparisons: whether a model wins (1), ties (0.5) or loses (0)
depends on the prompt, and a judge repeats the label with a stated chance, else it says anything. Prints Markdown: the
share of intervals that hold the true win rate, and how wide they are beside those of the labels alone.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from judgetrain.evaluate.guarantees.prediction_powered import powered_mean

WIN, TIE = 0.45, 0.2
"""The chances of a win and of a tie, and so the true win rate, 0.55."""
TRUTH = WIN + TIE / 2


@dataclass(frozen=True)
class Setting:
    """A judge who repeats the label with a chance, so many labels and verdicts, and comparisons that share a prompt."""

    repeats: float
    labels: int
    verdicts: int
    shared: int = 1


SETTINGS = [Setting(repeats, labels, 2000) for repeats in (0.0, 0.5, 0.9) for labels in (100, 200, 500)] + [
    Setting(0.7, 400, 2000, shared=4)
]


def world(setting: Setting, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, verdicts and prompts of the labelled comparisons and then the others, all [labels + verdicts].

    Comparisons of one prompt have the same label with a chance of one half.
    """
    n = setting.labels + setting.verdicts
    prompts = np.arange(n) // setting.shared
    drawn, of_prompt = (rng.choice([1.0, 0.5, 0.0], size=n, p=[WIN, TIE, 1 - WIN - TIE]) for _ in range(2))
    same = (rng.random(n) < 0.5) & (setting.shared > 1)
    labels = np.where(same, of_prompt[prompts * setting.shared], drawn)
    anything = rng.choice([1.0, 0.5, 0.0], size=n, p=[0.6, 0.1, 0.3])  # a judge who is wrong is biased
    return labels, np.where(rng.random(n) < setting.repeats, labels, anything), prompts


def coverage(setting: Setting, simulations: int, level: float, seed: int = 0) -> tuple[float, float, float]:
    """The share of intervals that hold the truth, their mean width, and that of the labels alone."""
    rng, held, widths = np.random.default_rng(seed), [], []
    for _ in range(simulations):
        labels, verdicts, prompts = world(setting, rng)
        known = np.arange(len(labels)) < setting.labels
        found = powered_mean(
            labels[known],
            verdicts[known],
            verdicts[~known],
            level,
            clusters=prompts[known].tolist(),
            unlabelled_clusters=prompts[~known].tolist(),
        )
        held.append(found.interval[0] <= TRUTH <= found.interval[1])
        widths.append([found.interval[1] - found.interval[0], found.alone_interval[1] - found.alone_interval[0]])
    width, alone = np.mean(widths, axis=0)
    return float(np.mean(held)), float(width), float(alone)


def main() -> None:
    """Measure every setting and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=20000)
    parser.add_argument("--level", type=float, default=0.9)
    arguments = parser.parse_args()
    print(f"{arguments.simulations} simulations of {100 * arguments.level:g}% intervals\n")
    print("| judge repeats the label | labels | verdicts | comparisons a prompt | hold % | width | labels alone |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for setting in SETTINGS:
        held, width, alone = coverage(setting, arguments.simulations, arguments.level)
        of = f"{setting.repeats:.0%} | {setting.labels} | {setting.verdicts} | {setting.shared}"
        print(f"| {of} | {100 * held:.1f} | {width:.3f} | {alone:.3f} |")


if __name__ == "__main__":
    main()
