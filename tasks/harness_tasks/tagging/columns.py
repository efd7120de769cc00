"""Reading column files as in the CoNLL shared tasks: one token per line, a blank line after each sentence.

A line of blanks ends a sentence, lines end in LF or CRLF, and ``-DOCSTART-`` lines start a document and are
not tokens. Columns are separated by tabs if most lines contain a tab, otherwise by runs of blanks and tabs;
in a tab-separated file a token may be a blank. This module imports neither torch nor datasets.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from harness.data.reading.files import open_text
from harness.data.reading.log import ReadLog
from harness.errors import HarnessError

DOCSTART = "-DOCSTART-"
SEPARATORS = {"auto": None, "tab": "\t", "blank": " "}
_TAGS = re.compile(r"# ?tags\s*=(.*)")
_COMMENT_KEY = re.compile(r"# ?(?:id|sent_id|text|tags|newdoc|newpar)(?:\s|=|$)")


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """How the columns of a file are read.

    Attributes:
        token_column, label_column: counted from 0; negative from the end.
        separator: ``auto``, ``tab`` or ``blank`` (runs of blanks and tabs).
        comment: prefix of comment lines; None = recognised: ``# id``, ``# sent_id``, ``# text``, ``# tags``,
            ``# newdoc``, ``# newpar``, and ``## `` if the line does not have the columns of a row. A ``#`` in
            the token column is a token.

    Raises:
        HarnessError: an unknown separator.
    """

    token_column: int = 0
    label_column: int = -1
    separator: str = "auto"
    comment: str | None = None

    def __post_init__(self) -> None:
        if self.separator not in SEPARATORS:
            raise HarnessError(
                f"task.separator={self.separator}: is one of {', '.join(SEPARATORS)} (tab or runs of blanks)"
            )
        if self.token_column == self.label_column:
            raise HarnessError(f"task.token_column and task.label_column are both {self.token_column}")

    @property
    def least(self) -> int:
        """Minimum number of columns of a row."""
        return max(2, *(c + 1 if c >= 0 else -c for c in (self.token_column, self.label_column)))


@dataclass(slots=True)
class Sentence:
    """One sentence: words, their labels, the number of the first line, and slices (from a comment line
    ``# tags = one two`` before the first word)."""

    words: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    line: int = 0
    tags: tuple[str, ...] = ()


@dataclass(slots=True)
class Parsed:
    """Content of a file; ``documents`` counts ``-DOCSTART-`` lines, ``comments`` comment lines."""

    sentences: list[Sentence] = field(default_factory=list)
    documents: int = 0
    comments: int = 0


def read_columns(
    path: Path, *, layout: ColumnLayout | None = None, encoding: str = "auto", log: ReadLog | None = None
) -> Parsed:
    """Read one column file; ``encoding`` and ``log`` as in :func:`harness.data.reading.files.decode`.

    Raises:
        HarnessError: a row with too few or too many columns or without a token, naming file, line and
            content; a file without any sentence.
    """
    with open_text(path, encoding=encoding, log=log) as f:
        parsed = parse_lines(f, source=str(path), layout=layout or ColumnLayout())
    if not parsed.sentences:
        raise HarnessError(f"{path}: no sentences; expected one token and its label per line")
    return parsed


def parse_lines(lines: Iterable[str], *, source: str, layout: ColumnLayout) -> Parsed:
    """Parse lines; ``source`` names the file in error messages."""
    rows = [line.rstrip() for line in lines]
    form = _Form.of(rows, layout)
    parsed, sentence = Parsed(), Sentence()
    for number, row in enumerate(rows, start=1):
        if not row or _docstart(row):
            parsed.documents += bool(row)
            sentence = _close(parsed, sentence)
        elif form.comment(row):
            parsed.comments += 1
            tags = _TAGS.match(row)
            sentence.tags += tuple(tags[1].split()) if tags else ()
        else:
            cells = form.cells(row)
            if cells is None:
                raise HarnessError(f"{source}:{number}: {row!r} {form.complaint(row)}")
            token, label = cells
            sentence.line = sentence.line or number
            sentence.words.append(token)
            sentence.labels.append(label)
    _close(parsed, sentence)
    return parsed


@dataclass(frozen=True, slots=True)
class _Form:
    """A layout with the separator and number of columns that were recognised in the file."""

    layout: ColumnLayout
    tab: bool
    width: int
    least: int

    @classmethod
    def of(cls, rows: list[str], layout: ColumnLayout) -> _Form:
        data = [r for r in rows if r and not _docstart(r)]
        tab = layout.separator == "tab"
        if layout.separator == "auto":
            tab = 2 * sum("\t" in r for r in data) > len(data)
        widths = Counter(len(_cut(r, tab)) for r in data)
        return cls(layout, tab, widths.most_common(1)[0][0] if widths else 0, layout.least)

    def comment(self, row: str) -> bool:
        if self.layout.comment is not None:
            return row.startswith(self.layout.comment)
        if not row.startswith("#"):
            return False
        looks_like_row = not self.tab and len(_cut(row, self.tab)) == self.width
        if row.startswith("## "):
            return not looks_like_row
        # with two columns, "# id" is the token # with the label id; wider rows never look like that
        return _COMMENT_KEY.match(row) is not None and not (looks_like_row and self.width == 2)

    def cells(self, row: str) -> tuple[str, str] | None:
        """Token and label; None for a malformed row."""
        cells = _cut(row, self.tab)
        if len(cells) < self.least or (len(cells) != self.width and self.layout.label_column < 0):
            return None
        token, label = cells[self.layout.token_column], cells[self.layout.label_column].strip()
        return (token.strip() or token, label) if token and label else None

    def complaint(self, row: str) -> str:
        """Why a row is malformed, and how to fix it."""
        n, between = len(_cut(row, self.tab)), "tabs" if self.tab else "blanks"
        if n < self.least:
            return (
                f"has {n} column(s) between {between}, at least {self.least} are needed; correct the line, "
                "or set task.separator, task.token_column, task.label_column or task.comment"
            )
        if n != self.width and self.layout.label_column < 0:
            return (
                f"has {n} columns between {between}, most lines have {self.width}; correct the line, or "
                "count task.label_column from 0"
            )
        return "has an empty token or label; correct the line"


def _cut(row: str, tab: bool) -> list[str]:
    return row.split("\t") if tab else re.split(r"[ \t]+", row.lstrip(" \t"))


def _docstart(row: str) -> bool:
    return row.startswith(DOCSTART) and row[len(DOCSTART) : len(DOCSTART) + 1] in ("", " ", "\t")


def _close(parsed: Parsed, sentence: Sentence) -> Sentence:
    if not sentence.words:
        return sentence
    parsed.sentences.append(sentence)
    return Sentence()
