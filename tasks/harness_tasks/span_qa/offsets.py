"""Verification and repair of answer offsets.

Published files contain answers that are not at ``answer_start``: contexts that lost leading blanks, offsets
counted in UTF-16 code units (by tools written in JavaScript), white space or a Unicode normal form that was
changed later, answers without an offset. Training on the characters at a wrong offset must not happen, and
neither must a choice between several occurrences.

An answer that is not in the context character by character is compared at increasingly loose levels
(:data:`LEVELS`). The result is always a span of the context, whose folded text equals the folded answer.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Literal, NamedTuple

import regex

EXACT = "exact"
UTF16 = "offsets counted in UTF-16 units"
ONLY = "moved to the only occurrence"
NEAR = "moved to the nearest occurrence"
BY_TEXT = "no answer_start, located by the text"
REACH = 5
"""Maximum distance from ``answer_start`` of an answer that occurs several times, in characters."""
_MAX_MATCHES = 1000
_CLUSTER = regex.compile(r"\X")
_INVISIBLE = regex.compile(r"[\u00AD\u200B\u200E\u200F\u2060\uFEFF\u202A-\u202E\u2066-\u2069]+")
_TYPOGRAPHIC = str.maketrans(
    dict.fromkeys("‘’‚‛′`´ʼ", "'") | dict.fromkeys("“”„‟″«»", '"') | dict.fromkeys("‐‑‒–—―−", "-")
)


class Located(NamedTuple):
    """The span [start, end) of an answer in its context, and how it was found."""

    start: int
    end: int
    how: str


@dataclass(frozen=True, slots=True)
class Level:
    """What two texts may differ in and still be equal.

    Attributes:
        differs: for messages.
        form: Unicode normal form that is applied first.
        spelling: ignore case and the kind of quotes and dashes.
        blanks: False = ignore white space altogether, not only its kind and amount.
    """

    differs: str
    form: Literal["", "NFD", "NFKD"] = ""
    spelling: bool = False
    blanks: bool = True


LEVELS = (
    Level("white space"),
    Level("Unicode normal form (NFC)", "NFD"),  # equal decompositions are equal compositions
    Level("compatibility characters (NFKC)", "NFKD"),
    Level("case, quotes or dashes", "NFKD", spelling=True),
)
_WITHOUT_BLANKS = Level("missing or additional white space", blanks=False)
"""Applied at ``answer_start`` only, and never to a part of a word."""


@dataclass(frozen=True, slots=True)
class Folded:
    """A text at a level.

    Attributes:
        text: folded; white space is one blank, invisible format characters are left out.
        starts, ends: for each folded character the source offset where its grapheme cluster starts or ends;
            -1 inside a cluster, so that no span cuts one.
    """

    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]


def locate_answer(context: str, answer: str, start: int | None) -> Located | None:
    """Find ``answer`` in ``context``.

    What is at ``start`` comes first, then the only exact occurrence or the nearest one, then occurrences that
    differ from the answer as :data:`LEVELS` permit.

    Args:
        context: unchanged text.
        answer: not empty.
        start: offset of the first character according to the data; None = not given, and the answer must
            occur once.

    Returns:
        The span and how it was found; None when the answer does not occur, or it is ambiguous which
        occurrence is meant.
    """
    if start is not None and start >= 0:
        found = _at_start(context, answer, start)
        if found is not None:
            return found
    for level in (None, *LEVELS):
        spans = list(islice(_occurrences(context, answer, level), 2))
        if spans:
            found = _choose(context, answer, start, level, spans)
            return found and (found if level is None else _loose(found, level))
    return None


def _at_start(context: str, answer: str, start: int) -> Located | None:
    counted = _from_utf16(context, start)
    starts = {start: EXACT} if counted in (None, start) else {start: EXACT, counted: UTF16}
    for at, how in starts.items():
        if at is not None and context.startswith(answer, at):
            return Located(at, at + len(answer), how)
    for level in (*LEVELS, _WITHOUT_BLANKS):
        for at, how in starts.items():
            span = None if at is None else _folded_at(context, answer, at, level)
            if span is not None:
                return _loose(Located(*span, how), level)
    return None


def _folded_at(context: str, answer: str, at: int, level: Level) -> tuple[int, int] | None:
    """The span that equals the answer and starts at ``at``, or after white space there."""
    folded = fold(context, level)
    index = bisect_left(_sources(context, level), at)
    while index < len(folded.text) and (folded.starts[index] < 0 or folded.text[index] == " "):
        index += 1
    if index == len(folded.text) or _INVISIBLE.sub("", context[at : folded.starts[index]]).strip():
        return None
    span = _span(context, folded, index, answer, level)
    if span is None or (not level.blanks and _cuts_word(context, *span)):
        return None
    return span


def _cuts_word(context: str, start: int, end: int) -> bool:
    before, after = context[start - 1 : start], context[end : end + 1]
    cut_before = before.isalnum() and context[start].isalnum()
    return cut_before or (context[end - 1].isalnum() and after.isalnum())


def _occurrences(context: str, answer: str, level: Level | None) -> Iterator[tuple[int, int]]:
    folded = None if level is None else fold(context, level)
    text, wanted = (
        (context, answer) if level is None or folded is None else (folded.text, _folded(answer, level))
    )
    at = text.find(wanted) if wanted else -1
    for _ in range(_MAX_MATCHES):
        if at < 0:
            return
        if level is None or folded is None:
            yield at, at + len(answer)
        elif (span := _span(context, folded, at, answer, level)) is not None:
            yield span
        at = text.find(wanted, at + 1)


def _span(context: str, folded: Folded, index: int, answer: str, level: Level) -> tuple[int, int] | None:
    """The source span of the folded answer at an index; None when it is not there or cuts a cluster."""
    wanted = _folded(answer, level)
    if not wanted or not folded.text.startswith(wanted, index):
        return None
    start, end = folded.starts[index], folded.ends[index + len(wanted) - 1]
    return (start, end) if 0 <= start < end and _folded(context[start:end], level) == wanted else None


def _choose(
    context: str, answer: str, start: int | None, level: Level | None, spans: list[tuple[int, int]]
) -> Located | None:
    """The only occurrence, or the nearest one within reach of ``start``; ``spans`` are the first two."""
    if len(spans) == 1:
        return Located(*spans[0], BY_TEXT if start is None else ONLY)
    if start is None:
        return None
    near = list(_within_reach(context, answer, start, level))
    near.sort(key=lambda span: abs(span[0] - start))
    if not near or (len(near) > 1 and abs(near[0][0] - start) == abs(near[1][0] - start)):
        return None
    return Located(*near[0], NEAR)


def _within_reach(context: str, answer: str, start: int, level: Level | None) -> Iterator[tuple[int, int]]:
    low, high = max(0, start - REACH), start + REACH + 1
    if level is None:
        yield from (
            (i, i + len(answer)) for i in range(low, min(high, len(context))) if context.startswith(answer, i)
        )
        return
    folded, sources = fold(context, level), _sources(context, level)
    for index in range(bisect_left(sources, low), bisect_left(sources, high)):
        span = _span(context, folded, index, answer, level)
        if span is not None:
            yield span


def _loose(found: Located, level: Level) -> Located:
    how = "" if found.how == EXACT else f", {found.how}"
    return found._replace(how=f"differs in {level.differs}{how}")


@lru_cache(maxsize=64)
def fold(text: str, level: Level) -> Folded:
    """Reduce a text to what a level compares.

    Example: "A  ﬁx" (two blanks, a ligature) at NFKD gives "A fix" with starts 0 1 3 -1 4 and ends
    1 3 -1 4 5: the blanks become one, and "fi" is one cluster of the source.
    """
    out: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for match in _CLUSTER.finditer(text):
        chars = _fold_cluster(match.group(), level)
        if chars.isspace():
            if not level.blanks:
                continue
            if out and out[-1] == " ":
                ends[-1] = match.end()
                continue
            chars = " "
        inside = [-1] * (len(chars) - 1)
        if chars:
            out += chars
            starts += [match.start(), *inside]
            ends += [*inside, match.end()]
    return Folded("".join(out), tuple(starts), tuple(ends))


@lru_cache(maxsize=64)
def _sources(text: str, level: Level) -> tuple[int, ...]:
    """Source offset of each folded character, never decreasing: that of its cluster."""
    out, last = [], 0
    for start in fold(text, level).starts:
        last = max(last, start)
        out.append(last)
    return tuple(out)


@lru_cache(maxsize=8192)
def _fold_cluster(cluster: str, level: Level) -> str:
    chars: str = _INVISIBLE.sub("", cluster)
    if level.spelling:
        chars = chars.translate(_TYPOGRAPHIC)
    if level.form:
        chars = unicodedata.normalize(level.form, chars)
    if level.spelling and level.form:
        chars = unicodedata.normalize(level.form, chars.casefold()).translate(_TYPOGRAPHIC)
    return chars


def _folded(text: str, level: Level) -> str:
    return fold(text, level).text.strip(" ")


def _from_utf16(context: str, units: int) -> int | None:
    """Index of the character at an offset of ``units`` UTF-16 code units.

    Example: in "a𝄞b" (the clef takes two units) offset 3 is character 2; offset 2 is inside a character.
    """
    at = 0
    for index, char in enumerate(context):
        if at >= units:
            return index if at == units else None
        at += 1 + (ord(char) > 0xFFFF)
    return None
