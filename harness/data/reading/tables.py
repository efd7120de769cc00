"""Rows of labelled data from csv, tsv, jsonl, json, Parquet, Arrow and plain ``label text`` files.

Values are not converted: a text is never read as a missing value, nor a label as a number. tsv files are read
without quoting, as in GLUE; csv files with doubled quotes and quoted line breaks (RFC 4180).

Parquet and Arrow files are memory-mapped by pyarrow and ``datasets``. Text formats are parsed here, because
the readers of ``datasets`` (pandas and pyarrow) change data without notice: they turn the texts ``NA`` and
``null`` into missing values and numeric labels into numbers, always treat quotes in tsv files as marks,
assume UTF-8, unify the types of JSON lines, and do not report the line of a bad row. CoNLL and SQuAD files,
which ``datasets`` reads by loading scripts only, are parsed by the tasks for the same reasons.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from harness.data.reading.files import decode, read_bytes
from harness.data.reading.log import ReadLog
from harness.errors import HarnessError, did_you_mean

if TYPE_CHECKING:
    from datasets import Dataset
    from pyarrow import ChunkedArray

_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".ft": "fasttext",
}
FASTTEXT = "__label__"
Line = tuple[int, Any]


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


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are read.

    Attributes:
        format: one of :data:`FORMATS`; None = from the file name's suffix, else from the content.
        encoding: see :func:`harness.data.reading.files.decode`.
        quoting: whether quotes enclose fields; None = in csv but not in tsv.
        delimiter: of csv and tsv; None = comma or tab.
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
            raise HarnessError(f"format {self.format!r} is unknown; {did_you_mean(self.format, FORMATS)}")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise HarnessError(f"delimiter {self.delimiter!r}: expected one character")


def read_table(path: Path, how: ReadOptions | None = None, *, log: ReadLog | None = None) -> DataTable:
    """Read all rows of a file, which may be compressed (``.gz``).

    Args:
        path: the file.
        how: options.
        log: receives how the file was read: format, delimiter, quoting, encoding.

    Raises:
        HarnessError: names the file, the line and the problem.
    """
    how, log = how or ReadOptions(), log or ReadLog()
    binary = how.format or _by_name(path)
    if binary in _BINARY_READERS and path.is_file() and path.suffix.lower() != ".gz":
        log.fact(path, "format", binary, given=how.format is not None)
        return _BINARY_READERS[binary](path)
    data = read_bytes(path)
    if binary == "parquet" or (how.format is None and data.startswith(b"PAR1")):
        log.fact(path, "format", "parquet", given=how.format is not None)
        return _parquet(path, data)
    text = decode(data, path=path, encoding=how.encoding, log=log)
    kind = how.format or _by_name(path) or _sniff(text, how)
    log.fact(path, "format", kind, given=how.format is not None)
    if not text.strip():
        raise HarnessError(f"{path}: the file is empty")
    return _READERS[kind](text, path, how)


def _by_name(path: Path) -> str | None:
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return _SUFFIXES.get(name.suffix.lower())


def _sniff(text: str, how: ReadOptions) -> str:
    """Guess the format of a text without a known suffix."""
    first = next((line for line in text.split("\n") if line.strip()), "")
    if first.startswith(FASTTEXT):
        return "fasttext"
    if first.lstrip()[:1] in ("{", "["):
        try:
            return "jsonl" if isinstance(json.loads(first), dict) else "json"
        except ValueError:
            return "json" if _is_json(text) else "label_text"
    cells = first.split("\t")
    return "tsv" if len(cells) > 1 and (how.columns or how.has_header(cells)) else "label_text"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _separated(text: str, path: Path, how: ReadOptions, *, tabs: bool) -> DataTable:
    delimiter = how.delimiter or ("\t" if tabs else ",")
    quoting = not tabs if how.quoting is None else how.quoting
    rows = _quoted(text, path, delimiter) if quoting else _unquoted(text, delimiter)
    at, header = next(rows)
    first: list[tuple[int, list[str]]] = []
    if how.columns and not how.has_header(header):
        first = [(at, header)]
        header = list(how.columns)
    columns = _names(header, path)
    positions: list[int] = []
    data: list[list[str]] = [[] for _ in columns]
    for at, cells in [*first, *rows]:
        for values, cell in zip(data, _fit(cells, columns, path, at), strict=True):
            values.append(cell)
        positions.append(at)
    return DataTable(str(path), dict(zip(columns, data, strict=True)), positions)


def _quoted(text: str, path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=delimiter, strict=True)
    old_limit = csv.field_size_limit(sys.maxsize)
    start = 1
    try:
        for cells in reader:
            if cells:
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as e:
        raise HarnessError(
            f"{path}: the row that begins in line {start} has invalid quotes ({e}); double the quotes inside "
            "quoted fields, or read quotes as text with task.quoting=false"
        ) from None
    finally:
        csv.field_size_limit(old_limit)


def _unquoted(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    for at, line in _lines(text):
        yield at, line.split(delimiter)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the non-blank lines with their numbers."""
    for at, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield at, line


