"""Intervals and paired tests of rows: the metric of each seed, recomputed on resampled predictions.

Only ids, example statistics and, for slices, tags are read from ``predictions.parquet``. The record names the
:class:`harness.data.statistics.MetricFromStats` that computes scores from the statistics. A row without
statistics has a mean and no interval; the reason is stored in the row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.data.statistics import ExampleStats, MetricFromStats
from harness.errors import HarnessError
from harness.leaderboard.stats.bootstrap import Spread, Weights, holm, of_difference, of_row
from harness.leaderboard.table.configs import Configs
from harness.leaderboard.table.rows import BoardRow
from harness.records.predictions import StoredCounts, read_counts
from harness.records.record import Record
from harness.records.trust import INSTALLED, Trust

ONE_ROW = "seeds of one row only"
BOTH, EXAMPLES_ONLY, NO_SPREAD = "seeds and examples", "examples only", "no spread (Wilson)"
ALPHA = 0.05
TOLERANCE = 1e-6
"""Relative difference allowed between a recomputed score and that of the record."""
Z2 = 1.959964**2
"""Squared 97.5 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A row's seeds on all examples and on resamples of them.

    Attributes:
        scores: (n,) one per seed, on all examples.
        replicates: (n, B) one per seed and resample.
        examples: number of examples, N; ``digest`` is a hash of their ids in order.
        seeds: seed numbers.
        bounds: lowest and highest value of the metric.
    """

    scores: np.ndarray
    replicates: np.ndarray
    examples: int
    digest: str
    seeds: tuple[int, ...]
    bounds: tuple[float, float]

    def interval(self) -> tuple[float, float, str]:
        """Limits of the 95 % confidence interval, and what it covers (``ci_kind``)."""
        spread = of_row(self.scores, self.replicates)
        low, high = spread.interval(bounds=self.bounds)
        at_bound = spread.mean in self.bounds and np.isfinite(self.bounds).all()
        if spread.variance == 0 and at_bound:
            # every resample gives the same score, so the bootstrap has no variance to offer
            bottom, top = self.bounds
            margin = self.wilson_margin()
            limits = (spread.mean - margin, top) if spread.mean == top else (bottom, spread.mean + margin)
            return *limits, NO_SPREAD
        return low, high, BOTH if spread.both else EXAMPLES_ONLY

    def wilson_margin(self) -> float:
        """Wilson's margin of error if all examples agree: no resample of 100 correct answers has a wrong one.

        Example: z^2 / (N + z^2) = 3.84 / 103.84 = 0.037 for N = 100, so 100 of 100 is 0.963 to 1.
        """
        return (self.bounds[1] - self.bounds[0]) * Z2 / (self.examples + Z2)

    def difference_limits(self, spread: Spread) -> tuple[float, float]:
        """Limits of the 95 % interval of a difference of two rows, within the possible differences."""
        low, high = spread.interval()
        span = self.bounds[1] - self.bounds[0]
        # all examples differ in the same way, so no resample shows another difference
        if spread.variance == 0 and spread.mean != 0 and np.isfinite(span):
            low, high = spread.mean - self.wilson_margin(), spread.mean + self.wilson_margin()
        return max(low, -span), min(high, span)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A paired test of two rows of one table on the same examples.

    Attributes:
        effect: mean of ``a`` minus mean of ``b``; (``low``, ``high``) is its 95 % confidence interval.
        p_holm: p-value after Holm's correction over all comparisons of the same call.
        seeds: how seeds were treated: ``unpaired``, ``paired``, ``examples only`` if each row has one
            seed, or ``seeds of one row only``.
    """

    a: BoardRow
    b: BoardRow
    effect: float
    low: float
    high: float
    p: float
    p_holm: float
    examples: int
    seeds: str


