"""A board as text: for a terminal, as Markdown, csv or json. Names are data: none can break the format."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from harness.leaderboard.board import Board, Table
from harness.leaderboard.plain import as_rows
from harness.leaderboard.rows import Row
from harness.leaderboard.statistics import BOTH, EXAMPLES_ONLY
from harness.leaderboard.views import View, cells, p_text, plain_rows, rounded

NARROW = 120
"""Below this width a terminal gets no columns of detail."""
CSV_FIRST = (
    "task",
    "encoder",
    "strategy",
    "variant",
    "metric",
    "mean",
    "std",
    "min",
    "max",
    "n",
    "ci_low",
    "ci_high",
    "tied",
    "dev",
    "state",
)

Cell = Callable[[Row], str]


def clean(text: str) -> str:
    """One line, without control characters: what a name may put on a screen."""
    if text.isprintable():  # most are, and looking at each letter takes long
        return text
    text = text.replace("\r\n", " ").translate(dict.fromkeys(map(ord, "\n\r\t"), " "))
    return "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cs"))


def score_text(row: Row) -> str:
    """``0.812 ± 0.010``, or why there is none."""
    if row.mean is None:
        if row.state == "diverged":
            return f"diverged ({row.diverged} of {len(row.scores)})"
        return "no test split" if row.state == "untested" else row.state
    return _number(row.mean) + (f" ± {_number(row.std)}" if row.std is not None else "")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def interval_text(row: Row) -> str:
    """``0.79 to 0.83``; ``*`` behind one that is over examples only."""
    if row.ci is None:
        return ""
    mark = "" if row.ci_kind == BOTH else "*" if row.ci_kind == EXAMPLES_ONLY else "+"
    return f"{_number(row.ci[0])} to {_number(row.ci[1])}{mark}"


def tie_text(row: Row) -> str:
    """``tied`` with the best, nothing when a test told them apart, ``?`` where none could be made."""
    return "tied" if row.tied else "?" if row.untested else ""


def _reduction(row: Row) -> str:
    return "" if row.error_reduction is None else f"{100 * row.error_reduction:+.1f} %"


def _degenerate(row: Row) -> str:
    return f"{row.degenerate} of {len(row.complete)}" if row.degenerate else ""


def _span(row: Row) -> str:
    if row.std is None:
        return ""
    return f"{_number(min(row.scores))} to {_number(max(row.scores))}"


def _count(value: float | None) -> str:
    if value is None:
        return ""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def _seconds(row: Row) -> str:
    value = row.average(lambda r: r.costs.train_seconds)
    return "several hosts" if len(row.hosts) > 1 else "" if value is None else f"{value:.1f}"


def _lost(row: Row) -> str:
    parts = [f"{n} {what}" for n, what in ((row.failed, "failed"), (row.skipped, "skipped")) if n]
    return ", ".join(parts)


def _label(name: str) -> Cell:
    return lambda row: row.labels.get(name, "")


def columns(table: Table, *, detail: bool) -> list[tuple[str, bool, Cell]]:
    """(heading, right-aligned, text of a row) of each column that says anything in this table."""
    rows = table.rows
    labels = list(dict.fromkeys(label for row in rows for label in row.labels))
    out: list[tuple[str, bool, Cell]] = [(label, False, _label(label)) for label in labels]
    out.append((table.metric or "score", True, score_text))
    more: list[tuple[str, bool, Cell, bool]] = [
        ("min to max", True, _span, detail),
        ("95 %", True, interval_text, True),
        ("best", False, tie_text, True),
        ("less error", True, _reduction, True),
        ("p", True, lambda row: "" if row.p_baseline is None else p_text(row.p_baseline), True),
        ("n", True, lambda row: str(len(row.scores)), True),
        ("dev", True, lambda row: _number(row.dev), True),
        ("tried", True, lambda row: "" if row.tried is None else str(row.tried), True),
        ("degenerate", False, _degenerate, True),
        ("lost", False, _lost, True),
        ("train s", True, _seconds, detail),
        ("parameters", True, lambda row: _count(row.average(lambda r: r.parameters)), detail),
        ("trained", True, lambda row: _count(row.average(lambda r: r.trained_parameters)), detail),
        ("note", False, lambda row: "; ".join(row.notes), True),
    ]
    out += [(name, right, cell) for name, right, cell, wanted in more if wanted]
    kept = ("encoder", "strategy", table.metric or "score", "n")
    return [(name, right, cell) for name, right, cell in out if name in kept or any(map(cell, rows))]


def terminal(board: Board, *, width: int, color: bool = False) -> str:
    """For a screen of ``width`` columns; names that do not fit are folded, numbers never are."""
    from rich.console import Console
    from rich.text import Text

    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        legacy_windows=False,
    )
    for table in board.tables:
        console.print(Text(clean(table.title), style="bold"))
        console.print(_rich_table(table, detail=width >= NARROW))
        for note in table.notes:
            console.print(Text(clean(note), style="yellow"))
        console.print()
    for heading, lines in _lists(board):
        console.print(Text(heading, style="bold"))
        for line in lines:
            console.print(Text(f"  {clean(line)}"), overflow="fold")
        console.print()
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()).strip() + "\n"


def plain(board: Board) -> str:
    """Aligned columns for files and pipes: every column, as wide as it must be, nothing folded."""
    out: list[str] = []
    for table in board.tables:
        shown = columns(table, detail=True)
        cells = [[clean(cell(row)) for _, _, cell in shown] for row in table.rows]
        out += [
            clean(table.title),
            *_aligned([[clean(n) for n, _, _ in shown], *cells], [r for _, r, _ in shown]),
        ]
        out += [*map(clean, table.notes), ""]
    for heading, lines in _lists(board):
        out += [heading, *(f"  {clean(line)}" for line in lines), ""]
    return "\n".join(out).strip() + "\n"


def _aligned(cells: list[list[str]], right: list[bool]) -> list[str]:
    from rich.cells import cell_len

    lengths = [[len(text) if text.isascii() else cell_len(text) for text in line] for line in cells]
    widths = [max(column) for column in zip(*lengths, strict=True)]
    lines = []
    for line, length in zip(cells, lengths, strict=True):
        parts = []
        for text, own, wide, at_right in zip(line, length, widths, right, strict=True):
            gap = " " * (wide - own)
            parts.append(gap + text if at_right else text + gap)
        lines.append("  ".join(parts).rstrip())
    return [lines[0], "-" * (sum(widths) + 2 * len(widths) - 2), *lines[1:]]


def _rich_table(table: Table, *, detail: bool) -> Any:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    out = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="")
    shown = columns(table, detail=detail)
    for name, right, _ in shown:
        fixed = right and name != "train s"
        out.add_column(
            Text(clean(name)), justify="right" if right else "left", overflow="fold", no_wrap=fixed
        )
    for row in table.rows:
        style = "" if row.state == "scored" else "red" if row.state in ("failed", "diverged") else "dim"
        out.add_row(*(Text(clean(cell(row)), style=style) for _, _, cell in shown))
    return out


def _lists(board: Board) -> list[tuple[str, list[str]]]:
    lists = [
        (f"Failed ({len(board.failed)})", [f"{cell}: {reason}" for cell, reason in board.failed]),
        (_skipped(board), [f"{cell}: {reason}" for cell, reason in board.skipped]),
        (f"Damaged records ({len(board.damaged)})", board.damaged),
        ("Notes", board.notes),
    ]
    return [(heading, lines) for heading, lines in lists if lines]


def _skipped(board: Board) -> str:
    """A heading; of cells that have no rows it says how to get them."""
    return "Skipped" + ("; --skipped show gives them rows" if board.hidden else "")


def _md(text: str) -> str:
    """Text that Markdown shows as it is, outside of tables."""
    text = clean(text).replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;")
    for mark in "*_`[]~#":
        text = text.replace(mark, "\\" + mark)
    return text


def _md_line(texts: Iterable[str]) -> str:
    """A line of a table: bars in its texts end no column."""
    return "| " + " | ".join(_md(text).replace("|", "\\|") for text in texts) + " |"


def markdown(board: Board) -> str:
    out: list[str] = []
    for table in board.tables:
        shown = columns(table, detail=True)
        out += [f"## {_md(table.title)}", ""]
        out.append(_md_line(name for name, _, _ in shown))
        out.append("| " + " | ".join("---:" if right else "---" for _, right, _ in shown) + " |")
        out += [_md_line(cell(row) for _, _, cell in shown) for row in table.rows]
        out += ["", *(f"- {_md(note)}" for note in table.notes), ""]
    for heading, lines in _lists(board):
        out += [f"## {_md(heading)}", "", *(f"- {_md(line)}" for line in lines), ""]
    return "\n".join(out).strip() + "\n"


def comma_separated(board: Board) -> str:
    rows = as_rows(board)
    names = list(dict.fromkeys([*CSV_FIRST, *(key for row in rows for key in row)]))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_json(board: Board) -> str:
    return json.dumps(as_rows(board), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def remarks(board: Board) -> Sequence[str]:
    """What the machine-readable formats cannot hold: warnings, damaged records, notes."""
    tables = [f"{table.title}: {note}" for table in board.tables for note in table.notes]
    skipped = [f"{_skipped(board)}: {cell}: {reason}" for cell, reason in board.skipped if board.hidden]
    return [clean(line) for line in (*tables, *skipped, *board.damaged, *board.notes)]


def views_as_text(views: Sequence[View], *, form: str) -> str:
    """Views as aligned text or Markdown."""
    out: list[str] = []
    for view in views:
        names, numeric, body = cells(view)
        if form == "md":
            out += [f"## {_md(view.title)}", ""]
            out.append(_md_line(names))
            out.append("| " + " | ".join("---:" if right else "---" for right in numeric) + " |")
            out += [_md_line(line) for line in body]
            out += ["", *(f"- {_md(note)}" for note in view.notes), ""]
        else:
            lines = [[clean(text) for text in line] for line in (names, *body)]
            out += [clean(view.title), *(_aligned(lines, numeric) if body else ())]
            out += [*(clean(note) for note in view.notes), ""]
    return "\n".join(out).strip() + "\n"


def views_as_csv(views: Sequence[View]) -> str:
    """Views of one kind as one csv."""
    names = list(dict.fromkeys(name for view in views for name in view.columns))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for view in views:
        for row in view.rows:
            writer.writerow({k: "; ".join(v) if isinstance(v, list) else rounded(v) for k, v in row.items()})
    return out.getvalue()


def views_as_json(views: Sequence[View], board: Board | None = None) -> str:
    """An object with the rows of each view by its name, and the board's own under ``rows``."""
    data: dict[str, Any] = {"rows": as_rows(board)} if board else {}
    return json.dumps(data | plain_rows(views), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
