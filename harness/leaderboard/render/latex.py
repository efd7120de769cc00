"""A board as LaTeX: one booktabs table each, the best row bold, rows tied with it marked."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from harness.leaderboard.render.columns import clean, columns
from harness.leaderboard.table.board import Board
from harness.leaderboard.views.view import View, cells

_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "<": r"$<$",
    ">": r"$>$", "=": r"{=}", "|": r"$|$", "[": "{[}", "]": "{]}", "*": "{*}", '"': r"\symbol{34}",
    "\u00a0": "~", "≤": r"$\leq$", "≥": r"$\geq$", "×": r"$\times$", "÷": r"$\div$", "−": "$-$",
    "→": r"$\to$", "¬": r"$\lnot$", "µ": r"$\mu$", "μ": r"$\mu$", "²": "$^2$", "³": "$^3$", "¹": "$^1$",
}  # fmt: skip
"""``[`` and ``*`` at the start of a line would be arguments of the line's end before it."""
_LIGATURES = ("--", "''", "``", ",,", "?`", "!`")
_BEYOND_LATIN = 0x180
_KNOWN, _UNKNOWN = "‘’“”‚„–—…•†‡€™", "ĦħĸĿŀŉŦŧſ"
"""What pdfLaTeX sets with the font encoding T1 beyond these letters, and what it does not below."""
_AT_ONCE = 16
"""Tables that LaTeX surely keeps until there is a page for them; more are an error."""
_ROWS = 40
"""Most rows of a table, so that it ends on its page; the rest is in tables that continue it."""
_CAPTION = 800
"""Most characters below the title in a caption."""
_OTHER_SCRIPTS = "% pdfLaTeX does not know {}: use LuaLaTeX or XeLaTeX, and a font that has them"


def escape(text: str) -> str:
    """Text that LaTeX sets as it is."""
    composed = unicodedata.normalize("NFC", clean(text))
    shown = [c for c in composed if unicodedata.category(c) not in ("Cf", "Zl", "Zp")]
    apart = ["{}" if before + c in _LIGATURES else "" for before, c in zip(["", *shown], shown, strict=False)]
    return "".join(gap + _SPECIAL.get(c, c) for gap, c in zip(apart, shown, strict=True))


def latex(board: Board) -> str:
    """A table for each of the board's; skipped cells in comments."""
    parts = []
    for table in board.tables:
        shown = columns(table, detail=False)
        body = []
        for row in table.rows:
            line = [escape(cell(row)) for _, _, cell in shown]
            if row is table.rows[0] and row.mean is not None:
                line = [rf"\textbf{{{text}}}" if text else "" for text in line]
            body.append(line)
        names, right = [n for n, _, _ in shown], [r for _, r, _ in shown]
        parts += _tabular(names, right, body, title=table.title, told=table.notes)
    skipped = [f"% skipped: {clean(cell)}: {clean(reason)}" for cell, reason in board.skipped]
    return _whole(parts, comments=skipped)


def latex_views(views: Sequence[View]) -> str:
    """A table for each view; one without rows is a paragraph that says why."""
    parts = []
    for view in views:
        names, numeric, body = cells(view)
        told = [*view.lines, *view.notes]
        lines = [[escape(text) for text in line] for line in body]
        if lines:
            parts += _tabular(names, numeric, lines, title=view.title, told=told)
        else:
            parts.append(_paragraph(". ".join([view.title, *told]) + "."))
    return _whole(parts)


def _whole(parts: Sequence[list[str]], *, comments: Sequence[str] = ()) -> str:
    """Tables below what they need; pages are ended before LaTeX holds more tables than it can."""
    out: list[str] = []
    for i, part in enumerate(parts):
        out += ["", r"\clearpage"] if i and i % _AT_ONCE == 0 else []
        out += part
    text = "\n".join(out)
    needs = [r"% needs \usepackage{booktabs}", r"% needs \usepackage{graphicx}"]
    needs += [] if text.isascii() else [r"% needs \usepackage[T1]{fontenc}"]
    unknown = sorted({c for c in text if c in _UNKNOWN or (ord(c) >= _BEYOND_LATIN and c not in _KNOWN)})
    needs += [_OTHER_SCRIPTS.format(" ".join(unknown[:5]))] if unknown else []
    return "\n".join([*needs, text, *(["", *comments] if comments else [])]) + "\n"


def _tabular(
    names: Sequence[str],
    right: Sequence[bool],
    body: Sequence[Sequence[str]],
    *,
    title: str,
    told: Sequence[str],
) -> list[list[str]]:
    """A table, or several of as many rows as a page holds. One wider than the page is made smaller, and what
    is ``told`` of it stands below where it is too long for a caption."""
    spec = "".join("r" if r else "l" for r in right)
    more = " ".join(f"{text}." for text in told)
    long = len(more) > _CAPTION
    out = []
    for first in range(0, max(1, len(body)), _ROWS):
        caption = f"{title} (continued)." if first else f"{title}." + ("" if long else f" {more}".rstrip())
        table = [
            "", r"\begin{table}", r"\centering\emergencystretch=10em", rf"\caption{{{escape(caption)}}}",
            rf"\sbox{{0}}{{\begin{{tabular}}{{{spec}}}",
            r"\toprule", " & ".join(map(escape, names)) + r" \\", r"\midrule",
            *(" & ".join(line) + r" \\" for line in body[first : first + _ROWS]),
            r"\bottomrule", r"\end{tabular}}%",
            r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox{0}}\else\usebox{0}\fi", r"\end{table}",
        ]  # fmt: skip
        out.append(table)
    return out + ([_paragraph(f"{title}: {more}")] if long else [])


def _paragraph(text: str) -> list[str]:
    return ["", r"\begin{sloppypar}\emergencystretch=10em", escape(text), r"\end{sloppypar}"]
