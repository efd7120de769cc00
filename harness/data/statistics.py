"""Counts that resampling adds up: what a task says of each example so that any score can be recomputed.

Let c_i in R^k be the counts of example i and f the aggregate. The score of a sample of examples is

    f(sum_i w_i c_i)

where w_i says how often example i is in the sample: w = 1 gives the task's own score, multinomial w a
bootstrap resample. A score that is no function of sums (a rank correlation) gives ``direct`` instead, which
gets counts and weights as they are. This module imports no torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.errors import HarnessError

Scores = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of N examples.

    Attributes:
        names: k column names, no two alike.
        values: (N, k) float64, in the order of the examples.
    """

    names: tuple[str, ...]
    values: np.ndarray

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names):
            raise ValueError(f"{len(self.names)} names for counts of shape {self.values.shape}")

    def with_names(self, names: Sequence[str]) -> Counts:
        """Exactly these columns; zeros where there were none."""
        out = np.zeros((len(self.values), len(names)))
        known = {name: i for i, name in enumerate(self.names)}
        for i, name in enumerate(names):
            if name in known:
                out[:, i] = self.values[:, known[name]]
        return Counts(tuple(names), out)


def union(parts: Iterable[Counts]) -> tuple[str, ...]:
    """Names of all parts, each once, in the order in which they appear."""
    return tuple(dict.fromkeys(name for part in parts for name in part.names))


def _never(sums: np.ndarray, names: Sequence[str]) -> str:
    return ""


def _always(sums: np.ndarray, names: Sequence[str], metric: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """How counts become scores.

    Attributes:
        scores: ``(sums (..., k), names) -> {metric: (...)}``, vectorised over the leading axes; those metrics
            alone whose columns are among ``names``.
        columns: ``(metric, names) -> names`` that this metric needs; [] when counts do not decide it.
        bounds: lowest and highest value of each metric; (0, 1) where it is not listed.
        degenerate: ``(sums (k,), names) -> reason``, "" for a model that did learn to tell things apart; it
            gets the values (N, k) where there is ``direct``.
        undefined: ``(sums (k,), names, metric) -> reason`` why a metric says nothing of these examples, ""
            where it does: an F1 of entities where there are none is 0 for a perfect answer, too.
        direct: ``(values (N, k), names, weights (B, N)) -> {metric: (B,)}`` for scores that are no function
            of sums; ``scores`` is not used then.
    """

    scores: Callable[[np.ndarray, Sequence[str]], Scores]
    columns: Callable[[str, Sequence[str]], list[str]]
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    degenerate: Callable[[np.ndarray, Sequence[str]], str] = _never
    undefined: Callable[[np.ndarray, Sequence[str], str], str] = _always
    direct: Callable[[np.ndarray, Sequence[str], np.ndarray], Scores] | None = None

    def resampled(self, values: np.ndarray, names: Sequence[str], weights: np.ndarray) -> Scores:
        """Scores of B weightings: ``values`` (N, k), ``weights`` (B, N) -> (B,) each."""
        if self.direct is not None:
            return self.direct(values, names, weights)
        return self.scores(np.asarray(weights @ values, dtype=np.float64), names)

    def of(self, counts: Counts) -> dict[str, float]:
        """Scores of the examples as they are."""
        if self.direct is not None:
            found = self.direct(counts.values, counts.names, np.ones((1, len(counts.values))))
            return {metric: float(value[0]) for metric, value in found.items()}
        return {m: float(v) for m, v in self.scores(counts.values.sum(axis=0), counts.names).items()}

    def collapsed(self, counts: Counts) -> str:
        """What the predictions have collapsed to, or ""."""
        values = counts.values if self.direct is not None else counts.values.sum(axis=0)
        return self.degenerate(values, counts.names)

    def range(self, metric: str) -> tuple[float, float]:
        return self.bounds.get(metric, (0.0, 1.0))


def locate(path: str) -> Aggregate:
    """The aggregate behind a dotted path, as a record names it.

    Raises:
        HarnessError: it cannot be imported, or is none.
    """
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as e:
        raise HarnessError(
            f"{path}: cannot be imported ({e}); install the package that holds this task"
        ) from e
    if not isinstance(found, Aggregate):
        raise HarnessError(f"{path}: is no harness.data.statistics.Aggregate")
    return found


def pick(sums: np.ndarray, names: Sequence[str], *wanted: str) -> list[np.ndarray]:
    """Columns of ``sums`` (..., k) by name, each (...); 0 where there is none of that name."""
    at = {name: i for i, name in enumerate(names)}
    return [sums[..., at[w]] if w in at else np.zeros(sums.shape[:-1]) for w in wanted]


def ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """``above / below``, 0 where ``below`` is 0."""
    return np.divide(above, below, out=np.zeros(np.broadcast(above, below).shape), where=below != 0)


def f1(correct: np.ndarray, predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """2 c / (p + g), 0 where nothing is predicted and nothing is there."""
    return ratio(2.0 * correct, predicted + gold)
