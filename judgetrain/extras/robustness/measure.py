"""Measure what attacks did to a method, from its verdicts with and without them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from judgetrain.data.intervals import Interval, wilson_interval
from judgetrain.evaluate.hooks import Measured, Predicted
from judgetrain.evaluate.metrics.rows import MethodKey
from judgetrain.evaluate.metrics.verdicts import mirrored
from judgetrain.extras.robustness.attack_suite import AttackedCase, AttackSuite
from judgetrain.judges.predictions import Prediction
from judgetrain.schema import Verdict

Verdicts = tuple[Verdict | None, Verdict | None]
"""A verdict with A shown first and one with B shown first, both in the comparison's own order."""
Outcome = tuple[AttackedCase, Verdicts, Verdicts]
"""An attacked comparison, and the verdicts without and with the attack."""


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """One attack, or all of a kind (``attack`` is then empty), over ``n`` attacked comparisons.

    In the attacked comparison A is the worse response, which is to gain. Shares are from 0 to 1; ``..._ci``: 95% Wilson
    intervals, over prompts where comparisons or attacks share one. What does not concern a kind is None.
    """

    attack: str
    kind: str
    n: int
    unreadable: int | None = None
    """Comparisons of which an order could not be read without the attack, where the label stays: ``robustness`` is of
    the others, and None without any."""
    robustness: float | None = None
    robustness_ci: Interval | None = None
    """Comparisons on which neither order changed (CALM's robustness rate)."""
    loses: float | None = None
    loses_ci: Interval | None = None
    """Comparisons whose A has no content, and on which both orders say B."""

    @property
    def flips(self) -> float | None:
        """Return the share of comparisons on which an order changed."""
        if self.robustness is None:
            return None
        return 1 - self.robustness

    @property
    def flips_ci(self) -> Interval | None:
        """Return the interval of :attr:`flips`."""
        if self.robustness_ci is None:
            return None
        low, high = self.robustness_ci
        return (1 - high, 1 - low)


Attacks = tuple[Attacked, ...]
"""Every attack on a method, and all of each kind together."""


def measure(predicted: Predicted) -> Measured:
    """Return what the attacks on a benchmark did to each method that was attacked, by its number of branches."""
    plain = {_key(predictions): predictions for predictions in predicted.results}
    values = {}
    for further, results in predicted.further:
        for predictions in results:
            key = _key(predictions)
            values[key] = robustness(further.made, plain[key], predictions)
    return Measured(values=values)


def _key(predictions: Sequence[Prediction]) -> MethodKey:
    """Return the method and number of branches that predictions are of."""
    return MethodKey(predictions[0].method, predictions[0].branches)


def robustness(suite: AttackSuite, plain: Sequence[Prediction], attacked: Sequence[Prediction]) -> Attacks:
    """Return one method's figures under every attack, and under all of a kind together.

    Args:
        suite: the attacks on a benchmark.
        plain: predictions of the method with one number of branches, on the benchmark.
        attacked: its predictions on the attacked comparisons.
    """
    before = {prediction.comparison_id: prediction.decided for prediction in plain}
    after = {prediction.comparison_id: prediction.decided for prediction in attacked}
    by_attack: dict[tuple[str, str], list[Outcome]] = {}
    by_kind: dict[str, list[Outcome]] = {}
    attacks_of_kind: dict[str, set[str]] = {}
    for case in suite.cases:
        name = case.attack.name
        kind = case.attack.kind
        outcome = (case, *_verdicts(case, before, after))
        by_attack.setdefault((name, kind), []).append(outcome)
        by_kind.setdefault(kind, []).append(outcome)
        attacks_of_kind.setdefault(kind, set()).add(name)
    figures = [_attacked(name, kind, outcomes) for (name, kind), outcomes in by_attack.items()]
    for kind, outcomes in by_kind.items():
        # Of a single attack, all together would repeat it.
        if len(attacks_of_kind[kind]) > 1:
            figures.append(_attacked("", kind, outcomes))
    return tuple(figures)


def _verdicts(case: AttackedCase, before: dict[str, Verdicts], after: dict[str, Verdicts]) -> tuple[Verdicts, Verdicts]:
    """Return the verdicts without and with an attack, in the order that has the worse response as A."""
    verdict_ab, verdict_ba = before[case.plain.id]
    # Exchanging the responses exchanges both the orders and the letters.
    if case.swapped:
        verdict_ab, verdict_ba = mirrored(verdict_ba), mirrored(verdict_ab)
    plain = (verdict_ab, verdict_ba)
    if case.attack.how == "swap":
        # What was shown first is now second, which the judge was asked about already.
        return plain, (verdict_ba, verdict_ab)
    return plain, after[case.attacked.id]


def _attacked(name: str, kind: str, outcomes: Sequence[Outcome]) -> Attacked:
    """Return the figures of one attack, or of all of a kind.

    Args:
        name: of the attack; empty for all of a kind.
        kind: of the attack.
        outcomes: the attacked comparisons.
    """
    if kind == "empty":
        # A has no content, so that nothing but B in both orders is right, whatever was said without the attack.
        must_lose = [after == ("B", "B") for _, _, after in outcomes]
        prompts = [case.prompt for case, _, _ in outcomes]
        share, interval = _share(must_lose, prompts)
        return Attacked(attack=name, kind=kind, n=len(outcomes), loses=share, loses_ci=interval)
    # What was not read without the attack tells nothing of what the attack did to it.
    readable = [outcome for outcome in outcomes if None not in outcome[1]]
    unchanged = [after == before for _, before, after in readable]
    prompts = [case.prompt for case, _, _ in readable]
    share, interval = _share(unchanged, prompts)
    unreadable = len(outcomes) - len(readable)
    return Attacked(
        attack=name, kind=kind, n=len(outcomes), unreadable=unreadable, robustness=share, robustness_ci=interval
    )


def _share(holds: Sequence[bool], prompts: Sequence[str]) -> tuple[float | None, Interval | None]:
    """Return the share of comparisons on which something holds, and its interval over prompts; None without any."""
    if not holds:
        return None, None
    # Over prompts: comparisons of one prompt, and several attacks on it, are no independent evidence.
    values = np.array(holds, dtype=bool)
    return float(values.mean()), wilson_interval(values, prompts)
