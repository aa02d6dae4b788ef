"""From predictions to rows: of ``metrics.json``, of ``predictions.parquet``, of ``paired.json``."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate import metrics
from judgetrain.evaluate.metrics.calibration import calibration
from judgetrain.evaluate.metrics.statistics import (
    auc_interval,
    cluster_interval,
    correlation_intervals,
    paired_difference,
)
from judgetrain.evaluate.metrics.verdicts import Verdicts
from judgetrain.evaluate.metrics.votes import vote_metrics
from judgetrain.judges.base import Prediction
from judgetrain.schema import Comparison

Predictions = Sequence[Prediction]


def metric_row(
    benchmark: Benchmark, predictions: Predictions, seconds: float, resamples: int, seed: int
) -> dict[str, Any]:
    """One row of ``metrics.json``: a method with a number of branches on a benchmark (DESIGN section 5).

    ``branches`` is 0 for methods without. Shares are from 0 to 1; ``..._ci`` are 95% bootstrap intervals over
    items; ``..._wo_tie`` leaves out the items whose label is a tie. Tokens, calls and ``seconds`` are per verdict
    in one order, mean over items and orders. ``parse_failures`` counts those of ``judgments`` without readable
    scores; ``failures`` has the reasons, and beside them what ended a branch before its judgment (``guideline:...``,
    ``criteria:...``); ``spread`` is the share of pairs of a comparison's branches that say different things, mean over
    comparisons; ``unreadable_verdicts`` counts verdicts (of 2n) in which no branch could be read; ``auc`` is that
    of margins against the labels A and B.

    ``n`` and all but ``votes`` are over the comparisons with a label. Where comparisons share a prompt, intervals
    resample the ``n_prompts`` prompts whole; where the benchmark says which pairs belong together,
    ``prompt_agreement`` is the share of prompts of which every pair is right. What a single order said is None for
    predictions whose orders are merged.
    """
    _refuse_others(benchmark, predictions)
    labelled = [i for i, c in enumerate(benchmark.comparisons) if c.label is not None]
    comparisons, kept = [benchmark.comparisons[i] for i in labelled], [predictions[i] for i in labelled]
    ab, ba, labels = _verdicts(comparisons, kept)
    agreed, consistent = metrics.agreement(ab, ba, labels), metrics.consistency(ab, ba)
    prompts = [benchmark.prompt_of(c) for c in comparisons]
    margins = [p.margin for p in kept]
    calibrated = calibration(margins, labels, seed)
    return {
        "method": predictions[0].method,
        "benchmark": benchmark.name,
        "split": benchmark.split,
        "branches": predictions[0].branches,
        "n": len(kept),
        "agreement": _mean(agreed),
        "agreement_ci": cluster_interval(agreed, prompts, resamples, seed),
        "consistency": _mean(consistent),
        "consistency_ci": cluster_interval(consistent, prompts, resamples, seed),
        **_definitions(ab, ba, labels, single_orders=not any(p.merged for p in kept)),
        **_length(ab, ba, labels, comparisons),
        "auc": metrics.auc(margins, labels),
        "auc_ci": auc_interval(margins, labels, resamples, seed, clusters=prompts),
        **_correlations(kept, labels, prompts, resamples, seed),
        **_readings(ab, ba, kept),
        "prompt_tokens": _mean([p.cost.prompt_tokens for p in kept]),
        "generated_tokens": _mean([p.cost.generated_tokens for p in kept]),
        "calls": _mean([p.cost.calls for p in kept]),
        "seconds": None if math.isnan(seconds) else seconds,
        "groups": _groups([c.group for c in comparisons], agreed, consistent),
        "domains": _groups([benchmark.domains.get(c.group or "") for c in comparisons], agreed, consistent),
        "n_prompts": len(set(prompts)),
        "prompt_agreement": _prompt_agreement(prompts, agreed) if benchmark.prompts else None,
        "votes": vote_metrics(benchmark, predictions, resamples, seed) if benchmark.votes else None,
        "calibration": asdict(calibrated) if calibrated else None,
    }


def _definitions(ab: Verdicts, ba: Verdicts, labels: Sequence[str], single_orders: bool) -> dict[str, Any]:
    """Agreement under its other definitions, each under its own name, and what the order of responses does."""
    agreed, consistent = metrics.agreement(ab, ba, labels), metrics.consistency(ab, ba)
    without_ties, both_decide = metrics.without_ties(labels), metrics.decided(ab, ba, labels)
    return {
        "n_wo_tie": int(without_ties.sum()),
        "agreement_wo_tie": _mean(agreed[without_ties]),
        "consistency_wo_tie": _mean(consistent[without_ties]),
        "single_order_accuracy": _mean(metrics.single_order_accuracy(ab, ba, labels)) if single_orders else None,
        "accuracy_ab": _mean(metrics.accuracy(ab, labels)) if single_orders else None,
        "accuracy_ba": _mean(metrics.accuracy(ba, labels)) if single_orders else None,
        "conflict_as_tie": _mean(metrics.conflict_as_tie(ab, ba, labels)),
        "n_decided": int(both_decide.sum()),
        "agreement_decided": _mean(agreed[both_decide]),
        "kappa": metrics.cohens_kappa(ab, ba, labels),
        "position_bias": metrics.position_bias(ab, ba) if single_orders else None,
    }


def _length(ab: Verdicts, ba: Verdicts, labels: Sequence[str], comparisons: Sequence[Comparison]) -> dict[str, Any]:
    longer = [_longer(c) for c in comparisons]
    return {
        "longer_preference": metrics.longer_preference(ab, ba, longer),
        "length_bias": metrics.length_bias(ab, ba, longer, labels),
    }


def _readings(ab: Verdicts, ba: Verdicts, predictions: Predictions) -> dict[str, Any]:
    failures: Counter[str] = sum((Counter(p.failures) for p in predictions), Counter())
    return {
        "judgments": sum(p.judgments for p in predictions),
        "parse_failures": sum(n for reason, n in failures.items() if ":" not in reason),
        "failures": dict(sorted(failures.items())),
        "spread": _mean([p.spread for p in predictions if p.spread is not None]),
        "unreadable_verdicts": int(metrics.unreadable(ab).sum() + metrics.unreadable(ba).sum()),
    }


def paired_rows(
    benchmark: Benchmark, results: Sequence[Predictions], resamples: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Rows of ``paired.json``: differences in strict agreement on the same items, first minus second.

    Branching judges: each against the one before it in ``evaluate.methods`` at the same number of branches; each with
    the most branches against itself with the fewest; the last with the fewest against the first with the most. All
    other methods (asked once, scorers, stored verdicts, floors): against the last branching judge with the most
    branches, or where there is none, against the first method.

    ``mcnemar_p`` is exact and takes items as independent; interval and ``bootstrap_p`` resample whole prompts where
    comparisons share one. Neither is corrected for the number of pairs.
    """
    labelled = [i for i, c in enumerate(benchmark.comparisons) if c.label is not None]
    comparisons = [benchmark.comparisons[i] for i in labelled]
    prompts = [benchmark.prompt_of(c) for c in comparisons]
    agreed = {
        (r[0].method, r[0].branches): metrics.agreement(*_verdicts(comparisons, [r[i] for i in labelled]))
        for r in results
    }
    for first, second in _pairs(list(agreed)):
        found = paired_difference(agreed[first], agreed[second], resamples, seed, prompts)
        if found is not None:
            yield {
                "benchmark": benchmark.name,
                "first": {"method": first[0], "branches": first[1]},
                "second": {"method": second[0], "branches": second[1]},
                "agreement_difference": round(found.mean, 6),
                "agreement_difference_ci": found.interval,
                "mcnemar_p": found.p_value,
                "bootstrap_p": found.bootstrap_p,
            }


