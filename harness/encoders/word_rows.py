"""Rows of encoders whose tokens are the words of a text, one token a word and no special tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenizedWindow
from harness.data.windows import owners, windows


@dataclass(frozen=True, slots=True)
class WordWindow:
    """Words ``start`` to ``start + length`` of ``text``."""

    text: Text
    start: int
    length: int

    def cut(self) -> Text:
        """The window as a text of its own."""
        spans = self.text.spans[self.start : self.start + self.length]
        if len(spans) == len(self.text) or not spans:
            return self.text if len(spans) == len(self.text) else Text("", (), self.text.pretokenized)
        first, last = spans[0][0], spans[-1][1]
        moved = tuple((a - first, b - first) for a, b in spans)
        return Text(self.text.text[first:last], moved, self.text.pretokenized)


def word_rows(
    text: Text, windowing: WindowOptions, inputs: Callable[[WordWindow], Mapping[str, np.ndarray]]
) -> list[TokenizedWindow]:
    """The windows of a text as rows whose tokens are its words.

    Args:
        text: the text.
        windowing: ``max_length`` counts words here.
        inputs: the encoder's own arrays for a window, (length, ...) each.

    Raises:
        HarnessError: the stride does not fit ``max_length``.
    """
    n = len(text)
    room = windowing.max_length
    wins = [(0, n)] if room is None or n <= room else windows(n, room, windowing.stride)
    owner = owners(n, wins)
    if windowing.truncate:
        wins, owner = wins[:1], np.where(np.arange(n) < wins[0][1], 0, -1)
    spans = np.array(text.spans, dtype=np.int64).reshape(n, 2)
    rows = []
    for index, (start, length) in enumerate(wins):
        words = np.arange(n)
        rows.append(
            TokenizedWindow(
                inputs=dict(inputs(WordWindow(text, start, length))),
                word_ids=np.arange(start, start + length),
                offsets=spans[start : start + length],
                sequence_ids=np.zeros(length, dtype=np.int64),
                word_to_token=np.where(owner == index, words - start, -1),
                window=index,
            )
        )
    return rows


def cut(rows: Sequence[TokenizedWindow], text: Text, windowing: WindowOptions) -> bool:
    """Whether ``windowing.truncate`` dropped words of ``text``."""
    return windowing.truncate and len(rows[0]) < len(text)
