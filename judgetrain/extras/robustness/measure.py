"""What attacks did to a method, from its verdicts with and without them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from judgetrain.evaluate.hooks import Measured, Predicted
from judgetrain.evaluate.metrics.intervals import Interval, wilson_interval
from judgetrain.evaluate.metrics.rows import MethodKey
from judgetrain.evaluate.metrics.verdicts import mirrored
from judgetrain.extras.robustness.attack_suite import AttackSuite, Case
from judgetrain.judges.base import Prediction
from judgetrain.schema import Verdict

Verdicts = tuple[Verdict | None, Verdict | None]
"""With A shown first and with B shown first, both in the comparison's own order."""


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
    """Where A has no content: comparisons on which both orders say B."""

    @property
    def flips(self) -> float | None:
        """The share of comparisons on which an order changed."""
        return None if self.robustness is None else 1 - self.robustness

    @property
    def flips_ci(self) -> Interval | None:
        """Of :attr:`flips`."""
        return None if self.robustness_ci is None else (1 - self.robustness_ci[1], 1 - self.robustness_ci[0])


Attacks = tuple[Attacked, ...]
"""Every attack on a method, and all of each kind together."""


def measure(found: Predicted) -> Measured:
    """What the attacks on a benchmark did to each method that was attacked, by its number of branches."""
    plain = {MethodKey(p[0].method, p[0].branches): p for p in found.results}
    attacked = [(MethodKey(p[0].method, p[0].branches), f.made, p) for f, results in found.further for p in results]
    return Measured(values={key: robustness(suite, plain[key], p) for key, suite, p in attacked})


def robustness(suite: AttackSuite, plain: Sequence[Prediction], attacked: Sequence[Prediction]) -> Attacks:
    """One method with one number of branches under every attack, and under all of a kind together: by its ``plain``
    predictions on the benchmark, and those on the suite's."""
    before = {p.comparison_id: p.decided for p in plain}
    after = {p.comparison_id: p.decided for p in attacked}
    pairs = [(case, *_verdicts(case, before, after)) for case in suite.cases]
    attacks = list(dict.fromkeys((case.attack.name, case.attack.kind) for case in suite.cases))
    kinds = list(dict.fromkeys(kind for _, kind in attacks))
    singles = [_attacked(n, k, [p for p in pairs if p[0].attack.name == n]) for n, k in attacks]
    several = [k for k in kinds if sum(kind == k for _, kind in attacks) > 1]
    return (*singles, *(_attacked("", k, [p for p in pairs if p[0].attack.kind == k]) for k in several))


def _verdicts(case: Case, before: dict[str, Verdicts], after: dict[str, Verdicts]) -> tuple[Verdicts, Verdicts]:
    """Before and after, in the order that has the worse response as A."""
    known = before[case.plain.id]
    ab, ba = (mirrored(known[1]), mirrored(known[0])) if case.swapped else known
    if case.attack.how == "swap":
        return (ab, ba), (ba, ab)  # what was shown first is now second
    return (ab, ba), after[case.attacked.id]


def _attacked(name: str, kind: str, pairs: Sequence[tuple[Case, Verdicts, Verdicts]]) -> Attacked:
    """What was not read without the attack tells nothing of what the attack did to it, and is counted."""
    read = pairs if kind == "empty" else [pair for pair in pairs if None not in pair[1]]
    clusters = [case.prompt for case, _, _ in read]
    shares: dict[str, Any] = {} if kind == "empty" else {"unreadable": len(pairs) - len(read)}
    if read:
        field = "loses" if kind == "empty" else "robustness"
        held = np.array([after == (("B", "B") if kind == "empty" else before) for _, before, after in read], dtype=bool)
        shares |= {field: float(held.mean()), f"{field}_ci": wilson_interval(held, clusters)}
    return Attacked(attack=name, kind=kind, n=len(pairs), **shares)
