"""How often prediction-powered intervals hold the truth: by judge, by number of labels, and where prompts are shared.

    python -m tests.benchmarks.powered_coverage [--simulations 20000] [--level 0.9]

Every simulation draws a world of labelled and unlabelled comparisons: whether a model wins (1), ties (0.5) or loses (0)
depends on the prompt, and a judge repeats the label with a stated chance, else it says anything. Prints Markdown: the
share of intervals that hold the true win rate, of those that are reported and of normal ones, and how wide the
reported ones are beside those of the labels alone. Nothing is measured of a judge: it is simulation throughout.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from judgetrain.extras.guarantees.prediction_powered import powered_mean
from tests.benchmarks.common import parser_of


@dataclass(frozen=True)
class Setting:
    """A judge who repeats the label with a chance, so many labels and verdicts, comparisons that share a prompt, and
    the chances that the model wins and ties."""

    repeats: float
    labels: int
    verdicts: int
    shared: int = 1
    win: float = 0.45
    tie: float = 0.2

    @property
    def share(self) -> float:
        """The true win rate; a tie is half a win."""
        return self.win + self.tie / 2


@dataclass(frozen=True)
class Coverage:
    """Shares of intervals that hold the truth, and mean widths: of those that are reported (Wilson's), of the normal
    ones, and of the reported ones of the labels alone. ``told``: the share of simulations with an interval by both."""

    held: float
    normal: float
    width: float
    alone: float
    told: float


SETTINGS = [
    *(Setting(repeats, labels, 2000) for repeats in (0.0, 0.5, 0.9) for labels in (100, 200, 500)),
    Setting(0.7, 400, 2000, shared=4),
    *(
        Setting(repeats, labels, 2000, win=win, tie=0.0)
        for win in (0.9, 0.95)
        for repeats in (0.0, 0.5, 0.9)
        for labels in (60, 100, 200)
    ),
]


def world(setting: Setting, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, verdicts and prompts of the labelled comparisons and then the others, all [labels + verdicts].

    Comparisons of one prompt have the same label with a chance of one half.
    """
    n = setting.labels + setting.verdicts
    prompts = np.arange(n) // setting.shared
    chances = [setting.win, setting.tie, 1 - setting.win - setting.tie]
    drawn, of_prompt = (rng.choice([1.0, 0.5, 0.0], size=n, p=chances) for _ in range(2))
    same = (rng.random(n) < 0.5) & (setting.shared > 1)
    labels = np.where(same, of_prompt[prompts * setting.shared], drawn)
    anything = rng.choice([1.0, 0.5, 0.0], size=n, p=[0.6, 0.1, 0.3])  # a judge who is wrong is biased
    return labels, np.where(rng.random(n) < setting.repeats, labels, anything), prompts


def coverage(setting: Setting, simulations: int, level: float, seed: int = 0) -> Coverage:
    """What came of so many simulations; those whose labels are all the same, which are told otherwise, are left out."""
    rng, rows, z = np.random.default_rng(seed), [], float(stats.norm.ppf((1 + level) / 2))
    for _ in range(simulations):
        labels, verdicts, prompts = world(setting, rng)
        known = np.arange(len(labels)) < setting.labels
        if np.ptp(labels[known]) == 0:
            continue
        found = powered_mean(
            labels[known],
            verdicts[known],
            verdicts[~known],
            clusters=prompts[known].tolist() if setting.shared > 1 else None,
            unlabelled_clusters=prompts[~known].tolist() if setting.shared > 1 else None,
        )
        shown, alone = found.bounded(z)
        held, normal = (
            shown[0] <= setting.share <= shown[1],
            abs(setting.share - found.estimate) <= z * found.variance**0.5,
        )
        rows.append([held, normal, shown[1] - shown[0], alone[1] - alone[0]])
    return Coverage(*np.mean(rows, axis=0).tolist(), told=len(rows) / simulations)


def main() -> None:
    """Measure every setting and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--simulations", type=int, default=20000)
    parser.add_argument("--level", type=float, default=0.9)
    arguments = parser.parse_args()
    print(f"{arguments.simulations} simulations of {100 * arguments.level:g}% intervals\n")
    print("| true share | judge repeats | labels | a prompt | told % | hold % | normal hold % | width | labels alone |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for setting in SETTINGS:
        found = coverage(setting, arguments.simulations, arguments.level)
        of = f"{setting.share:.2f} | {setting.repeats:.0%} | {setting.labels} | {setting.shared} | {found.told:.1%}"
        print(f"| {of} | {found.held:.1%} | {found.normal:.1%} | {found.width:.3f} | {found.alone:.3f} |", flush=True)


if __name__ == "__main__":
    main()
