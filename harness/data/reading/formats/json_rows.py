"""Rows from JSON lines and from JSON files of several shapes."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.core.files import PART
from harness.data.reading.formats.dialect import lines
from harness.data.reading.formats.labelled import label_column
from harness.data.reading.log import ambiguous
from harness.data.reading.table import DataTable, TextFile
from harness.errors import HarnessError, did_you_mean

_MAX_DEPTH = 100
_EMPTY_CELLS = 1_000_000
_MAX_SPARSITY = 20
"""Rows with different keys may have this many times as many empty cells as values."""

Rows = list[tuple[int, Any]]


def parse_json(text: str, where: str) -> Any:
    """Parse JSON.

    Raises:
        HarnessError: not JSON, or nested too deeply, or a number of more digits than Python reads.
    """
    try:
        data = json.loads(text)
        _check_depth(data, where)
        return _without_surrogates(data) if _may_have_surrogates(text) else data
    except RecursionError:
        raise HarnessError(f"{where}: nested too deeply") from None
    except ValueError as e:
        reason = "a number has too many digits" if "digits" in str(e) else str(e)
        raise HarnessError(f"{where}: not JSON ({reason})") from None


def _check_depth(value: Any, where: str) -> None:
    """Raise HarnessError for values that are nested too deeply to be printed or copied."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = (
            [
                child
                for parent in level
                for child in (parent.values() if isinstance(parent, dict) else parent)
                if isinstance(child, list | dict)
            ]
            if isinstance(value, list | dict)
            else []
        )
        if not level:
            return
    raise HarnessError(f"{where}: nested too deeply")


def _may_have_surrogates(text: str) -> bool:
    return "\\ud" in text or "\\uD" in text


