"""Compare systems over several tasks: mean, interquartile mean, average rank and Friedman's test.

A system is a row's name (encoder, strategy, variant; without the variant where it was selected on dev). Only
systems with a score on every task are ranked; the others are listed. Per task, only the table with most rows
is used, and in it only the rows of the largest training set: otherwise a task would count twice, and a
smaller training set would be a separate system. Formulas:

    mean      of the task means; V = sum_t V_t / T^2, degrees of freedom by Satterthwaite (1946)
    IQM       mean of the middle half of all seeds on all tasks: scipy.stats.trim_mean(., 0.25) (Agarwal 2021)
    rank      1 is best, ties share their mean rank (scipy.stats.rankdata); the average over tasks
    Friedman  scipy.stats.friedmanchisquare over the tasks, corrected for ties (Friedman 1937);
              k systems, k - 1 degrees of freedom

``scipy.stats`` takes 0.8 s to import, so it is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from harness.errors import HarnessError
from harness.leaderboard.stats.bootstrap import Spread, of_row
from harness.leaderboard.stats.comparisons import Sample, Samples
from harness.leaderboard.table.board import Board, TaskTable
from harness.leaderboard.table.rows import BoardRow, variant_text
from harness.leaderboard.table.train_size import N_TRAIN, NAMES, sizes_text
from harness.leaderboard.views.view import View

MIN_TASKS = 5
MIN_SYSTEMS = 3
"""Friedman's chi-squared approximation is not used below these numbers."""
MAX_NAMED = 8
_OTHER_DATA = ". Give other data its own task.name"


class SystemScores(TypedDict):
    """One system over all tasks. ``n`` is the smallest number of seeds on any task."""

    system: str
    mean: float
    ci_low: float | None
    ci_high: float | None
    iqm: float
    average_rank: float
    tasks: int
    n: int


def across(board: Board, samples: Samples) -> View:
    """One row per system, best average rank first; a note gives the reason if there are none.

    Raises:
        HarnessError: there are fewer than two tasks.
    """
    view, systems = rank_systems(board, samples)
    view.rows = list(systems)
    return view


def rank_systems(board: Board, samples: Samples) -> tuple[View, list[SystemScores]]:
    """The view without its rows, and the rows.

    Raises:
        HarnessError: there are fewer than two tasks.
    """
    tables, notes = _one_per_task(board)
    if len(tables) < 2:
        found = "there is only one task" if tables else "no task has a score"
        raise HarnessError("; ".join([f"--across: {found}; at least two are needed", *notes]))
    per_table = [_systems(t) for t in tables]
    by_table = [systems for systems, _ in per_table]
    names = sorted(set().union(*by_table))
    ranked = [n for n in names if all(n in rows for rows in by_table)]
    view = View("across", f"Over {len(tables)} tasks: " + ", ".join(map(_table_name, tables)), [])
    view.notes = [*notes, *(note for _, note in per_table if note)]
    if not ranked:
        view.notes.append(_why_no_system(tables, by_table))
        return view, []
    _explain(view, ranked, names, metrics={(t.metric, t.maximize) for t in tables})
    rows = [[rows[name] for rows in by_table] for name in ranked]
    # (k, T): systems in rows, tasks in columns
    scores = np.array([[row.mean for row in line] for line in rows], dtype=float)
    # the sign makes higher better on every task
    table_ranks = ranks(scores * np.array([1.0 if t.maximize else -1.0 for t in tables]))
    # a stable sort leaves systems of equal average rank in alphabetical order
    order = np.argsort(table_ranks.mean(axis=1), kind="stable")
    systems = [_system(ranked[i], rows[i], table_ranks[i], samples) for i in order]
    if len(tables) >= MIN_TASKS and len(ranked) >= MIN_SYSTEMS:
        chi2, p = friedman(table_ranks)
        view.notes.append(
            f"Friedman's test (null hypothesis: all systems have the same rank): "
            f"chi2({len(ranked) - 1}) = {chi2:.2f}, p = {p:.2g}"
        )
    else:
        view.notes.append(f"no Friedman test: it needs at least {MIN_TASKS} tasks and {MIN_SYSTEMS} systems")
    return view, systems


