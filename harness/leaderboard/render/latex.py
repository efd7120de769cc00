"""The leaderboard as LaTeX: one booktabs table per task, the best row in bold, tied rows marked."""

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
"""At the start of a line, ``[`` and ``*`` would be read as arguments of the preceding ``\\\\``."""
_LIGATURES = ("--", "''", "``", ",,", "?`", "!`")
_BEYOND_LATIN = 0x180
_SUPPORTED, _UNSUPPORTED = "‘’“”‚„–—…•†‡€™", "ĦħĸĿŀŉŦŧſ"
"""Characters above _BEYOND_LATIN that pdfLaTeX supports with encoding T1; some below that it does not."""
_MAX_FLOATS = 16
"""Tables that LaTeX can hold until there is a page for them; with too many it stops with an error."""
_MAX_ROWS = 40
"""Maximum number of rows of a table, so that it fits on a page; the rest is in continued tables."""
_MAX_CAPTION = 800
"""Maximum number of characters of the notes in a caption."""
_OTHER_SCRIPTS = (
    "% pdfLaTeX does not support {}: use LuaLaTeX or XeLaTeX with a font that has these characters"
)


def escape(text: str) -> str:
    """Escape text so that LaTeX typesets it literally."""
    # NFC: pdfLaTeX has no combining characters, but many composed letters
    composed = unicodedata.normalize("NFC", clean(text))
    shown = [c for c in composed if unicodedata.category(c) not in ("Cf", "Zl", "Zp")]
    apart = ["{}" if before + c in _LIGATURES else "" for before, c in zip(["", *shown], shown, strict=False)]
    return "".join(gap + _SPECIAL.get(c, c) for gap, c in zip(apart, shown, strict=True))


def latex(board: Board) -> str:
    """One LaTeX table per table; skipped cells are listed in comments."""
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
        parts += _tabular(names, right, body, title=table.title, notes=table.notes)
    skipped = [f"% skipped: {clean(cell)}: {clean(reason)}" for cell, reason in board.skipped]
    return _document(parts, comments=skipped)


def latex_views(views: Sequence[View]) -> str:
    """One table per view; a view without rows is a paragraph with its notes."""
    parts = []
    for view in views:
        names, numeric, body = cells(view)
        notes = [*view.lines, *view.notes]
        lines = [[escape(text) for text in line] for line in body]
        if lines:
            parts += _tabular(names, numeric, lines, title=view.title, notes=notes)
        else:
            parts.append(_paragraph(". ".join([view.title, *notes]) + "."))
    return _document(parts)


def _document(parts: Sequence[list[str]], *, comments: Sequence[str] = ()) -> str:
    """The tables after comments with the packages they need.

    ``\\clearpage`` after every _MAX_FLOATS tables avoids the error "too many unprocessed floats"."""
    out: list[str] = []
    for i, part in enumerate(parts):
        out += ["", r"\clearpage"] if i and i % _MAX_FLOATS == 0 else []
        out += part
    text = "\n".join(out)
    needs = [r"% needs \usepackage{booktabs}", r"% needs \usepackage{graphicx}"]
    needs += [] if text.isascii() else [r"% needs \usepackage[T1]{fontenc}"]
    unsupported = sorted(
        {c for c in text if c in _UNSUPPORTED or (ord(c) >= _BEYOND_LATIN and c not in _SUPPORTED)}
    )
    needs += [_OTHER_SCRIPTS.format(" ".join(unsupported[:5]))] if unsupported else []
    return "\n".join([*needs, text, *(["", *comments] if comments else [])]) + "\n"


def _tabular(
    names: Sequence[str],
    right: Sequence[bool],
    body: Sequence[Sequence[str]],
    *,
    title: str,
    notes: Sequence[str],
) -> list[list[str]]:
    """A table, split into several that fit on a page and scaled down to the line width if it is wider.

    ``notes`` follow in the caption, or in a paragraph if they are too long for it."""
    spec = "".join("r" if r else "l" for r in right)
    more = " ".join(f"{text}." for text in notes)
    long = len(more) > _MAX_CAPTION
    out = []
    for first in range(0, max(1, len(body)), _MAX_ROWS):
        caption = f"{title} (continued)." if first else f"{title}." + ("" if long else f" {more}".rstrip())
        table = [
            "", r"\begin{table}", r"\centering\emergencystretch=10em", rf"\caption{{{escape(caption)}}}",
            rf"\sbox{{0}}{{\begin{{tabular}}{{{spec}}}",
            r"\toprule", " & ".join(map(escape, names)) + r" \\", r"\midrule",
            *(" & ".join(line) + r" \\" for line in body[first : first + _MAX_ROWS]),
            r"\bottomrule", r"\end{tabular}}%",
            r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox{0}}\else\usebox{0}\fi", r"\end{table}",
        ]  # fmt: skip
        out.append(table)
    return out + ([_paragraph(f"{title}: {more}")] if long else [])


def _paragraph(text: str) -> list[str]:
    return ["", r"\begin{sloppypar}\emergencystretch=10em", escape(text), r"\end{sloppypar}"]
