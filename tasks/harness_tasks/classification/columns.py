"""Choosing the columns of text, second text and label in a table, and reading their values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.data.reading.tables import DataTable
from harness.errors import HarnessError, did_you_mean

LEVELS = ("coarse", "fine")
Names = str | Sequence[str] | None

_TEXT = (
    "text",
    "sentence",
    "question",
    "review",
    "content",
    "comment",
    "tweet",
    "document",
    "body",
    "utterance",
    "title+description",
)
_FIRST_OF_PAIR = ("sentence1", "text1", "sentence_a", "text_a", "premise", "question1", "question", "query")
_SECOND_OF_PAIR = ("sentence2", "text2", "sentence_b", "text_b", "hypothesis", "question2")
_LABEL = (
    "label",
    "labels",
    "gold_label",
    "class",
    "category",
    "target",
    "sentiment",
    "intent",
    "class_index",
    "label_text",
)


@dataclass(frozen=True, slots=True)
class Columns:
    """Column names as configured; each may be a list of candidates, of which the first that exists is used.

    Attributes:
        text: None = guessed. ``a+b`` joins columns with a blank.
        text_b: None = no second text.
        label: None = guessed.
        id: None = rows are numbered.
        tags: slices of each row, separated by blanks or a list; None = no such column.
        target: index of the target word, one column per text; empty = no target words.
    """

    text: Names = None
    text_b: Names = None
    label: Names = None
    id: Names = None
    tags: Names = None
    target: tuple[str, ...] = ()

    def find(self, columns: Sequence[str], source: str) -> dict[str, str]:
        """The column of each role in use.

        Raises:
            HarnessError: a column does not exist; lists the existing ones.
        """
        guesses = (*_FIRST_OF_PAIR, *_TEXT) if self.text_b else _TEXT
        resolved = {
            "text": _choose("text", self.text, guesses, columns, source),
            "label": _choose("label", self.label, _LABEL, columns, source),
        }
        for role in ("text_b", "id", "tags"):
            if getattr(self, role):
                resolved[role] = _choose(role, getattr(self, role), (), columns, source)
        for side, name in enumerate(self.target):
            resolved[f"target_{side}"] = _choose("target", name, (), columns, source)
        return resolved

    def is_header(self, cells: Sequence[str]) -> bool:
        """Whether the first row of a file is a header line."""
        try:
            self.find([c.strip() for c in cells], "")
        except HarnessError:
            return False
        return True


def _choose(role: str, given: Names, guesses: Sequence[str], columns: Sequence[str], source: str) -> str:
    candidates = [given] if isinstance(given, str) else list(given or guesses)
    for candidate in candidates:
        parts = [_match(part, columns, exact=given is not None) for part in candidate.split("+")]
        if all(parts):
            return "+".join(str(p) for p in parts)
        if candidate in columns:
            return candidate
    available = f"columns: {', '.join(f'{c:.40}' for c in columns)}"
    if given is not None:
        near = f"; {did_you_mean(candidates[0], columns)}" if len(columns) > 3 else ""
        raise HarnessError(f"{source}: no column {' or '.join(candidates)} (task.{role}); {available}{near}")
    raise HarnessError(
        f"{source}: which column is the {role}? Set task.{role}=NAME; {available}{_hint(columns)}"
    )


def _hint(columns: Sequence[str]) -> str:
    first = next(filter(None, (_match(c, columns) for c in _FIRST_OF_PAIR)), None)
    second = next(filter(None, (_match(c, columns) for c in _SECOND_OF_PAIR)), None)
    if first and second:
        return f". For pairs: task.text={first} task.text_b={second}"
    if len(columns) == 1 and any(c in columns[0] for c in ";|\t"):
        return ". Set task.delimiter when it is not a comma"
    return ". Without a header line, name the columns: task.columns=[label,text]"


def _match(name: str, columns: Sequence[str], *, exact: bool = False) -> str | None:
    if name in columns or exact:
        return name if name in columns else None
    plain = [c.strip().lower().replace(" ", "_") for c in columns]
    return columns[plain.index(name)] if name in plain else None


@dataclass(frozen=True, slots=True)
class Labels:
    """How a raw label becomes a class.

    Attributes:
        names: class name of each raw label; None = raw labels are the classes.
        level: ``coarse`` keeps the part before the first colon (``HUM:ind`` -> ``HUM``); None or ``fine``
            keeps the whole label.
    """

    names: Mapping[str, str] | None = None
    level: str | None = None

    def __post_init__(self) -> None:
        if self.level not in (None, "coarse", "fine"):
            raise HarnessError(f"task.label_level={self.level}: {did_you_mean(str(self.level), LEVELS)}")

    def read(self, table: DataTable, row: int, column: str) -> str:
        """Read the class of a row.

        Raises:
            HarnessError: it has no class; names the row.
        """
        value = table.data[column][row]
        if isinstance(value, int) and not isinstance(value, bool) and column in table.names:
            names = table.names[column]
            if not 0 <= value < len(names):
                raise HarnessError(
                    f"{table.where(row)}: label {value} is none of the {len(names)} classes"
                    f"{' (hidden)' if value == -1 else ''}; use a split that has its labels"
                )
            label = names[value]
        else:
            label = _as_text(value, table, row, column)
        if self.names is not None:
            if label not in self.names and label not in self.names.values():
                raise HarnessError(
                    f"{table.where(row)}: label {label!r} is not in task.label_names "
                    f"({', '.join(self.names)}); add it"
                )
            label = self.names.get(label, label)
        return label.split(":", 1)[0] if self.level == "coarse" else label


def _as_text(value: object, table: DataTable, row: int, column: str) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # pandas stores integers as floats in columns with missing values
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    missing = value is None or isinstance(value, str | float)
    what = "is missing" if missing else f"is {value!r:.40}"
    raise HarnessError(f"{table.where(row)}: the label (column {column}) {what}; each row needs one class")


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


def target_columns(given: Names, *, texts: int) -> tuple[str, ...]:
    """``task.target`` as one column per text.

    Raises:
        HarnessError: the number of columns differs from that of texts.
    """
    names = () if not given else (given,) if isinstance(given, str) else tuple(given)
    if names and len(names) != texts:
        raise HarnessError(
            f"task.target={', '.join(names)}: expected {texts} column(s), one per text, with the index of "
            "the target word"
        )
    return names


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
