"""Reading the values of a row: texts, raw labels, slices and target words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.data.reading.table import DataTable
from harness.errors import HarnessError
from harness_tasks.classification.columns import nested_in

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.0*)?")


def with_nested(table: DataTable, names: Iterable[str]) -> DataTable:
    """Return the table with a column for each dotted name, ``a.b`` for the key b of the objects in column a.

    Raises:
        HarnessError: a value on the way is no object or list; names the row.
    """
    added: dict[str, Sequence[Any]] = {}
    for name in names:
        for part in [name] if name in table.data else name.split("+"):
            column = None if part in table.data else nested_in(part, table.columns)
            if column is not None:
                keys = part.removeprefix(f"{column}.").split(".")
                values = table.data[column]
                added[part] = [_dig(table, row, column, values[row], keys) for row in range(len(table))]
    return replace(table, data={**table.data, **added}) if added else table


def _dig(table: DataTable, row: int, column: str, value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        if value is None:
            return None
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal():
            value = value[int(key)] if int(key) < len(value) else None
        else:
            raise HarnessError(
                f"{table.where(row)}: column {column} holds {value!r:.40}, which has no key {key!r}"
            )
    return value


def whole_number(text: str) -> str | None:
    """The normal form of a whole number (``1.0`` -> ``1``); None for other texts, and for codes such as
    ``01``."""
    if not _WHOLE.fullmatch(text):
        return None
    digits = text.partition(".")[0]
    return "0" if digits == "-0" else digits


def are_whole_numbers(texts: Iterable[str]) -> bool:
    """Whether all texts are whole numbers without leading zeros."""
    found = list(texts)
    return bool(found) and all(whole_number(text) is not None for text in found)


def raw_label(table: DataTable, row: int, column: str, unlabelled: Collection[str]) -> str | None:
    """Read the label of a row as it is written, without white space around it; None = no label.

    The only element of a list is its label. Numbers of classes become names where the table has them.

    Args:
        table, row, column: the place.
        unlabelled: labels that mean "no label".

    Raises:
        HarnessError: the value is no label, or several; names the row.
    """
    value = table.data[column][row]
    where = table.where(row)
    if isinstance(value, list):
        value = _only(value, where, column)
    if isinstance(value, int) and not isinstance(value, bool) and column in table.names:
        return _class_name(value, table.names[column], where, unlabelled)
    if isinstance(value, str) and value[:1] == "[" and value.rstrip()[-1:] == "]":
        value = _only(_listed(value), where, column)
    text = _as_text(value, where, column)
    return None if text is None or text in unlabelled or whole_number(text) in unlabelled else text


def _only(values: Any, where: str, column: str) -> Any:
    """The only element of a list; None of an empty one; other values unchanged."""
    if not isinstance(values, list):
        return values
    if len(values) > 1:
        raise HarnessError(
            f"{where}: the label (column {column}) is {values!r:.60}: several labels per text "
            "(multi-label) are not supported; each row needs one class"
        )
    return values[0] if values else None


def _listed(text: str) -> Any:
    for candidate in (text, text.replace("'", '"')):
        try:
            values = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(values, list):
            return values
    return text


def _class_name(value: int, names: Sequence[str], where: str, unlabelled: Collection[str]) -> str | None:
    if str(value) in unlabelled:
        return None
    if 0 <= value < len(names):
        return names[value]
    if value == -1:
        raise HarnessError(
            f"{where}: label -1 is none of the {len(names)} classes (hidden); set task.unlabelled=-1 for "
            "rows without a label, or use a split that has its labels"
        )
    raise HarnessError(f"{where}: label {value} is none of the {len(names)} classes (0 to {len(names) - 1})")


def _as_text(value: object, where: str, column: str) -> str | None:
    if isinstance(value, str):
        return value.strip() or None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # pandas stores integers as floats in columns with missing values
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    if isinstance(value, Mapping) and value:
        keys = " or ".join(f"task.label={column}.{key}" for key in list(value)[:3])
        raise HarnessError(f"{where}: the label (column {column}) is an object; name a key: {keys}")
    raise HarnessError(f"{where}: the label (column {column}) is {value!r:.40}; each row needs one class")


def read_tags(table: DataTable, row: int, column: str) -> tuple[str, ...]:
    """Read the slices of a row; an empty cell means none.

    Raises:
        HarnessError: the value is neither a string nor a list of strings; names the row.
    """
    value = table.data[column][row] or []
    tags = value.split() if isinstance(value, str) else value
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise HarnessError(
            f"{table.where(row)}: column {column} holds {value!r:.40}; expected tags separated by "
            "blanks, or a list of strings"
        )
    return tuple(tags)


def read_word_index(table: DataTable, row: int, column: str) -> int:
    """Read the index of the target word, counted from 0.

    Raises:
        HarnessError: not an integer of at least 0; names the row.
    """
    value = table.data[column][row]
    try:
        index = int(str(value)) if not isinstance(value, float) else int(value) if value.is_integer() else -1
    except (ValueError, OverflowError):
        index = -1
    if index < 0:
        raise HarnessError(
            f"{table.where(row)}: column {column} holds {value!r:.40}; expected the index of the target "
            "word, an integer counted from 0 (task.target)"
        )
    return index


def read_text(table: DataTable, row: int, column: str, *, allow_empty: bool) -> str:
    """Read a row's text, unchanged.

    Raises:
        HarnessError: it is empty (unless allowed) or not a string; names the row.
    """
    names = [column] if column in table.data else column.split("+")
    values = [table.data[name][row] for name in names]
    for value in values:
        if value is not None and not isinstance(value, str):
            raise HarnessError(f"{table.where(row)}: column {column} holds {value!r:.40}, not a text")
    text = " ".join(v or "" for v in values)
    if not text.strip() and not allow_empty:
        raise HarnessError(
            f"{table.where(row)}: the text (column {column}) is empty; remove the row or keep it with "
            "task.allow_empty=true"
        )
    return text
