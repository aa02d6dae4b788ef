"""Metrics of judges: pure functions on arrays."""

from judgetrain.evaluate.metrics.verdicts import (
    accuracy,
    agreement,
    auc,
    cohens_kappa,
    conflict_as_tie,
    consistency,
    correlations,
    decided,
    length_bias,
    longer_preference,
    merged,
    position_bias,
    single_order_accuracy,
    summed,
    unreadable,
    without_ties,
)

__all__ = [
    "accuracy",
    "agreement",
    "auc",
    "cohens_kappa",
    "conflict_as_tie",
    "consistency",
    "correlations",
    "decided",
    "length_bias",
    "longer_preference",
    "merged",
    "position_bias",
    "single_order_accuracy",
    "summed",
    "unreadable",
    "without_ties",
]
