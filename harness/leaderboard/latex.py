"""A board as LaTeX: one booktabs table each, the best row bold, rows tied with it marked."""

from __future__ import annotations

from collections.abc import Sequence

from harness.leaderboard.board import Board, Table
from harness.leaderboard.render import clean, columns
from harness.leaderboard.views import View, cells

_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "<": r"$<$",
    ">": r"$>$", "=": r"{=}", "|": r"$|$",
}  # fmt: skip


def escape(text: str) -> str:
    """Text that LaTeX sets as it is."""
    return "".join(_SPECIAL.get(c, c) for c in clean(text))


def latex(board: Board) -> str:
    """Needs the package booktabs; names in other scripts need XeLaTeX or LuaLaTeX."""
    out = ["% needs \\usepackage{booktabs}"]
    for table in board.tables:
        shown = columns(table, detail=False)
        body = []
        for row in table.rows:
            line = [escape(cell(row)) for _, _, cell in shown]
            if row is table.rows[0] and row.mean is not None:
                line = [rf"\textbf{{{text}}}" if text else "" for text in line]
            body.append(line)
        out += _tabular([n for n, _, _ in shown], [r for _, r, _ in shown], body, caption=_caption(table))
    if board.skipped:
        out += ["", *(f"% skipped: {clean(cell)}: {clean(reason)}" for cell, reason in board.skipped)]
    return "\n".join(out) + "\n"


def latex_views(views: Sequence[View]) -> str:
    out = ["% needs \\usepackage{booktabs}"]
    for view in views:
        names, numeric, body = cells(view)
        lines = [[escape(text) for text in line] for line in body]
        out += _tabular(names, numeric, lines, caption=". ".join([view.title, *view.notes]) + ".")
    return "\n".join(out) + "\n"


def _caption(table: Table) -> str:
    return ". ".join([table.title, *table.notes]) + "."


def _tabular(
    names: Sequence[str], right: Sequence[bool], body: Sequence[Sequence[str]], *, caption: str
) -> list[str]:
    spec = "".join("r" if r else "l" for r in right)
    return [
        "", r"\begin{table}", r"\centering", rf"\caption{{{escape(caption)}}}",
        rf"\begin{{tabular}}{{{spec}}}",
        r"\toprule", " & ".join(map(escape, names)) + r" \\", r"\midrule",
        *(" & ".join(line) + r" \\" for line in body), r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ]  # fmt: skip
