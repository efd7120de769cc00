"""The crossed bootstrap over seeds and examples, with a correction for few seeds.

A row's score is the mean over n seeds of a metric of N examples. Seeds and examples are crossed: every seed
predicts the same examples. In the two-way random effects model score = mu + seed + example + seed x example
the variance of the row's mean has three parts. They are estimated from one bootstrap over examples (the same
B multinomial weights for every seed; t*_bs is the metric of seed s *recomputed* on resample b) and from the
seeds' own scores t_s:

    V_examples     = var_b(mean_s t*_bs)                                of  s2_ex / N + s2_int / (n N)
    V_seeds        = var_s(t_s) / n                                     of  s2_seed / n + s2_int / (n N)
    V_interaction  = 1 / (n (n - 1)) sum_s var_b(t*_bs - mean_s t*_bs)  of  s2_int / (n N)

The exact crossed variance is V_examples + V_seeds - V_interaction (Owen 2007, The pigeonhole bootstrap, on
why resampling both ways counts the interaction more than once). Here

    E = max(V_examples, V_interaction)           S = max(0, V_seeds - kappa V_interaction)
    V = E + S                                    d = (n - 1) max(1, E / S)
    interval  mean +- t(d) sqrt(V)

E and S are the parts V_examples - V_interaction and V_seeds - V_interaction, neither of which can be
negative, plus the V_interaction that they share; an estimate below zero is replaced by zero (Thompson 1962,
The problem of negative estimates of variance components). Without this limit, V is 0 if only the interaction
varies: two seeds that collapse to opposite classes of a balanced test set have equal scores, and their mean
is 0.5 on every resample. With it, V = V_interaction = 0.25 / N.

t(d) is Student's quantile. If the variance between seeds is large, percentiles of the plain crossed bootstrap
have a coverage of only 0.85 to 0.88 at n = 3, for two reasons that are corrected here: they resample n seeds
as if these were the whole population (a factor (n - 1) / n in the variance), and they treat a variance
estimated with n - 1 degrees of freedom as known. Satterthwaite (1946) gives d = (n - 1) (V / S)^2, which is
too optimistic when S is itself noise: coverage 0.90 to 0.93 at n = 3. The d above, which is never larger, and
the values of kappa (1 would be unbiased if S were not cut off at 0) were chosen by simulation; see
tests/leaderboard/stats/test_simulation.py for the resulting coverage.

Two rows are compared in the same way, by their difference: the examples are paired; seeds are independent
draws in both rows, and V_seeds and V_interaction are sums over the rows, unless ``pair_seeds`` (same seed
numbers, differences taken seed by seed, kappa = 1 - 3 / (4 n)). For independent rows, n - 1 is replaced by
Welch's (1947) degrees of freedom, of V_seeds or of its excess over V_interaction, whichever are fewer: if the
seeds of only one row vary, only these carry information.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
SEED = 20_251
KAPPA_ROW, KAPPA_UNPAIRED, KAPPA_PAIRED = 0.5, 0.9, 0.75
CHUNK = 20_000_000
"""Maximum number of entries of a weight matrix in memory."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean with its variance and degrees of freedom.

    Attributes:
        mean: of the seeds' scores, or the difference of two rows' means.
        variance: of ``mean``, V above; ``seeds`` is the part S, the rest comes from the examples.
        df: degrees of freedom, infinite if the seeds add no variance.
        n: number of seeds.
        both: False with one seed: the interval is over examples only.
        size: N, the number of examples of a test; 0 disables the lower limit of the p-value.
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
        """Standard error of the mean."""
        return float(np.sqrt(self.variance))

    def quantile(self, level: float = 0.95) -> float:
        """Two-sided quantile of Student's t distribution."""
        from scipy.special import stdtrit

        return float(stdtrit(min(self.df, 1e9), 0.5 + level / 2))

    def interval(
        self, *, level: float = 0.95, bounds: tuple[float, float] = (-np.inf, np.inf)
    ) -> tuple[float, float]:
        """Confidence interval within ``bounds``.

        With finite bounds, the interval is computed on a scale with constant variance (delta method), so that
        it cannot leave the bounds and is asymmetric near them: arcsin(sqrt(x)) of a proportion, with x the
        share of the range; artanh(x / b) of a correlation between -b and b (Fisher 1921).

        Example: mean 0.95, half width 0.06, bounds (0, 1). The symmetric interval 0.89 to 1.01 is impossible.
        arcsin(sqrt(0.95)) = 1.345, step 0.06 / (2 sqrt(0.95 * 0.05)) = 0.138, so the limits are
        sin(1.207)^2 = 0.874 and sin(1.483)^2 = 0.992.
        """
        half = self.quantile(level) * self.error
        low, high = bounds
        # NaN or unbounded metrics (such as perplexity): clip the symmetric interval
        if not np.isfinite([low, high]).all() or high <= low:
            return max(low, self.mean - half), min(high, self.mean + half)
        if not low < self.mean < high:  # at a bound both transforms are degenerate
            return self.mean, self.mean
        if low == -high:
            share = self.mean / high
            # half times the derivative of artanh(x / b), which is 1 / (b (1 - (x / b)^2))
            limits = np.tanh(np.arctanh(share) + half / (high * (1 - share**2)) * np.array([-1, 1]))
            return float(high * limits[0]), float(high * limits[1])
        share = (self.mean - low) / (high - low)
        center, step = np.arcsin(np.sqrt(share)), half / (2 * (high - low) * np.sqrt(share * (1 - share)))
        # beyond 0 and pi / 2 the sine would turn back into the interval
        limits = np.sin(np.clip([center - step, center + step], 0.0, np.pi / 2)) ** 2
        return float(low + (high - low) * limits[0]), float(low + (high - low) * limits[1])

    def p_value(self) -> float:
        """Two-sided p-value of the hypothesis that the mean is 0.

        It is never below that of the sign test if all N examples agree, 2 ** (1 - N)."""
        from scipy.special import stdtr

        smallest = 2.0 ** (1 - self.size) if self.size else 0.0
        if self.variance <= 0:
            return 1.0 if self.mean == 0 else smallest
        return max(smallest, float(2 * stdtr(min(self.df, 1e9), -abs(self.mean) / self.error)))


