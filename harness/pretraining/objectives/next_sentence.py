"""Rows of two stretches of text, for telling whether the second follows the first (Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.pretraining.text.packing import Pieces
from harness.pretraining.text.tokenizers import SPECIAL

CLS, SEP = SPECIAL.index("[CLS]"), SPECIAL.index("[SEP]")


@dataclass(frozen=True, slots=True)
class Row:
    """Ids with special tokens, their segments, words that begin in it, and whether b follows a (1 = no)."""

    ids: np.ndarray
    segments: np.ndarray
    words: int
    other: int = 0


def pairs(documents: Sequence[list[Pieces]], room: int, rng: np.random.Generator) -> Iterator[Row]:
    """Rows of two stretches of at most ``room`` tokens together; in half of them, as far as there is more than
    one document, the second comes from another document."""
    for number, document in enumerate(documents):
        at = 0
        while at < len(document):
            first, second, at, other = _pair(documents, number, at, room=room, rng=rng)
            first, second = _fit(first, second, room)
            ids = np.concatenate([[CLS], first.ids, [SEP], second.ids, [SEP]])
            segments = np.concatenate([np.zeros(len(first) + 2), np.ones(len(second) + 1)]).astype(np.int64)
            yield Row(ids, segments, int(first.words.sum() + second.words.sum()), int(other))


def _pair(
    documents: Sequence[list[Pieces]], number: int, at: int, *, room: int, rng: np.random.Generator
) -> tuple[Pieces, Pieces, int, bool]:
    """Both stretches, the line at which the next row starts, and whether the second is from elsewhere."""
    lines, length, stop = documents[number], 0, at
    while stop < len(lines) and (stop == at or length + len(lines[stop]) <= room):
        length += len(lines[stop])
        stop += 1
    middle = at + 1 + int(rng.integers(max(1, stop - at - 1)))
    first = Pieces.join(lines[at:middle])
    alone = middle >= stop
    if len(documents) > 1 and (alone or rng.random() < 0.5):
        where = (number + 1 + int(rng.integers(len(documents) - 1))) % len(documents)
        start = int(rng.integers(len(documents[where]))) if documents[where] else 0
        second = documents[where][start:]
        if second:
            return first, Pieces.join(second), middle, True
    rest = lines[middle:stop] or [first.cut(0, 0)]
    return first, Pieces.join(rest), stop, False


def _fit(first: Pieces, second: Pieces, room: int) -> tuple[Pieces, Pieces]:
    """Both cut at their ends, the longer one first, until they fit."""
    half = room // 2
    a = min(len(first), max(half, room - len(second)))
    return first.cut(0, a), second.cut(0, room - a)
