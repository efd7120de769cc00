"""Rows of the claims' sweeps, and the lines of a claim that are made of them (:mod:`benchmarks.claims`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from harness.leaderboard.stats.bootstrap import Spread, of_difference
from harness.leaderboard.stats.comparisons import ALPHA, Sample, Samples, difference
from harness.leaderboard.table.board import read
from harness.leaderboard.table.rows import BoardRow, by_variant

ALIKE = ("trainer.epochs", "strategy.lr")
"""Settings of a sweep that do not tell its rows apart."""


@dataclass(slots=True)
class Line:
    """``a`` is claimed to be above ``b``; ``spread`` is of a - b, None for the reason ``why``."""

    what: str
    a: str
    b: str
    spread: Spread | None
    why: str = ""
    p: float = 1.0

    @property
    def verdict(self) -> str:
        if self.spread is None:
            return f"not measured ({self.why})"
        if self.p >= ALPHA:
            return "not seen"
        return "seen" if self.spread.mean > 0 else "contrary"


@dataclass(slots=True)
class Claim:
    """A sentence, its source, and the lines that it was looked for in; ``more`` are lines of Markdown."""

    text: str
    source: str
    lines: list[Line]
    notes: list[str]
    more: Sequence[str] = ()


class Results:
    """The rows of all sweeps, and their samples."""

    def __init__(self, folder: Path, sweeps: Iterable[str]) -> None:
        self.rows: list[BoardRow] = []
        self._samples: dict[int, Samples] = {}
        for name in sweeps:
            found = read(folder / name)
            samples = Samples(found.configs)
            for row in by_variant(found.records):
                self.rows.append(row)
                self._samples[id(row)] = samples

    def row(self, task: str, encoder: str, strategy: str, **variant: str) -> BoardRow | None:
        """The row with just this variant; ``layers``, ``train_size`` and ``relative_lr`` are texts."""
        for row in self.rows:
            record = row.records[0]
            if (row.task, record.encoder, record.strategy) != (task, encoder, strategy):
                continue
            told = {k: v for k, v in record.variant.items() if k not in ALIKE}
            known = {k.rpartition(".")[2]: str(v).replace(" ", "") for k, v in told.items()}
            if known == variant:
                return row
        return None

    def sample(self, row: BoardRow | None, tag: str | None = None) -> Sample | str:
        """The row on all examples, or on those with ``tag``."""
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
        kept = [s for s in stored if not isinstance(s, str)]
        chosen = np.array([tag in t for t in kept[0].tags])
        return samples.resample(row.complete, kept, metric=row.metric, chosen=chosen)

    def line(self, what: str, a: BoardRow | None, b: BoardRow | None, *, tag: str | None = None) -> Line:
        one, other = self.sample(a, tag), self.sample(b, tag)
        found = difference(one, other, pair_seeds=True)
        above, below = _score(a, one), _score(b, other)
        if isinstance(found, str):
            return Line(what, above, below, None, found)
        return Line(what, above, below, found[0], p=found[0].p_value())


def _score(row: BoardRow | None, sample: Sample | str) -> str:
    name = row.name if row else "?"
    return name if isinstance(sample, str) else f"{name} {sample.scores.mean():.3f}"


def gain_over(what: str, above: tuple[Sample | str, str], below: tuple[Sample | str, str]) -> Line:
    """Of two gains over the same seeds; of other examples where these are of two slices, so that their
    resamples are independent."""
    one, other = above[0], below[0]
    for sample in (one, other):
        if isinstance(sample, str):
            return Line(what, above[1], below[1], None, sample)
    assert isinstance(one, Sample)
    assert isinstance(other, Sample)
    told = [f"{gain.scores.mean():+.3f} {name}" for gain, name in ((one, above[1]), (other, below[1]))]
    if one.seeds != other.seeds:
        return Line(what, told[0], told[1], None, "other seeds")
    spread = of_difference((one.scores, one.replicates), (other.scores, other.replicates), pair_seeds=True)
    return Line(what, told[0], told[1], spread, p=spread.p_value())


def less(a: Sample | str, b: Sample | str) -> Sample | str:
    """The difference of two samples, seed by seed, as a sample."""
    if isinstance(a, str) or isinstance(b, str):
        return a if isinstance(a, str) else b
    if (a.seeds, a.digest) != (b.seeds, b.digest):
        return "other seeds or examples"
    return replace(a, scores=a.scores - b.scores, replicates=a.replicates - b.replicates)


def effect(line: Line) -> str:
    if line.spread is None:
        return line.why
    low, high = line.spread.interval()
    return f"{line.spread.mean:+.3f} ({low:+.3f} to {high:+.3f})"
