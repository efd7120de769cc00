"""The crossed bootstrap over seeds and examples, with a correction for few seeds.

A row's score is the mean over n seeds of a metric of N examples. Seeds and examples are crossed: every seed
predicts the same examples. Of the two-way random effects model score = mu + seed + example + seed x example
the variance of the row's mean has three parts, estimated from one bootstrap over examples (the same B
multinomial weights for every seed; t*_bs is the metric of seed s *recomputed* on resample b) and from the
seeds' own scores t_s:

    V_examples     = var_b(mean_s t*_bs)                                of  s2_ex / N + s2_int / (n N)
    V_seeds        = var_s(t_s) / n                                     of  s2_seed / n + s2_int / (n N)
    V_interaction  = 1 / (n (n - 1)) sum_s var_b(t*_bs - mean_s t*_bs)  of  s2_int / (n N)

The exact crossed variance is V_examples + V_seeds - V_interaction (Owen 2007, The pigeonhole bootstrap, on
why resampling both ways counts the interaction more than once). Here

    S = max(0, V_seeds - kappa V_interaction)    V = V_examples + S    d = (n - 1) max(1, V_examples / S)
    interval  mean +- t(d) sqrt(V)

t(d) is Student's quantile. Where the seeds' spread is large, percentiles of the plain crossed bootstrap cover
0.85 to 0.88 at n = 3 for two reasons, both mended: they resample n seeds as if these were all (a factor
(n - 1) / n in the variance), and they take a variance known from n - 1 degrees of freedom for certain.
Satterthwaite (1946) would have d = (n - 1) (V / S)^2, which is too optimistic when S is itself noise: 0.90 to
0.93 at n = 3. This d, never above his, and the values of kappa (1 would be unbiased, were S not cut at 0)
were chosen by simulation; tests/leaderboard/stats/test_simulation.py holds what they are worth.

For two rows the same is done with the difference: the examples are paired; seeds are independent draws in
both rows, V_seeds and V_interaction sums over the rows, unless ``pair_seeds`` (same seed numbers, differences
taken seed by seed, kappa = 1 - 3 / (4 n)). In the place of n - 1 independent rows have Welch's (1947) degrees
of freedom, of their V_seeds or of what of these exceeds V_interaction, whichever are fewer: where the seeds
of one row alone differ, that is all that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
SEED = 20_251
KAPPA_ROW, KAPPA_UNPAIRED, KAPPA_PAIRED = 0.5, 0.9, 0.75
CHUNK = 20_000_000
"""Most entries of a matrix of weights that is held at once."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean and how far it may be from the truth.

    Attributes:
        mean: of the seeds' scores, or the difference of two rows' means.
        variance: of ``mean``, V above; ``seeds`` is the part S, ``examples`` the rest.
        df: degrees of freedom, infinite where the seeds add nothing.
        n: seeds.
        both: False when there is one seed: the interval then is over examples only.
        size: examples that a test is over, N; 0 where it does not count.
    """

    mean: float
    variance: float
    seeds: float
    df: float
    n: int
    both: bool
    size: int = 0

    @property
    def error(self) -> float:
        return float(np.sqrt(self.variance))

    def quantile(self, level: float = 0.95) -> float:
        from scipy.special import stdtrit

        return float(stdtrit(min(self.df, 1e9), 0.5 + level / 2))

    def interval(
        self, *, level: float = 0.95, bounds: tuple[float, float] = (-np.inf, np.inf)
    ) -> tuple[float, float]:
        """Within ``bounds``. Between finite ones the step is taken on a scale on which the variance does not
        depend on the place; so no limit leaves the bounds, and limits near a bound are as lopsided as they
        should be. It is that of a proportion, arcsin(sqrt(x)), x the share of the range; between -b and b
        that of a correlation, artanh(x / b) (Fisher 1921)."""
        half = self.quantile(level) * self.error
        low, high = bounds
        if not np.isfinite([low, high]).all() or high <= low:
            return max(low, self.mean - half), min(high, self.mean + half)
        if not low < self.mean < high:
            return self.mean, self.mean
        if low == -high:
            share = self.mean / high
            ends = np.tanh(np.arctanh(share) + half / (high * (1 - share**2)) * np.array([-1, 1]))
            return float(high * ends[0]), float(high * ends[1])
        share = (self.mean - low) / (high - low)
        at, step = np.arcsin(np.sqrt(share)), half / (2 * (high - low) * np.sqrt(share * (1 - share)))
        ends = np.sin(np.clip([at - step, at + step], 0.0, np.pi / 2)) ** 2
        return float(low + (high - low) * ends[0]), float(low + (high - low) * ends[1])

    def p_value(self) -> float:
        """Two-sided, of the hypothesis that the mean is 0. Of N examples that all say the same no test is
        surer than the sign test, 2 ** (1 - N)."""
        from scipy.special import stdtr

        least = 2.0 ** (1 - self.size) if self.size else 0.0
        if self.variance <= 0:
            return 1.0 if self.mean == 0 else least
        return max(least, float(2 * stdtr(min(self.df, 1e9), -abs(self.mean) / self.error)))


class Weights:
    """Multinomial weights of B resamples of N examples, the same for all rows with N examples.

    Args:
        resamples: B.
        seed: the same seed gives the same weights.
    """

    def __init__(self, resamples: int = RESAMPLES, seed: int = SEED) -> None:
        self.resamples, self.seed = resamples, seed
        self._kept: dict[int, list[np.ndarray]] = {}

    def chunks(self, n: int) -> Iterable[np.ndarray]:
        """(b, N) float32 each, B rows in all. Kept for reuse unless they are large."""
        drawn = WeightChunks(self, n)
        if n * self.resamples > CHUNK:
            return drawn
        if n not in self._kept:
            if sum(a.size for part in self._kept.values() for a in part) > 2 * CHUNK:
                self._kept.clear()
            self._kept[n] = list(drawn)
        return self._kept[n]


class WeightChunks:
    """Iterable of (b, N) float32, drawn anew each time and the same each time."""

    def __init__(self, weights: Weights, n: int) -> None:
        self.resamples, self.seed, self.n = weights.resamples, weights.seed, n

    def __iter__(self) -> Iterator[np.ndarray]:
        random = np.random.default_rng([self.seed, self.n])
        rows = max(1, CHUNK // max(1, self.n))
        left = self.resamples
        while left > 0:
            b = min(rows, left)
            drawn = random.integers(self.n, size=(b, self.n), dtype=np.int32)
            drawn += np.arange(b, dtype=np.int32)[:, None] * np.int32(self.n)
            yield np.bincount(drawn.ravel(), minlength=b * self.n).reshape(b, self.n).astype(np.float32)
            left -= b


def of_row(scores: np.ndarray, replicates: np.ndarray) -> Spread:
    """Spread of a row's mean.

    Args:
        scores: (n,) of the seeds.
        replicates: (n, B) of the seeds on each resample.
    """
    parts = _parts(scores, replicates)
    return _spread(float(scores.mean()), replicates.mean(axis=0), [parts], kappa=KAPPA_ROW, n=len(scores))


def of_difference(
    a: tuple[np.ndarray, np.ndarray],
    b: tuple[np.ndarray, np.ndarray],
    *,
    pair_seeds: bool = False,
    size: int = 0,
) -> Spread:
    """Spread of the difference of two rows' means, a - b; each is (scores, replicates) as in :func:`of_row`.

    Replicates of both are on the same resamples of the same examples. With ``pair_seeds`` the s-th seed of
    one belongs to the s-th of the other. ``size``: examples, for the test.
    """
    mean = float(a[0].mean() - b[0].mean())
    kappa = 1 - KAPPA_PAIRED / len(a[0]) if pair_seeds else KAPPA_UNPAIRED
    together = a[1].mean(axis=0) - b[1].mean(axis=0)
    parts = [_parts(a[0] - b[0], a[1] - b[1])] if pair_seeds else [_parts(*a), _parts(*b)]
    return _spread(mean, together, parts, kappa=kappa, n=min(len(a[0]), len(b[0])), size=size)


def _parts(scores: np.ndarray, replicates: np.ndarray) -> tuple[int, float, float]:
    """n, V_seeds, V_interaction; zeros with one seed."""
    n = len(scores)
    if n < 2:
        return n, 0.0, 0.0
    seeds = float(scores.var(ddof=1)) / n
    apart = replicates - replicates.mean(axis=0)
    return n, seeds, float(apart.var(axis=1, ddof=1).sum()) / (n * (n - 1))


def _spread(
    mean: float,
    together: np.ndarray,
    parts: Sequence[tuple[int, float, float]],
    *,
    kappa: float,
    n: int,
    size: int = 0,
) -> Spread:
    examples = float(together.var(ddof=1))
    added = max(0.0, sum(seeds - kappa * interaction for _, seeds, interaction in parts))
    total = examples + added
    df = np.inf
    if added > 0:
        df = _welch(parts) * max(1.0, examples / added)
    both = all(m > 1 for m, _, _ in parts)
    return Spread(mean, total, added, float(df), n, both, size)


def _welch(parts: Sequence[tuple[int, float, float]]) -> float:
    """Degrees of freedom of the seeds' part: of V_seeds, or of what exceeds V_interaction if fewer."""

    def of(spreads: Sequence[float]) -> float:
        squares = sum(v**2 / (m - 1) for v, (m, _, _) in zip(spreads, parts, strict=True) if m > 1)
        return sum(spreads) ** 2 / squares if squares > 0 else np.inf

    return min(of([v for _, v, _ in parts]), of([max(0.0, v - both) for _, v, both in parts]))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of m tests (Holm 1979): the i-th smallest times m - i + 1, never falling."""
    out, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        out[i] = highest
    return out
