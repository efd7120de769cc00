"""What is shown beside or instead of the board: plain tables of facts, the same for every format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class View:
    """A table of facts.

    Attributes:
        name: key in json (``comparisons``, ``slices``, ``across``, ``cost``, ``curves``).
        title: for people.
        rows: values by column; every row has every column.
        notes: what must be known to read it.
        lines: sentences that stand below the table in place of ``data_only``.
        data_only: columns for csv and json alone, too long for a table.
    """

    name: str
    title: str
    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    data_only: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(key for row in self.rows for key in row))


def text(value: Any) -> str:
    """A value as people read it."""
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
    """A p-value; the tail of a t distribution with few degrees of freedom is not known further out."""
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


def cells(view: View) -> tuple[list[str], list[bool], list[list[str]]]:
    """Headings, which of them are numbers, and texts by row; columns that say nothing are left out."""
    told = [c for c in view.columns if c not in view.data_only]
    kept = [c for c in told if any(row.get(c) not in (None, "") for row in view.rows)]
    numeric = [all(isinstance(row.get(c), int | float | None) for row in view.rows) for c in kept]
    body = [[_cell(c, row.get(c)) for c in kept] for row in view.rows]
    return [c.replace("_", " ") for c in kept], numeric, body


def _cell(column: str, value: Any) -> str:
    return p_text(value) if column in ("p", "p_holm") and isinstance(value, float) else text(value)


def rounded(value: Any) -> Any:
    """Floats with six digits, for json and csv; NaN and infinities as None."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list | tuple) else value


def plain_rows(views: Sequence[View]) -> dict[str, list[dict[str, Any]]]:
    """Rows of all views by the name of the view."""
    out: dict[str, list[dict[str, Any]]] = {}
    for view in views:
        out.setdefault(view.name, []).extend(rounded(row) for row in view.rows)
    return out