class Samples:
    """Samples of rows, read on first use and cached.

    Args:
        configs: has the folder of each record.
        weights: the resamples.
        trust: the metrics that records may name.
    """

    def __init__(self, configs: Configs, weights: Weights | None = None, *, trust: Trust = INSTALLED) -> None:
        self.configs, self.weights, self.trust = configs, weights or Weights(), trust
        self._cache: dict[int, Sample | str] = {}

    def of(self, row: BoardRow) -> Sample | str:
        """The row's sample, or the reason why there is none."""
        # by identity: rows are mutable, so they have no hash
        if id(row) not in self._cache:
            self._cache[id(row)] = self._read(row)
        return self._cache[id(row)]

    def _read(self, row: BoardRow) -> Sample | str:
        tested = [r for r in row.complete if row.metric in r.test]
        if not tested or row.mean is None:
            return "no score"
        if len({r.cell for r in tested}) > 1:
            # their seeds belong to different configurations and are not draws of one score
            return "pools several cells"
        stored = []
        for record in tested:
            counts = self.stored(record)
            if isinstance(counts, str):
                return counts
            stored.append(counts)
        try:
            return self.resample(tested, stored, metric=row.metric)
        except (ValueError, KeyError, TypeError, IndexError) as e:  # names or counts that the metric rejects
            return f"its counts do not fit its metric ({type(e).__name__}: {e}); harness rerun the cell"

    def stored(self, record: Record, *, tags: bool = False) -> StoredCounts | str:
        """Example statistics of a record's test predictions, or the reason why there are none."""
        folder = self.configs.folder(record)
        if folder is None or not record.metric_from_stats:
            return "its record has no example statistics"
        try:
            return read_counts(folder, tags=tags) or "its predictions have no example statistics"
        except HarnessError as e:
            return f"{e}; harness rerun {folder}"

    def resample(
        self,
        records: Sequence[Record],
        stored: Sequence[StoredCounts],
        *,
        metric: str,
        chosen: np.ndarray | None = None,
    ) -> Sample | str:
        """Scores of each record on all its examples, or on those in ``chosen``, and on resamples of them.

        Args:
            records: seeds of one row.
            stored: their example statistics, in the same order.
            metric: name of the metric.
            chosen: (N,) bool; all examples if None.

        Returns:
            the sample, or the reason why there is none.
        """
        try:
            metrics = [self.trust.metric(r.metric_from_stats) for r in records]
        except HarnessError as e:
            return str(e)
        digests = {_digest(s.ids) for s in stored}
        if len(digests) > 1:
            return "its seeds predict different examples"
        size = int(chosen.sum()) if chosen is not None else len(stored[0].ids)
        if size < 2:
            return "fewer than two examples"
        if chosen is not None:
            sums = stored[0].counts.values[chosen].sum(axis=0)
            # such as F1 where the slice has no gold entity: 0 would be misleading
            if why := metrics[0].undefined(sums, stored[0].counts.names, metric):
                return f"{metric} is undefined on these examples: {why}"
        scores, replicates = [], []
        for record, from_stats, kept in zip(records, metrics, stored, strict=True):
            result = self._resample_seed(from_stats, kept.counts, metric=metric, chosen=chosen)
            if result is None:
                return f"{metric} cannot be computed from example statistics"
            score, resampled = result
            recorded = record.test.get(metric)
            # the record has scores of all examples only, so a slice cannot be checked
            if chosen is None and (
                recorded is None or abs(score - recorded) > TOLERANCE * max(1.0, abs(recorded))
            ):
                return f"its predictions give {score:.6g}, its record {recorded}"
            scores.append(score)
            replicates.append(resampled)
        return Sample(
            np.array(scores),
            np.array(replicates),
            size,
            digests.pop(),
            tuple(r.seed for r in records),
            metrics[0].range(metric),
        )

    def _resample_seed(
        self, from_stats: MetricFromStats, counts: ExampleStats, *, metric: str, chosen: np.ndarray | None
    ) -> tuple[float, np.ndarray] | None:
        """Score and replicates (B,) of one seed; None if the statistics do not determine the metric.

        Example: accuracy needs the columns n and right, values (N, 2). The weights (b, N) of a chunk times
        the values give (b, 2) sums, and right / n is the accuracy on each of the b resamples.
        """
        needed = from_stats.columns(metric, counts.names)
        if not needed:
            return None
        # only the needed columns: the cost of the product with the weights grows with their number
        stats = counts.with_names(needed)
        values = stats.values if chosen is None else stats.values[chosen]
        score = from_stats.compute(ExampleStats(stats.names, values))[metric]
        # sums of integers are exact in float32, and the variance of other sums needs no higher precision
        single = values.astype(np.float32)
        chunks = self.weights.chunks(len(values))
        resampled = [from_stats.resampled(single, stats.names, chunk)[metric] for chunk in chunks]
        return score, np.concatenate(resampled)


def _digest(ids: Sequence[str]) -> str:
    # with a separator, so that the ids [ab, c] and [a, bc] differ
    return hashlib.sha256("\0".join(ids).encode()).hexdigest()[:16]


