"""Views: plain tables that are shown beside or instead of the leaderboard, the same for every format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ViewRow = Mapping[str, object]
"""Values by column: text, numbers, lists of text, or None."""


@dataclass(slots=True)
class View:
    """A table with notes.

    Attributes:
        name: key in JSON (``comparisons``, ``slices``, ``across``, ``cost``, ``curves``, ...).
        title: heading.
        rows: values by column; all rows have the same columns.
        notes: notes needed to interpret the table.
        lines: sentences below the table, in place of the columns ``data_only``.
        data_only: columns of CSV and JSON that are too long for a table.
    """

    name: str
    title: str
    rows: list[ViewRow]
    notes: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    data_only: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Columns of all rows, in the order in which they appear."""
        return list(dict.fromkeys(key for row in self.rows for key in row))


def text(value: object) -> str:
    """A value as text for people."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}" if 1e-4 <= abs(value) < 10 or value == 0 else f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(text, value))
    return str(value)


def p_text(value: float) -> str:
    """A p-value; below 0.0001 the tail of a t distribution with few degrees of freedom is not reliable."""
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


HEADINGS = {"ci_low": "95 % CI low", "ci_high": "95 % CI high", "ci_kind": "CI over", "p_holm": "p (Holm)"}
"""Headings of columns; for others the column's name without underscores."""


def cells(view: View) -> tuple[list[str], list[bool], list[list[str]]]:
    """Headings, which of them are numeric, and texts by row; empty columns are left out."""
    candidates = [c for c in view.columns if c not in view.data_only]
    shown = [c for c in candidates if any(row.get(c) not in (None, "") for row in view.rows)]
    numeric = [all(isinstance(row.get(c), int | float | None) for row in view.rows) for c in shown]
    body = [[_cell(c, row.get(c)) for c in shown] for row in view.rows]
    return [HEADINGS.get(c, c.replace("_", " ")) for c in shown], numeric, body


def _cell(column: str, value: object) -> str:
    return p_text(value) if column in ("p", "p_holm") and isinstance(value, float) else text(value)


def rounded(value: object) -> object:
    """Floats with six significant digits, for JSON and CSV; NaN and infinities become None."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list | tuple) else value


def plain_rows(views: Sequence[View]) -> dict[str, list[object]]:
    """Rounded rows of all views by the name of the view."""
    out: dict[str, list[object]] = {}
    for view in views:
        out.setdefault(view.name, []).extend(rounded(row) for row in view.rows)
    return out
