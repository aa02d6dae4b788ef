"""Methods and numbers of branches beside each other: paired differences, and the development split."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.errors import DataError
from judgetrain.evaluate.metrics.intervals import Interval, paired_difference
from judgetrain.evaluate.metrics.rows import MethodKey
from judgetrain.evaluate.metrics.verdicts import agreement
from judgetrain.judges.base import Prediction
from judgetrain.judges.method import Method


@dataclass(frozen=True, kw_only=True)
class PairedComparison:
    """A row of ``paired.json``: the difference in strict agreement on the same items, first minus second.

    Interval and ``bootstrap_p`` resample whole prompts where comparisons share one; the p is not corrected for the
    number of pairs.
    """

    benchmark: str
    first: MethodKey
    second: MethodKey
    agreement_difference: float
    agreement_difference_ci: Interval | None
    bootstrap_p: float | None = None


def paired_comparisons(
    benchmark: Benchmark, results: Sequence[Sequence[Prediction]], resamples: int, seed: int
) -> Iterator[PairedComparison]:
    """Paired differences between the methods of a benchmark.

    Branching judges that are asked in one way: each against the one before it in ``evaluate.methods`` at the same
    number of branches; each with the most branches against itself with the fewest; the last with the fewest against the
    first with the most. One judge asked in several ways (``dpo``, ``dpo+sampled``): each way against the first, at the
    same number of branches. All other methods (asked once, baselines, the kinds of extras): against the last
    branching judge that is asked in the first way, with the most branches, or where there is none, against the first
    method.
    """
    labelled = [i for i, c in enumerate(benchmark.comparisons) if c.label is not None]
    prompts = [benchmark.prompt_of(benchmark.comparisons[i]) for i in labelled]
    labels = [str(benchmark.comparisons[i].label) for i in labelled]
    agreed = {
        MethodKey(r[0].method, r[0].branches): agreement(
            [r[i].decided[0] for i in labelled], [r[i].decided[1] for i in labelled], labels
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
                bootstrap_p=found.p,
            )


def _pairs(keys: Sequence[MethodKey]) -> list[tuple[MethodKey, MethodKey]]:
    """Which pairs a reader asks about; see :func:`paired_comparisons`."""
    counts: dict[str, list[int]] = {}
    for key in sorted((k for k in keys if k.branches), key=lambda k: k.branches):
        counts.setdefault(key.method, []).append(key.branches)
    names = [name for name in dict.fromkeys(key.method for key in keys) if name in counts]
    ways: dict[tuple[str, ...], list[str]] = {}
    judges: dict[str, list[str]] = {}
    for name in names:
        method = Method.parse(name)
        ways.setdefault(method.options, []).append(name)
        judges.setdefault(name.removesuffix("".join(f"+{o}" for o in method.options)), []).append(name)
    pairs: list[tuple[MethodKey, MethodKey]] = []
    for same in ways.values():
        pairs += [(MethodKey(b, k), MethodKey(a, k)) for a, b in pairwise(same) for k in counts[b]]
        pairs += [(MethodKey(name, counts[name][-1]), MethodKey(name, counts[name][0])) for name in same]
        if len(same) > 1 and len(counts[same[0]]) > 1:
            pairs.append((MethodKey(same[-1], counts[same[-1]][0]), MethodKey(same[0], counts[same[0]][-1])))
    for first, *others in judges.values():
        pairs += [(MethodKey(name, k), MethodKey(first, k)) for name in others for k in counts[name]]
    last = next(iter(ways.values()))[-1] if ways else None
    reference = MethodKey(last, counts[last][-1]) if last else next(iter(keys), None)
    pairs += [(reference, key) for key in keys if reference and not key.branches and key != reference]
    pairs = [(first, second) for first, second in pairs if first != second]
    return [pair for pair in pairs if pair[0] in keys and pair[1] in keys]


DEVELOPMENT = "development"  # the name of the split to choose by


def split(benchmark: Benchmark, share: float) -> tuple[Benchmark | None, Benchmark]:
    """The development split (None for a share of 0) and the test split; a query is on one side only (DataError: one of
    the two would have no labelled comparison).

    On which depends on the query alone, not on the run's seed: what was chosen on in one run is reported in none.
    """
    if not share:
        return None, benchmark
    sizes, taken, dev = Counter(map(benchmark.prompt_of, benchmark.comparisons)), 0, set[str]()
    for query in sorted(sizes, key=lambda query: derive_seed(0, DEVELOPMENT, query)):
        if taken < share * len(benchmark.comparisons):
            dev.add(query)
            taken += sizes[query]
    sides = [[c for c in benchmark.comparisons if (benchmark.prompt_of(c) in dev) == side] for side in (True, False)]
    if not all(any(c.label is not None for c in side) for side in sides):
        told = f"evaluate.dev_share={share}: benchmark {benchmark.name} has {len(sizes)} different queries"
        raise DataError(f"{told}, too few for a development and a test split")
    return replace(benchmark, comparisons=sides[0], split=DEVELOPMENT), replace(benchmark, comparisons=sides[1])


def part_of(benchmark: Benchmark, predictions: Sequence[Prediction]) -> list[Prediction]:
    """The predictions on a part of a benchmark, in its order."""
    by_id = {p.comparison_id: p for p in predictions}
    return [by_id[c.id] for c in benchmark.comparisons]
