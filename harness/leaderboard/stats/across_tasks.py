"""Systems over several tasks: mean, interquartile mean, average rank, and Friedman's test of the ranks.

A system is a row's name (encoder, strategy, variant; without the variant where dev chose it); only those with
a score on every task are ranked, the others are named. Of each task one table counts, the one with most rows,
and in it what was trained on most examples: neither a task twice nor less training is a system of its own.
Formulas:

    mean      of the task means; V = sum_t V_t / T^2, degrees of freedom by Satterthwaite (1946)
    IQM       mean of the middle half of all seeds on all tasks, a quarter cut off either end (Agarwal 2021)
    rank      1 is best, equal scores share their mean rank; the average over tasks
    Friedman  chi2 = 12 T / (k (k + 1)) sum_j (R_j - (k + 1) / 2)^2 (Friedman 1937), for ties divided by
              1 - sum (t^3 - t) / (T k (k^2 - 1)); k systems, T tasks, k - 1 degrees of freedom
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.errors import HarnessError
from harness.leaderboard.stats.bootstrap import Spread, of_row
from harness.leaderboard.stats.comparisons import Sample, Samples
from harness.leaderboard.table.board import Board, Table
from harness.leaderboard.table.rows import Row, variant_text
from harness.leaderboard.table.train_size import N_TRAIN, NAMES, sizes_text
from harness.leaderboard.views.view import View

ENOUGH_TASKS = 5
_OTHER_DATA = ". Other data need a task.name of their own"


def across(board: Board, samples: Samples) -> View:
    """One row a system; a note says why where there is none.

    Raises:
        HarnessError: there are fewer than two tasks.
    """
    tables, notes = _one_a_task(board)
    if len(tables) < 2:
        what = "there is one task only" if tables else "no task has a score"
        raise HarnessError("; ".join([f"--across: {what}; it takes at least two", *notes]))
    found = [_systems(t) for t in tables]
    by_table = [systems for systems, _ in found]
    names = sorted(set().union(*by_table))
    whole = [n for n in names if all(n in rows for rows in by_table)]
    view = View("across", f"Over {len(tables)} tasks: " + ", ".join(map(_named, tables)), [])
    view.notes = [*notes, *(note for _, note in found if note)]
    if not whole:
        view.notes.append(_nothing(tables, by_table))
        return view
    _explain(view, whole, names, metrics={(t.metric, t.maximize) for t in tables})
    rows = [[rows[name] for rows in by_table] for name in whole]
    scores = np.array([[row.mean for row in line] for line in rows], dtype=float)
    table_ranks = ranks(scores * np.array([1.0 if t.maximize else -1.0 for t in tables]))
    order = np.argsort(table_ranks.mean(axis=1), kind="stable")
    view.rows = [_system(whole[i], rows[i], table_ranks[i], samples) for i in order]
    if len(tables) >= ENOUGH_TASKS and len(whole) >= 3:
        chi2, p = friedman(table_ranks)
        view.notes.append(
            f"Friedman's test that all systems rank alike: chi2({len(whole) - 1}) = {chi2:.2f}, p = {p:.2g}"
        )
    else:
        view.notes.append("no Friedman test: it takes at least 5 tasks and 3 systems")
    return view


def _one_a_task(board: Board) -> tuple[list[Table], list[str]]:
    """Of each task the table in which most rows have a score, and what was left out by that."""
    by_task: dict[str, list[Table]] = {}
    for table in board.tables:
        if not table.partial and _scored(table):
            by_task.setdefault(table.task, []).append(table)
    tables = [max(some, key=lambda t: len(_scored(t))) for some in by_task.values()]
    notes = []
    for table in tables:
        others = [t for t in by_task[table.task] if t is not table]
        if others:
            used, *left = (f"{_named(t)}: {_rows(len(_scored(t)))}" for t in (table, *others))
            notes.append(
                f"of {len(others) + 1} tables of {table.task} the one with most rows is used, {used}; left "
                f"out: {'; '.join(left)}" + _OTHER_DATA * ("data" in table.part)
            )
    return tables, notes


def _rows(n: int) -> str:
    return f"{n} row{'' if n == 1 else 's'}"


def _scored(table: Table) -> list[Row]:
    return [row for row in table.rows if row.mean is not None]


def _systems(table: Table) -> tuple[dict[str, Row], str]:
    """Rows of the largest training set by the name of their system; a note where there are smaller ones."""
    scored = _scored(table)
    sizes = {row.n_train or 0 for row in scored}
    rows = [row for row in scored if (row.n_train or 0) == max(sizes)]
    names = [_without_size(row, chosen=row.tried is not None) for row in rows]
    if len(set(names)) < len(names):  # several were kept of one encoder and strategy
        names = [_without_size(row, chosen=False) for row in rows]
    if len(set(names)) < len(names):
        names = [row.name for row in rows]
    smaller = sizes - {max(sizes)}
    note = f"{table.task}: rows trained on {max(sizes)} examples, the most there are, not those trained on "
    note = f"{note}{sizes_text(smaller)}; --train-size N takes those of N" if smaller else ""
    return dict(zip(names, rows, strict=True)), note


def _without_size(row: Row, *, chosen: bool) -> str:
    """The row's name but for the size of its training set, and for a variant that dev has chosen."""
    variant = row.records[0].variant
    labels = {k: v for k, v in row.labels.items() if k not in NAMES}
    if "variant" in labels:
        rest = variant_text({k: v for k, v in variant.items() if k not in NAMES})
        told = labels["variant"].removeprefix(variant_text(variant)).strip()
        told = told.removesuffix(f"{N_TRAIN}={row.n_train}").strip()
        labels["variant"] = "" if chosen else f"{rest} {told}".strip()
    return Row(row.task, "", True, labels, []).name


