"""Tables from Parquet and Arrow files, which pyarrow memory-maps, and from data sets of the hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness.data.reading.table import ArrowColumn, DataTable
from harness.errors import HarnessError

if TYPE_CHECKING:
    from datasets import Dataset
    from pyarrow import Table

_MAX_RATIO = 1000
_MIN_LIMIT = 1 << 30
_CELL = 8
"""Bytes of a cell in memory, at least."""


def read_parquet(path: Path, data: bytes | None = None) -> DataTable:
    """Read a Parquet file, or its decompressed ``data``.

    Raises:
        HarnessError: not a Parquet file, or a damaged one.
    """
    import pyarrow
    from pyarrow import parquet

    with _damaged(path, "a Parquet file"):
        source = str(path) if data is None else pyarrow.BufferReader(data)
        with parquet.ParquetFile(source, memory_map=data is None) as file:
            _check_size(path, file, len(data) if data is not None else path.stat().st_size)
            table = file.read()
    return _of_table(table, str(path), _stored_names(table))


def _check_size(path: Path, file: object, size: int) -> None:
    """Refuse a file whose declared size when unpacked is out of proportion."""
    metadata = file.metadata  # type: ignore[attr-defined]
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    declared = sum(max(0, group.total_byte_size) for group in groups)
    limit = max(_MIN_LIMIT, _MAX_RATIO * size)
    if declared > limit or metadata.num_rows * metadata.num_columns * _CELL > limit:
        raise HarnessError(
            f"{path}: declares {metadata.num_rows:,} rows and {declared:,} bytes, over {_MAX_RATIO} times "
            "its size"
        )


def _stored_names(table: Table) -> dict[str, list[str]]:
    """Class names that the datasets library stored in a Parquet file."""
    if b"huggingface" not in (table.schema.metadata or {}):
        return {}
    from datasets import Features

    try:
        return class_names(Features.from_arrow_schema(table.schema))
    except Exception:  # written by an incompatible version of datasets, or damaged
        return {}


def read_arrow(path: Path) -> DataTable:
    """Read an Arrow file as the datasets library stores it.

    Raises:
        HarnessError: not such a file, or a damaged one.
    """
    from datasets import Dataset

    with _damaged(path, "an Arrow file of the datasets library"):
        return of_dataset(Dataset.from_file(str(path)), str(path))  # memory-mapped


def of_dataset(data: Dataset, source: str) -> DataTable:
    """Make a table of a data set of the ``datasets`` library; columns are converted when they are read."""
    return _of_table(data.with_format("arrow")[:], source, class_names(data.features))


def _of_table(table: Table, source: str, names: dict[str, list[str]]) -> DataTable:
    repeated = {name for name in table.column_names if table.column_names.count(name) > 1}
    if repeated:
        raise HarnessError(f"{source}: two columns are named {repeated.pop()!r:.60}")
    columns = {
        name: ArrowColumn(table.column(i), f"{source}, column {name:.60}")
        for i, name in enumerate(table.column_names)
    }
    return DataTable(source, columns, range(1, table.num_rows + 1), "row", names)


def class_names(features: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the class names of each column of class numbers, or of lists of class numbers."""
    inner = {column: _element(feature) for column, feature in features.items()}
    names = {column: getattr(feature, "names", None) for column, feature in inner.items()}
    return {column: list(classes) for column, classes in names.items() if classes}


def _element(feature: object) -> object:
    """Return the type of a list's elements, or of the values themselves."""
    if isinstance(feature, list) and len(feature) == 1:  # the form of older versions
        return feature[0]
    return getattr(feature, "feature", feature)


@contextmanager
def _damaged(path: Path, what: str) -> Iterator[None]:
    """Convert every error of pyarrow, which raises many types on damaged files."""
    try:
        yield
    except HarnessError:
        raise
    except Exception as e:
        raise HarnessError(f"{path}: not {what} ({e!s:.300})") from None
