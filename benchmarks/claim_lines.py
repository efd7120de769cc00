"""Rows of the claims' sweeps, and the comparisons (lines) of a claim (:mod:`benchmarks.claims`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from harness.leaderboard.stats.bootstrap import Spread, of_difference
from harness.leaderboard.stats.comparisons import ALPHA, Sample, Samples, difference
from harness.leaderboard.table.board import read
from harness.leaderboard.table.rows import BoardRow, by_variant

IGNORED = ("trainer.epochs", "strategy.lr")
"""Settings of a variant that do not identify a row of a sweep."""


@dataclass(slots=True)
class Line:
    """One comparison of a claim: ``a`` should be above ``b``. ``spread`` is that of a - b, or None with the
    reason ``why``."""

    what: str
    a: str
    b: str
    spread: Spread | None
    why: str = ""
    p: float = 1.0

    @property
    def verdict(self) -> str:
        """``seen``, ``contrary``, ``not seen``, or ``not measured`` with the reason."""
        if self.spread is None:
            return f"not measured ({self.why})"
        if self.p >= ALPHA:
            return "not seen"
        return "seen" if self.spread.mean > 0 else "contrary"


@dataclass(slots=True)
class Claim:
    """A statement, its source and its comparisons; ``more`` are additional lines of Markdown."""

    text: str
    source: str
    lines: list[Line]
    notes: list[str]
    more: Sequence[str] = ()


class Results:
    """The rows of all sweeps and their samples."""

    def __init__(self, folder: Path, sweeps: Iterable[str]) -> None:
        self.rows: list[BoardRow] = []
        self._samples: dict[int, Samples] = {}
        for name in sweeps:
            results = read(folder / name)
            samples = Samples(results.configs)
            for row in by_variant(results.records):
                self.rows.append(row)
                self._samples[id(row)] = samples

    def row(self, task: str, encoder: str, strategy: str, **variant: str) -> BoardRow | None:
        """The row with exactly this variant, with its values as text (``layers="[1]"``)."""
        for row in self.rows:
            record = row.records[0]
            if (row.task, record.encoder, record.strategy) != (task, encoder, strategy):
                continue
            settings = {k: v for k, v in record.variant.items() if k not in IGNORED}
            short = {k.rpartition(".")[2]: str(v).replace(" ", "") for k, v in settings.items()}
            if short == variant:
                return row
        return None

    def sample(self, row: BoardRow | None, tag: str | None = None) -> Sample | str:
        """The row's sample on all examples, or on those with ``tag``; or the reason why there is none."""
        if row is None:
            return "no such cell"
        if row.skipped and not row.complete:
            return f"skipped: {row.records[0].reason}"
        samples = self._samples[id(row)]
        if tag is None:
            return samples.of(row)
        stored = [samples.stored(r, tags=True) for r in row.complete]
        if bad := [s for s in stored if isinstance(s, str)]:
            return bad[0]
        stats = [s for s in stored if not isinstance(s, str)]
        chosen = np.array([tag in t for t in stats[0].tags])
        return samples.resample(row.complete, stats, metric=row.metric, chosen=chosen)

    def line(self, what: str, a: BoardRow | None, b: BoardRow | None, *, tag: str | None = None) -> Line:
        """Paired test of two rows, on all examples or on those with ``tag``."""
        sample_a, sample_b = self.sample(a, tag), self.sample(b, tag)
        test = difference(sample_a, sample_b, pair_seeds=True)
        above, below = _score(a, sample_a), _score(b, sample_b)
        if isinstance(test, str):
            return Line(what, above, below, None, test)
        return Line(what, above, below, test[0], p=test[0].p_value())


def _score(row: BoardRow | None, sample: Sample | str) -> str:
    name = row.name if row else "?"
    return name if isinstance(sample, str) else f"{name} {sample.scores.mean():.3f}"


def compare_gains(what: str, above: tuple[Sample | str, str], below: tuple[Sample | str, str]) -> Line:
    """Compare two gains, each with its name, seed by seed.

    The gains may be on different examples (two slices); their resamples are independent then.
    """
    (gain_a, name_a), (gain_b, name_b) = above, below
    for sample in (gain_a, gain_b):
        if isinstance(sample, str):
            return Line(what, name_a, name_b, None, sample)
    assert isinstance(gain_a, Sample)
    assert isinstance(gain_b, Sample)
    text_a, text_b = f"{gain_a.scores.mean():+.3f} {name_a}", f"{gain_b.scores.mean():+.3f} {name_b}"
    if gain_a.seeds != gain_b.seeds:
        return Line(what, text_a, text_b, None, "different seeds")
    spread = of_difference(
        (gain_a.scores, gain_a.replicates), (gain_b.scores, gain_b.replicates), pair_seeds=True
    )
    return Line(what, text_a, text_b, spread, p=spread.p_value())


def gain(a: Sample | str, b: Sample | str) -> Sample | str:
    """The difference of two samples, seed by seed, as a sample; or the reason why there is none.

    Example: seeds with 0.5 and 0.7 against the same seeds with 0.4 and 0.5 gain 0.1 and 0.2.
    """
    if isinstance(a, str) or isinstance(b, str):
        return a if isinstance(a, str) else b
    if (a.seeds, a.digest) != (b.seeds, b.digest):
        return "different seeds or examples"
    return replace(a, scores=a.scores - b.scores, replicates=a.replicates - b.replicates)


def effect(line: Line) -> str:
    """Effect with its confidence interval as text, or the reason why there is none."""
    if line.spread is None:
        return line.why
    low, high = line.spread.interval()
    return f"{line.spread.mean:+.3f} ({low:+.3f} to {high:+.3f})"
