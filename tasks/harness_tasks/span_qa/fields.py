"""Names and values of the fields of questions in the dialects of SQuAD's format.

A field is found under the name that ``task.fields`` sets, else under its own name, else under one of the
usual other names, whatever the case and underscores (``qid``, ``questionId``, ``_id``). Numbers may be text
(``"22"``), and truth values numbers or text (``0``, ``"false"``). This module does not import torch.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.data.reading.log import ReadLog, ambiguous
from harness.errors import HarnessError, did_you_mean

NAMES: dict[str, tuple[str, ...]] = {
    "id": ("qid", "question id", "qas id", "example id", "uid", "guid"),
    "question": ("question text", "query"),
    "context": ("passage", "paragraph", "document", "context text", "passage text", "paragraph text"),
    "answers": ("answer", "answer text", "gold answers"),
    "text": ("answer text", "answer"),
    "answer_start": ("answer starts", "answer offset", "start", "start char", "char start"),
    "is_impossible": ("impossible", "unanswerable", "no answer"),
    "title": ("article title", "document title"),
    "context_id": ("passage id", "paragraph id", "document id", "doc id"),
    "qas": ("questions", "question answers"),
}
"""Other names of each field, without case and separators."""
OPTIONS = ("id", "question", "context", "answers", "answer_start", "is_impossible", "title", "context_id")
"""Fields whose names can be set by ``task.fields``."""
TRUE = ("true", "yes", "t", "y", "1", "1.0")
FALSE = ("false", "no", "f", "n", "0", "0.0")
RawAnswer = tuple[str, int | None]
"""Text and offset as in the file; None = no offset given."""


def _bare(name: object) -> str:
    return re.sub(r"[\s_.\-]+", "", str(name)).lower()


_BARE = {name: {_bare(other) for other in (name, *others)} for name, others in NAMES.items()}


def check_names(names: Iterable[str]) -> None:
    """Raise HarnessError for a key of ``task.fields`` that is no field."""
    for name in names:
        if name not in OPTIONS:
            raise HarnessError(f"task.fields.{name}: unknown field, {did_you_mean(name, OPTIONS)}")


@dataclass(slots=True)
class Fields:
    """Finds the fields of rows and objects.

    Attributes:
        log: receives the names that differ from the usual ones.
        given: names set by ``task.fields``, by field.
    """

    log: ReadLog
    given: Mapping[str, str] = field(default_factory=dict)
    _found: dict[tuple[str, tuple[str, ...]], str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_names(self.given)

    def find(self, entry: Mapping[str, object], name: str, source: str) -> str | None:
        """The key of a field; None when there is no such key.

        Raises:
            HarnessError: several keys could be the field.
        """
        at = (name, tuple(map(str, entry)))
        if at not in self._found:
            self._found[at] = self._key(at[1], name, source)
        key = self._found[at]
        if key is not None and key != name:
            self.log.fact(source, name, key, given=name in self.given)
        return key

    def value(self, entry: Mapping[str, object], name: str, source: str) -> object:
        """The value of a field; None when there is none."""
        key = self.find(entry, name, source)
        return None if key is None else entry[key]

    def _key(self, keys: Sequence[str], name: str, source: str) -> str | None:
        if name in self.given:
            return self.given[name] if self.given[name] in keys else None
        if name in keys:
            return name
        bare = _BARE.get(name, {_bare(name)})
        found = [key for key in keys if _bare(key) in bare and key not in self.given.values()]
        if len(found) > 1:
            settings = {key: f"task.fields.{name}={key}" for key in found}
            raise ambiguous(source, f"which field is {name}", settings)
        return found[0] if found else None


def text_of(value: object, key: str, where: str) -> str:
    """A text.

    Raises:
        HarnessError: it is none.
    """
    if not isinstance(value, str):
        raise HarnessError(f"{where}: {key}={value!r:.60}: expected a text")
    return value


def offset(value: object, where: str) -> int | None:
    """``answer_start`` as a number: 22, 22.0, "22" and "22.0" are 22; None, NaN and "" are not given.

    Raises:
        HarnessError: it is no whole number.
    """
    if isinstance(value, str):
        if not value.strip():
            return None
        match = re.fullmatch(r"\s*([+-]?[0-9]{1,15})(?:\.0*)?\s*", value)
        if match:
            return int(match[1])
    elif value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    elif isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1:
        return int(value)
    raise HarnessError(
        f"{where}: answer_start={value!r:.60}: expected a whole number, the first character is 0"
    )


def flag(value: object, key: str, where: str) -> bool | None:
    """A truth value: true, 1, "true" and so on; None and "" make no statement.

    Raises:
        HarnessError: it is neither true nor false.
    """
    word = str(value).strip().lower()
    if value is None or word in ("", "none", "null", "nan"):
        return None
    if word in TRUE or word in FALSE:
        return word in TRUE
    raise HarnessError(f"{where}: {key}={value!r:.60}: expected true or false")


def identifier(value: object, where: str) -> str:
    """The id as text; empty when there is none."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise HarnessError(f"{where}: id={value!r:.60}: expected a text or a whole number")
    return str(value)


