"""Views of the leaderboard's rows: pairwise comparisons, scores by slice, and learning curves."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from harness.errors import HarnessError, did_you_mean
from harness.leaderboard.stats.comparisons import EXAMPLES_ONLY, Comparison, Samples, compare
from harness.leaderboard.table.board import Board, TaskTable
from harness.leaderboard.table.rows import BoardRow, variant_text
from harness.leaderboard.table.train_size import NAMES, TRAIN_SIZE
from harness.leaderboard.views.view import View, ViewRow

MAX_NAMED = 6
"""Maximum number of rows that an error message lists."""
MIN_CELL_PREFIX = 4
SAME_SUBSET = (
    "each size is one random subset, the same for all seeds: the variance from sampling the subset is not in "
    "the intervals"
)


class SliceScore(TypedDict):
    """A row's score on the examples with one tag; ``ci_kind`` is the reason if there is no score."""

    slice: str
    examples: int
    mean: float | None
    ci_low: float | None
    ci_high: float | None
    ci_kind: str
    n: int


class CurvePoint(TypedDict):
    """A point of a learning curve; ``line`` names the rows that differ only in the training-set size."""

    task: str
    line: str
    metric: str
    n_train: int
    mean: float
    ci_low: float | None
    ci_high: float | None
    n: int


def find(table: TaskTable, name: str, *, option: str) -> BoardRow | None:
    """The row with this name: ``encoder/strategy``, ``encoder/strategy variant``, or a prefix of a cell id.

    Raises:
        HarnessError: several rows match; the message lists names that are unique.
    """
    exact = [row for row in table.rows if row.name == name]
    without_variant = [row for row in table.rows if row.name.partition(" ")[0] == name]
    by_cell = [
        row
        for row in table.rows
        if len(name) >= MIN_CELL_PREFIX and any(r.cell.startswith(name) for r in row.records)
    ]
    for matches in (exact, without_variant, by_cell):
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise _ambiguous(table, name, matches, option=option)
    return None


def _ambiguous(table: TaskTable, name: str, matches: Sequence[BoardRow], *, option: str) -> HarnessError:
    names = sorted({row.name for row in matches})
    if len(names) == len(matches):  # quoted, because the shell splits names with spaces
        listed = [shlex.quote(n) for n in names]
        fix = f"use a full name with its quotes, such as {listed[0]}"
    else:
        listed = sorted(f"{row.name} (cell {row.records[0].cell})" for row in matches)
        fix = f"use the start of a cell id, such as {matches[0].records[0].cell[:8]}"
    more = f" and {len(listed) - MAX_NAMED} more" if len(listed) > MAX_NAMED else ""
    return HarnessError(
        f"{option} {name}: ambiguous, {len(matches)} rows of {table.task} match; {fix}; "
        f"matches: {', '.join(listed[:MAX_NAMED])}{more}"
    )


def check_names(board: Board, names: Sequence[str], *, option: str) -> None:
    """Check that each name matches a row of some table.

    Raises:
        HarnessError: a name matches no row; the message suggests similar names.
    """
    existing = sorted({row.name for table in board.tables for row in table.rows})
    for name in names:
        if all(find(table, name, option=option) is None for table in board.tables):
            raise HarnessError(f"{option} {name}: no row has this name, {did_you_mean(name, existing)}")


def comparisons(
    board: Board, names: Sequence[str], samples: Samples, *, pair_seeds: bool = False
) -> list[View]:
    """All pairs of the named rows, per table with at least two of them; Holm's correction is per table."""
    check_names(board, names, option="--compare")
    out = []
    for table in board.tables:
        rows = [row for name in names if (row := find(table, name, option="--compare")) is not None]
        if len(rows) < 2:
            continue
        pairs = list(itertools.combinations(rows, 2))
        tests = compare(pairs, samples, pair_seeds=pair_seeds)
        view = View("comparisons", f"{table.title}: paired comparisons", [], [
            "effect: mean of a minus mean of b on the same examples, with its 95 % confidence interval; "
            + _seeds_note(tests, pair_seeds=pair_seeds)
        ])  # fmt: skip
        for (a, b), test in zip(pairs, tests, strict=True):
            view.rows.append(_comparison_row(table, a, b, test))
        out.append(view)
    if not out:
        raise HarnessError(f"--compare: no table has two of {', '.join(names)}")
    return out


def _seeds_note(tests: Sequence[Comparison | str], *, pair_seeds: bool) -> str:
    """How seeds were treated in these comparisons."""
    kinds = {test.seeds for test in tests if isinstance(test, Comparison)}
    if kinds == {EXAMPLES_ONLY}:
        return (
            "with one seed per row the variance between seeds is unknown: another seed may change the ranking"
        )
    treated = "paired if both rows have the same ones" if pair_seeds else "treated as independent draws"
    return f"seeds are {treated}"


