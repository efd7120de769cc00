"""The form of a column file: CoNLL-U, CoNLL-2012 or plain columns; its separator, columns and comments.

=============  ==============================================================================================
``conllu``     CoNLL-U and CoNLL-X: ten columns between tabs, of which the first is an id; ``# ...`` is a
               comment. Words are FORM, labels UPOS unless ``task.label_column`` says otherwise.
``conll2012``  OntoNotes as of the CoNLL-2012 shared task: blocks in ``#begin document``; word 3, entities 10.
``columns``    everything else: the word in the first column, its label in the last.
=============  ==============================================================================================
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.data.reading.log import ReadLog, ambiguous
from harness.errors import HarnessError, did_you_mean
from harness_tasks.tagging.schemes import split_label

DOCSTART = "-DOCSTART-"
SEPARATORS = {"auto": None, "tab": "\t", "blank": " "}
NO_COMMENTS = "none"
"""Value of ``task.comment`` for files in which every line is a row."""
CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
CONLL2012_COLUMNS = (
    "document",
    "part",
    "number",
    "word",
    "pos",
    "parse",
    "lemma",
    "frameset",
    "sense",
    "speaker",
    "ner",
)
WORD_ID = re.compile(r"[0-9]+(?:[-.][0-9]+)?")
_DEFAULTS: dict[str, tuple[int | str, int | str]] = {
    "conllu": ("form", "upos"),
    "conll2012": ("word", "ner"),
    "columns": (0, -1),
}
_KINDS = {"conllu": "CoNLL-U", "conll2012": "CoNLL-2012", "columns": "columns"}
_GLOBAL_COLUMNS = re.compile(r"# ?global\.columns\s*=\s*(.*)", re.IGNORECASE)
_COMMENT_KEY = re.compile(r"# ?(?:id|sent_id|text|tags|newdoc|newpar)(?:\s|=|$)")
_DOCUMENT = re.compile(r"#(?:begin|end) document")
_LEAST_CONLLU = 0.9
"""Share of rows with ten columns and an id from which a file without the suffix is CoNLL-U."""


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """How the columns of a file are read; None = recognised.

    Attributes:
        token_column: counted from 0; negative from the end.
        label_column: likewise, or the name of a column of CoNLL-U (``upos``, ``xpos``, ``feats``,
            ``deprel``).
        separator: ``auto``, ``tab`` or ``blank`` (runs of blanks and tabs).
        comment: prefix of comment lines, or ``none``; None = recognised where they cannot be rows.
        conllu: whether the file is CoNLL-U; None = by the suffix or by ten columns with ids.

    Raises:
        HarnessError: an unknown separator, or one column for both.
    """

    token_column: int | None = None
    label_column: int | str | None = None
    separator: str = "auto"
    comment: str | None = None
    conllu: bool | None = None

    def __post_init__(self) -> None:
        if self.separator not in SEPARATORS:
            raise HarnessError(
                f"task.separator={self.separator}: is one of {', '.join(SEPARATORS)} (tab or runs of blanks)"
            )
        if self.token_column is not None and self.token_column == self.label_column:
            raise HarnessError(f"task.token_column and task.label_column are both {self.token_column}")
        if self.comment == "":
            raise HarnessError("task.comment is empty: give the prefix of comments, or none for no comments")


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """The form of a file, given or recognised.

    Attributes:
        kind: ``conllu``, ``conll2012`` or ``columns``.
        tab: whether columns are separated by tabs, otherwise by runs of blanks and tabs.
        width: number of columns of most rows.
        token, label: positions of the columns; negative from the end.
        comment: prefix of comments, None = recognised.
        names: of the columns, where they are known.
        labels: those of rows that do not begin with ``#``.
    """

    kind: str
    tab: bool
    width: int
    token: int
    label: int
    comment: str | None
    names: tuple[str, ...] = ()
    labels: frozenset[str] = frozenset()

    def title(self, column: int) -> str:
        """Return the name of a column, or its number."""
        return self.names[column] if -len(self.names) <= column < len(self.names) else str(column)

    @property
    def least(self) -> int:
        """Minimum number of columns of a row."""
        return max(2, *(c + 1 if c >= 0 else -c for c in (self.token, self.label)))

    def cells(self, row: str) -> list[str] | None:
        """Return the columns of a row; None when their number is wrong."""
        cells = cut(row, self.tab)
        wrong = self.label < 0 or self.kind == "conllu"
        return None if len(cells) < self.least or (wrong and len(cells) != self.width) else cells

    def complaint(self, row: str) -> str:
        """Say why a row is malformed, and how to fix it."""
        n, between = len(cut(row, self.tab)), "tabs" if self.tab else "blanks"
        if self.kind == "conllu" and n != self.width:
            return (
                f"has {n} column(s) between tabs, CoNLL-U has {self.width}; correct the line, or set "
                "task.conllu=false for a plain column file"
            )
        if self.width < 2:
            csv = "; for comma-separated values set task.format=csv" if "," in row else ""
            return (
                f"has {n} column(s) between {between}, as most lines: the file has no labels. Scores "
                f"need labels: set task.separator, or leave such a split out to have it cut from train{csv}"
            )
        if n < self.least:
            return (
                f"has {n} column(s) between {between}, at least {self.least} are needed; correct the line, "
                "or set task.separator, task.token_column, task.label_column or task.comment"
            )
        if n != self.width and self.label < 0:
            return (
                f"has {n} columns between {between}, most lines have {self.width}; correct the line, or "
                "count task.label_column from 0"
            )
        return "has an empty token or label; correct the line"

    def is_comment(self, row: str, *, first: bool, where: str) -> bool:
        """Whether a line is a comment.

        Args:
            row: the line.
            first: whether no word of its sentence came before.
            where: file and line.

        Raises:
            HarnessError: it may be a comment or a row.
        """
        if self.kind == "conllu" and row.startswith("#"):
            return True
        if self.comment is not None:
            return self.comment != NO_COMMENTS and row.startswith(self.comment)
        if not row.startswith("#"):
            return False
        if _DOCUMENT.match(row):
            return True
        cells = cut(row, self.tab)
        spaced, key = row.startswith(("# ", "## ")), _COMMENT_KEY.match(row) is not None
        if len(cells) != self.width or len(cells) < self.least:
            return key or row.startswith("## ") or (spaced and cells[-1].strip() not in self.labels)
        label = cells[self.label].strip()
        known = label in self.labels
        if self.tab:
            return spaced and not known and any(" " in cell.strip(" ") for cell in cells)
        if key and self.width > 2 and not known:
            return True
        like_label = known or split_label(label)[0] or not any(map(str.isalnum, label))
        unclear = key and self.width > 2 if like_label else spaced and first
        if unclear:
            raise ambiguous(
                where,
                f"is {row!r:.60} a comment or a word",
                {"lines that begin with # are comments": "task.comment='#'", "a word": "task.comment=none"},
            )
        return False


def recognise_form(rows: Sequence[str], layout: ColumnLayout, source: str, log: ReadLog) -> ColumnForm:
    """Recognise the form of a file and log it.

    Args:
        rows: lines without blanks at their end.
        layout: what the configuration gives.
        source: the file's path.
        log: receives the decisions.

    Raises:
        HarnessError: a label column given by a name that the file does not have.
    """
    data = [r for r in rows if r and not is_docstart(r)]
    tab = layout.separator == "tab"
    if layout.separator == "auto":
        tab = 2 * sum("\t" in r for r in data) > len(data)
    names = _global_columns(data)
    kind = _kind(data, layout, source, names)
    if kind == "conllu":
        tab, names = True, names or CONLLU_COLUMNS
        width = len(names)
    else:
        names = CONLL2012_COLUMNS if kind == "conll2012" else ()
        widths = Counter(len(cut(r, tab)) for r in data if not r.startswith("# ")) or Counter(
            len(cut(r, tab)) for r in data
        )
        width = widths.most_common(1)[0][0] if widths else 0
    token = _position(layout.token_column, _DEFAULTS[kind][0], names, source)
    label = _position(layout.label_column, _DEFAULTS[kind][1], names, source)
    labels = {
        cells[label].strip()
        for r in data
        if not r.startswith("#") and len(cells := cut(r, tab)) == width and -width <= label < width
    }
    form = ColumnForm(kind, tab, width, token, label, layout.comment, names, frozenset(labels))
    _log_form(form, layout, source, log)
    return form


def cut(row: str, tab: bool) -> list[str]:
    """Return the cells of a line."""
    return row.split("\t") if tab else re.split(r"[ \t]+", row.lstrip(" \t"))


def is_docstart(row: str) -> bool:
    """Whether a line is ``-DOCSTART-``, alone or with further columns."""
    return row.startswith(DOCSTART) and row[len(DOCSTART) : len(DOCSTART) + 1] in ("", " ", "\t")


def _kind(data: Sequence[str], layout: ColumnLayout, source: str, names: tuple[str, ...]) -> str:
    if layout.conllu is not None:
        return "conllu" if layout.conllu else "columns"
    if any(_DOCUMENT.match(r) for r in data[:1]):
        width = min((len(cut(r, False)) for r in data if not r.startswith("#")), default=0)
        return "conll2012" if width >= len(CONLL2012_COLUMNS) else "columns"
    suffixes = source.lower().replace("\\", "/").rpartition("/")[2].split(".")[1:]
    if {"conllu", "conllup"} & set(suffixes):
        return "conllu"
    rows = [cut(r, True) for r in data if not r.startswith("#")]
    width = len(names) or len(CONLLU_COLUMNS)
    fit = sum(len(cells) == width and WORD_ID.fullmatch(cells[0]) is not None for cells in rows)
    return "conllu" if rows and fit >= _LEAST_CONLLU * len(rows) and width > 1 else "columns"


def _global_columns(data: Sequence[str]) -> tuple[str, ...]:
    """Names of the columns from the first lines of a CoNLL-U Plus file, in lower case."""
    for row in data[:10]:
        found = _GLOBAL_COLUMNS.match(row)
        names = tuple(found[1].lower().split()) if found else ()
        # documentation sometimes names a few of the ten columns only
        if {"id", "form"} <= set(names) and len(names) == len(cut(_first_row(data), True)):
            return names
    return ()


def _first_row(data: Sequence[str]) -> str:
    return next((r for r in data if not r.startswith("#")), "")


def _position(given: int | str | None, default: int | str, names: Sequence[str], source: str) -> int:
    column = default if given is None else given
    if isinstance(column, int):
        return column
    if column.lower() in names:
        return names.index(column.lower())
    if given is None:
        raise HarnessError(
            f"{source}: no column {column!r} among {', '.join(names)}; set task.token_column and "
            "task.label_column, counted from 0"
        )
    if not names:
        raise HarnessError(
            f"{source}: task.label_column={column}: the columns of this file have no names; count it from 0"
        )
    raise HarnessError(f"{source}: task.label_column={column}: {did_you_mean(column, names)}")


def _log_form(form: ColumnForm, layout: ColumnLayout, source: str, log: ReadLog) -> None:
    log.fact(source, "format", _KINDS[form.kind], given=layout.conllu is not None)
    log.fact(source, "separator", "tab" if form.tab else "blanks", given=layout.separator != "auto")
    for name, column, given in (
        ("words", form.token, layout.token_column is not None),
        ("labels", form.label, layout.label_column is not None),
    ):
        at = column if column >= 0 else column + form.width
        title = f" ({form.names[at]})" if 0 <= at < len(form.names) else ""
        log.fact(source, name, f"column {at} of {form.width}{title}", given=given)
    if layout.comment is not None:
        log.given(source, "comments", layout.comment)
