"""Selection of variants: by the dev score, never by test, and only among variants with the same data."""

from __future__ import annotations

from collections.abc import Sequence

from harness.leaderboard.table.rows import BoardRow
from harness.leaderboard.table.train_size import sizes_of


def select_on_dev(rows: Sequence[BoardRow]) -> list[BoardRow]:
    """Keep the variant with the best mean dev score per task, encoder and strategy.

    Test scores are not used. Selection is within one data set and one training-set size. If no variant has a
    dev score, all are kept, with a note.
    """
    sizes = sizes_of(r for row in rows for r in row.records)
    groups: dict[tuple[str | int, ...], list[BoardRow]] = {}
    for row in rows:
        first = row.records[0]
        size = sizes[first.task, first.cell]
        key = (row.task, row.metric, row.labels["encoder"], row.labels["strategy"], first.data, size)
        groups.setdefault(key, []).append(row)
    return [row for group in groups.values() for row in _select(group)]


def _select(group: list[BoardRow]) -> list[BoardRow]:
    with_dev = [row for row in group if row.dev is not None]
    if with_dev:
        sign = -1.0 if with_dev[0].maximize else 1.0
        best = min(with_dev, key=lambda row: (sign * (row.dev or 0.0), *row.labels.values()))
        best.tried = sum(row.state != "skipped" for row in group)
        return [best]
    for row in group:
        row.tried = len(group)
        if len(group) > 1 and row.complete:
            row.notes.append("no dev score to select by")
    return group
