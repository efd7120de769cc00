"""Choosing variants: on dev, never on test, and never between what was given different data."""

from __future__ import annotations

from collections.abc import Sequence

from harness.leaderboard.table.rows import Row
from harness.leaderboard.table.train_size import sizes_of


def select_on_dev(rows: Sequence[Row]) -> list[Row]:
    """Of the variants of one task, encoder and strategy the one with the best mean dev score.

    Test scores play no part, and variants run on different data, or on more of it, are not chosen from. Where
    no variant has a dev score, all stay, with a note.
    """
    sizes = sizes_of(r for row in rows for r in row.records)
    groups: dict[tuple[str | int, ...], list[Row]] = {}
    for row in rows:
        first = row.records[0]
        size = sizes[first.task, first.cell]
        key = (row.task, row.metric, row.labels["encoder"], row.labels["strategy"], first.data, size)
        groups.setdefault(key, []).append(row)
    return [row for group in groups.values() for row in _chosen(group)]


def _chosen(group: list[Row]) -> list[Row]:
    with_dev = [row for row in group if row.dev is not None]
    if with_dev:
        sign = -1.0 if with_dev[0].maximize else 1.0
        best = min(with_dev, key=lambda row: (sign * (row.dev or 0.0), *row.labels.values()))
        best.tried = sum(row.state != "skipped" for row in group)
        return [best]
    for row in group:
        row.tried = len(group)
        if len(group) > 1 and row.complete:
            row.notes.append("no dev score to choose by")
    return group
