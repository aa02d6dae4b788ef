"""Methods and numbers of branches beside each other: paired differences, and the development split."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.intervals import Interval, Resampling
from judgetrain.errors import DataError
from judgetrain.evaluate.metrics.intervals import paired_difference
from judgetrain.evaluate.metrics.rows import MethodKey
from judgetrain.evaluate.metrics.verdicts import agreement
from judgetrain.judges.method import Method
from judgetrain.judges.predictions import Prediction


@dataclass(frozen=True, kw_only=True)
class PairedComparison:
    """A row of ``paired.json``: the difference in strict agreement on the same items, first minus second.

    Args:
        benchmark: the benchmark's name.
        first: a method.
        second: the other one.
        agreement_difference: from -1 to 1.
        agreement_difference_ci: its 95% interval, by resamples of whole prompts where comparisons share one.
        bootstrap_p: by the same resamples; it is not corrected for the number of pairs.
    """

    benchmark: str
    first: MethodKey
    second: MethodKey
    agreement_difference: float
    agreement_difference_ci: Interval | None
    bootstrap_p: float | None = None


def paired_comparisons(
    benchmark: Benchmark, results: Sequence[Sequence[Prediction]], resampling: Resampling
) -> Iterator[PairedComparison]:
    """Yield the paired differences between the methods of a benchmark that a reader asks about.

    - Branching judges that are asked in one way: each against the one before it in ``evaluate.methods`` at the same
      number of branches; each with the most branches against itself with the fewest; the last with the fewest against
      the first with the most.
    - One judge asked in several ways (``dpo``, ``dpo+sampled``): each way against the first, at the same number of
      branches.
    - All other methods (asked once, baselines, the kinds of extras): against the last branching judge that is asked in
      the first way, with the most branches, or where there is none, against the first method.

    Args:
        benchmark: the benchmark.
        results: by method and number of branches the predictions, in the benchmark's order.
        resampling: how intervals are drawn.
    """
    # Agreement is over comparisons with a label.
    places = [place for place, comparison in enumerate(benchmark.comparisons) if comparison.label is not None]
    labelled = [benchmark.comparisons[place] for place in places]
    prompts = [benchmark.prompt_of(comparison) for comparison in labelled]
    labels = [str(comparison.label) for comparison in labelled]
    agreed = {}
    for predictions in results:
        decided = [predictions[place].decided for place in places]
        verdicts_ab = [verdict_ab for verdict_ab, _ in decided]
        verdicts_ba = [verdict_ba for _, verdict_ba in decided]
        key = MethodKey(predictions[0].method, predictions[0].branches)
        agreed[key] = agreement(verdicts_ab, verdicts_ba, labels)

    for first, second in _pairs(list(agreed)):
        difference = paired_difference(agreed[first], agreed[second], resampling, prompts)
        # None where no comparison has a label.
        if difference is not None:
            yield PairedComparison(
                benchmark=benchmark.name,
                first=first,
                second=second,
                agreement_difference=round(difference.mean, 6),
                agreement_difference_ci=difference.interval,
                bootstrap_p=difference.p,
            )


def _pairs(keys: Sequence[MethodKey]) -> list[tuple[MethodKey, MethodKey]]:
    """Return the pairs of :func:`paired_comparisons`, each first minus second."""
    branches = _branches_by_method(keys)
    # By the options behind a judge's name, and by the judge itself: methods of one way, and ways of one judge.
    ways: dict[tuple[str, ...], list[str]] = {}
    judges: dict[str, list[str]] = {}
    for name in branches:
        options = Method.parse(name).options
        judge = name.removesuffix("".join(f"+{option}" for option in options))
        ways.setdefault(options, []).append(name)
        judges.setdefault(judge, []).append(name)

    pairs: list[tuple[MethodKey, MethodKey]] = []
    for names in ways.values():
        pairs.extend(_pairs_of_one_way(names, branches))
    # One judge in several ways: the way that stands first is the usual one.
    for first, *others in judges.values():
        for name in others:
            pairs.extend((MethodKey(name, k), MethodKey(first, k)) for k in branches[name])

    reference = _reference(keys, ways, branches)
    if reference is not None:
        pairs.extend((reference, key) for key in keys if not key.branches)
    # Not every judge has every number of branches, and the reference may itself have none.
    return [(first, second) for first, second in pairs if first != second and first in keys and second in keys]


def _branches_by_method(keys: Sequence[MethodKey]) -> dict[str, list[int]]:
    """Return the numbers of branches, the smallest first, of each method that has branches, in the methods' order."""
    branches: dict[str, list[int]] = {}
    for key in keys:
        if key.branches:
            branches.setdefault(key.method, []).append(key.branches)
    return {name: sorted(numbers) for name, numbers in branches.items()}


