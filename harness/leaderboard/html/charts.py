"""Data of a table's heat maps, layer weights and slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.leaderboard.html.schema import HeatCell, HeatMap, LayerMix, SliceRow, SliceTable
from harness.leaderboard.stats.comparisons import Samples
from harness.leaderboard.table.board import TaskTable
from harness.leaderboard.table.rows import BoardRow
from harness.leaderboard.table.train_size import sizes_of
from harness.leaderboard.views.comparisons import slice_scores

MAX_SLICED_ROWS = 6
"""Maximum number of rows whose scores by slice are shown."""


def heat_map(table: TaskTable) -> HeatMap | None:
    """Encoders by strategies, with the variant that is best on dev, never on test.

    Only rows of the largest training set are shown. None if the rows are not grouped by encoder and strategy,
    or if there is only one combination.
    """
    cells: dict[tuple[str, str], list[int]] = {}
    sizes = sizes_of(r for row in table.rows for r in row.records)
    largest = max(sizes.values(), default=0)
    for i, row in enumerate(table.rows):
        if "encoder" not in row.labels or "strategy" not in row.labels:
            return None
        if sizes[table.task, row.records[0].cell] == largest:
            cells.setdefault((row.labels["encoder"], row.labels["strategy"]), []).append(i)
    encoders, strategies = (sorted({key[i] for key in cells}) for i in (0, 1))
    if len(cells) < 2:
        return None
    return {
        "encoders": encoders,
        "strategies": strategies,
        "size": largest if len(set(sizes.values())) > 1 else None,
        "cells": [
            HeatCell(encoders.index(e), strategies.index(s), _by_dev(table, members), len(members))
            for (e, s), members in cells.items()
        ],
    }


def _by_dev(table: TaskTable, members: Sequence[int]) -> int | None:
    """The row to show: the best on dev; without dev scores the only one or the default variant; else None."""
    if len(members) == 1:
        return members[0]
    sign = 1.0 if table.maximize else -1.0
    with_dev = [(sign * (table.rows[i].dev or 0.0), -i) for i in members if table.rows[i].dev is not None]
    if with_dev:
        return -max(with_dev)[1]
    default = [i for i in members if not table.rows[i].labels.get("variant")]
    return default[0] if len(default) == 1 else None


def mixes(table: TaskTable) -> list[LayerMix]:
    """Learned scalar mixes of each row: before the body, and after it if there is one."""
    out = []
    for i, row in enumerate(table.rows):
        for prefix, where in (("", ""), ("late_", "after the body")):
            out += _mix(row, i, prefix=prefix, where=where)
    return out


def _mix(row: BoardRow, i: int, *, prefix: str, where: str) -> list[LayerMix]:
    per_seed = [r.mix for r in row.complete if f"{prefix}weights" in r.mix]
    shapes = {tuple(m.get("layers", ())) for m in per_seed}
    if not per_seed or len(shapes) != 1 or len({len(m[f"{prefix}weights"]) for m in per_seed}) != 1:
        return []
    weights = np.array([m[f"{prefix}weights"] for m in per_seed], dtype=float)  # (seeds, layers)
    return [
        {
            "row": i,
            "where": where,
            "layers": [int(n) for n in shapes.pop()],
            "mean": weights.mean(axis=0).tolist(),
            "seeds": weights.tolist(),
            "gamma": [float(g) for m in per_seed for g in m.get(f"{prefix}gamma", ())],
        }
    ]


def slice_table(table: TaskTable, samples: Samples, *, max_rows: int) -> SliceTable | None:
    """Scores of the best rows on the examples of each tag; None if there are no tags."""
    scored = [i for i, row in enumerate(table.rows) if row.mean is not None]
    scored = scored[: min(max_rows, MAX_SLICED_ROWS)]
    tags: dict[str, SliceRow] = {}
    for i in scored:
        scores = slice_scores(table.rows[i], samples)
        for score in () if isinstance(scores, str) else scores:
            empty: SliceRow = {"slice": score["slice"], "n": score["examples"], "cells": {}}
            entry = tags.setdefault(score["slice"], empty)
            if score["mean"] is not None:
                entry["cells"][str(i)] = (score["mean"], score["ci_low"], score["ci_high"])
    if not tags:
        return None
    return {"rows": scored, "slices": list(tags.values())}
