"""Verification and repair of answer offsets.

Published files contain answers that are not at ``answer_start``: contexts that lost leading blanks, offsets
counted in UTF-16 code units (by tools written in JavaScript), white space that was normalised later. Training
on the characters at a wrong offset must not happen.
"""

from __future__ import annotations

EXACT = "exact"
UTF16 = "offsets counted in UTF-16 units"
ONLY = "moved to the only occurrence"
NEAR = "moved to the nearest occurrence"
REACH = 5
"""Maximum distance from ``answer_start`` of an answer that occurs several times, in characters."""


def locate_answer(context: str, answer: str, start: int) -> tuple[int, str] | None:
    """Find ``answer`` in ``context``.

    Args:
        context: unchanged text.
        answer: not empty.
        start: offset of the first character according to the data.

    Returns:
        The offset and how it was found (:data:`EXACT`, :data:`UTF16`, :data:`ONLY`, :data:`NEAR`); None when
        the answer does not occur, or it is ambiguous which occurrence is meant.
    """
    if start >= 0 and context.startswith(answer, start):
        return start, EXACT
    counted = _from_utf16(context, start)
    if counted is not None and context.startswith(answer, counted):
        return counted, UTF16
    first = context.find(answer)
    if first < 0:
        return None
    if context.find(answer, first + 1) < 0:
        return first, ONLY
    return _nearest(context, answer, start)


def _from_utf16(context: str, units: int) -> int | None:
    """Index of the character at an offset of ``units`` UTF-16 code units.

    Example: in "a𝄞b" (the clef takes two units) offset 3 is character 2; offset 2 is inside a character.
    """
    if units < 0:
        return None
    at = 0
    for index, char in enumerate(context):
        if at >= units:
            return index if at == units else None
        at += 1 + (ord(char) > 0xFFFF)
    return None


def _nearest(context: str, answer: str, start: int) -> tuple[int, str] | None:
    low, high = max(0, start - REACH), start + REACH + 1
    matches = [i for i in range(low, min(high, len(context))) if context.startswith(answer, i)]
    matches.sort(key=lambda i: abs(i - start))
    if not matches or (len(matches) > 1 and abs(matches[0] - start) == abs(matches[1] - start)):
        return None
    return matches[0], NEAR
