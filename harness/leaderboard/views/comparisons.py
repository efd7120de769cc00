"""Views made of the board's rows: comparisons, slices and curves."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.errors import HarnessError, did_you_mean
from harness.leaderboard.stats.comparisons import EXAMPLES_ONLY, Comparison, Samples, compare
from harness.leaderboard.table.board import Board, Table
from harness.leaderboard.table.rows import Row, variant_text
from harness.leaderboard.table.train_size import NAMES, TRAIN_SIZE
from harness.leaderboard.views.view import View

SMALL_SLICE = 2


MOST_NAMED = 6


def find(table: Table, name: str, *, option: str) -> Row | None:
    """The row a user means by ``option``: ``encoder/strategy``, with the variant behind it, or the start of a
    cell id.

    Raises:
        HarnessError: several rows answer to the name; it says what to give.
    """
    exact = [row for row in table.rows if row.name == name]
    short = [row for row in table.rows if row.name.partition(" ")[0] == name]
    by_cell = [
        row for row in table.rows if len(name) >= 4 and any(r.cell.startswith(name) for r in row.records)
    ]
    for found in (exact, short, by_cell):
        if len(found) == 1:
            return found[0]
        if found:
            raise _ambiguous(table, name, found, option=option)
    return None


def _ambiguous(table: Table, name: str, found: Sequence[Row], *, option: str) -> HarnessError:
    names = sorted({row.name for row in found})
    if len(names) == len(found):  # quoted, since a shell takes a name with blanks apart
        told = [shlex.quote(n) for n in names]
        give = f"give {told[0]}, its quotes included"
    else:
        told = sorted(f"{row.name} (cell {row.records[0].cell})" for row in found)
        give = f"give the start of a cell's id, such as {found[0].records[0].cell[:8]}"
    more = f" and {len(told) - MOST_NAMED} more" if len(told) > MOST_NAMED else ""
    return HarnessError(
        f"{option} {name}: {len(found)} rows of {table.task} answer to it; {give}; "
        f"there are {', '.join(told[:MOST_NAMED])}{more}"
    )


def find_somewhere(board: Board, names: Sequence[str], *, option: str) -> None:
    """Refuse names that no table knows.

    Raises:
        HarnessError: with the nearest rows.
    """
    known = sorted({row.name for table in board.tables for row in table.rows})
    for name in names:
        if all(find(table, name, option=option) is None for table in board.tables):
            raise HarnessError(f"{option} {name}: no row of that name, {did_you_mean(name, known)}")


def comparisons(
    board: Board, names: Sequence[str], samples: Samples, *, pair_seeds: bool = False
) -> list[View]:
    """All pairs of the named rows in every table that has at least two of them; adjusted within a table."""
    find_somewhere(board, names, option="--compare")
    out = []
    for table in board.tables:
        rows = [row for name in names if (row := find(table, name, option="--compare")) is not None]
        if len(rows) < 2:
            continue
        pairs = list(itertools.combinations(rows, 2))
        found = compare(pairs, samples, pair_seeds=pair_seeds)
        view = View("comparisons", f"{table.title}: paired comparisons", [], [
            "effect: mean of a less mean of b, interval of 95 %; the same examples in both; "
            + _of_seeds(found, pair_seeds=pair_seeds)
        ])  # fmt: skip
        for (a, b), comparison in zip(pairs, found, strict=True):
            view.rows.append(_compared(table, a, b, comparison))
        out.append(view)
    if not out:
        raise HarnessError(f"--compare: no table holds two of {', '.join(names)}")
    return out


def _of_seeds(found: Sequence[Comparison | str], *, pair_seeds: bool) -> str:
    """How seeds were treated in these comparisons."""
    kinds = {one.seeds for one in found if isinstance(one, Comparison)}
    if kinds == {EXAMPLES_ONLY}:
        return "one seed is no sample of seeds: another one may turn the order"
    how = "paired where both rows have the same" if pair_seeds else "independent draws in each row"
    return f"seeds are {how}"


def _compared(table: Table, a: Row, b: Row, found: Comparison | str) -> dict[str, Any]:
    known = found if isinstance(found, Comparison) else None
    return {
        "task": table.task, "metric": table.metric, "a": a.name, "b": b.name,
        "mean_a": a.mean, "mean_b": b.mean,
        "effect": known.effect if known else None,
        "ci_low": known.low if known else None, "ci_high": known.high if known else None,
        "p": known.p if known else None, "p_holm": known.p_holm if known else None,
        "examples": known.examples if known else None,
        "seeds": known.seeds if known else "",
        "seeds_a": len(a.scores), "seeds_b": len(b.scores),
        "reason": "" if known else str(found),
    }  # fmt: skip


def slices(board: Board, samples: Samples, *, most: int) -> list[View]:
    """The primary metric on the examples of each tag with its interval, for the best ``most`` rows."""
    out = []
    for table in board.tables:
        view = View("slices", f"{table.title}: by slice", [])
        for row in [r for r in table.rows if r.mean is not None][:most]:
            found = _row_slices(row, samples)
            if isinstance(found, str):
                view.notes.append(f"{row.name}: no slices, {found}")
            else:
                view.rows += [
                    {"task": table.task, "row": row.name, "metric": table.metric, **f} for f in found
                ]
        if view.rows or view.notes:
            out.append(view)
    return out or [View("slices", "By slice: no row has a score", [])]


def _row_slices(row: Row, samples: Samples) -> list[dict[str, Any]] | str:
    tested = [r for r in row.complete if row.metric in r.test]
    stored = []
    for record in tested:
        read = samples.stored(record, tags=True)
        if isinstance(read, str):
            return read
        stored.append(read)
    if not stored:
        return "no score"
    if len({r.cell for r in tested}) > 1:
        return "pools several cells"
    tags = [set(t) for t in stored[0].tags]
    out = []
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
    return out or "its examples carry no tags"


def curves(board: Board) -> list[View]:
    """Scores over the number of training examples: rows that differ in ``task.train_size`` alone, joined.

    Only lines with at least two sizes are kept.

    Raises:
        HarnessError: there are none.
    """
    views = []
    for table in board.tables:
        lines: dict[str, dict[int, dict[str, Any]]] = {}
        for row in table.rows:
            sizes = {r.n_train for r in row.complete}
            if row.mean is not None and len(sizes) == 1:
                line, size = _line(row), sizes.pop()
                low, high = row.ci or (None, None)
                # a size that is the whole split's gives what `all` gives
                lines.setdefault(line, {}).setdefault(size, {
                    "task": table.task, "line": line, "metric": table.metric, "n_train": size,
                    "mean": row.mean, "ci_low": low, "ci_high": high, "n": len(row.scores),
                })  # fmt: skip
        kept = [points[n] for _, points in sorted(lines.items()) if len(points) > 1 for n in sorted(points)]
        if kept:
            views.append(View("curves", f"{table.title}: over the training set's size", kept, [SAME_PART]))
    if not views:
        raise HarnessError(
            "--curve: no two rows differ in the training set's size alone; sweep task.train_size=100,1000,all"
        )
    return views


SAME_PART = "each size is one choice of examples, the same for all seeds: its luck is not in the intervals"


def _line(row: Row) -> str:
    """What a row has in common with those of other sizes."""
    first = row.records[0]
    if "variant" not in row.labels:
        return " ".join(f"{k}={v}" for k, v in row.labels.items() if k not in NAMES) or "all"
    rest = {k: v for k, v in first.variant.items() if k != TRAIN_SIZE}
    return f"{first.encoder}/{first.strategy} {variant_text(rest)}".strip()