def _one_per_task(board: Board) -> tuple[list[TaskTable], list[str]]:
    """Per task the table with the most scored rows, and notes on the tables that are left out."""
    by_task: dict[str, list[TaskTable]] = {}
    for table in board.tables:
        if not table.partial and _scored(table):
            by_task.setdefault(table.task, []).append(table)
    tables = [max(candidates, key=lambda t: len(_scored(t))) for candidates in by_task.values()]
    notes = []
    for table in tables:
        others = [t for t in by_task[table.task] if t is not table]
        if others:
            used, *left = (f"{_table_name(t)}: {_rows(len(_scored(t)))}" for t in (table, *others))
            notes.append(
                f"{table.task} has {len(others) + 1} tables; the one with most rows is used, {used}; left "
                f"out: {'; '.join(left)}" + _OTHER_DATA * ("data" in table.part)
            )
    return tables, notes


def _rows(n: int) -> str:
    return f"{n} row{'' if n == 1 else 's'}"


def _scored(table: TaskTable) -> list[BoardRow]:
    return [row for row in table.rows if row.mean is not None]


def _systems(table: TaskTable) -> tuple[dict[str, BoardRow], str]:
    """Rows of the largest training set by the name of their system; a note if there are smaller ones."""
    scored = _scored(table)
    sizes = {row.n_train or 0 for row in scored}
    rows = [row for row in scored if (row.n_train or 0) == max(sizes)]
    names = [_without_size(row, selected=row.tried is not None) for row in rows]
    if len(set(names)) < len(names):  # several variants of one encoder and strategy were kept
        names = [_without_size(row, selected=False) for row in rows]
    if len(set(names)) < len(names):
        names = [row.name for row in rows]
    smaller = sizes - {max(sizes)}
    note = (
        f"{table.task}: only rows of the largest training set ({max(sizes)} examples), not those of "
        f"{sizes_text(smaller)}; --train-size N selects the rows of N"
        if smaller
        else ""
    )
    return dict(zip(names, rows, strict=True)), note


def _without_size(row: BoardRow, *, selected: bool) -> str:
    """The row's name without its training-set size, and without a variant that was selected on dev."""
    variant = row.records[0].variant
    labels = {k: v for k, v in row.labels.items() if k not in NAMES}
    if "variant" in labels:
        rest = variant_text({k: v for k, v in variant.items() if k not in NAMES})
        suffix = labels["variant"].removeprefix(variant_text(variant)).strip()
        suffix = suffix.removesuffix(f"{N_TRAIN}={row.n_train}").strip()
        labels["variant"] = "" if selected else f"{rest} {suffix}".strip()
    return BoardRow(row.task, "", True, labels, []).name


def _why_no_system(tables: Sequence[TaskTable], by_table: Sequence[Mapping[str, BoardRow]]) -> str:
    """Why no system is ranked, and what to do about it."""
    counts = ", ".join(f"{t.task} {len(rows)}" for t, rows in zip(tables, by_table, strict=True))
    out = f"nothing is ranked: no system has a score on all {len(tables)} tasks (systems: {counts})"
    pairs = [{(r.encoder, r.strategy) for row in rows.values() for r in row.complete} for rows in by_table]
    if set.intersection(*pairs):
        return f"{out}; their variants differ: --select dev uses the best variant of each as one system"
    return f"{out}; --task NAME NAME restricts the comparison to tasks with systems in common"


def _table_name(table: TaskTable) -> str:
    part = "".join(f", {key} {value}" for key, value in table.part.items())
    return f"{table.task} ({table.metric}{part})"


