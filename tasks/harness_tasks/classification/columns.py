"""Which columns of a table hold the text, the second text and the label, and what is in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.data.tables import DataTable
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
    """Names as configured; each may be a list of candidates, the first that is there counts.

    Attributes:
        text: None = guessed. ``a+b`` joins columns with a blank.
        text_b: None = there is no second text.
        label: None = guessed.
        id: None = rows are numbered.
        tags: slices of each row, blanks between them or a list; None = no such column.
        target: the place of the word that is meant, a column for each text; empty = none is.
    """

    text: Names = None
    text_b: Names = None
    label: Names = None
    id: Names = None
    tags: Names = None
    target: tuple[str, ...] = ()

    def find(self, columns: Sequence[str], source: str) -> dict[str, str]:
        """The column of each role that is in use.

        Raises:
            HarnessError: lists the columns that there are.
        """
        guesses = (*_FIRST_OF_PAIR, *_TEXT) if self.text_b else _TEXT
        found = {
            "text": _choose("text", self.text, guesses, columns, source),
            "label": _choose("label", self.label, _LABEL, columns, source),
        }
        for role in ("text_b", "id", "tags"):
            if getattr(self, role):
                found[role] = _choose(role, getattr(self, role), (), columns, source)
        for side, name in enumerate(self.target):
            found[f"target_{side}"] = _choose("target", name, (), columns, source)
        return found

    def is_header(self, cells: Sequence[str]) -> bool:
        """Whether a first row of a file names the columns."""
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
    there = f"columns: {', '.join(f'{c:.40}' for c in columns)}"
    if given is not None:
        near = f"; {did_you_mean(candidates[0], columns)}" if len(columns) > 3 else ""
        raise HarnessError(f"{source}: no column {' or '.join(candidates)} (task.{role}); {there}{near}")
    raise HarnessError(f"{source}: which column is the {role}? Set task.{role}=NAME; {there}{_hint(columns)}")


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
        names: class name of each raw label, where the data only number them; None = as they are.
        level: ``coarse`` takes the part before the first colon (``HUM:ind`` -> ``HUM``); None or ``fine``
            takes all.
    """

    names: Mapping[str, str] | None = None
    level: str | None = None

    def __post_init__(self) -> None:
        if self.level not in (None, "coarse", "fine"):
            raise HarnessError(f"task.label_level={self.level}: {did_you_mean(str(self.level), LEVELS)}")

    def read(self, table: DataTable, row: int, column: str) -> str:
        """The class of a row.

        Raises:
            HarnessError: it has none; names the row.
        """
        value = table.rows[row].get(column)
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


def _as_text(value: Any, table: DataTable, row: int, column: str) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # a column with gaps turns whole numbers into floats on its way through pandas
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    missing = value is None or isinstance(value, str | float)
    what = "is missing" if missing else f"is {value!r:.40}"
    raise HarnessError(f"{table.where(row)}: the label (column {column}) {what}; each row needs one class")


def read_tags(table: DataTable, row: int, column: str) -> tuple[str, ...]:
    """The slices a row belongs to; an empty cell is none.

    Raises:
        HarnessError: it holds neither a text nor a list of texts; names the row.
    """
    value = table.rows[row].get(column) or []
    tags = value.split() if isinstance(value, str) else value
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise HarnessError(
            f"{table.where(row)}: column {column} holds {value!r:.40}; tags are a text with blanks "
            "between them, or a list of texts"
        )
    return tuple(tags)


def target_columns(given: Names, *, texts: int) -> tuple[str, ...]:
    """``task.target`` as a column for each text.

    Raises:
        HarnessError: there are more or fewer columns than texts.
    """
    names = () if not given else (given,) if isinstance(given, str) else tuple(given)
    if names and len(names) != texts:
        raise HarnessError(
            f"task.target={', '.join(names)}: a column for each text is wanted, so {texts}; "
            "it holds the place of the word that is meant"
        )
    return names


def read_word_index(table: DataTable, row: int, column: str) -> int:
    """Which word of its text is meant, counted from 0.

    Raises:
        HarnessError: no whole number from 0 on; names the row.
    """
    value = table.rows[row].get(column)
    try:
        place = int(str(value)) if not isinstance(value, float) else int(value) if value.is_integer() else -1
    except (ValueError, OverflowError):
        place = -1
    if place < 0:
        raise HarnessError(
            f"{table.where(row)}: column {column} holds {value!r:.40}; the place of a word is wanted, a "
            "whole number counted from 0 (task.target)"
        )
    return place


def read_text(table: DataTable, row: int, column: str, *, allow_empty: bool) -> str:
    """A row's text, unchanged.

    Raises:
        HarnessError: it is empty (unless allowed) or no text at all; names the row.
    """
    line = table.rows[row]
    values = [line.get(c) for c in ([column] if column in line else column.split("+"))]
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
