"""Predicted and gold number of one example, and the scores of weighted examples (:mod:`harness.data.statistics`).

With weights w_i, n = sum w_i and m_x = sum w_i x_i / n

    pearson  sum w_i (x_i - m_x)(y_i - m_y) / sqrt(sum w_i (x_i - m_x)^2 sum w_i (y_i - m_y)^2)
    mse      sum w_i (x_i - y_i)^2 / n

Spearman's rho is pearson of the midranks, and a rank is no sum over examples. The midranks of a resample
are those *within the resample*, computed anew: (weight below the value) + (weight at the value + 1) / 2. So
rho is exact on every resample, not the approximation that keeps the ranks of the whole sample. Imports no
torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.data.statistics import Aggregate, Counts, Scores

NAMES = ("predicted", "gold")
METRICS = ("pearson", "spearman", "mse")
ROUNDING = 1e-12
"""A side that deviates from its mean by less than this does not vary."""
SINGLE = 1e-6
"""Predictions are of single precision: what is less than this share of them is rounding."""


def count(predicted: Sequence[float], gold: Sequence[float]) -> Counts:
    """Counts of N examples: their two numbers."""
    return Counts(NAMES, np.array([predicted, gold], dtype=np.float64).T.reshape(-1, 2))


def weighted_pearson(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """r of x and y, each (N,) or (B, N), under weights (B, N) -> (B,); 0 where a side does not vary."""
    total = weights.sum(axis=1, keepdims=True)
    dx = x - (weights * x).sum(axis=1, keepdims=True) / total
    dy = y - (weights * y).sum(axis=1, keepdims=True) / total
    present = weights > 0
    varies = np.minimum((np.abs(dx) * present).max(axis=1), (np.abs(dy) * present).max(axis=1)) >= ROUNDING
    below = np.sqrt((weights * dx * dx).sum(axis=1) * (weights * dy * dy).sum(axis=1))
    above = (weights * dx * dy).sum(axis=1)
    return np.clip(np.divide(above, below, out=np.zeros(len(below)), where=varies & (below > 0)), -1.0, 1.0)


def weighted_ranks(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Midranks (B, N) of x (N,) within each weighted sample; those of weight 0 mean nothing."""
    _, group = np.unique(x, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    at = np.add.reduceat(weights[:, order], starts, axis=1)
    midranks = np.cumsum(at, axis=1) - at + (at + 1) / 2
    return np.asarray(midranks[:, group])


def direct(values: np.ndarray, names: Sequence[str], weights: np.ndarray) -> Scores:
    """Scores (B,) of the examples under weights (B, N); NaN where a prediction is not finite."""
    x, y = (values[:, list(names).index(name)] for name in NAMES)
    weights = weights.astype(np.float64)
    if not np.isfinite(x).all():
        return {metric: np.full(len(weights), np.nan) for metric in METRICS}
    if same(x):
        x = np.full_like(x, x[0])
    ranks = weighted_ranks(x, weights), weighted_ranks(y, weights)
    return {
        "pearson": weighted_pearson(x, y, weights),
        "spearman": weighted_pearson(*ranks, weights),
        "mse": (weights * (x - y) ** 2).sum(axis=1) / weights.sum(axis=1),
    }


def same(predicted: np.ndarray) -> bool:
    """Whether predictions (N,) differ by no more than rounding."""
    return bool(np.ptp(predicted) <= SINGLE * np.abs(predicted).max())


def degenerate(values: np.ndarray, names: Sequence[str]) -> str:
    """What predictions have collapsed to."""
    predicted = values[:, list(names).index("predicted")]
    alike = len(predicted) > 1 and np.isfinite(predicted).all() and same(predicted)
    return f"predicts {predicted[0]:.4g} for everything" if alike else ""


def columns(metric: str, names: Sequence[str]) -> list[str]:
    """The columns a metric needs."""
    return list(NAMES) if metric in METRICS else []


AGGREGATE = Aggregate(
    lambda sums, names: {},
    columns,
    bounds={"pearson": (-1.0, 1.0), "spearman": (-1.0, 1.0), "mse": (0.0, np.inf)},
    degenerate=degenerate,
    direct=direct,
)
