"""Tables of separated values: csv, tsv and their dialects."""

from __future__ import annotations

import csv
import io
import itertools
import sys
from collections.abc import Iterator, Sequence

from harness.data.reading.formats.dialect import Dialect, lines, recognise
from harness.data.reading.table import DataTable, TextFile
from harness.errors import HarnessError

Cells = tuple[int, list[str]]
"""Line in which a row begins, and its fields."""
_SHOWN_COLUMNS = 10
_BLOCK = 4096


def read_separated(file: TextFile, *, default: str) -> DataTable:
    """Read separated values.

    Args:
        file: its text.
        default: delimiter that the format's name stands for.

    Raises:
        HarnessError: two columns have one name; a row has another number of fields than the header, or
            invalid quotes (skipped with ``task.on_error=skip``).
    """
    dialect = recognise(file, default)
    rows = _quoted(file, dialect) if dialect.quoting else _unquoted(file, dialect)
    first = next(rows, None)
    if first is None:
        raise HarnessError(f"{file.path}: no row can be read")
    header, ahead = _header(first, file)
    columns = _names(header, file)
    table = _Columns(columns)
    repeated = None if ahead else first[1]
    for at, cells in itertools.chain(ahead, rows):
        fitted = cells if len(cells) == len(columns) else _fit(cells, columns, file, at)
        if cells == repeated:
            file.log.exclude(file.path, "repeats the header line")
        elif fitted is not None:
            table.add(at, fitted)
    return DataTable(str(file.path), table.finish(), table.positions)


class _Columns:
    """Columns that are filled row by row, and transposed in blocks, which is faster."""

    def __init__(self, names: Sequence[str]) -> None:
        self.data: dict[str, list[str]] = {name: [] for name in names}
        self.positions: list[int] = []
        self._block: list[list[str]] = []

    def add(self, at: int, cells: list[str]) -> None:
        """Append a row that begins in line ``at``."""
        self.positions.append(at)
        self._block.append(cells)
        if len(self._block) == _BLOCK:
            self.finish()

    def finish(self) -> dict[str, list[str]]:
        """Return the columns with all rows."""
        for values, cells in zip(self.data.values(), zip(*self._block, strict=True), strict=False):
            values.extend(cells)
        self._block.clear()
        return self.data


def _header(first: Cells, file: TextFile) -> tuple[list[str], list[Cells]]:
    """Return the column names, and the first row if it is no header."""
    how = file.how
    if how.columns and not how.has_header(first[1]):
        _refuse_header(first, how.columns, file)
        file.log.given(file.path, "header", "none")
        return list(how.columns), [first]
    file.log.recognised(file.path, "header", f"line {first[0]}")
    return first[1], []


def _refuse_header(first: Cells, columns: Sequence[str], file: TextFile) -> None:
    """Refuse a first row with a column's name, which looks like a header although names are given.

    Raises:
        HarnessError: names the value and both settings.
    """
    names = {name.strip().lower() for name in columns}
    same = [cell for cell in first[1] if cell.strip().lower() in names]
    if same:
        raise HarnessError(
            f"{file.path}, line {first[0]}: {same[0]!r:.40} is a value of the first row and a name in "
            "task.columns; if this row is a header, leave task.columns out and set task.text and task.label, "
            "otherwise give the columns other names"
        )


def _quoted(file: TextFile, dialect: Dialect) -> Iterator[Cells]:
    """Yield the rows, with quotes as marks; after a row with invalid quotes, go on in the next line."""
    old_limit = csv.field_size_limit(sys.maxsize)
    source = io.StringIO(file.text, newline="\n")
    for _ in range(dialect.skip):
        source.readline()
    base = dialect.skip
    try:
        while True:
            reader = csv.reader(source, delimiter=dialect.delimiter, strict=True)
            start, mark = base + 1, source.tell()
            try:
                for cells in reader:
                    if cells:
                        yield start, cells
                    start = base + reader.line_num + 1
                return
            except csv.Error as e:
                file.skip(
                    start,
                    f"the row that begins here has invalid quotes ({e}); double the quotes inside quoted "
                    "fields, or read quotes as text with task.quoting=false",
                )
            base = _after(source, mark, base, start, reader.line_num)
    finally:
        csv.field_size_limit(old_limit)


def _after(source: io.StringIO, mark: int, base: int, start: int, consumed: int) -> int:
    """Move ``source`` behind a bad row, and return the number of lines before it.

    A row whose quote never closes has consumed the rest of the file: only its first line is skipped.
    """
    if source.read(1):  # the error is within the file
        source.seek(source.tell() - 1)
        return base + consumed
    source.seek(mark)
    for _ in range(start - base):
        source.readline()
    return start


def _unquoted(file: TextFile, dialect: Dialect) -> Iterator[Cells]:
    delimiter = dialect.delimiter
    for at, line in lines(file.text):
        if at > dialect.skip:
            yield at, line.split(delimiter)


def _names(header: Sequence[str], file: TextFile) -> list[str]:
    names = [cell.strip() or f"column_{i}" for i, cell in enumerate(header, start=1)]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise HarnessError(
                f"{file.path}: two columns are named {name!r:.60}; without a header line, set their "
                "names: task.columns=[label,text]"
            )
        seen.add(name)
    return names


def _fit(cells: list[str], columns: list[str], file: TextFile, at: int) -> list[str] | None:
    """Return the row with surplus empty fields removed; None if it is skipped."""
    if len(cells) > len(columns) and not any(cells[len(columns) :]):
        return cells[: len(columns)]
    shown = ", ".join(f"{c:.40}" for c in columns[:_SHOWN_COLUMNS])
    more = ", ..." if len(columns) > _SHOWN_COLUMNS else ""
    file.skip(
        at,
        f"{len(cells)} field(s), expected {len(columns)} ({shown}{more}); check the delimiter and the quotes "
        "of this line, or leave such rows out with task.on_error=skip",
    )
    return None