_Key = tuple[str, int]


def _pairs(keys: Sequence[_Key]) -> list[tuple[_Key, _Key]]:
    """Which pairs a reader asks about; see :func:`paired_rows`."""
    names = list(dict.fromkeys(name for name, branches in keys if branches))
    counts = sorted({branches for _, branches in keys if branches})
    pairs = [((b, k), (a, k)) for a, b in pairwise(names) for k in counts]
    if len(counts) > 1:
        pairs += [((name, counts[-1]), (name, counts[0])) for name in names]
        if len(names) > 1:
            pairs.append(((names[-1], counts[0]), (names[0], counts[-1])))
    reference = (names[-1], counts[-1]) if names else next(iter(keys), None)
    pairs += [(reference, key) for key in keys if reference and not key[1] and key != reference]
    return [pair for pair in pairs if pair[0] in keys and pair[1] in keys]


def prediction_rows(benchmark: Benchmark, predictions: Predictions) -> list[dict[str, Any]]:
    """Rows of ``predictions.parquet``: one a comparison, method and number of branches."""
    return [
        {
            "benchmark": benchmark.name,
            "split": benchmark.split,
            "comparison_id": c.id,
            "group": c.group,
            "label": c.label,
            "method": p.method,
            "branches": p.branches,
            "verdict_ab": p.verdict_ab,
            "verdict_ba": p.verdict_ba,
            "margin": p.margin,
            "judgments": p.judgments,
            "failures": json.dumps(dict(sorted(p.failures.items()))),
            "prompt_tokens": p.cost.prompt_tokens,
            "generated_tokens": p.cost.generated_tokens,
            "calls": p.cost.calls,
            "merged": p.merged,
            "spread": p.spread,
        }
        for c, p in zip(benchmark.comparisons, predictions, strict=True)
    ]


def parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Prediction rows as a Parquet file; the types are the same whatever the rows hold, so that files add up."""
    import io

    import pyarrow as arrow
    import pyarrow.parquet

    kinds: dict[type, Any] = {str: arrow.string(), float: arrow.float64(), int: arrow.int64(), bool: arrow.bool_()}
    columns = {
        **dict.fromkeys(("benchmark", "split", "comparison_id", "group", "label", "method"), str),
        "branches": int,
        **dict.fromkeys(("verdict_ab", "verdict_ba"), str),
        "margin": float,
        "judgments": int,
        "failures": str,
        **dict.fromkeys(("prompt_tokens", "generated_tokens", "calls"), float),
        "merged": bool,
        "spread": float,
    }
    schema = arrow.schema([(name, kinds[kind]) for name, kind in columns.items()])
    buffer = io.BytesIO()
    arrow.parquet.write_table(arrow.Table.from_pylist([dict(r) for r in rows], schema=schema), buffer)
    return buffer.getvalue()


def _refuse_others(benchmark: Benchmark, predictions: Predictions) -> None:
    if [p.comparison_id for p in predictions] != [c.id for c in benchmark.comparisons]:
        raise ValueError(f"the predictions are not those of the comparisons of {benchmark.name}, in their order")


def _correlations(
    predictions: Predictions, labels: Sequence[str], prompts: Sequence[str], resamples: int, seed: int
) -> dict[str, Any]:
    """Correlations of a scorer's margins with labels, and their intervals; nothing for other methods."""
    number = {"A": 1.0, "tie": 0.0, "B": -1.0}
    items = zip(predictions, labels, prompts, strict=True)
    kept = [(p.margin, number[y], prompt) for p, y, prompt in items if p.margin is not None]
    if predictions[0].branches or not kept:
        return {}
    margins, truth, clusters = zip(*kept, strict=True)
    intervals = correlation_intervals(margins, truth, resamples, seed, clusters=clusters)
    return metrics.correlations(margins, truth) | {f"{name}_ci": interval for name, interval in intervals.items()}


def _verdicts(
    comparisons: Sequence[Comparison], predictions: Predictions
) -> tuple[list[str | None], list[str | None], list[str]]:
    labels = [str(c.label) for c in comparisons]
    return [p.verdict_ab for p in predictions], [p.verdict_ba for p in predictions], labels


def _groups(names: Sequence[str | None], agreed: Any, consistent: Any) -> dict[str, Mapping[str, Any]]:
    result: dict[str, Mapping[str, Any]] = {}
    for name in sorted({n for n in names if n is not None}):
        mask = np.array([n == name for n in names])
        result[name] = {"n": int(mask.sum()), "agreement": _mean(agreed[mask]), "consistency": _mean(consistent[mask])}
    return result


def _prompt_agreement(prompts: Sequence[str], agreed: Any) -> float | None:
    """The share of prompts of which every pair is right; None where each prompt has one pair."""
    right: dict[str, bool] = {}
    for prompt, is_right in zip(prompts, agreed, strict=True):
        right[prompt] = right.get(prompt, True) and bool(is_right)
    return _mean(list(right.values())) if len(right) < len(prompts) else None


def _longer(comparison: Comparison) -> str:
    a, b = len(comparison.response_a), len(comparison.response_b)
    return "tie" if a == b else "A" if a > b else "B"


def _mean(values: Any) -> float | None:
    array = np.asarray(values, dtype=float)
    return round(float(array.mean()), 6) if len(array) and not np.isnan(array).any() else None
