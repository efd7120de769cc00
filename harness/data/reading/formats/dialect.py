"""Recognising delimiter and quoting of separated values."""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.data.reading.log import ambiguous
from harness.data.reading.table import TextFile

_SAMPLE = 100
"""Lines that decide on the delimiter."""
_MIN_QUOTED_COLUMN = 5
"""A column whose fields are all quoted shows quoting in files of more lines."""
_CANDIDATES = {",": "comma", "\t": "tab", ";": "semicolon", "|": "pipe"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """Form of a file of separated values.

    Attributes:
        delimiter: one character.
        quoting: whether quotes enclose fields and are doubled within them (RFC 4180).
        skip: lines before the first row that are no data (``sep=;`` of Excel).
    """

    delimiter: str
    quoting: bool
    skip: int = 0


def recognise(file: TextFile, default: str) -> Dialect:
    """Recognise the dialect of a file, and log it.

    Args:
        file: its text and options.
        default: delimiter that the format's name stands for.

    Raises:
        HarnessError: two delimiters fit the file.
    """
    first = file.text.split("\n", 1)[0].strip()
    stated = re.fullmatch(r"sep=(.|\\t)?", first)  # the dot is missing for a tab, which strip removes
    skip = 1 if stated else 0
    given = file.how.delimiter
    if given is not None:
        delimiter = given
    elif stated:
        delimiter = (stated[1] or "\t").replace("\\t", "\t")
    else:
        delimiter = _delimiter(file, default)
    name = _CANDIDATES.get(delimiter, repr(delimiter))
    file.log.fact(file.path, "delimiter", name, given=given is not None)
    quoting = _quoting(file, delimiter, quoted_format=default == ",")
    return Dialect(delimiter, quoting, skip)


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the non-blank lines with their numbers."""
    for at, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield at, line


def first_lines(text: str, n: int) -> list[str]:
    """Return the first ``n`` non-blank lines, without a pass over the whole text."""
    found: list[str] = []
    start = 0
    while len(found) < n and start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line = text[start:end]
        if line.strip():
            found.append(line)
        start = end + 1
    return found


def fields(line: str, delimiter: str) -> list[str]:
    """Split one line into its fields, with quotes as marks where they are valid."""
    if '"' in line:
        try:
            return next(csv.reader([line], delimiter=delimiter, strict=True))
        except csv.Error:
            pass
    return line.split(delimiter)


def _delimiter(file: TextFile, default: str) -> str:
    """Return the default if it fits the first lines, else the only candidate that does."""
    head = first_lines(file.text, _SAMPLE)
    width = len(file.how.columns) if file.how.columns else None
    fitting = [c for c in _CANDIDATES if _fits(head, c, width)]
    if default in fitting or not head:
        return default
    splits = _fits(head[:1], default, width)
    if not splits and not fitting:
        fitting = [c for c in _CANDIDATES if _fits(head[:1], c, width)]
    if not fitting:
        return default
    if len(fitting) == 1 and not splits:
        file.log.note(
            f"{file.path.name} is separated by {_CANDIDATES[fitting[0]]}, not {_CANDIDATES[default]}"
        )
        return fitting[0]
    options = [default, *fitting] if splits else fitting
    readings = {_CANDIDATES[c]: f"task.delimiter={_CANDIDATES[c]}" for c in options}
    raise ambiguous(file.path, "which delimiter", readings)


def _fits(head: Sequence[str], delimiter: str, width: int | None) -> bool:
    """Whether all lines have equally many fields, at least two."""
    counts = {len(fields(line, delimiter)) for line in head}
    return len(counts) == 1 and (counts == {width} if width else min(counts) > 1)


def _quoting(file: TextFile, delimiter: str, *, quoted_format: bool) -> bool:
    """Decide whether quotes enclose fields, and log it."""
    given = file.how.quoting
    if given is not None or quoted_format:
        quoting = quoted_format if given is None else given
        file.log.fact(file.path, "quoting", "yes" if quoting else "no", given=given is not None)
        return quoting
    quoting, reason = _shows_quoting(file, delimiter)
    file.log.recognised(file.path, "quoting", f"yes{reason}" if quoting else f"no{reason}")
    return quoting


def _shows_quoting(file: TextFile, delimiter: str) -> tuple[bool, str]:
    """Return whether a file of a format without quotes, such as tsv, was written with them, and the reason.

    Yes, if more of its lines have the header's number of fields when quotes are read as marks; or if every
    field that begins with a quote is well quoted, and one of them contains a doubled quote or a whole column
    is quoted. A few texts between quotes are quotations.
    """
    text = file.text
    if not (text.startswith('"') or '\n"' in text or f'{delimiter}"' in text):
        return False, ""
    rows = [line for _, line in lines(text)]
    width = rows[0].count(delimiter)
    misfits = sum(line.count(delimiter) != width for line in rows)
    if misfits and _csv_misfits(text, delimiter) < misfits:
        return True, " (more rows fit the header)"
    quoted = [
        (i, cell)
        for line in rows
        if '"' in line
        for i, cell in enumerate(line.split(delimiter))
        if cell[:1] == '"'
    ]
    if not quoted:
        return False, ""
    open_ = sum(not _is_well_quoted(cell) for _, cell in quoted)
    if open_:
        return False, f" ({open_} of {len(quoted)} fields that begin with a quote are not closed by one)"
    most = max(Counter(i for i, _ in quoted).values())
    full = len(rows) > _MIN_QUOTED_COLUMN and most >= len(rows) - 1
    if full or any('""' in cell[1:-1] for _, cell in quoted) or _decided_before(file):
        return True, f" ({len(quoted)} fields)"
    file.log.warn(
        f"{file.path.name}: {len(quoted)} fields are enclosed in quotes, which are read as text; if they are "
        "marks, set task.quoting=true"
    )
    return False, ""


def _decided_before(file: TextFile) -> bool:
    """Whether another file of the data set was found to be quoted."""
    others = (facts.get("quoting") for source, facts in file.log.facts.items() if source != str(file.path))
    return any(fact is not None and fact.value.startswith("yes (") for fact in others)


def _is_well_quoted(cell: str) -> bool:
    """Whether a field is closed by a quote and all quotes within are doubled."""
    return len(cell) > 1 and cell[-1] == '"' and '"' not in cell[1:-1].replace('""', "")


def _csv_misfits(text: str, delimiter: str) -> float:
    """Return how many rows have not the header's number of fields when quotes are marks; infinity where the
    quotes are invalid."""
    old_limit = csv.field_size_limit(sys.maxsize)
    try:
        reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=delimiter, strict=True)
        widths = [len(cells) for cells in reader if cells]
        return sum(width != widths[0] for width in widths)
    except csv.Error:
        return math.inf
    finally:
        csv.field_size_limit(old_limit)
