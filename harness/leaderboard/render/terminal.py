"""The leaderboard and its views on a terminal: long names are wrapped to its width, numbers never."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.leaderboard.render.columns import TRAIN_SECONDS, clean, columns
from harness.leaderboard.render.text import lists, view_lines
from harness.leaderboard.table.board import Board, TaskTable
from harness.leaderboard.views.view import View, cells

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NARROW = 120
"""Below this width the columns of detail are left out."""
MIN_TEXT = 12
"""Minimum width of a column of wrapped text."""
MAX_HEADING = 14
"""Longer headings of numeric columns are wrapped."""
GAP = 2


def terminal(board: Board, *, width: int, color: bool = False) -> str:
    """The tables and lists for a terminal of ``width`` columns."""
    from rich.text import Text

    console, file = _console(width=width, color=color)
    for table in board.tables:
        console.print(Text(clean(table.title), style="bold"))
        console.print(_rich_table(table, detail=width >= NARROW))
        for note in table.notes:
            console.print(Text(clean(note), style="yellow"))
        console.print()
    for heading, lines in lists(board):
        console.print(Text(heading, style="bold"))
        for line in lines:
            console.print(Text(f"  {clean(line)}"), overflow="fold")
        console.print()
    return _shown(file)


def views_on_screen(views: Sequence[View], *, width: int, color: bool = False) -> str:
    """The views for a terminal of ``width`` columns; a view with too many numbers stays wider."""
    from rich.text import Text

    console, file = _console(width=width, color=color)
    for view in views:
        console.print(Text(clean(view.title), style="bold"))
        table = _rich_view(view, width=width)
        if table is not None:
            console.print(table)
        else:
            for line in view_lines(view):
                console.print(Text(line), soft_wrap=True)
        for line in view.lines:
            console.print(Text(clean(line)))
        for note in view.notes:
            console.print(Text(clean(note), style="yellow"))
        console.print()
    return _shown(file)


def _rich_view(view: View, *, width: int) -> Table | None:
    """A table no wider than the terminal; None if its numbers do not fit, or without rows."""
    from rich.cells import cell_len
    from rich.text import Text

    names, numeric, body = cells(view)
    # headings of numeric columns are wrapped at every word, since their values are narrow
    heads = [
        clean(n).replace(" ", "\n") if right else clean(n) for n, right in zip(names, numeric, strict=True)
    ]
    need = 0
    for i, right in enumerate(numeric):
        widest = max(map(cell_len, [*heads[i].split("\n"), *(line[i] for line in body)]))
        need += (widest if right else min(widest, MIN_TEXT)) + GAP
    if not body or need > width:
        return None
    out = _empty()
    for head, right in zip(heads, numeric, strict=True):
        out.add_column(
            Text(head), justify="right" if right else "left", overflow="fold", no_wrap=right,
            min_width=None if right else MIN_TEXT,
        )  # fmt: skip
    for line in body:
        out.add_row(*(Text(clean(text)) for text in line))
    return out


def _console(*, width: int, color: bool) -> tuple[Console, io.StringIO]:
    from rich.console import Console

    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        legacy_windows=False,
    )
    return console, file


def _shown(file: io.StringIO) -> str:
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()).strip() + "\n"


def _empty() -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="")


def _rich_table(table: TaskTable, *, detail: bool) -> Table:
    from rich.text import Text

    out, shown = _empty(), columns(table, detail=detail)
    for name, right, _ in shown:
        fixed = right and name != TRAIN_SECONDS  # which can be "several hosts"
        heading = clean(name).replace(" ", "\n") if right and len(name) > MAX_HEADING else clean(name)
        out.add_column(Text(heading), justify="right" if right else "left", overflow="fold", no_wrap=fixed)
    for row in table.rows:
        style = "" if row.state == "scored" else "red" if row.state in ("failed", "diverged") else "dim"
        out.add_row(*(Text(clean(cell(row)), style=style) for _, _, cell in shown))
    return out