def _explain(
    view: View, ranked: Sequence[str], names: Sequence[str], *, metrics: set[tuple[str, bool]]
) -> None:
    missing = [n for n in names if n not in ranked]
    if missing:
        shown = ", ".join(missing[:MAX_NAMED]) + (", ..." if len(missing) > MAX_NAMED else "")
        view.notes.append(f"left out: {len(missing)} systems without a score on every task: {shown}")
    if len(metrics) > 1:
        view.notes.append("the tasks have different metrics: ranks are more meaningful than means")
    view.notes.append(
        "the confidence intervals are for these tasks, not for a population that they are sampled from"
    )


def _system(name: str, rows: Sequence[BoardRow], row_ranks: np.ndarray, samples: Samples) -> SystemScores:
    means = [row.mean for row in rows if row.mean is not None]
    low, high = _interval([samples.of(row) for row in rows])
    return {
        "system": name,
        "mean": float(np.mean(means)),
        "ci_low": low,
        "ci_high": high,
        "iqm": interquartile_mean([row.scores for row in rows]),
        "average_rank": float(row_ranks.mean()),
        "tasks": len(rows),
        "n": min(len(row.scores) for row in rows),
    }


def _interval(per_task: Sequence[Sample | str]) -> tuple[float | None, float | None]:
    """Confidence interval of the mean over tasks; (None, None) if a task has no resamples.

    Example: two tasks with variances 0.0004 and 0.0012 (standard errors 0.020 and 0.035) give
    V = (0.0004 + 0.0012) / 2^2 = 0.0004, a standard error of 0.020 of their mean. With 2 degrees of freedom
    each, d = 0.0004^2 / (0.0001^2 / 2 + 0.0003^2 / 2) = 3.2.
    """
    spreads = [of_row(s.scores, s.replicates) for s in per_task if isinstance(s, Sample)]
    if len(spreads) < len(per_task):
        return None, None
    size = len(spreads)
    # independent tasks: V of a mean of T values is the sum of their V over T^2
    variance = sum(s.variance for s in spreads) / size**2
    # a task whose seeds add no variance has infinite degrees of freedom and adds nothing to this sum
    below = sum((s.variance / size**2) ** 2 / s.df for s in spreads if np.isfinite(s.df) and s.variance)
    df = variance**2 / below if below else np.inf
    mean = sum(s.mean for s in spreads) / size
    limits = [s.bounds for s in per_task if isinstance(s, Sample)]
    bounds = sum(low for low, _ in limits) / size, sum(high for _, high in limits) / size
    # the interval depends on mean, variance and df only
    return Spread(mean, variance, 0.0, df, spreads[0].n, all(s.both for s in spreads)).interval(bounds=bounds)


def interquartile_mean(scores: Sequence[Sequence[float]]) -> float:
    """Mean of all seeds (per task) after a quarter of the values, rounded down, is cut from each end."""
    from scipy.stats import trim_mean

    # example: 3 seeds on 2 tasks are 6 values; 6 // 4 = 1 is cut from each end, 4 are averaged
    return float(trim_mean(np.concatenate([np.asarray(s, dtype=float) for s in scores]), 0.25))


def ranks(scores: np.ndarray) -> np.ndarray:
    """(k, T) scores, higher is better -> (k, T) ranks within each task: 1 is best, ties share their mean.

    Example, one task (T = 1): [0.9, 0.7, 0.7] -> [1.0, 2.5, 2.5].
    """
    from scipy.stats import rankdata

    # rankdata gives rank 1 to the lowest value
    return np.asarray(rankdata(-scores, axis=0))


def friedman(table_ranks: np.ndarray) -> tuple[float, float]:
    """Statistic and p-value of ranks (k, T)."""
    from scipy.stats import friedmanchisquare

    if np.ptp(table_ranks, axis=0).max() == 0:  # all systems tie on all tasks: SciPy divides 0 by 0
        return 0.0, 1.0
    # one argument per system, its values over the tasks; ranking ranks again does not change them
    statistic, p = friedmanchisquare(*table_ranks)
    return float(statistic), float(p)
