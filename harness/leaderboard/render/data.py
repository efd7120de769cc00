"""The leaderboard and its views as CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from harness.core.redaction import json_text, printable
from harness.leaderboard.render.columns import clean
from harness.leaderboard.table.board import Board, TaskTable
from harness.leaderboard.table.rows import NOT_SET, BoardRow, headline
from harness.leaderboard.views.view import View, plain_rows, rounded

CSV_FIRST = (
    "task", "encoder", "strategy", "variant", "metric", "mean", "std", "min", "max", "n", "ci_low", "ci_high",
    "tied", "dev", "state",
)  # fmt: skip


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_csv(board: Board) -> str:
    """One line per row."""
    return _csv(as_rows(board), first=CSV_FIRST)


def views_as_csv(views: Sequence[View]) -> str:
    """Views of one kind as one CSV; the items of a list are separated by semicolons."""
    rows = [row for view in views for row in view.rows]
    return _csv(
        {k: "; ".join(v) if isinstance(v, list) else rounded(v) for k, v in row.items()} for row in rows
    )


def _csv(rows: Iterable[Mapping[str, object]], *, first: Sequence[str] = ()) -> str:
    lines = list(rows)
    out = io.StringIO()
    names = dict.fromkeys([*first, *(key for line in lines for key in line)])
    writer = csv.DictWriter(out, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: _csv_cell(v) for k, v in line.items()} for line in lines)
    return out.getvalue()


def _csv_cell(value: object) -> object:
    """Text that a spreadsheet would take for a formula, with an apostrophe before it (OWASP, CSV injection);
    numbers are unchanged, also if they are text."""
    if not isinstance(value, str):
        return value
    if value == NOT_SET or not value.startswith(_FORMULA):
        return printable(value)
    try:
        float(value)
    except ValueError:
        return printable(f"'{value}")
    return value


def as_json(board: Board, views: Sequence[View] = ()) -> str:
    """One object: ``rows`` of the leaderboard, ``notes`` on all tables, rows of each view by name."""
    data = {"rows": as_rows(board), "notes": remarks(board, views), **plain_rows(views)}
    return json_text(data, indent=1) + "\n"


def remarks(board: Board, views: Sequence[View] = ()) -> list[str]:
    """Warnings, damaged records and notes, which have no place in the rows."""
    tables = [f"{table.title}: {note}" for table in board.tables for note in table.notes]
    skipped = [f"{board.skipped_title}: {cell}: {why}" for cell, why in board.skipped if board.hidden]
    beside = [f"{view.title}: {note}" for view in views for note in view.notes]
    return [clean(line) for line in (*tables, *skipped, *board.damaged, *board.notes, *beside)]


def as_rows(board: Board) -> list[dict[str, object]]:
    """The rows of all tables as plain data, for JSON and CSV. ``mean`` is None without a complete cell.

    Counts are integers; other numbers have six significant digits.
    """
    return [_plain(row, table) for table in board.tables for row in table.rows]


def _plain(row: BoardRow, table: TaskTable) -> dict[str, object]:
    one_host = len(row.hosts) <= 1

    def shared(name: str) -> str | None:
        """The records' common value, or None if they differ."""
        values = {getattr(r, name) for r in row.records}
        return values.pop() if len(values) == 1 else None

    return {
        "task": row.task,
        "encoder": shared("encoder"),
        "strategy": shared("strategy"),
        "variant": row.labels.get("variant"),
        **{k: v for k, v in row.labels.items() if k not in ("task", "encoder", "strategy", "variant")},
        "cell": shared("cell"),
        "metric": table.metric,
        "maximize": table.maximize,
        "state": row.state,
        "mean": _six(row.mean),
        "std": _six(row.std),
        "min": _six(min(row.scores)) if row.mean is not None else None,
        "max": _six(max(row.scores)) if row.mean is not None else None,
        "n": len(row.scores),
        "dev": _six(row.dev),
        "tried": row.tried,
        "ci_low": _six(row.ci[0]) if row.ci else None,
        "ci_high": _six(row.ci[1]) if row.ci else None,
        "ci_kind": row.ci_kind or row.no_interval or None,
        "tied": row.tied,
        "error_reduction": _six(row.error_reduction),
        "p_baseline": _six(row.p_baseline),
        "degenerate": row.degenerate,
        "complete": len(row.complete),
        "diverged": row.diverged,
        "failed": row.failed,
        "skipped": row.skipped,
        "train_seconds": _six(row.average(lambda r: r.costs.train_seconds)) if one_host else None,
        "parameters": _whole(row.average(lambda r: r.parameters)),
        "trained_parameters": _whole(row.average(lambda r: r.trained_parameters)),
        "host": next(iter(row.hosts), None) if one_host else None,
        "n_test": shared("n_test"),
        "n_train": shared("n_train"),
        "part": "; ".join(f"{k} {v}" for k, v in table.part.items()) or None,
        "partial": table.partial,
        "reason": _reason(row),
    }


def _six(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _reason(row: BoardRow) -> str | None:
    reasons = {headline(r.reason) for r in row.records if r.reason.strip()}
    return "; ".join([*sorted(reasons), *row.notes]) or None
