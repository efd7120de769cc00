"""The leaderboard and its views as aligned text and as Markdown; names are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.leaderboard.render.columns import clean, columns
from harness.leaderboard.table.board import Board
from harness.leaderboard.views.view import View, cells


def plain(board: Board) -> str:
    """Aligned columns for files and pipes: all columns at full width, no line breaks."""
    out: list[str] = []
    for table in board.tables:
        shown = columns(table, detail=True)
        cells = [[clean(cell(row)) for _, _, cell in shown] for row in table.rows]
        out += [
            clean(table.title),
            *_aligned([[clean(n) for n, _, _ in shown], *cells], [r for _, r, _ in shown]),
        ]
        out += [*map(clean, table.notes), ""]
    for heading, lines in lists(board):
        out += [heading, *(f"  {clean(line)}" for line in lines), ""]
    return "\n".join(out).strip() + "\n"


def _aligned(cells: list[list[str]], right: list[bool]) -> list[str]:
    from rich.cells import cell_len

    # wide characters (CJK) take two columns of a terminal
    lengths = [[len(text) if text.isascii() else cell_len(text) for text in line] for line in cells]
    widths = [max(column) for column in zip(*lengths, strict=True)]
    lines = []
    for line, length in zip(cells, lengths, strict=True):
        parts = []
        for text, size, width, right_aligned in zip(line, length, widths, right, strict=True):
            padding = " " * (width - size)
            parts.append(padding + text if right_aligned else text + padding)
        lines.append("  ".join(parts).rstrip())
    return [lines[0], "-" * (sum(widths) + 2 * len(widths) - 2), *lines[1:]]


def lists(board: Board) -> list[tuple[str, list[str]]]:
    """The lists below the tables: headings with their lines."""
    lists = [
        (f"Failed ({len(board.failed)})", [f"{cell}: {reason}" for cell, reason in board.failed]),
        (board.skipped_title, [f"{cell}: {reason}" for cell, reason in board.skipped]),
        (f"Damaged or copied records ({len(board.damaged)})", board.damaged),
        ("Notes", board.notes),
    ]
    return [(heading, lines) for heading, lines in lists if lines]


def _md(text: str) -> str:
    """Escape text for Markdown outside tables."""
    text = clean(text).replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;")
    for mark in "*_`[]~#":
        text = text.replace(mark, "\\" + mark)
    return text


def _md_line(texts: Iterable[str]) -> str:
    """A line of a table, with bars escaped."""
    return "| " + " | ".join(_md(text).replace("|", "\\|") for text in texts) + " |"


def markdown(board: Board) -> str:
    """The tables and lists as Markdown."""
    out: list[str] = []
    for table in board.tables:
        shown = columns(table, detail=True)
        out += [f"## {_md(table.title)}", ""]
        out.append(_md_line(name for name, _, _ in shown))
        out.append("| " + " | ".join("---:" if right else "---" for _, right, _ in shown) + " |")
        out += [_md_line(cell(row) for _, _, cell in shown) for row in table.rows]
        out += ["", *(f"- {_md(note)}" for note in table.notes), ""]
    for heading, lines in lists(board):
        out += [f"## {_md(heading)}", "", *(f"- {_md(line)}" for line in lines), ""]
    return "\n".join(out).strip() + "\n"


def views_as_markdown(views: Sequence[View]) -> str:
    """The views as Markdown."""
    out: list[str] = []
    for view in views:
        names, numeric, body = cells(view)
        out += [f"## {_md(view.title)}", ""]
        if body:
            out.append(_md_line(names))
            out.append("| " + " | ".join("---:" if right else "---" for right in numeric) + " |")
            out += [*(_md_line(line) for line in body), ""]
        out += [*(f"- {_md(line)}" for line in (*view.lines, *view.notes)), ""]
    return "\n".join(out).strip() + "\n"


def views_as_text(views: Sequence[View]) -> str:
    """The views as aligned columns at full width."""
    out: list[str] = []
    for view in views:
        out += [clean(view.title), *view_lines(view), *map(clean, (*view.lines, *view.notes)), ""]
    return "\n".join(out).strip() + "\n"


def view_lines(view: View) -> list[str]:
    """The lines of a view's table without title and notes; [] without rows."""
    names, numeric, body = cells(view)
    return _aligned([[clean(text) for text in line] for line in (names, *body)], numeric) if body else []