def compare(
    pairs: Sequence[tuple[BoardRow, BoardRow]], samples: Samples, *, pair_seeds: bool = False
) -> list[Comparison | str]:
    """Paired tests of all pairs with Holm's correction over them; the reason where no test is possible."""
    tests = [difference(samples.of(a), samples.of(b), pair_seeds=pair_seeds) for a, b in pairs]
    # Holm's correction counts possible tests only, so next() below is called for these alone
    adjusted = iter(holm([d[0].p_value() for d in tests if not isinstance(d, str)]))
    out: list[Comparison | str] = []
    for (a, b), d in zip(pairs, tests, strict=True):
        if isinstance(d, str):
            out.append(d)
            continue
        spread, examples, seeds = d
        sample = samples.of(a)
        assert isinstance(sample, Sample)  # otherwise `difference` returns a reason
        low, high = sample.difference_limits(spread)
        out.append(
            Comparison(a, b, spread.mean, low, high, spread.p_value(), next(adjusted), examples, seeds)
        )
    return out


def difference(
    a: Sample | str, b: Sample | str, *, pair_seeds: bool = False
) -> tuple[Spread, int, str] | str:
    """Spread of a - b, number of examples and how seeds were treated; or why there is no comparison."""
    if isinstance(a, str):
        return a
    if isinstance(b, str):
        return b
    if a.digest != b.digest or a.examples != b.examples:
        return "different examples"
    # distinct numbers are required: two runs with the seed 0 could be paired in two ways
    paired = pair_seeds and sorted(a.seeds) == sorted(b.seeds) and len(set(a.seeds)) == len(a.seeds)
    # in the order of the seed numbers, the s-th of a matches the s-th of b: (2, 0, 1) -> order [1, 2, 0]
    sides = [(s.scores[_order(s, paired)], s.replicates[_order(s, paired)]) for s in (a, b)]
    spread = of_difference(sides[0], sides[1], pair_seeds=paired, size=a.examples)
    if not spread.both:
        return spread, a.examples, EXAMPLES_ONLY if len(a.seeds) == len(b.seeds) == 1 else ONE_ROW
    return spread, a.examples, "paired" if paired else "unpaired"


def _order(sample: Sample, by_seed: bool) -> np.ndarray:
    return np.argsort(sample.seeds, kind="stable") if by_seed else np.arange(len(sample.seeds))


def add_intervals(rows: Sequence[BoardRow], samples: Samples, *, max_rows: int) -> None:
    """Set the confidence interval of the best ``max_rows`` rows (sorted best first), or why there is none."""
    for row in [row for row in rows if row.mean is not None][:max_rows]:
        sample = samples.of(row)
        if isinstance(sample, str):
            row.no_interval = sample
        else:
            low, high, kind = sample.interval()
            row.ci, row.ci_kind = (low, high), kind


def mark_ties(rows: Sequence[BoardRow], samples: Samples, *, max_rows: int) -> None:
    """Mark the best row and the rows that do not differ significantly from it (paired test, 0.05, Holm).

    If only the best row has no sample, the others are marked untested; if no row has one, there are no marks.
    """
    scored = [row for row in rows if row.mean is not None][:max_rows]
    if len(scored) < 2 or all(isinstance(samples.of(row), str) for row in scored):
        return
    best, *others = scored
    best.tied = True
    for row, test in zip(others, compare([(best, row) for row in others], samples), strict=True):
        if isinstance(test, Comparison):
            row.tied = test.p_holm >= ALPHA
        else:
            row.untested = test


def add_baseline(rows: Sequence[BoardRow], baseline: BoardRow, samples: Samples) -> None:
    """Set the relative error reduction of every row against ``baseline``, and the p-value of the difference.

    (e_baseline - e_row) / e_baseline, where the error e is (best possible score) - score, or the score itself
    if lower is better. A metric without a known upper bound is assumed to end at 1.
    """
    sample = samples.of(baseline)
    top = sample.bounds[1] if isinstance(sample, Sample) and np.isfinite(sample.bounds[1]) else 1.0
    others = [row for row in rows if row is not baseline and row.mean is not None]
    tests = compare([(row, baseline) for row in others], samples)
    for row, test in zip(others, tests, strict=True):
        row.error_reduction = error_reduction(row, baseline, top=top)
        row.p_baseline = test.p_holm if isinstance(test, Comparison) else None


def error_reduction(row: BoardRow, baseline: BoardRow, *, top: float = 1.0) -> float | None:
    """Relative error reduction; None if the baseline makes no error."""
    if row.mean is None or baseline.mean is None:
        return None
    # scores 0.8 and 0.9 of at most 1 are errors of 0.2 and 0.1: a reduction of 0.5
    before, after = (top - m if row.maximize else m for m in (baseline.mean, row.mean))
    return (before - after) / before if before > 0 else None