def tags_of(entry: Mapping[str, object], where: str) -> tuple[str, ...]:
    tags = entry.get("tags") or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise HarnessError(f"{where}: tags={tags!r:.60}: expected list of strings")
    return tuple(tags)


def raw_answers(value: object, starts: object, fields: Fields, *, source: str, where: str) -> list[RawAnswer]:
    """Return the answers of a question in any of their forms.

    The forms are a list of objects of text and answer_start, an object of two lists, a list of texts, one
    text or one object, or JSON text of these.

    Args:
        value: the field ``answers``.
        starts: the field ``answer_start`` of the row itself, for answers that are plain texts.
        fields: finds the fields of the answers' objects.
        source: file, for the log.
        where: place, for messages.

    Raises:
        HarnessError: none of these forms.
    """
    value = _parsed(value)
    if isinstance(value, Mapping):
        return _of_object(value, fields, source=source, where=where)
    if isinstance(value, Sequence) and not isinstance(value, str):
        entries = list(value)
        if any(isinstance(entry, Mapping) for entry in entries):
            objects = [entry if isinstance(entry, Mapping) else {"text": entry} for entry in entries]
            return [a for entry in objects for a in _of_object(entry, fields, source=source, where=where)]
        return _paired(entries, starts, where)
    return _paired([value], starts, where)


def _parsed(value: object) -> object:
    """JSON in the cell of a table as the object or the list of texts and objects that it encodes."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            parsed: object = json.loads(value)
        except (ValueError, RecursionError):
            return value
        entries = parsed if isinstance(parsed, list) else [parsed]
        return parsed if all(isinstance(entry, dict | str) for entry in entries) else value
    return value


def _of_object(entry: Mapping[str, object], fields: Fields, *, source: str, where: str) -> list[RawAnswer]:
    key = fields.find(entry, "text", source)
    if key is None:
        raise HarnessError(f"{where}: an answer has no 'text', {did_you_mean('text', map(str, entry))}")
    texts = entry[key]
    starts = fields.value(entry, "answer_start", source)
    many = isinstance(texts, Sequence) and not isinstance(texts, str)
    return _paired(list(texts) if isinstance(texts, Sequence) and many else [texts], starts, where)


def _paired(texts: Sequence[object], starts: object, where: str) -> list[RawAnswer]:
    if starts is None:
        starts = [None] * len(texts)
    elif not isinstance(starts, Sequence) or isinstance(starts, str):
        starts = [starts]
    if len(texts) != len(starts):
        raise HarnessError(f"{where}: {len(texts)} answer texts but {len(starts)} answer_start")
    return [(_answer_text(text, where), offset(s, where)) for text, s in zip(texts, starts, strict=True)]


def _answer_text(value: object, where: str) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # the answer 1887, written without quotes
    return text_of(value, "text", where)
