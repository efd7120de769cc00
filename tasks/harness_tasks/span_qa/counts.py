"""Counts of one question, and the scores of their sums (:mod:`harness.data.statistics`).

``n`` 1, ``exact_match`` 0 or 1, ``f1`` the overlap with the best gold answer; of questions with and without
an answer once more as ``HasAns_...`` and ``NoAns_...``; ``empty`` whether no answer is predicted. Imports
no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.data.statistics import Aggregate, Counts, Scores, pick, ratio

PLAIN = (("exact_match", "n"), ("f1", "n"))
GROUPS = ("HasAns", "NoAns")
METRICS: dict[str, tuple[str, str]] = {
    **{name: (name, n) for name, n in PLAIN},
    **{f"{group}_{name}": (f"{group}_{name}", f"{group}_n") for group in GROUPS for name in ("exact", "f1")},
}
"""Of each metric the column of its sum and that of its count."""


def count(
    values: Sequence[tuple[float, float]], *, answered: Sequence[bool], empty: Sequence[bool]
) -> Counts:
    """Counts of N questions.

    Args:
        values: exact match and F1.
        answered: whether the question has an answer.
        empty: whether none is predicted.
    """
    table = np.array(values, dtype=np.float64).reshape(-1, 2)
    has = np.array(answered, dtype=np.float64)[:, None]
    names, columns = ["n", "exact_match", "f1", "empty"], [np.ones_like(has), table]
    columns.append(np.array(empty, dtype=np.float64)[:, None])
    if not all(answered):
        for group, which in zip(GROUPS, (has, 1 - has), strict=True):
            names += [f"{group}_n", f"{group}_exact", f"{group}_f1"]
            columns += [which, which * table]
    return Counts(tuple(names), np.hstack(columns))


def columns(metric: str, names: Sequence[str]) -> list[str]:
    """The columns a metric needs."""
    needed = list(METRICS.get(metric, ()))
    return needed if set(needed) <= set(names) else []


def scores(sums: np.ndarray, names: Sequence[str]) -> Scores:
    """(..., k) -> each score (...)."""
    return {
        metric: ratio(*pick(sums, names, *pair)) for metric, pair in METRICS.items() if {*pair} <= {*names}
    }


def degenerate(sums: np.ndarray, names: Sequence[str]) -> str:
    """Whether every prediction is empty, where not every answer is."""
    n, empty, none = pick(sums, names, "n", "empty", "NoAns_n")
    return "predicts no answer" if n > 0 and empty == n and none < n else ""


AGGREGATE = Aggregate(scores, columns, degenerate=degenerate)