def _pairs_of_one_way(
    names: Sequence[str], branches: Mapping[str, Sequence[int]]
) -> Iterator[tuple[MethodKey, MethodKey]]:
    """Yield the pairs among branching judges that are asked in one way."""
    for before, after in pairwise(names):
        for k in branches[after]:
            # What training gains: judges usually stand in the order in which they are trained.
            yield MethodKey(after, k), MethodKey(before, k)
    for name in names:
        # What more branches gain.
        yield MethodKey(name, branches[name][-1]), MethodKey(name, branches[name][0])
    first = names[0]
    last = names[-1]
    if first != last and len(branches[first]) > 1:
        # Whether training gains more than branches: the cheapest of the last against the dearest of the first.
        yield MethodKey(last, branches[last][0]), MethodKey(first, branches[first][-1])


def _reference(
    keys: Sequence[MethodKey], ways: Mapping[tuple[str, ...], Sequence[str]], branches: Mapping[str, Sequence[int]]
) -> MethodKey | None:
    """Return the method that those without branches are compared with; None without any method."""
    for names in ways.values():
        last = names[-1]
        return MethodKey(last, branches[last][-1])
    return next(iter(keys), None)


DEVELOPMENT = "development"
"""The name of the split to choose by."""


def split(benchmark: Benchmark, share: float) -> tuple[Benchmark | None, Benchmark]:
    """Return the development split (None for a share of 0) and the test split.

    A query is on one side only. On which depends on the query alone, not on the run's seed: what was chosen on in one
    run is reported in none.

    Args:
        benchmark: the whole benchmark.
        share: of the comparisons that go to the development split, 0 to 1.

    Raises:
        DataError: one of the two would have no labelled comparison.
    """
    if not share:
        return None, benchmark
    prompts = [benchmark.prompt_of(comparison) for comparison in benchmark.comparisons]
    development_queries = development_prompts(prompts, share)
    development = []
    test = []
    for comparison in benchmark.comparisons:
        if benchmark.prompt_of(comparison) in development_queries:
            development.append(comparison)
        else:
            test.append(comparison)
    # Without a label on one of the sides there would be nothing to choose by, or nothing to report.
    for comparisons in (development, test):
        if all(comparison.label is None for comparison in comparisons):
            raise DataError(
                f"evaluate.dev_share={share}: benchmark {benchmark.name} has {len(set(prompts))} different queries, "
                "too few for a development and a test split"
            )
    return replace(benchmark, comparisons=development, split=DEVELOPMENT), replace(benchmark, comparisons=test)


def development_prompts(prompts: Sequence[str], share: float) -> set[str]:
    """Return the prompts of the development split; arguments as of :func:`split`, the prompt of each item."""
    # A prompt goes to one side with all of its comparisons.
    sizes = Counter(prompts)
    development: set[str] = set()
    size = 0
    # In an order that hangs on each query alone: seed 0, whatever the run's seed is.
    for query in sorted(sizes, key=lambda query: derive_seed(0, DEVELOPMENT, query)):
        # By comparisons and not by queries, since a query may have many of them.
        if size >= share * len(prompts):
            break
        development.add(query)
        size += sizes[query]
    return development


def part_of(benchmark: Benchmark, predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return the predictions on a part of a benchmark, in its order."""
    by_id = {prediction.comparison_id: prediction for prediction in predictions}
    return [by_id[comparison.id] for comparison in benchmark.comparisons]
