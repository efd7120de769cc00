"""Regression metrics of predicted numbers x_i and gold numbers y_i under weights w_i
(:mod:`harness.data.statistics`). With n = sum w_i and m_x = sum w_i x_i / n

    pearson   sum w_i (x_i - m_x)(y_i - m_y) / sqrt(sum w_i (x_i - m_x)^2 sum w_i (y_i - m_y)^2)
    spearman  pearson of the midranks
    mse       sum w_i (x_i - y_i)^2 / n

A task's score has w = 1. A correlation is 0 where one side is constant; predictions that differ only by
single-precision rounding are constant. A prediction that is not finite makes all scores NaN.

A rank is not a sum over examples. The midranks of a resample are those *within the resample*: (weight below
the value) + (weight at the value + 1) / 2. So rho is exact on every resample, unlike the approximation that
keeps the ranks of the full sample. This module imports neither torch nor SciPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.data.statistics import ExampleStats, MetricFromStats, Scores
from harness.data.text import Example
from harness.errors import HarnessError
from harness.task import Prediction

METRICS = ("pearson", "spearman", "mse")
NAMES = ("predicted", "gold")
ROUNDING = 1e-12
"""A side whose largest deviation from its mean is smaller than this is constant."""
SINGLE = 1e-6
"""Relative precision of predictions in single precision: smaller differences are rounding."""


def score(predictions: Mapping[str, Prediction], examples: Sequence[Example]) -> dict[str, float]:
    """Compute all scores of the examples.

    Args:
        predictions: by example id; their values and the examples' gold are numbers.
        examples: at least one.

    Raises:
        HarnessError: an example has no prediction, or there is no example.
    """
    if not examples:
        raise HarnessError("there are no examples to score")
    missing = [e.id for e in examples if e.id not in predictions]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise HarnessError(f"{len(missing)} of {len(examples)} examples have no prediction: {shown}")
    predicted = [float(predictions[e.id].value) for e in examples]
    return FROM_STATS.compute(example_stats(predicted, [e.gold for e in examples]))


def example_stats(predicted: Sequence[float], gold: Sequence[float]) -> ExampleStats:
    """Statistics of N examples: their predicted and gold number."""
    return ExampleStats(NAMES, np.array([predicted, gold], dtype=np.float64).T.reshape(-1, 2))


def weighted_pearson(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Correlation (B,) of x and y, each (N,) or (B, N), under weights (B, N); 0 where a side is constant."""
    (dx, varies_x), (dy, varies_y) = (_deviations(side, weights) for side in (x, y))
    covariance = _row_dot(weights * dx, dy)
    variances = _row_dot(weights * dx, dx) * _row_dot(weights * dy, dy)
    defined = varies_x & varies_y & (variances > 0)
    # an undefined correlation keeps the scale 1, so that 0 / 0 raises no warning
    scale = np.sqrt(variances, where=defined, out=np.ones(len(weights)))
    # rounding can exceed the bounds: 1.0000000000000002
    return np.asarray(np.clip(np.where(defined, covariance / scale, 0.0), -1.0, 1.0))


def _deviations(x: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Deviations (B, N) from the weighted mean, scaled to a maximum of 1 so that squares neither overflow nor
    underflow, and whether (B,) they exceed rounding."""
    deviations = x - (weights * x).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True)
    # (B,); an example that is not in the resample must not count
    largest = (np.abs(deviations) * (weights > 0)).max(axis=1)
    varies = largest >= ROUNDING
    return deviations / np.where(varies, largest, 1.0)[:, None], varies


def _row_dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(B,) dot products of the rows of a and b (B, N)."""
    return np.asarray((a[:, None, :] @ b[:, :, None])[:, 0, 0])


def weighted_ranks(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Midranks (B, N) of x (N,) within each weighted sample; meaningless where the weight is 0.

    Example: x = [5, 7, 5] with weights [1, 1, 2] is the sample 5, 5, 5, 7. Its three fives share the ranks
    1 to 3, midrank (3 + 1) / 2 = 2, and the seven has rank 3 + (1 + 1) / 2 = 4: [2, 4, 2].
    """
    _, group = np.unique(x, return_inverse=True)  # [0, 1, 0]
    order = np.argsort(group, kind="stable")
    # first position of each group in the order [0, 2, 1]: [0, 2]
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    tied = np.add.reduceat(weights[:, order], starts, axis=1)  # weight per distinct value: [3, 1]
    # [3, 4] - [3, 1] + [2, 1] = [2, 4]
    midranks = np.cumsum(tied, axis=1) - tied + (tied + 1) / 2
    return np.asarray(midranks[:, group])


def _direct(values: np.ndarray, names: Sequence[str], weights: np.ndarray) -> Scores:
    """Scores (B,) of the examples under weights (B, N); NaN where a prediction is not finite."""
    x, y = (values[:, list(names).index(name)] for name in NAMES)
    weights = weights.astype(np.float64)
    if not np.isfinite(x).all():
        return {metric: np.full(len(weights), np.nan) for metric in METRICS}
    if is_constant(x):
        # otherwise the ranks would order the rounding errors
        x = np.full_like(x, x[0])
    ranks = weighted_ranks(x, weights), weighted_ranks(y, weights)
    return {
        "pearson": weighted_pearson(x, y, weights),
        "spearman": weighted_pearson(*ranks, weights),
        "mse": (weights * (x - y) ** 2).sum(axis=1) / weights.sum(axis=1),
    }


def is_constant(predicted: np.ndarray) -> bool:
    """Whether predictions (N,) differ only by single-precision rounding."""
    return bool(np.ptp(predicted) <= SINGLE * np.abs(predicted).max())


def _degenerate(values: np.ndarray, names: Sequence[str]) -> str:
    predicted = values[:, list(names).index("predicted")]
    constant = len(predicted) > 1 and np.isfinite(predicted).all() and is_constant(predicted)
    return f"predicts {predicted[0]:.4g} for everything" if constant else ""


def _columns(metric: str, names: Sequence[str]) -> list[str]:
    return list(NAMES) if metric in METRICS else []


FROM_STATS = MetricFromStats(
    lambda sums, names: {},
    _columns,
    bounds={"pearson": (-1.0, 1.0), "spearman": (-1.0, 1.0), "mse": (0.0, np.inf)},
    degenerate=_degenerate,
    direct=_direct,
)
