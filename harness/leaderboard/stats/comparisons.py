"""What is known of a row beyond its mean: the metric of each seed, recomputed on resampled predictions.

Only ids, counts and, for slices, tags are read from ``predictions.parquet``; the record names the
:class:`harness.data.statistics.MetricFromStats` that computes scores from them. A row without counts has its mean and
no interval, and the reason is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.data.statistics import ExampleStats, MetricFromStats, load_metric
from harness.errors import HarnessError
from harness.leaderboard.stats.bootstrap import Spread, Weights, holm, of_difference, of_row
from harness.leaderboard.table.configs import Configs
from harness.leaderboard.table.rows import Row
from harness.records.predictions import StoredCounts, read_counts
from harness.records.record import Record

ONE_ROW = "seeds of one row alone"
BOTH, EXAMPLES_ONLY, NO_SPREAD = "seeds and examples", "examples only", "no spread (Wilson)"
ALPHA = 0.05
AGREE = 1e-6
Z2 = 1.959964**2


@dataclass(frozen=True, slots=True)
class Sample:
    """A row's seeds, resampled.

    Attributes:
        scores: (n,) of the seeds on all examples.
        replicates: (n, B) of the seeds on each resample.
        examples: their number, N; ``digest`` stands for their ids in order.
        seeds: seed numbers.
        bounds: of the metric.
    """

    scores: np.ndarray
    replicates: np.ndarray
    examples: int
    digest: str
    seeds: tuple[int, ...]
    bounds: tuple[float, float]

    def interval(self) -> tuple[float, float, str]:
        """Limits of 95 % and what they are over."""
        spread = of_row(self.scores, self.replicates)
        low, high = spread.interval(bounds=self.bounds)
        at_bound = spread.mean in self.bounds and np.isfinite(self.bounds).all()
        if spread.variance == 0 and at_bound:
            bottom, top = self.bounds
            far = self.unseen()
            ends = (spread.mean - far, top) if spread.mean == top else (bottom, spread.mean + far)
            return *ends, NO_SPREAD
        return low, high, BOTH if spread.both else EXAMPLES_ONLY

    def unseen(self) -> float:
        """How far the truth may be where all examples say the same: no resample of 100 right answers holds a
        wrong one, so it is Wilson's limit."""
        return (self.bounds[1] - self.bounds[0]) * Z2 / (self.examples + Z2)

    def difference_limits(self, spread: Spread) -> tuple[float, float]:
        """Limits of 95 % of a difference from a row on the same examples, within what differences can be."""
        low, high = spread.interval()
        most = self.bounds[1] - self.bounds[0]
        if spread.variance == 0 and spread.mean != 0 and np.isfinite(most):
            low, high = spread.mean - self.unseen(), spread.mean + self.unseen()
        return max(low, -most), min(high, most)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two rows of one table on the same examples. ``p_holm`` counts all comparisons that were made with it.

    Attributes:
        effect: mean of ``a`` less mean of ``b``; (``low``, ``high``) its interval of 95 %.
        seeds: how they were treated: ``unpaired``, ``paired``, ``examples only`` where each row has one, or
            ``seeds of one row alone``.
    """

    a: Row
    b: Row
    effect: float
    low: float
    high: float
    p: float
    p_holm: float
    examples: int
    seeds: str


class Samples:
    """Samples of rows, read when they are asked for, once.

    Args:
        configs: knows the folder of each record.
        weights: the resamples.
    """

    def __init__(self, configs: Configs, weights: Weights | None = None) -> None:
        self.configs, self.weights = configs, weights or Weights()
        self._known: dict[int, Sample | str] = {}

    def of(self, row: Row) -> Sample | str:
        """The row's sample, or why there is none."""
        if id(row) not in self._known:
            self._known[id(row)] = self._make(row)
        return self._known[id(row)]

    def _make(self, row: Row) -> Sample | str:
        tested = [r for r in row.complete if row.metric in r.test]
        if not tested or row.mean is None:
            return "no score"
        if len({r.cell for r in tested}) > 1:
            return "pools several cells"
        stored = []
        for record in tested:
            read = self.stored(record)
            if isinstance(read, str):
                return read
            stored.append(read)
        return self.resample(tested, stored, metric=row.metric)

    def stored(self, record: Record, *, tags: bool = False) -> StoredCounts | str:
        """Counts of a record's test predictions, or why there are none."""
        folder = self.configs.folder(record)
        if folder is None or not record.metric_from_stats:
            return "its record keeps no counts"
        try:
            return read_counts(folder, tags=tags) or "no counts beside its record"
        except (OSError, ValueError) as e:
            return f"its predictions cannot be read ({e}); harness rerun {folder}"

    def resample(
        self,
        records: Sequence[Record],
        stored: Sequence[StoredCounts],
        *,
        metric: str,
        chosen: np.ndarray | None = None,
    ) -> Sample | str:
        """Scores of each record on all of its examples, or those ``chosen`` (N,) alone, and on resamples."""
        try:
            metrics = [load_metric(r.metric_from_stats) for r in records]
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
            if why := metrics[0].undefined(sums, stored[0].counts.names, metric):
                return f"{metric} says nothing here: {why}"
        scores, replicates = [], []
        for record, from_stats, kept in zip(records, metrics, stored, strict=True):
            found = self._one(from_stats, kept.counts, metric=metric, chosen=chosen)
            if found is None:
                return f"{metric} is no sum over examples"
            score, own = found
            told = record.test.get(metric)
            if chosen is None and (told is None or abs(score - told) > AGREE * max(1.0, abs(told))):
                return f"its predictions give {score:.6g}, its record says {told}"
            scores.append(score)
            replicates.append(own)
        return Sample(
            np.array(scores),
            np.array(replicates),
            size,
            digests.pop(),
            tuple(r.seed for r in records),
            metrics[0].range(metric),
        )

    def _one(
        self, from_stats: MetricFromStats, counts: ExampleStats, *, metric: str, chosen: np.ndarray | None
    ) -> tuple[float, np.ndarray] | None:
        needed = from_stats.columns(metric, counts.names)
        if not needed:
            return None
        small = counts.with_names(needed)
        values = small.values if chosen is None else small.values[chosen]
        score = from_stats.compute(ExampleStats(small.names, values))[metric]
        # whole sums stay exact in float32, and what is spread needs no more
        quick = values.astype(np.float32)
        parts = self.weights.chunks(len(values))
        own = [from_stats.resampled(quick, small.names, part)[metric] for part in parts]
        return score, np.concatenate(own)


