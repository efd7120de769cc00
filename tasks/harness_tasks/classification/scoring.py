"""Scores of one predicted class an example. With t_k, p_k the gold and predicted counts of class k, c_k the
right ones among them, n examples and c = sum_k c_k:

    accuracy  c / n                                  (equals the micro-averaged F1)
    f1_k      2 c_k / (t_k + p_k)
    macro_f1  mean of f1_k over the classes that occur in gold or predictions
    mcc       (c n - sum_k t_k p_k) / sqrt((n^2 - sum_k p_k^2) (n^2 - sum_k t_k^2))

mcc is 0 where the denominator is 0 (Gorodkin 2004, the K-category correlation coefficient). Classes that
occur nowhere change no score, and no score is an average over batches. This module imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.data.text import Example
from harness.errors import HarnessError, did_you_mean
from harness.task import Prediction

METRICS = ("accuracy", "macro_f1", "mcc", "f1")


def score(
    predictions: Mapping[str, Prediction], examples: Sequence[Example], *, positive: str | None = None
) -> dict[str, float]:
    """All scores over the examples.

    Args:
        predictions: by example id; more than the examples' do no harm.
        examples: at least one; their gold is the class.
        positive: the class ``f1`` is of; None = no ``f1``.

    Raises:
        HarnessError: an example has no prediction, or there is no example.
    """
    if not examples:
        raise HarnessError("there are no examples to score")
    check_complete(predictions, examples)
    gold = [e.gold for e in examples]
    predicted = [predictions[e.id].value for e in examples]
    table = Counts.of(gold, predicted)
    scores = {"accuracy": table.accuracy(), "macro_f1": table.macro_f1(), "mcc": table.mcc()}
    if positive is not None:
        scores["f1"] = table.f1(positive)
    return scores


def check_complete(predictions: Mapping[str, Prediction], examples: Sequence[Example]) -> None:
    """Raises HarnessError where an example has no prediction."""
    missing = [e.id for e in examples if e.id not in predictions]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise HarnessError(f"{len(missing)} of {len(examples)} examples have no prediction: {shown}")


def check_metric(metric: str) -> None:
    """Raises HarnessError where :func:`score` has no such score."""
    if metric not in METRICS:
        raise HarnessError(f"task.metric={metric}: {did_you_mean(metric, METRICS)}")


class Counts:
    """Counts by class of gold labels, predictions and their agreement, all (K,), K classes that occur."""

    def __init__(self, classes: list[str], gold: np.ndarray, predicted: np.ndarray) -> None:
        self.classes = classes
        k = len(classes)
        self.n = len(gold)
        self.gold = np.bincount(gold, minlength=k).astype(float)
        self.predicted = np.bincount(predicted, minlength=k).astype(float)
        self.right = np.bincount(gold[gold == predicted], minlength=k).astype(float)

    @classmethod
    def of(cls, gold: Sequence[str], predicted: Sequence[str]) -> Counts:
        classes = sorted({*gold, *predicted})
        index = {c: i for i, c in enumerate(classes)}
        return cls(classes, np.array([index[g] for g in gold]), np.array([index[p] for p in predicted]))

    def accuracy(self) -> float:
        return float(self.right.sum() / self.n)

    def per_class_f1(self) -> np.ndarray:
        """(K,); every class occurs, so no denominator is 0."""
        return 2 * self.right / (self.gold + self.predicted)

    def macro_f1(self) -> float:
        return float(self.per_class_f1().mean())

    def f1(self, positive: str) -> float:
        """F1 of one class; 0 when it is neither in gold nor predicted."""
        return float(self.per_class_f1()[self.classes.index(positive)]) if positive in self.classes else 0.0

    def mcc(self) -> float:
        n = float(self.n)
        above = self.right.sum() * n - self.gold @ self.predicted
        below = (n**2 - self.predicted @ self.predicted) * (n**2 - self.gold @ self.gold)
        return float(above / np.sqrt(below)) if below > 0 else 0.0
