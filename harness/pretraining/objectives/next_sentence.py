"""Rows of two text spans, for predicting whether the second follows the first (Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.pretraining.text.packing import TokenSequence
from harness.pretraining.text.tokenizers import SPECIAL

CLS, SEP = SPECIAL.index("[CLS]"), SPECIAL.index("[SEP]")


@dataclass(frozen=True, slots=True)
class MaskedLMRow:
    """An input row of BERT.

    Attributes:
        ids: (S,) with special tokens.
        segments: (S,) 0 for the first span, 1 for the second.
        words: words that begin in the row.
        is_random: 1 if the second span comes from another document.
    """

    ids: np.ndarray
    segments: np.ndarray
    words: int
    is_random: int = 0


def sentence_pairs(
    documents: Sequence[list[TokenSequence]], room: int, rng: np.random.Generator
) -> Iterator[MaskedLMRow]:
    """Yield rows of two spans with at most ``room`` tokens together.

    In half of the rows the second span comes from another document, if there is more than one. Example: lines
    A B C of one document with room for A B become ``[CLS] A [SEP] B [SEP]`` or ``[CLS] A [SEP] x [SEP]`` with
    lines x of another document; after the latter B is not used up, so the next row starts with it.
    """
    for number, document in enumerate(documents):
        at = 0
        while at < len(document):
            first, second, at, is_random = _draw_pair(documents, number, at, room=room, rng=rng)
            first, second = _truncate(first, second, room)
            ids = np.concatenate([[CLS], first.ids, [SEP], second.ids, [SEP]])
            # [CLS] and the first [SEP] belong to the first segment, the last [SEP] to the second
            segments = np.concatenate([np.zeros(len(first) + 2), np.ones(len(second) + 1)]).astype(np.int64)
            yield MaskedLMRow(ids, segments, int(first.words.sum() + second.words.sum()), int(is_random))


def _draw_pair(
    documents: Sequence[list[TokenSequence]], number: int, at: int, *, room: int, rng: np.random.Generator
) -> tuple[TokenSequence, TokenSequence, int, bool]:
    """Draw both spans, beginning at line ``at`` of document ``number``.

    Returns:
        The spans, the line at which the next row starts, and whether the second is from another document.
    """
    lines, length, stop = documents[number], 0, at
    # lines[at:stop] fit into the row; at least one line, however long
    while stop < len(lines) and (stop == at or length + len(lines[stop]) <= room):
        length += len(lines[stop])
        stop += 1
    middle = at + 1 + int(rng.integers(max(1, stop - at - 1)))
    first = TokenSequence.join(lines[at:middle])
    nothing_follows = middle >= stop
    if len(documents) > 1 and (nothing_follows or rng.random() < 0.5):
        # any document but this one
        other = (number + 1 + int(rng.integers(len(documents) - 1))) % len(documents)
        start = int(rng.integers(len(documents[other]))) if documents[other] else 0
        second = documents[other][start:]
        if second:
            return first, TokenSequence.join(second), middle, True
    rest = lines[middle:stop] or [first.slice(0, 0)]
    return first, TokenSequence.join(rest), stop, False


def _truncate(first: TokenSequence, second: TokenSequence, room: int) -> tuple[TokenSequence, TokenSequence]:
    """Cut both spans at their ends, the longer one first.

    Room 10: lengths (9, 3) become (7, 3), and (9, 8) become (5, 5).
    """
    half = room // 2
    first_length = min(len(first), max(half, room - len(second)))
    return first.slice(0, first_length), second.slice(0, room - first_length)