def _names(header: list[str], path: Path) -> list[str]:
    names = [cell.strip() or f"column_{i}" for i, cell in enumerate(header, start=1)]
    duplicates = [n for i, n in enumerate(names) if n in names[:i]]
    if duplicates:
        raise HarnessError(
            f"{path}: two columns are named {duplicates[0]!r}; without a header line, set their "
            "names: columns=[label,text]"
        )
    return names


def _fit(cells: list[str], columns: list[str], path: Path, at: int) -> list[str]:
    if len(cells) > len(columns) and not any(cells[len(columns) :]):
        return cells[: len(columns)]
    if len(cells) != len(columns):
        raise HarnessError(
            f"{path}, line {at}: {len(cells)} field(s), expected {len(columns)} "
            f"({', '.join(columns)}); check the delimiter and the quotes of this line"
        )
    return cells


def _jsonl(text: str, path: Path, how: ReadOptions) -> DataTable:
    rows: list[Line] = []
    for at, line in _lines(text):
        try:
            rows.append((at, json.loads(line)))
        except ValueError as e:
            raise HarnessError(f"{path}, line {at}: not JSON ({e})") from None
    return _records(rows, path, unit="line")


def _json(text: str, path: Path, how: ReadOptions) -> DataTable:
    try:
        data = json.loads(text)
    except ValueError as e:
        if _starts_with_object(text):
            return _jsonl(text, path, how)
        raise HarnessError(f"{path}: not JSON ({e})") from None
    if isinstance(data, dict) and all(isinstance(v, list) for v in data.values()) and data:
        lists = list(data.values())
        if len(lists) == 1 and all(isinstance(r, dict) for r in lists[0]):
            data = lists[0]
        elif len({len(v) for v in lists}) == 1:
            data = [dict(zip(data, values, strict=True)) for values in zip(*lists, strict=True)]
    if isinstance(data, dict):
        data = [data] if not any(isinstance(v, list | dict) for v in data.values()) else None
    if not isinstance(data, list):
        raise HarnessError(f"{path}: neither a list of objects nor an object of equally long lists")
    return _records(list(enumerate(data, start=1)), path, unit="row")


def _starts_with_object(text: str) -> bool:
    return text.lstrip().startswith("{") and _is_json(text.lstrip().split("\n", 1)[0])


def _records(rows: list[Line], path: Path, *, unit: str) -> DataTable:
    columns: dict[str, None] = {}
    for at, row in rows:
        if not isinstance(row, dict):
            raise HarnessError(f"{path}, {unit} {at}: {row!r:.40} is not an object with named values")
        columns.update(dict.fromkeys(row))
    return DataTable.of_rows(
        str(path), list(columns), [row for _, row in rows], [at for at, _ in rows], unit=unit
    )


