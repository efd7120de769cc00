"""All pairs of a table's best rows, compared on the same examples; the reader chooses which to look at.

p-values are as they come: Holm's correction depends on the pairs that are chosen, and is applied to these.
"""

from __future__ import annotations

import itertools
from typing import Any

from harness.leaderboard.stats.comparisons import Sample, Samples, difference
from harness.leaderboard.table.board import Table

MOST = 40
"""Rows that are compared with each other."""


def pairs(table: Table, samples: Samples, *, most: int, pair_seeds: bool) -> dict[str, Any] | None:
    """``rows`` that can be compared, and ``found``: [a, b, effect, low, high, p] of each pair, a above b.

    Pairs that cannot be compared (different examples) are left out.
    """
    scored = [i for i, row in enumerate(table.rows) if row.mean is not None][: min(most, MOST)]
    known = [(i, s) for i in scored if isinstance(s := samples.of(table.rows[i]), Sample)]
    found, seeds, examples = [], "", 0
    for (i, a), (j, b) in itertools.combinations(known, 2):
        one = difference(a, b, pair_seeds=pair_seeds)
        if isinstance(one, str):
            continue
        spread, examples, seeds = one
        low, high = spread.interval()
        found.append([i, j, spread.mean, low, high, spread.p_value()])
    if not found:
        return None
    return {"rows": [i for i, _ in known], "found": found, "seeds": seeds, "examples": examples}
