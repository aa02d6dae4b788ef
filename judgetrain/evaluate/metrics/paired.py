"""Methods set against each other on the same comparisons: paired differences, and where they disagree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise
from typing import Any, Self

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate.metrics.registry import Interval
from judgetrain.evaluate.metrics.rows import MethodKey
from judgetrain.evaluate.metrics.statistics import paired_difference
from judgetrain.evaluate.metrics.verdicts import agreement
from judgetrain.judges.base import Prediction

EXAMPLES, SNIPPET = 20, 90
"""Most comparisons shown on which methods disagree, and most characters of their queries."""


@dataclass(frozen=True, kw_only=True)
class PairedComparison:
    """A row of ``paired.json``: the difference in strict agreement on the same items, first minus second.

    ``mcnemar_p`` is exact and takes items as independent; interval and ``bootstrap_p`` resample whole prompts where
    comparisons share one. Neither is corrected for the number of pairs.
    """

    benchmark: str
    first: MethodKey
    second: MethodKey
    agreement_difference: float
    agreement_difference_ci: Interval | None
    mcnemar_p: float
    bootstrap_p: float | None = None

    def to_row(self) -> dict[str, Any]:
        """The JSON-ready row."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """A row as it was written."""
        return cls(**({**row} | {side: MethodKey(**row[side]) for side in ("first", "second")}))


def paired_comparisons(
    benchmark: Benchmark, results: Sequence[Sequence[Prediction]], resamples: int, seed: int
) -> Iterator[PairedComparison]:
    """Paired differences between the methods of a benchmark.

    Branching judges: each against the one before it in ``evaluate.methods`` at the same number of branches; each with
    the most branches against itself with the fewest; the last with the fewest against the first with the most. All
    other methods (asked once, scorers, stored verdicts, baselines): against the last branching judge with the most
    branches, or where there is none, against the first method.
    """
    labelled = [i for i, c in enumerate(benchmark.comparisons) if c.label is not None]
    prompts = [benchmark.prompt_of(benchmark.comparisons[i]) for i in labelled]
    labels = [str(benchmark.comparisons[i].label) for i in labelled]
    agreed = {
        MethodKey(r[0].method, r[0].branches): agreement(
            [r[i].verdict_ab for i in labelled], [r[i].verdict_ba for i in labelled], labels
        )
        for r in results
    }
    for first, second in _pairs(list(agreed)):
        found = paired_difference(agreed[first], agreed[second], resamples, seed, prompts)
        if found is not None:
            yield PairedComparison(
                benchmark=benchmark.name,
                first=first,
                second=second,
                agreement_difference=round(found.mean, 6),
                agreement_difference_ci=found.interval,
                mcnemar_p=found.p_value,
                bootstrap_p=found.bootstrap_p,
            )


def _pairs(keys: Sequence[MethodKey]) -> list[tuple[MethodKey, MethodKey]]:
    """Which pairs a reader asks about; see :func:`paired_comparisons`."""
    names = list(dict.fromkeys(key.method for key in keys if key.branches))
    counts = sorted({key.branches for key in keys if key.branches})
    pairs = [(MethodKey(b, k), MethodKey(a, k)) for a, b in pairwise(names) for k in counts]
    if len(counts) > 1:
        pairs += [(MethodKey(name, counts[-1]), MethodKey(name, counts[0])) for name in names]
        if len(names) > 1:
            pairs.append((MethodKey(names[-1], counts[0]), MethodKey(names[0], counts[-1])))
    reference = MethodKey(names[-1], counts[-1]) if names else next(iter(keys), None)
    pairs += [(reference, key) for key in keys if reference and not key.branches and key != reference]
    return [pair for pair in pairs if pair[0] in keys and pair[1] in keys]


def disagreements(benchmark: Benchmark, results: Sequence[Sequence[Prediction]]) -> dict[str, Any]:
    """Counts for every pair of methods, and examples.

    ``pairs``: ``first``, ``second``, and over the comparisons with a label ``both_right``, ``only_first``,
    ``only_second``, ``both_wrong`` (right: strict agreement). ``examples``: comparisons on which some methods are right
    and some wrong, the most divided first: ``id``, ``group``, ``query`` (its beginning), ``label`` and each method's
    two ``verdicts``.

    Args:
        benchmark: what was evaluated.
        results: one method's predictions each, in the benchmark's order.
    """
    items = [i for i, c in enumerate(benchmark.comparisons) if c.label is not None]
    right = {
        r[0].method: [r[i].verdict_ab == r[i].verdict_ba == benchmark.comparisons[i].label for i in items]
        for r in results
    }
    outcomes = {
        "both_right": (True, True),
        "only_first": (True, False),
        "only_second": (False, True),
        "both_wrong": (False, False),
    }
    pairs = []
    for first, second in combinations(right, 2):
        both = list(zip(right[first], right[second], strict=True))
        pairs.append({"first": first, "second": second} | {name: both.count(v) for name, v in outcomes.items()})
    shares = [sum(answers) / len(answers) for answers in zip(*right.values(), strict=True)]
    divided = sorted((abs(share - 0.5), i) for share, i in zip(shares, items, strict=bool(right)) if 0 < share < 1)
    return {"pairs": pairs, "examples": [_example(benchmark, results, i) for _, i in divided[:EXAMPLES]]}


def _example(benchmark: Benchmark, results: Sequence[Sequence[Prediction]], item: int) -> dict[str, Any]:
    comparison = benchmark.comparisons[item]
    query = " ".join(comparison.dialogue.query.split())
    return {
        "id": comparison.id,
        "group": comparison.group,
        "query": query if len(query) <= SNIPPET else f"{query[:SNIPPET]}…",
        "label": comparison.label,
        "verdicts": {r[item].method: [r[item].verdict_ab, r[item].verdict_ba] for r in results},
    }
