"""Scores of predicted numbers p_i against gold numbers g_i:

    pearson   correlation of p and g
    spearman  correlation of their ranks, equal numbers having their mean rank
    mse       mean of (p_i - g_i)^2

A correlation is 0 where one side does not vary: it orders nothing. A prediction that is not finite makes all
scores NaN. Neither torch nor SciPy is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.data.text import Example
from harness.errors import HarnessError
from harness.task import Prediction

METRICS = ("pearson", "spearman", "mse")


def score(predictions: Mapping[str, Prediction], examples: Sequence[Example]) -> dict[str, float]:
    """All scores over the examples.

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
    gold = np.array([e.gold for e in examples], dtype=np.float64)
    predicted = np.array([predictions[e.id].value for e in examples], dtype=np.float64)
    if not np.isfinite(predicted).all():
        return dict.fromkeys(METRICS, float("nan"))
    return {
        "pearson": pearson(predicted, gold),
        "spearman": pearson(ranks(predicted), ranks(gold)),
        "mse": float(np.square(predicted - gold).mean()),
    }


def pearson(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation of two series (N,); 0 where one of them does not vary."""
    a, b = a - a.mean(), b - b.mean()
    # what is left of a constant is rounding
    if np.abs(a).max() < 1e-12 or np.abs(b).max() < 1e-12:
        return 0.0
    a, b = a / np.abs(a).max(), b / np.abs(b).max()
    return float(np.clip(a @ b / np.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def ranks(values: np.ndarray) -> np.ndarray:
    """(N,) ranks from 1; equal values have the mean of theirs."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[where], dtype=np.float64)
