"""A board and its views on a screen of so many columns: names are folded where need be, numbers never."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from harness.leaderboard.render.columns import clean, columns
from harness.leaderboard.render.text import lists, view_lines
from harness.leaderboard.table.board import Board, Table
from harness.leaderboard.views.view import View, cells

NARROW = 120
"""Below this width a terminal gets no columns of detail."""
LEAST = 12
"""Columns of the screen that a folded text needs to be read."""
GAP = 2


def terminal(board: Board, *, width: int, color: bool = False) -> str:
    """For a screen of ``width`` columns; names that do not fit are folded, numbers never are."""
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
    """Texts of a view are folded where that makes it fit; one of too many numbers stays as wide as it is."""
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


def _rich_view(view: View, *, width: int) -> Any:
    """A table no wider than the screen; None where its numbers alone are too wide, or it has no rows."""
    from rich.cells import cell_len
    from rich.text import Text

    names, numeric, body = cells(view)
    # above numbers each word of a heading has a line
    heads = [
        clean(n).replace(" ", "\n") if right else clean(n) for n, right in zip(names, numeric, strict=True)
    ]
    need = 0
    for i, right in enumerate(numeric):
        widest = max(map(cell_len, [*heads[i].split("\n"), *(line[i] for line in body)]))
        need += (widest if right else min(widest, LEAST)) + GAP
    if not body or need > width:
        return None
    out = _empty()
    for head, right in zip(heads, numeric, strict=True):
        out.add_column(
            Text(head), justify="right" if right else "left", overflow="fold", no_wrap=right,
            min_width=None if right else LEAST,
        )  # fmt: skip
    for line in body:
        out.add_row(*(Text(clean(text)) for text in line))
    return out


def _console(*, width: int, color: bool) -> tuple[Any, io.StringIO]:
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


def _empty() -> Any:
    from rich import box
    from rich.table import Table as RichTable

    return RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="")


def _rich_table(table: Table, *, detail: bool) -> Any:
    from rich.text import Text

    out, shown = _empty(), columns(table, detail=detail)
    for name, right, _ in shown:
        fixed = right and name != "train s"
        out.add_column(
            Text(clean(name)), justify="right" if right else "left", overflow="fold", no_wrap=fixed
        )
    for row in table.rows:
        style = "" if row.state == "scored" else "red" if row.state in ("failed", "diverged") else "dim"
        out.add_row(*(Text(clean(cell(row)), style=style) for _, _, cell in shown))
    return out
