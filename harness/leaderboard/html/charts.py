"""Heat maps, layer weights and slices of one table, as the report draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.leaderboard.stats.comparisons import Samples
from harness.leaderboard.table.board import Board, Table
from harness.leaderboard.table.rows import Row
from harness.leaderboard.table.train_size import sizes_of
from harness.leaderboard.views.comparisons import slices

SLICED = 6
"""Rows whose slices are shown."""


def heat_map(table: Table) -> dict[str, Any] | None:
    """Encoders by strategies; of several variants the one that is best on dev, since test never chooses. Of
    several sizes of the training set the largest alone: what learnt from less is no variant to choose from.

    Returns:
        ``encoders``, ``strategies`` and ``cells`` [encoder, strategy, row or None, variants], ``size`` where
        there are several; None where the rows are no encoders and strategies, or all of one of both.
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
            [encoders.index(e), strategies.index(s), _by_dev(table, members), len(members)]
            for (e, s), members in cells.items()
        ],
    }


def _by_dev(table: Table, members: Sequence[int]) -> int | None:
    """The row to show: the best on dev, else the only one or the default variant, else none."""
    if len(members) == 1:
        return members[0]
    sign = 1.0 if table.maximize else -1.0
    chosen = [(sign * (table.rows[i].dev or 0.0), -i) for i in members if table.rows[i].dev is not None]
    if chosen:
        return -max(chosen)[1]
    default = [i for i in members if not table.rows[i].labels.get("variant")]
    return default[0] if len(default) == 1 else None


def mixes(table: Table) -> list[dict[str, Any]]:
    """For each row with a learnt mix: layers, mean share and every seed's share, gamma."""
    out = []
    for i, row in enumerate(table.rows):
        for prefix, where in (("", ""), ("late_", "behind the body")):
            out += _mix(row, i, prefix=prefix, where=where)
    return out


def _mix(row: Row, i: int, *, prefix: str, where: str) -> list[dict[str, Any]]:
    found = [r.mix for r in row.complete if f"{prefix}weights" in r.mix]
    shapes = {tuple(m.get("layers", ())) for m in found}
    if not found or len(shapes) != 1 or len({len(m[f"{prefix}weights"]) for m in found}) != 1:
        return []
    shares = np.array([m[f"{prefix}weights"] for m in found], dtype=float)
    gammas = [float(g) for m in found for g in m.get(f"{prefix}gamma", ())]
    return [
        {
            "row": i,
            "where": where,
            "layers": [int(n) for n in shapes.pop()],
            "mean": shares.mean(axis=0).tolist(),
            "seeds": shares.tolist(),
            "gamma": gammas,
        }
    ]


def slice_table(table: Table, samples: Samples, *, most: int) -> dict[str, Any] | None:
    """Scores of the best rows on the examples of each tag: ``rows`` and, by tag, a cell for each row."""
    scored = [i for i, row in enumerate(table.rows) if row.mean is not None][: min(most, SLICED)]
    if not scored:
        return None
    alone = Table(table.task, table.metric, table.maximize, [table.rows[i] for i in scored])
    views = slices(Board([alone], [], [], [], []), samples, most=len(scored))
    at = {table.rows[i].name: i for i in scored}
    tags: dict[str, dict[str, Any]] = {}
    for line in views[0].rows if views else ():
        entry = tags.setdefault(line["slice"], {"slice": line["slice"], "n": line["examples"], "cells": {}})
        if line["mean"] is not None:
            entry["cells"][str(at[line["row"]])] = [line["mean"], line["ci_low"], line["ci_high"]]
    if not tags:
        return None
    return {"rows": scored, "slices": list(tags.values())}
