"""The rows of a board as plain data."""

from __future__ import annotations

from typing import Any

from harness.leaderboard.board import Board, Table
from harness.leaderboard.rows import Row, headline


def as_rows(board: Board) -> list[dict[str, Any]]:
    """The rows of all tables as plain data, for json and csv. ``mean`` is None without a complete cell.

    Counts are whole numbers, everything else has six digits.
    """
    return [_plain(row, table) for table in board.tables for row in table.rows]


def _plain(row: Row, table: Table) -> dict[str, Any]:
    one_host = len(row.hosts) <= 1

    def shared(name: str) -> str | None:
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


def _reason(row: Row) -> str | None:
    reasons = {headline(r.reason) for r in row.records if r.reason.strip()}
    return "; ".join([*sorted(reasons), *row.notes]) or None
