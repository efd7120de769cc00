"""Averaging the probabilities of several models. Does not import torch."""

from __future__ import annotations

import numpy as np


def log_mean(scores: np.ndarray) -> np.ndarray:
    """Log of the mean probability over members; its softmax is the mean probability.

    Args:
        scores: (M, ..., K) logits of M members; -inf is a probability of 0.

    Returns:
        (..., K) float64.
    """
    scores = np.asarray(scores, dtype=np.float64)
    top = scores.max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - top)
    mean = (exponentials / exponentials.sum(axis=-1, keepdims=True)).mean(axis=0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(mean))
