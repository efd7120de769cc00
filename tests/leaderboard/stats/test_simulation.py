"""Coverage of confidence intervals and false-positive rates of tests, on simulated records with known truth.

Each example has a difficulty, each seed shifts the model's level, and each seed's outcome on an example is
drawn independently. Metrics: accuracy, span F1 (counts of several entities per sentence) and Pearson's
correlation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.leaderboard.stats.bootstrap import Weights, of_difference, of_row

N = 300
SPREADS = {"none": 0.0, "equal": 1.0, "large": 3.0}
"""Standard deviation between seeds, in units of the standard deviation from sampling N examples."""


def drawn(
    random: np.random.Generator,
    *,
    n: int,
    spread: float,
    difficulty: np.ndarray,
    level: float = 0.75,
    f1: bool = False,
    shifts: np.ndarray | None = None,
) -> np.ndarray:
    """Draw counts (n, N, k): right and 1, or correct, predicted and gold entities.

    Args:
        shifts: shift of each seed, (n, 1); None = drawn.
    """
    noise = np.sqrt(level * (1 - level) / N)
    shifts = random.standard_normal((n, 1)) if shifts is None else shifts
    p = level + spread * noise * shifts + difficulty
    p = np.clip(p, 0.0, 1.0)
    if not f1:
        right = random.random((n, len(difficulty))) < p
        return np.stack([right, np.ones_like(right)], axis=-1).astype(np.float32)
    size = 1 + (np.arange(len(difficulty)) % 3)
    correct = random.binomial(size, p)
    predicted = correct + random.binomial(size, 0.2, size=correct.shape)
    return np.stack([correct, predicted, np.broadcast_to(size, correct.shape)], axis=-1).astype(np.float32)


def metric(sums: np.ndarray) -> np.ndarray:
    if sums.shape[-1] == 2:
        return np.asarray(sums[..., 0] / sums[..., 1])
    return np.asarray(2 * sums[..., 0] / (sums[..., 1] + sums[..., 2]))


def measured(
    counts: np.ndarray, weights: Weights, metric: Callable[[np.ndarray], np.ndarray] = metric
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores (n,) and bootstrap replicates (n, B) of counts (n, N, k)."""
    n, size, k = counts.shape
    flat = counts.transpose(1, 0, 2).reshape(size, n * k)
    sums = np.concatenate([w @ flat for w in weights.chunks(size)]).reshape(-1, n, k)
    return metric(counts.sum(axis=1)), metric(sums).T


def difficulties(random: np.random.Generator) -> np.ndarray:
    return random.choice([-0.25, 0.0, 0.0, 0.25], size=N)


def coverage(
    *, n: int, spread: float, runs: int, f1: bool = False, level: float = 0.75
) -> tuple[float, float]:
    """Return the coverage of our intervals and of percentile intervals of the plain crossed bootstrap."""
    random = np.random.default_rng([n, int(10 * spread), int(f1), int(100 * level)])
    weights = Weights(resamples=300)
    # the truth by drawing many seeds and examples
    how: dict[str, Any] = {"spread": spread, "level": level, "f1": f1}
    many = [metric(drawn(random, n=400, difficulty=difficulties(random), **how).sum(1)) for _ in range(60)]
    truth = float(np.mean(many))
    ours = naive = 0
    for _ in range(runs):
        scores, replicates = measured(
            drawn(random, n=n, spread=spread, difficulty=difficulties(random), level=level, f1=f1), weights
        )
        low, high = of_row(scores, replicates).interval(bounds=(0.0, 1.0))
        ours += low <= truth <= high
        seeds = random.integers(n, size=(replicates.shape[1], n))
        crossed = replicates[seeds.T, np.arange(replicates.shape[1])].mean(axis=0)
        low, high = np.quantile(crossed, [0.025, 0.975])
        naive += low <= truth <= high
    return ours / runs, naive / runs


def false_positives(
    *,
    n: tuple[int, int],
    spread: tuple[float, float],
    runs: int,
    pair_seeds: bool = False,
    f1: bool = False,
    alike: float = 1.0,
    together: float = 0.0,
) -> float:
    """Return the share of p < 0.05 for two rows with equal expectation, ``n`` seeds and deviation ``spread``.

    Args:
        alike: share of the examples that are equally difficult for both rows.
        together: correlation of the seeds' shifts between the rows, which must have equally many seeds.
    """
    random = np.random.default_rng([*n, *(int(100 * x) for x in (*spread, alike, together)), pair_seeds, f1])
    weights, rejected = Weights(resamples=300), 0
    for _ in range(runs):
        one, own = difficulties(random), difficulties(random)
        other = np.where(random.random(N) < alike, one, own)
        first, second = (random.standard_normal((m, 1)) for m in n)
        if together:
            second = together * first + np.sqrt(1 - together**2) * second
        a, b = (
            measured(drawn(random, n=m, spread=s, difficulty=d, f1=f1, shifts=z), weights)
            for m, s, d, z in zip(n, spread, (one, other), (first, second), strict=True)
        )
        rejected += of_difference(a, b, pair_seeds=pair_seeds).p_value() < 0.05
    return rejected / runs


