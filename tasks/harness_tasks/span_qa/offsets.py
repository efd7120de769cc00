"""Does an answer stand where its data say? If not, where does it stand?

Published files hold answers whose ``answer_start`` points beside the answer: contexts that lost leading
blanks, offsets counted in UTF-16 code units (by tools written in JavaScript), white space that was normalised
later. Training on the characters at the wrong place is the one thing that must not happen.
"""

from __future__ import annotations

EXACT = "exact"
UTF16 = "offsets counted in UTF-16 units"
ONLY = "moved to the only occurrence"
NEAR = "moved to the nearest occurrence"
REACH = 5
"""Furthest an answer that occurs several times may stand from where its data say, in characters."""


def locate_answer(context: str, answer: str, start: int) -> tuple[int, str] | None:
    """Where ``answer`` stands in ``context``.

    Args:
        context: unchanged text.
        answer: not empty.
        start: first character as the data say.

    Returns:
        The first character and how it was found (:data:`EXACT`, :data:`UTF16`, :data:`ONLY`, :data:`NEAR`);
        None when no occurrence can be told to be the one meant.
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
    """Index of the character that begins ``units`` UTF-16 code units into the text."""
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
    found = [i for i in range(low, min(high, len(context))) if context.startswith(answer, i)]
    found.sort(key=lambda i: abs(i - start))
    if not found or (len(found) > 1 and abs(found[0] - start) == abs(found[1] - start)):
        return None
    return found[0], NEAR
