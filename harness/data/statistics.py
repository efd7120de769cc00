"""Sufficient statistics per example, and the metrics that are computed from their sums.

Let s_i in R^k be the statistics of example i and f the metric. The score of a sample of examples is

    f(sum_i w_i s_i)

where w_i is the number of times example i occurs in the sample: w = 1 gives the task's score, multinomial w a
bootstrap resample. Example: with s_i = (1, correct_i), accuracy is f(n, c) = c / n. A score that is not a
function of sums (a rank correlation) defines ``direct`` instead, which receives statistics and weights
unsummed. This module does not import torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.errors import HarnessError

Scores = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class ExampleStats:
    """Statistics of N examples.

    Attributes:
        names: k distinct column names.
        values: (N, k) float64, in the order of the examples.
    """

    names: tuple[str, ...]
    values: np.ndarray

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names):
            raise ValueError(f"{len(self.names)} names for statistics of shape {self.values.shape}")

    def with_names(self, names: Sequence[str]) -> ExampleStats:
        """Exactly these columns; columns that do not exist are filled with zeros."""
        # (n, right) requested as (right, gold/a) is the column right and a column of zeros: a class that
        # occurs in one seed only has no column in the others
        out = np.zeros((len(self.values), len(names)))
        position = {name: i for i, name in enumerate(self.names)}
        for i, name in enumerate(names):
            if name in position:
                out[:, i] = self.values[:, position[name]]
        return ExampleStats(tuple(names), out)

    def sums(self) -> np.ndarray:
        """(k,) column sums."""
        return np.asarray(self.values.sum(axis=0))


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """Counts of one class, entity type or label: correct predictions, predictions, gold occurrences."""

    name: str
    correct: float
    predicted: float
    gold: float


def union(parts: Iterable[ExampleStats]) -> tuple[str, ...]:
    """Column names of all parts without duplicates, in order of first appearance."""
    # a dict keeps the order of insertion, a set does not
    return tuple(dict.fromkeys(name for part in parts for name in part.names))


def _not_degenerate(sums: np.ndarray, names: Sequence[str]) -> str:
    return ""


def _always_defined(sums: np.ndarray, names: Sequence[str], metric: str) -> str:
    return ""


def _no_classes(sums: np.ndarray, names: Sequence[str]) -> list[ClassCounts]:
    return []


def _not_binary(values: np.ndarray, names: Sequence[str]) -> np.ndarray | None:
    return None


@dataclass(frozen=True, slots=True)
class MetricFromStats:
    """The metrics of a task as functions of its statistics.

    Attributes:
        scores: ``(sums (..., k), names) -> {metric: (...)}``, vectorised over the leading axes; returns only
            the metrics whose columns are among ``names``.
        columns: ``(metric, names) -> names`` of the columns that the metric needs; [] when the statistics do
            not determine it.
        bounds: minimum and maximum of each metric; (0, 1) where it is not listed.
        degenerate: ``(sums (k,), names) -> reason`` why the predictions are degenerate (a constant class),
            "" otherwise; receives the values (N, k) when there is ``direct``.
        undefined: ``(sums (k,), names, metric) -> reason`` why a metric is undefined on these examples, ""
            otherwise. Example: without gold entities the F1 of a perfect prediction is 0, too.
        direct: ``(values (N, k), names, weights (B, N)) -> {metric: (B,)}`` for scores that are not functions
            of sums; replaces ``scores``.
        per_class: ``(sums (k,), names) -> counts`` of each class, entity type or label; [] without classes.
        correct: ``(values (N, k), names) -> (N,) bool``, which examples are predicted correctly; None when
            the statistics do not say.
    """

    scores: Callable[[np.ndarray, Sequence[str]], Scores]
    columns: Callable[[str, Sequence[str]], list[str]]
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    degenerate: Callable[[np.ndarray, Sequence[str]], str] = _not_degenerate
    undefined: Callable[[np.ndarray, Sequence[str], str], str] = _always_defined
    direct: Callable[[np.ndarray, Sequence[str], np.ndarray], Scores] | None = None
    per_class: Callable[[np.ndarray, Sequence[str]], list[ClassCounts]] = _no_classes
    correct: Callable[[np.ndarray, Sequence[str]], np.ndarray | None] = _not_binary

    def resampled(self, values: np.ndarray, names: Sequence[str], weights: np.ndarray) -> Scores:
        """Scores (B,) of B weighted samples: ``values`` (N, k), ``weights`` (B, N)."""
        if self.direct is not None:
            return self.direct(values, names, weights)
        # (B, N) @ (N, k) = (B, k): the sums of all resamples in one matrix product
        return self.scores(np.asarray(weights @ values, dtype=np.float64), names)

    def compute(self, stats: ExampleStats) -> dict[str, float]:
        """Scores of the examples, each counted once."""
        if self.direct is not None:
            # one sample, in which every example has the weight 1
            scores = self.direct(stats.values, stats.names, np.ones((1, len(stats.values))))
            return {metric: float(value[0]) for metric, value in scores.items()}
        return {metric: float(value) for metric, value in self.scores(stats.sums(), stats.names).items()}

    def collapsed(self, stats: ExampleStats) -> str:
        """Why the predictions are degenerate, or ""."""
        return self.degenerate(stats.values if self.direct is not None else stats.sums(), stats.names)

    def range(self, metric: str) -> tuple[float, float]:
        """Minimum and maximum of a metric."""
        return self.bounds.get(metric, (0.0, 1.0))


def load_metric(path: str) -> MetricFromStats:
    """Import a :class:`MetricFromStats` by its dotted path, as stored in a record.

    Raises:
        HarnessError: it cannot be imported, or is not a :class:`MetricFromStats`.
    """
    module, _, name = path.rpartition(".")
    try:
        metric = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as e:
        raise HarnessError(
            f"{path}: cannot be imported ({e}); install the package that contains this task"
        ) from e
    if not isinstance(metric, MetricFromStats):
        raise HarnessError(f"{path}: is not a harness.data.statistics.MetricFromStats")
    return metric


def pick(sums: np.ndarray, names: Sequence[str], *columns: str) -> list[np.ndarray]:
    """Columns of ``sums`` (..., k) by name, each (...); zeros for a missing column."""
    position = {name: i for i, name in enumerate(names)}
    # `...` keeps the leading axes: (k,) of one sample gives scalars, (B, k) of resamples gives (B,)
    return [sums[..., position[c]] if c in position else np.zeros(sums.shape[:-1]) for c in columns]


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """``numerator / denominator``, 0 where the denominator is 0."""
    # `where` leaves the zeros of `out` in place and raises no warning of a division by 0
    out = np.zeros(np.broadcast(numerator, denominator).shape)
    return np.asarray(np.divide(numerator, denominator, out=out, where=denominator != 0))


def f1(correct: np.ndarray, predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """2 c / (p + g), 0 where there are neither predictions nor gold occurrences."""
    return ratio(2.0 * correct, predicted + gold)
