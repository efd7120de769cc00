"""The table that all readers of data files return, and their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from harness.data.reading.log import ReadLog
from harness.errors import HarnessError, did_you_mean

if TYPE_CHECKING:
    from pyarrow import ChunkedArray

TEXT_FORMATS = ("csv", "tsv", "jsonl", "json", "label_text", "text_label", "fasttext")
BINARY_FORMATS = ("parquet", "arrow")
FORMATS = (*TEXT_FORMATS, *BINARY_FORMATS)
_DELIMITERS = {"\\t": "\t", "tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}


@dataclass(slots=True)
class DataTable:
    """Columns of one file or one split of a hub data set.

    Attributes:
        source: for messages: the file's path or the data set's id and split.
        data: values by column name, in the order of the file, equally many in each: strings from text
            files, JSON values from other formats, None where an object has no such key.
        at: position of each row in its source, counted from 1, in ``unit`` (line or row).
        names: class names of the columns with class numbers.
    """

    source: str
    data: Mapping[str, Sequence[Any]]
    at: Sequence[int]
    unit: str = "line"
    names: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of_rows(
        cls,
        source: str,
        columns: Sequence[str],
        rows: Sequence[Mapping[str, Any]],
        at: Sequence[int],
        *,
        unit: str = "line",
        names: dict[str, list[str]] | None = None,
    ) -> DataTable:
        """Make a table of rows; a key that a row lacks is None."""
        return cls(source, {c: [row.get(c) for row in rows] for c in columns}, at, unit, names or {})

    @property
    def columns(self) -> list[str]:
        """Names in the order of the file."""
        return list(self.data)

    def row(self, index: int) -> dict[str, Any]:
        """Return the values of a row (counted from 0) by column."""
        return {name: values[index] for name, values in self.data.items()}

    def where(self, row: int) -> str:
        """Return source and position of a row (counted from 0), for messages."""
        return f"{self.source}, {self.unit} {self.at[row]}"

    def __len__(self) -> int:
        return len(self.at)


class ArrowColumn(Sequence[Any]):
    """A column of an Arrow table, converted to Python values when it is first read."""

    def __init__(self, values: ChunkedArray, where: str = "column") -> None:
        self.arrow = values
        self.where = where

    @cached_property
    def values(self) -> list[Any]:
        """The column as Python values.

        Raises:
            HarnessError: values without a Python form: strings that are not UTF-8, times out of range.
        """
        try:
            self.arrow.validate(full=True)  # damaged offsets would end the process in to_pylist
        except Exception as e:  # pyarrow raises many types on invalid values
            raise self._invalid(e) from None
        try:
            converted: list[Any] = self.arrow.to_pylist()
        except Exception as e:
            raise self._invalid(e, _first_unconverted(self.arrow)) from None
        return converted

    def _invalid(self, error: Exception, row: int | None = None) -> HarnessError:
        at = f", row {row}" if row else ""
        return HarnessError(f"{self.where}{at}: invalid values, {str(error) or type(error).__name__:.300}")

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.arrow)


def _first_unconverted(values: ChunkedArray) -> int | None:
    """Return the first row, counted from 1, of a valid array that has no Python value."""
    for row, value in enumerate(values, start=1):
        try:
            value.as_py()
        except Exception:
            return row
    return None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are read.

    Attributes:
        format: one of :data:`FORMATS`; None = from the file name's suffix, else from the content.
        encoding: see :func:`harness.data.reading.encodings.decode_text`.
        quoting: whether quotes enclose fields; None = in csv, and in tsv when the file shows it.
        delimiter: of csv and tsv, one character or a name such as ``tab``; None = comma or tab, or what the
            file shows.
        columns: column names of a csv or tsv without a header line.
        has_header: whether a first row is a header although ``columns`` are set.
    """

    format: str | None = None
    encoding: str = "auto"
    quoting: bool | None = None
    delimiter: str | None = None
    columns: Sequence[str] | None = None
    has_header: Callable[[list[str]], bool] = lambda cells: False

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise HarnessError(
                f"task.format={self.format}: format {self.format!r} is unknown; "
                f"{did_you_mean(str(self.format), FORMATS)}"
            )
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", _delimiter(self.delimiter))


def _delimiter(given: str) -> str:
    value = _DELIMITERS.get(str(given).strip("'\"").lower(), str(given))
    if len(value) != 1 or value in '\r\n"':
        raise HarnessError(
            f"task.delimiter={given!r}: expected one character, or one of {', '.join(_DELIMITERS)}"
        )
    return value


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text file while it is read.

    Attributes:
        path: for messages and the log.
        text: its text, with line feeds as line ends.
        how: options.
        log: receives every decision.
        part: part of a JSON file that is read, after ``::`` in its name.
    """

    path: Path
    text: str
    how: ReadOptions
    log: ReadLog
    part: str | None = None

    def where(self, line: int) -> str:
        """Return file and line for messages."""
        return f"{self.path}, line {line}"

    def skip(self, line: int, problem: str) -> None:
        """Raise the error of a line that cannot be read, or skip the line; see :meth:`ReadLog.skip`."""
        where = self.where(line)
        self.log.skip(where, HarnessError(f"{where}: {problem}"))
