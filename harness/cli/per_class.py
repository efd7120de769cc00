"""F1 of each class, entity type or label, computed from the stored predictions of a cell. Torch-free."""

from __future__ import annotations

from pathlib import Path

from harness.data.statistics import ClassCounts
from harness.errors import HarnessError
from harness.records.predictions import read_counts
from harness.records.trust import INSTALLED, Trust

MAX_CLASSES = 100


def by_class(folder: Path, *, split: str = "test", trusted: Trust = INSTALLED) -> list[str]:
    """Format the scores of each class as a table, the most frequent class first.

    Empty if the task has no classes; a single line with the reason if the file cannot be read.
    """
    try:
        counts = _counts(folder, split, trusted)
    except (ValueError, KeyError, TypeError, IndexError, HarnessError) as e:  # show the rest of the record
        return [f"  by class: not available ({e})"]
    if not counts:
        return []
    shown = sorted(counts, key=lambda c: (-c.gold, c.name))[:MAX_CLASSES]
    width = max(len("class"), *(len(c.name) for c in shown))
    head = f"    {'class':{width}}  {'F1':>6}  {'precision':>9}  {'recall':>6}  {'gold':>6}  {'predicted':>9}"
    lines = [f"  {split} by class:", head, *(_line(c, width) for c in shown)]
    return lines + ([f"    {len(counts) - MAX_CLASSES} more"] if len(counts) > MAX_CLASSES else [])


def _line(counts: ClassCounts, width: int) -> str:
    f1 = _ratio(2 * counts.correct, counts.predicted + counts.gold)
    precision, recall = _ratio(counts.correct, counts.predicted), _ratio(counts.correct, counts.gold)
    numbers = f"{counts.gold:6.0f}  {counts.predicted:9.0f}"
    return f"    {counts.name:{width}}  {f1}  {precision:>9}  {recall}  {numbers}"


def _ratio(numerator: float, denominator: float) -> str:
    return f"{numerator / denominator:6.4f}" if denominator else "     -"


def _counts(folder: Path, split: str, trusted: Trust) -> list[ClassCounts]:
    stored = read_counts(folder, split=split)
    if stored is None or not stored.ids or not stored.metric_from_stats:
        return []
    return trusted.metric(stored.metric_from_stats).per_class(stored.counts.sums(), stored.counts.names)