def correlations(*, n: int, spread: float, size: int, runs: int) -> float:
    """Return the coverage of intervals of the mean correlation over seeds.

    Gold values and noise are normal; a seed scales its noise by exp(0.3 spread z).
    """
    random, weights, covered = np.random.default_rng([n, int(10 * spread), size]), Weights(resamples=300), 0

    def counts(m: int) -> np.ndarray:
        """Draw counts (m, N, 6): 1, x, y, their squares and product."""
        gold, hard = random.standard_normal((2, size))
        noise = np.exp(0.3 * spread * random.standard_normal((m, 1)))
        x = gold + 0.5 * hard + 0.5 * noise * random.standard_normal((m, size))
        y = np.broadcast_to(gold, x.shape)
        return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=-1)

    def pearson(sums: np.ndarray) -> np.ndarray:
        one, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
        return np.asarray((one * xy - x * y) / np.sqrt((one * xx - x * x) * (one * yy - y * y)))

    truth = float(np.mean([pearson(counts(200).sum(axis=1)).mean() for _ in range(200)]))
    for _ in range(runs):
        low, high = of_row(*measured(counts(n), weights, pearson)).interval(bounds=(-1.0, 1.0))
        covered += low <= truth <= high
    return covered / runs


@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS)
def test_intervals_of_three_seeds_cover_in_a_quick_simulation(spread: float) -> None:
    ours, naive = coverage(n=3, spread=spread, runs=400)
    assert 0.92 <= ours <= 0.99
    assert spread < 2 or naive < ours - 0.03


def test_false_positives_in_a_quick_simulation() -> None:
    assert 0.02 <= false_positives(n=(3, 3), spread=(1.0, 1.0), runs=400) <= 0.08


def test_false_positives_when_only_one_row_has_seed_variance() -> None:
    assert 0.02 <= false_positives(n=(3, 3), spread=(0.2, 2.0), runs=400) <= 0.09


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("f1", [False, True], ids=["accuracy", "span_f1"])
@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS)
def test_intervals_cover(n: int, spread: float, f1: bool) -> None:
    ours, naive = coverage(n=n, spread=spread, runs=3000, f1=f1)
    print(f"coverage n={n} spread={spread} f1={f1}: {ours:.3f} (plain percentiles {naive:.3f})")
    assert 0.93 <= ours <= 0.98


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("pair_seeds", [False, True], ids=["unpaired", "paired"])
@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS)
def test_false_positive_rate(n: int, spread: float, pair_seeds: bool) -> None:
    how: dict[str, Any] = {"n": (n, n), "spread": (spread, spread), "pair_seeds": pair_seeds}
    rate = false_positives(**how, runs=3000, alike=0.5)
    print(f"false positives n={n} spread={spread} paired={pair_seeds}: {rate:.3f}")
    assert 0.03 <= rate <= 0.07


UNLIKE = [
    ((3, 3), (0.2, 2.0)), ((3, 3), (0.2, 3.0)), ((3, 3), (1.0, 3.0)), ((3, 3), (0.0, 1.0)),
    ((5, 5), (0.2, 3.0)), ((10, 3), (1.0, 1.0)), ((10, 3), (2.0, 2.0)), ((10, 3), (3.0, 0.5)),
    ((10, 3), (0.5, 3.0)), ((10, 3), (0.2, 2.0)), ((5, 3), (0.2, 2.0)),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("alike", [0.5, 1.0])
@pytest.mark.parametrize(("n", "spread"), UNLIKE)
def test_false_positive_rate_of_rows_with_different_difficulties(
    n: tuple[int, int], spread: tuple[float, float], alike: float
) -> None:
    rate = false_positives(n=n, spread=spread, runs=3000, alike=alike)
    print(f"false positives n={n} spread={spread} alike={alike}: {rate:.3f}")
    assert 0.025 <= rate <= 0.08


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("together", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize("spread", [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (0.2, 2.0)])
def test_false_positive_rate_of_paired_seeds(n: int, spread: tuple[float, float], together: float) -> None:
    how: dict[str, Any] = {"n": (n, n), "spread": spread, "together": together}
    rate = false_positives(**how, runs=3000, alike=1.0, pair_seeds=True)
    print(f"false positives n={n} spread={spread} paired, correlated {together}: {rate:.3f}")
    assert 0.02 <= rate <= 0.08


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("size", [100, 500])
@pytest.mark.parametrize("n", [3, 10])
@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_intervals_of_correlations_cover(n: int, spread: float, size: int) -> None:
    share = correlations(n=n, spread=spread, size=size, runs=2000)
    print(f"coverage of Pearson's correlation n={n} spread={spread} N={size}: {share:.3f}")
    assert 0.93 <= share <= 0.98


def collapsing(*, n: int, runs: int, size: int = N) -> tuple[float, float]:
    """Return the coverage, and the smallest width, of intervals of seeds that predict one class only.

    The class of each seed and of each example is a fair coin, so the expected accuracy is 0.5. A seed has no
    effect of its own, nor has an example: all variance is interaction.
    """
    random, weights, covered, narrowest = np.random.default_rng(n), Weights(resamples=300), 0, 1.0
    for _ in range(runs):
        gold, predicted = random.random(size) < 0.5, random.random((n, 1)) < 0.5
        right = np.stack([gold == predicted, np.ones((n, size))], axis=-1).astype(np.float32)
        low, high = of_row(*measured(right, weights)).interval(bounds=(0.0, 1.0))
        covered += low <= 0.5 <= high
        narrowest = min(narrowest, high - low)
    return covered / runs, narrowest


@pytest.mark.parametrize("n", [2, 3, 5])
def test_intervals_of_collapsed_seeds_cover_and_are_never_empty(n: int) -> None:
    share, narrowest = collapsing(n=n, runs=300)
    assert share >= 0.93
    assert narrowest > 0.03
