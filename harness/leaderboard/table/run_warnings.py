"""Warnings of the runs behind a table, with the rows that they concern."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.leaderboard.table.rows import BoardRow

MARK = "!"
"""Follows the score of a row whose runs have warnings."""
MAX_WARNINGS, MAX_ROWS = 10, 3


def has_warnings(row: BoardRow) -> bool:
    """Whether a complete record of the row has a warning."""
    return any(record.warnings for record in row.complete)


def warning_lines(rows: Sequence[BoardRow]) -> list[str]:
    """Return a line per warning of the complete records: its text, and the rows unless it concerns all."""
    by_text: dict[str, list[str]] = {}
    for row in rows:
        count = Counter(text for record in row.complete for text in set(record.warnings))
        for text, n in count.items():
            seeds = "" if n == len(row.complete) else f" ({n} of {len(row.complete)} seeds)"
            by_text.setdefault(text, []).append(f"{row.name}{seeds}")
    every = [row.name for row in rows if row.complete]
    lines = [
        f"{MARK} {text}" + ("" if names == every and len(every) > 1 else f" [{_listed(names)}]")
        for text, names in by_text.items()
    ]
    more = len(lines) - MAX_WARNINGS
    return [*lines[:MAX_WARNINGS], *([f"{MARK} {more} more warnings in the records"] if more > 0 else [])]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MAX_ROWS
    return ", ".join(names[:MAX_ROWS]) + (f" and {more} more" if more > 0 else "")