def _digest(ids: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(ids).encode()).hexdigest()[:16]


def compare(
    pairs: Sequence[tuple[Row, Row]], samples: Samples, *, pair_seeds: bool = False
) -> list[Comparison | str]:
    """Paired tests of a family of pairs, adjusted together (Holm 1979); the reason where there is none."""
    found = [difference(samples.of(a), samples.of(b), pair_seeds=pair_seeds) for a, b in pairs]
    adjusted = iter(holm([d[0].p_value() for d in found if not isinstance(d, str)]))
    out: list[Comparison | str] = []
    for (a, b), d in zip(pairs, found, strict=True):
        if isinstance(d, str):
            out.append(d)
            continue
        spread, examples, seeds = d
        known = samples.of(a)
        assert isinstance(known, Sample)  # else there were no difference
        low, high = known.difference_limits(spread)
        out.append(
            Comparison(a, b, spread.mean, low, high, spread.p_value(), next(adjusted), examples, seeds)
        )
    return out


def difference(
    a: Sample | str, b: Sample | str, *, pair_seeds: bool = False
) -> tuple[Spread, int, str] | str:
    """Spread of a - b, examples, and how seeds were treated; or why they cannot be compared."""
    for one in (a, b):
        if isinstance(one, str):
            return one
    assert isinstance(a, Sample)
    assert isinstance(b, Sample)
    if a.digest != b.digest or a.examples != b.examples:
        return "different examples"
    same = pair_seeds and sorted(a.seeds) == sorted(b.seeds) and len(set(a.seeds)) == len(a.seeds)
    sides = [(s.scores[_order(s, same)], s.replicates[_order(s, same)]) for s in (a, b)]
    spread = of_difference(sides[0], sides[1], pair_seeds=same, size=a.examples)
    alone = EXAMPLES_ONLY if len(a.seeds) == len(b.seeds) == 1 else ONE_ROW
    return spread, a.examples, ("paired" if same else "unpaired") if spread.both else alone


def _order(sample: Sample, by_seed: bool) -> np.ndarray:
    return np.argsort(sample.seeds, kind="stable") if by_seed else np.arange(len(sample.seeds))


def add_intervals(rows: Sequence[Row], samples: Samples, *, most: int) -> None:
    """Give the best ``most`` rows (rows come best first) their interval, or the reason why they have none."""
    for row in [row for row in rows if row.mean is not None][:most]:
        sample = samples.of(row)
        if isinstance(sample, str):
            row.no_interval = sample
        else:
            low, high, kind = sample.interval()
            row.ci, row.ci_kind = (low, high), kind


def mark_ties(rows: Sequence[Row], samples: Samples, *, most: int) -> None:
    """Mark the best row and those that a paired test (0.05, Holm over all of them) cannot tell from it. Where
    the best row alone cannot be tested, the others say so; where none can, there are no marks."""
    scored = [row for row in rows if row.mean is not None][:most]
    if len(scored) < 2 or all(isinstance(samples.of(row), str) for row in scored):
        return
    best, *others = scored
    best.tied = True
    for row, found in zip(others, compare([(best, row) for row in others], samples), strict=True):
        if isinstance(found, Comparison):
            row.tied = found.p_holm >= ALPHA
        else:
            row.untested = found


def add_baseline(rows: Sequence[Row], baseline: Row, samples: Samples) -> None:
    """Relative error reduction of every row against ``baseline``, and whether the difference is real.

    With e = (best possible score) - score, or the score itself where lower is better:
    (e_baseline - e_row) / e_baseline. Metrics whose best possible score is not known are taken to end at 1.
    """
    known = samples.of(baseline)
    top = known.bounds[1] if isinstance(known, Sample) and np.isfinite(known.bounds[1]) else 1.0
    others = [row for row in rows if row is not baseline and row.mean is not None]
    tests = compare([(row, baseline) for row in others], samples)
    for row, test in zip(others, tests, strict=True):
        row.error_reduction = error_reduction(row, baseline, top=top)
        row.p_baseline = test.p_holm if isinstance(test, Comparison) else None


def error_reduction(row: Row, baseline: Row, *, top: float = 1.0) -> float | None:
    """None where the baseline makes no error."""
    if row.mean is None or baseline.mean is None:
        return None
    theirs, ours = (top - m if row.maximize else m for m in (baseline.mean, row.mean))
    return (theirs - ours) / theirs if theirs > 0 else None