def _without_surrogates(value: Any) -> Any:
    """Replace lone surrogates, which no encoding can store, by U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(v) for v in value]
    if isinstance(value, dict):
        return {_without_surrogates(k): _without_surrogates(v) for k, v in value.items()}
    return value


def read_jsonl(file: TextFile) -> DataTable:
    """Read one object per line, or with ``columns`` one list per line.

    Raises:
        HarnessError: a line is neither (skipped with ``task.on_error=skip``).
    """
    rows: Rows = []
    numbered = list(lines(file.text))
    opened = file.text.count("[") + file.text.count("{")
    plain = opened < len(numbered) + _MAX_DEPTH and not _may_have_surrogates(file.text)
    for at, line in numbered:
        try:
            rows.append((at, json.loads(line) if plain else parse_json(line, "")))
        except (ValueError, RecursionError, HarnessError):
            _skip_line(file, at, line)
    return _table(rows, file, unit="line")


def _skip_line(file: TextFile, at: int, line: str) -> None:
    try:
        parse_json(line, file.where(at))
    except HarnessError as e:
        file.log.skip(file.where(at), e)


def read_json(file: TextFile) -> DataTable:
    """Read a list of objects, an object of columns, or rows under a key (see :func:`_rows`).

    Raises:
        HarnessError: not JSON, or in none of these shapes.
    """
    try:
        data = parse_json(file.text, str(file.path))
    except HarnessError:
        if file.part is None and starts_with_object(file.text):
            file.log.note(f"{file.path.name} contains JSON lines")
            return read_jsonl(file)
        raise
    return _table(list(enumerate(_rows(data, file), start=1)), file, unit="row")


def starts_with_object(text: str) -> bool:
    """Whether the first line is a JSON object."""
    first = text.lstrip().split("\n", 1)[0]
    try:
        return first.startswith("{") and isinstance(parse_json(first, ""), dict)
    except HarnessError:
        return False


def _rows(data: Any, file: TextFile) -> Sequence[Any]:
    """Find the rows of a JSON file.

    They are the file itself (a list, or one object without nested values), the list under the key that is
    named after ``::``, the only list of objects or lists under a key, a list per column, or an object per
    column or row as pandas writes them.
    """
    for key in file.part.split(PART) if file.part else ():
        if not isinstance(data, dict) or key not in data:
            keys = list(data) if isinstance(data, dict) else []
            raise HarnessError(f"{file.path}: no key {key!r:.40}; {did_you_mean(key, keys)}")
        data = data[key]
        file.log.given(file.path, "rows", f"key {key}")
    if isinstance(data, list):
        return data
    if not isinstance(data, dict) or not data:
        raise HarnessError(f"{file.path}: {_EXPECTED}")
    values = list(data.values())
    if not any(isinstance(v, list | dict) for v in values):
        return [data]
    listed = [key for key, v in data.items() if isinstance(v, list) and v and isinstance(v[0], list | dict)]
    splits = [key for key in listed if key.lower() in _SPLITS]
    if splits and len(listed) > 1:
        readings = {key: f"task.train={file.path}{PART}{key}" for key in splits}
        raise ambiguous(file.path, "which split (the file has several)", readings)
    if "columns" in data and listed == ["data"]:
        return _under_key("data", data, file)
    if all(isinstance(v, list) for v in values) and _are_columns(values):
        return [dict(zip(data, cells, strict=True)) for cells in zip(*values, strict=True)]
    if len(listed) == 1:
        return _under_key(listed[0], data, file)
    if len(listed) > 1:
        readings = {key: f"task.train={file.path}{PART}{key}" for key in listed[:10]}
        raise ambiguous(file.path, "which key has the rows", readings)
    if all(isinstance(v, dict) for v in values):
        return _of_objects(data, file)
    raise HarnessError(
        f"{file.path}: {_EXPECTED}; its keys are {', '.join(f'{k:.40}' for k in list(data)[:10])}"
    )


def _are_columns(values: Sequence[list[Any]]) -> bool:
    """Whether lists are columns: equally long, and not a single list of objects or lists."""
    rows = len(values) == 1 and all(isinstance(v, dict | list) for v in values[0])
    return len({len(v) for v in values}) == 1 and not rows


def _under_key(key: str, data: Mapping[str, Any], file: TextFile) -> Sequence[Any]:
    """Rows under a key; beside lists, their names may be under ``columns``, as pandas writes them."""
    if len(data) > 1:
        file.log.recognised(file.path, "rows", f"key {key}")
    rows: Sequence[Any] = data[key]
    names = data.get("columns")
    if isinstance(names, list) and all(isinstance(row, list) and len(row) == len(names) for row in rows):
        return [dict(zip(map(str, names), row, strict=True)) for row in rows]
    return rows


_SPLITS = ("train", "training", "dev", "development", "val", "valid", "validation", "test")
_EXPECTED = (
    "neither a list of objects nor an object of equally long lists, "
    "nor rows under one key (FILE::KEY names it)"
)


def _of_objects(data: Mapping[str, Mapping[str, Any]], file: TextFile) -> list[dict[str, Any]]:
    """Rows of an object of objects: one per column (pandas' default, with row numbers as inner keys), or one
    per row, whose key becomes the column ``id``."""
    inner = list(next(iter(data.values())))
    if inner and all(k.isdigit() for k in inner) and not all(k.isdigit() for k in data):
        if any(list(column) != inner for column in data.values()):
            raise HarnessError(f"{file.path}: columns with different rows")
        file.log.recognised(file.path, "rows", "one object per column")
        return [{name: column[key] for name, column in data.items()} for key in inner]
    if all(inner and set(row) & set(inner) for row in data.values()):
        file.log.recognised(file.path, "rows", "one object per row")
        return [{"id": key, **row} for key, row in data.items()]
    raise HarnessError(f"{file.path}: {_EXPECTED}")


def _table(rows: Rows, file: TextFile, *, unit: str) -> DataTable:
    if not all(isinstance(row, dict) for _, row in rows):
        rows = _objects(rows, file, unit)
    columns: dict[str, None] = {}
    values = 0
    for _, row in rows:
        values += len(row)
        if row.keys() != columns.keys():
            columns.update(dict.fromkeys(row))
    if len(columns) * len(rows) > _MAX_SPARSITY * values + _EMPTY_CELLS:
        raise HarnessError(
            f"{file.path}: {len(rows):,} rows have {len(columns):,} different keys, most of which are in few "
            "rows; give every row the same keys"
        )
    return DataTable.of_rows(
        str(file.path), list(columns), [row for _, row in rows], [at for at, _ in rows], unit=unit
    )


def _objects(rows: Rows, file: TextFile, unit: str) -> Rows:
    """Rows that are objects, or lists whose values have names; others are skipped."""
    names = _list_columns(rows, file)
    out: Rows = []
    for at, row in rows:
        if isinstance(row, list) and names and len(row) == len(names):
            row = dict(zip(names, row, strict=True))
        if isinstance(row, dict):
            out.append((at, row))
            continue
        where = f"{file.path}, {unit} {at}"
        hint = "; name the values with task.columns=[text,label]" if isinstance(row, list) else ""
        problem = f"{reprlib.repr(row):.40} is not an object with named values{hint}"
        file.log.skip(where, HarnessError(f"{where}: {problem}"))
    return out


def _list_columns(rows: Rows, file: TextFile) -> Sequence[str] | None:
    """Names of the values of rows that are lists: as configured, or text and label of pairs of strings."""
    if file.how.columns:
        return file.how.columns
    if not rows or not all(isinstance(row, list) and len(row) == 2 for _, row in rows):
        return None
    if not all(isinstance(v, str | int) for _, row in rows for v in row):
        return None
    return label_column(list(_columns(rows)), file)


def _columns(rows: Rows) -> Iterator[list[str]]:
    for i in (0, 1):
        yield [str(row[i]) for _, row in rows]
