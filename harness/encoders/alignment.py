"""Align sub-word pieces with words and characters, using the tokenizer's character offsets.

Raw offsets may include whitespace (byte-level and SentencePiece tokenizers attach the space before a word to
it), may repeat (the bytes of one character can be spread over several pieces) and may span several words. The
alignment does not depend on how a tokenizer marks its pieces.
"""

from __future__ import annotations

import numpy as np

from harness.data.text import Text


def align(text: Text, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Align pieces with words.

    A piece belongs to the word of its first character that lies in a word. Its span starts at that character
    and ends with its last character in a word. A piece without such characters (only whitespace, a format
    character) belongs to no word and keeps its span without surrounding whitespace.

    Args:
        text: the text and its words.
        offsets: (S, 2) raw character spans of the pieces, in text order.

    Returns:
        ``word_ids`` (S,), -1 for pieces that belong to no word; trimmed ``offsets`` (S, 2); ``first_token``
        (W,), the first piece that covers any character of each word, -1 for words that the tokenizer removed.
    """
    offsets = offsets.reshape(-1, 2)
    start, end = offsets[:, 0], offsets[:, 1]
    spans = np.asarray(text.spans, dtype=np.int64).reshape(-1, 2)
    index = np.flatnonzero(spans[:, 1] > spans[:, 0])  # an empty word covers no character
    first_token = np.full(len(spans), -1, dtype=np.int64)
    if not len(index) or not len(start):
        return np.full(len(start), -1, dtype=np.int64), _trimmed(text.text, start, end), first_token
    lo, hi = spans[index, 0], spans[index, 1]
    at = np.searchsorted(hi, start, side="right")  # first word that ends after the piece's start
    near = np.minimum(at, len(index) - 1)
    begin = np.maximum(start, lo[near])
    inside = (at < len(index)) & (begin < end)
    word_ids = np.where(inside, index[near], -1)
    # last word that starts before the piece's end
    last = np.maximum(np.searchsorted(lo, end, side="left") - 1, 0)
    stop = np.minimum(end, hi[last])
    spans_out = np.where(inside[:, None], np.stack([begin, stop], 1), 0)
    if not inside.all():
        spans_out[~inside] = _trimmed(text.text, start[~inside], end[~inside])
    first_token[index] = _first_tokens(start, end, lo, hi)
    return word_ids, spans_out, first_token


def _first_tokens(start: np.ndarray, end: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """Return for each word [lo, hi) the first piece that overlaps it, or -1."""
    token = np.searchsorted(np.maximum.accumulate(end), lo, side="right")
    near = np.minimum(token, len(start) - 1)
    covered = (token < len(start)) & (start[near] < hi) & (end[near] > lo)
    return np.where(covered, near, -1)


def _trimmed(text: str, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Strip whitespace from both ends of spans; an all-whitespace span becomes empty, at its end."""
    out = np.empty((len(start), 2), dtype=np.int64)
    for i, (a, b) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        piece = text[a:b]
        left = a + len(piece) - len(piece.lstrip())
        out[i] = left, max(left, a + len(piece.rstrip()))
    return out