def _label_text(text: str, path: Path, how: ReadOptions) -> DataTable:
    lines = list(_lines(text))
    blank = "\t" if all("\t" in line for _, line in lines) else " "
    cells = [line.partition(blank) for _, line in lines]
    data = {"label": [label for label, _, _ in cells], "text": [text for _, _, text in cells]}
    return DataTable(str(path), data, [at for at, _ in lines])


def _fasttext(text: str, path: Path, how: ReadOptions) -> DataTable:
    positions: list[int] = []
    data: dict[str, list[str]] = {"label": [], "text": []}
    for at, line in _lines(text):
        words = line.split(" ")
        labels = [w for w in words if w.startswith(FASTTEXT)]
        if len(labels) != 1 or not words[0].startswith(FASTTEXT):
            what = f"{len(labels)} labels ({' '.join(labels)})" if labels else "no label"
            raise HarnessError(
                f"{path}, line {at}: {what}; each line is one {FASTTEXT}NAME, a space and the text"
            )
        data["label"].append(labels[0].removeprefix(FASTTEXT))
        data["text"].append(" ".join(words[1:]))
        positions.append(at)
    return DataTable(str(path), data, positions)


def _parquet(path: Path, data: bytes | None = None) -> DataTable:
    """Read a Parquet file, or its decompressed ``data``."""
    import pyarrow
    import pyarrow.parquet

    try:
        source = path if data is None else pyarrow.BufferReader(data)
        table = pyarrow.parquet.read_table(source, memory_map=data is None)
    except (pyarrow.ArrowInvalid, OSError) as e:
        raise HarnessError(f"{path}: not a Parquet file ({e})") from None
    names: dict[str, list[str]] = {}
    if b"huggingface" in (table.schema.metadata or {}):  # exported by the hub, with class names
        from datasets import Features

        try:
            names = class_names(Features.from_arrow_schema(table.schema))
        except (ValueError, TypeError, KeyError, AttributeError, NotImplementedError):
            names = {}  # written by an incompatible version of datasets
    columns = {name: ArrowColumn(table.column(name)) for name in table.column_names}
    return DataTable(str(path), columns, range(1, table.num_rows + 1), "row", names)


def _arrow(path: Path) -> DataTable:
    import pyarrow
    from datasets import Dataset

    try:
        data = Dataset.from_file(str(path))  # memory-mapped
    except (pyarrow.ArrowInvalid, OSError, ValueError) as e:
        raise HarnessError(f"{path}: not an Arrow file of the datasets library ({e})") from None
    return of_dataset(data, str(path))


def of_dataset(data: Dataset, source: str) -> DataTable:
    """Make a table of a data set of the ``datasets`` library; columns are converted when they are read."""
    table = data.with_format("arrow")[:]
    columns = {name: ArrowColumn(table.column(name)) for name in table.column_names}
    return DataTable(source, columns, range(1, table.num_rows + 1), "row", class_names(data.features))


class ArrowColumn(Sequence[Any]):
    """A column of an Arrow table, converted to Python values when it is first read."""

    def __init__(self, values: ChunkedArray) -> None:
        self.arrow = values

    @cached_property
    def values(self) -> list[Any]:
        """The column as Python values."""
        converted: list[Any] = self.arrow.to_pylist()
        return converted

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.arrow)


def class_names(features: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the class names of each column of class numbers, or of lists of class numbers."""
    inner = {column: getattr(feature, "feature", feature) for column, feature in features.items()}
    names = {column: getattr(feature, "names", None) for column, feature in inner.items()}
    return {column: list(classes) for column, classes in names.items() if classes}


_READERS: dict[str, Callable[[str, Path, ReadOptions], DataTable]] = {
    "csv": lambda text, path, how: _separated(text, path, how, tabs=False),
    "tsv": lambda text, path, how: _separated(text, path, how, tabs=True),
    "jsonl": _jsonl,
    "json": _json,
    "label_text": _label_text,
    "fasttext": _fasttext,
}
_BINARY_READERS: dict[str, Callable[[Path], DataTable]] = {"parquet": _parquet, "arrow": _arrow}
FORMATS = (*_READERS, *_BINARY_READERS)