def _nothing(tables: Sequence[Table], by_table: Sequence[Mapping[str, Row]]) -> str:
    """Why there is no system, and what to do about it."""
    counts = ", ".join(f"{t.task} {len(rows)}" for t, rows in zip(tables, by_table, strict=True))
    out = f"nothing is ranked: no system has a score on all {len(tables)} tasks (systems: {counts})"
    pairs = [{(r.encoder, r.strategy) for row in rows.values() for r in row.complete} for rows in by_table]
    if set.intersection(*pairs):
        return (
            f"{out}; they differ in their variants: --select dev takes the best variant of each as one system"
        )
    return f"{out}; --task NAME NAME leaves out tasks that were run with others"


def _named(table: Table) -> str:
    apart = "".join(f", {key} {value}" for key, value in table.part.items())
    return f"{table.task} ({table.metric}{apart})"


def _explain(
    view: View, whole: Sequence[str], names: Sequence[str], *, metrics: set[tuple[str, bool]]
) -> None:
    missing = [n for n in names if n not in whole]
    if missing:
        shown = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        view.notes.append(f"{len(missing)} systems lack a score on some task and are left out: {shown}")
    if len(metrics) > 1:
        view.notes.append("the tasks have different metrics: trust the ranks rather than the means")
    view.notes.append("intervals are for these tasks; tasks are not taken as a sample of others")


def _system(name: str, rows: Sequence[Row], places: np.ndarray, samples: Samples) -> dict[str, Any]:
    means = [row.mean for row in rows if row.mean is not None]
    low, high = _interval([samples.of(row) for row in rows])
    return {
        "system": name,
        "mean": float(np.mean(means)),
        "ci_low": low,
        "ci_high": high,
        "iqm": interquartile_mean([row.scores for row in rows]),
        "average_rank": float(places.mean()),
        "tasks": len(rows),
        "n": min(len(row.scores) for row in rows),
    }


def _interval(found: Sequence[Sample | str]) -> tuple[float | None, float | None]:
    spreads = [of_row(s.scores, s.replicates) for s in found if isinstance(s, Sample)]
    if len(spreads) < len(found):
        return None, None
    size = len(spreads)
    variance = sum(s.variance for s in spreads) / size**2
    below = sum((s.variance / size**2) ** 2 / s.df for s in spreads if np.isfinite(s.df) and s.variance)
    df = variance**2 / below if below else np.inf
    mean = sum(s.mean for s in spreads) / size
    ends = [s.bounds for s in found if isinstance(s, Sample)]
    bounds = sum(low for low, _ in ends) / size, sum(high for _, high in ends) / size
    return Spread(mean, variance, 0.0, df, spreads[0].n, all(s.both for s in spreads)).interval(bounds=bounds)


def interquartile_mean(scores: Sequence[Sequence[float]]) -> float:
    """Of seeds by task: the mean after a quarter of all values, rounded down, is cut from each end."""
    values = np.sort(np.concatenate([np.asarray(s, dtype=float) for s in scores]))
    cut = len(values) // 4
    return float(values[cut : len(values) - cut].mean())


def ranks(scores: np.ndarray) -> np.ndarray:
    """(k, T) scores, higher is better -> (k, T) ranks within each task, 1 is best, ties share their mean."""
    above = (scores[None] > scores[:, None]).sum(axis=1)
    equal = (scores[None] == scores[:, None]).sum(axis=1)
    return np.asarray(above + (equal + 1) / 2)


def friedman(table_ranks: np.ndarray) -> tuple[float, float]:
    """Statistic and p-value of ranks (k, T)."""
    from scipy.special import chdtrc

    k, tasks = table_ranks.shape
    statistic = 12 * tasks / (k * (k + 1)) * float(((table_ranks.mean(axis=1) - (k + 1) / 2) ** 2).sum())
    ties = sum(
        float((counts**3 - counts).sum())
        for column in table_ranks.T
        for counts in [np.unique(column, return_counts=True)[1]]
    )
    correction = 1 - ties / (tasks * k * (k**2 - 1))
    if correction <= 0:
        return 0.0, 1.0
    return statistic / correction, float(chdtrc(k - 1, statistic / correction))
