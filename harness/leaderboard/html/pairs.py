"""Paired tests of all pairs of a table's best rows; the reader of the report selects the pairs to show.

The p-values are not adjusted: Holm's correction depends on the pairs shown, so the page applies it.
"""

from __future__ import annotations

import itertools

from harness.leaderboard.html.schema import PairTest, PairTests
from harness.leaderboard.stats.comparisons import Sample, Samples, difference
from harness.leaderboard.table.board import TaskTable

MAX_ROWS = 40
"""Maximum number of rows that are compared with each other."""


def pairs(table: TaskTable, samples: Samples, *, max_rows: int, pair_seeds: bool) -> PairTests | None:
    """Tests of all pairs of the best rows, the better row first; None if no pair is comparable.

    Pairs with different examples are left out.
    """
    scored = [i for i, row in enumerate(table.rows) if row.mean is not None][: min(max_rows, MAX_ROWS)]
    sampled = [(i, s) for i in scored if isinstance(s := samples.of(table.rows[i]), Sample)]
    tests, seeds, examples = [], "", 0
    for (i, a), (j, b) in itertools.combinations(sampled, 2):
        test = difference(a, b, pair_seeds=pair_seeds)
        if isinstance(test, str):
            continue
        spread, examples, seeds = test
        low, high = spread.interval()
        tests.append(PairTest(i, j, spread.mean, low, high, spread.p_value()))
    if not tests:
        return None
    return {"rows": [i for i, _ in sampled], "tests": tests, "seeds": seeds, "examples": examples}