def _comparison_row(table: TaskTable, a: BoardRow, b: BoardRow, test: Comparison | str) -> ViewRow:
    done = test if isinstance(test, Comparison) else None
    return {
        "task": table.task, "metric": table.metric, "a": a.name, "b": b.name,
        "mean_a": a.mean, "mean_b": b.mean,
        "effect": done.effect if done else None,
        "ci_low": done.low if done else None, "ci_high": done.high if done else None,
        "p": done.p if done else None, "p_holm": done.p_holm if done else None,
        "examples": done.examples if done else None,
        "seeds": done.seeds if done else "",
        "seeds_a": len(a.scores), "seeds_b": len(b.scores),
        "reason": "" if done else str(test),
    }  # fmt: skip


def slices(board: Board, samples: Samples, *, max_rows: int) -> list[View]:
    """The primary metric and its interval on the examples of each tag, for the best ``max_rows`` rows."""
    out = []
    for table in board.tables:
        view = View("slices", f"{table.title}: by slice", [])
        for row in [r for r in table.rows if r.mean is not None][:max_rows]:
            scores = slice_scores(row, samples)
            if isinstance(scores, str):
                view.notes.append(f"{row.name}: no slices, {scores}")
            else:
                view.rows += [
                    {"task": table.task, "row": row.name, "metric": table.metric, **score} for score in scores
                ]
        if view.rows or view.notes:
            out.append(view)
    return out or [View("slices", "By slice: no row has a score", [])]


def slice_scores(row: BoardRow, samples: Samples) -> list[SliceScore] | str:
    """A row's scores by tag, sorted by tag; or the reason why there are none."""
    tested = [r for r in row.complete if row.metric in r.test]
    stored = []
    for record in tested:
        counts = samples.stored(record, tags=True)
        if isinstance(counts, str):
            return counts
        stored.append(counts)
    if not stored:
        return "no score"
    if len({r.cell for r in tested}) > 1:
        return "pools several cells"
    tags = [set(t) for t in stored[0].tags]
    out: list[SliceScore] = []
    for tag in sorted(set().union(*tags)):
        chosen = np.array([tag in t for t in tags])
        sample = samples.resample(tested, stored, metric=row.metric, chosen=chosen)
        if isinstance(sample, str):
            out.append({"slice": tag, "examples": int(chosen.sum()), "mean": None, "ci_low": None,
                        "ci_high": None, "ci_kind": sample, "n": len(tested)})  # fmt: skip
            continue
        low, high, kind = sample.interval()
        out.append({"slice": tag, "examples": sample.examples, "mean": float(sample.scores.mean()),
                    "ci_low": low, "ci_high": high, "ci_kind": kind, "n": len(tested)})  # fmt: skip
    return out or "its examples have no tags"


def curves(board: Board) -> list[View]:
    """Learning curves: score against training-set size, one line per set of rows that differ only in it.

    Raises:
        HarnessError: no line has at least two sizes.
    """
    views = []
    for table in board.tables:
        points = curve_points(table)
        if points:
            views.append(View("curves", f"{table.title}: learning curves", [*points], [SAME_SUBSET]))
    if not views:
        raise HarnessError(
            "--curve: no two rows differ only in the training-set size; sweep task.train_size=100,1000,all"
        )
    return views


def curve_points(table: TaskTable) -> list[CurvePoint]:
    """Points of the lines with at least two sizes, by line and size."""
    lines: dict[str, dict[int, CurvePoint]] = {}
    for row in table.rows:
        sizes = {r.n_train for r in row.complete}
        if row.mean is not None and len(sizes) == 1:
            line, size = _line(row), sizes.pop()
            low, high = row.ci or (None, None)
            # an explicit size equal to that of the whole split is the same point as `all`
            lines.setdefault(line, {}).setdefault(size, {
                "task": table.task, "line": line, "metric": table.metric, "n_train": size,
                "mean": row.mean, "ci_low": low, "ci_high": high, "n": len(row.scores),
            })  # fmt: skip
    return [points[n] for _, points in sorted(lines.items()) if len(points) > 1 for n in sorted(points)]


def _line(row: BoardRow) -> str:
    """The row's name without its training-set size."""
    first = row.records[0]
    if "variant" not in row.labels:
        return " ".join(f"{k}={v}" for k, v in row.labels.items() if k not in NAMES) or "all"
    rest = {k: v for k, v in first.variant.items() if k != TRAIN_SIZE}
    return f"{first.encoder}/{first.strategy} {variant_text(rest)}".strip()