class Weights:
    """Multinomial weights of B resamples of N examples, the same for all rows with N examples.

    Args:
        resamples: B.
        seed: of the generator; the same seed gives the same weights.
    """

    def __init__(self, resamples: int = RESAMPLES, seed: int = SEED) -> None:
        self.resamples, self.seed = resamples, seed
        self._cache: dict[int, list[np.ndarray]] = {}

    def chunks(self, n: int) -> Iterable[np.ndarray]:
        """(b, N) float32 each, B rows in total. Cached unless they are large."""
        chunks = WeightChunks(self, n)
        if n * self.resamples > CHUNK:
            return chunks
        if n not in self._cache:
            if sum(a.size for part in self._cache.values() for a in part) > 2 * CHUNK:
                self._cache.clear()
            self._cache[n] = list(chunks)
        return self._cache[n]


class WeightChunks:
    """Iterable of (b, N) float32; every iteration draws the same weights again.

    Example, N = 3, b = 2: the drawn examples [[0, 2, 2], [1, 1, 1]] plus the row offsets [[0], [3]] are
    [[0, 2, 2], [4, 4, 4]]. One bincount of length b N = 6 counts all rows at once: [1, 0, 2, 0, 3, 0], which
    reshaped to (2, 3) gives the weights [[1, 0, 2], [0, 3, 0]].
    """

    def __init__(self, weights: Weights, n: int) -> None:
        self.resamples, self.seed, self.n = weights.resamples, weights.seed, n

    def __iter__(self) -> Iterator[np.ndarray]:
        random = np.random.default_rng([self.seed, self.n])
        rows = max(1, CHUNK // max(1, self.n))
        remaining = self.resamples
        while remaining > 0:
            b = min(rows, remaining)
            drawn = random.integers(self.n, size=(b, self.n), dtype=np.int32)  # (b, N)
            # CHUNK bounds b N, so the offsets fit into int32
            drawn += np.arange(b, dtype=np.int32)[:, None] * np.int32(self.n)
            yield np.bincount(drawn.ravel(), minlength=b * self.n).reshape(b, self.n).astype(np.float32)
            remaining -= b


def of_row(scores: np.ndarray, replicates: np.ndarray) -> Spread:
    """Spread of a row's mean.

    Args:
        scores: (n,) one per seed, on all examples.
        replicates: (n, B) the same on each resample.
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

    Both rows' replicates are of the same resamples of the same examples. With ``pair_seeds`` the s-th seed of
    ``a`` is paired with the s-th seed of ``b``. ``size`` is the number of examples, for the test.
    """
    mean = float(a[0].mean() - b[0].mean())
    kappa = 1 - KAPPA_PAIRED / len(a[0]) if pair_seeds else KAPPA_UNPAIRED
    # (B,): resample b holds the same examples in both rows, so their shared noise cancels
    replicates = a[1].mean(axis=0) - b[1].mean(axis=0)
    parts = [_parts(a[0] - b[0], a[1] - b[1])] if pair_seeds else [_parts(*a), _parts(*b)]
    return _spread(mean, replicates, parts, kappa=kappa, n=min(len(a[0]), len(b[0])), size=size)


def _parts(scores: np.ndarray, replicates: np.ndarray) -> tuple[int, float, float]:
    """n, V_seeds and V_interaction; the variances are 0 with one seed.

    Example: two seeds with scores 0.80 and 0.84 have V_seeds = 0.0008 / 2 = 0.0004. If their replicates on
    two resamples are [[0.78, 0.82], [0.84, 0.84]], the means over seeds are [0.81, 0.83] and the deviations
    [[-0.03, -0.01], [0.03, 0.01]]: both rows have variance 0.0002, V_interaction = 0.0004 / (2 * 1) = 0.0002.
    """
    n = len(scores)
    if n < 2:
        return n, 0.0, 0.0
    # ddof=1: n seeds are a sample of all possible ones
    seeds = float(scores.var(ddof=1)) / n
    # (n, B) - (B,): what a seed adds on a resample to the mean over seeds
    deviations = replicates - replicates.mean(axis=0)
    return n, seeds, float(deviations.var(axis=1, ddof=1).sum()) / (n * (n - 1))


def _spread(
    mean: float,
    replicates: np.ndarray,
    parts: Sequence[tuple[int, float, float]],
    *,
    kappa: float,
    n: int,
    size: int = 0,
) -> Spread:
    """V, S and d of the module's docstring; ``replicates`` (B,) are averaged over the seeds."""
    # V_examples; replicates are recomputed scores, so no division by N is needed
    examples = float(replicates.var(ddof=1))
    # V_examples contains the interaction, so an estimate below V_interaction is too small by chance
    examples = max(examples, sum(interaction for _, _, interaction in parts))
    added = max(0.0, sum(seeds - kappa * interaction for _, seeds, interaction in parts))
    # if the seeds add no variance, nothing is estimated from few seeds
    df = np.inf
    if added > 0:
        df = _welch(parts) * max(1.0, examples / added)
    both = all(m > 1 for m, _, _ in parts)
    return Spread(mean, examples + added, added, float(df), n, both, size)


def _welch(parts: Sequence[tuple[int, float, float]]) -> float:
    """Degrees of freedom of the seeds' part: of V_seeds, or of its excess over V_interaction if fewer.

    Example: rows of 3 and 5 seeds with V_seeds = 0.0004 and 0.0001 have 0.0005^2 / (0.0004^2 / 2 +
    0.0001^2 / 4) = 3.0 degrees of freedom, close to the 2 of the row that varies.
    """

    def welch(variances: Sequence[float]) -> float:
        # a row with one seed has variance 0 and no degrees of freedom: it adds nothing
        squares = sum(v**2 / (m - 1) for v, (m, _, _) in zip(variances, parts, strict=True) if m > 1)
        return sum(variances) ** 2 / squares if squares > 0 else np.inf

    excess = [max(0.0, seeds - interaction) for _, seeds, interaction in parts]
    return min(welch([seeds for _, seeds, _ in parts]), welch(excess))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of m tests (Holm 1979): the i-th smallest times m - i + 1, made non-decreasing.

    Example: [0.01, 0.04, 0.03] -> 0.01 * 3, 0.03 * 2, 0.04 * 1 in ascending order; the last is raised to the
    0.06 before it: [0.03, 0.06, 0.06].
    """
    out, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        out[i] = highest
    return out
