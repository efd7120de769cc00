"""Windows of encoders whose tokens are the words of a text: one token per word, no special tokens."""

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

    @property
    def words(self) -> list[str]:
        return [self.text.text[a:b] for a, b in self.text.spans[self.start : self.start + self.length]]

    def as_text(self) -> Text:
        """Return the window as a separate text, its spans relative to its first word."""
        spans = self.text.spans[self.start : self.start + self.length]
        if len(spans) == len(self.text):
            return self.text
        if not spans:
            return Text("", (), self.text.pretokenized)
        first, last = spans[0][0], spans[-1][1]
        relative = tuple((a - first, b - first) for a, b in spans)
        return Text(self.text.text[first:last], relative, self.text.pretokenized)


def word_windows(
    text: Text, windowing: WindowOptions, inputs: Callable[[WordWindow], Mapping[str, np.ndarray]]
) -> list[TokenizedWindow]:
    """Split a text into windows whose tokens are its words.

    Args:
        text: the text.
        windowing: ``max_length`` counts words.
        inputs: computes the encoder's input arrays of a window, (length, ...) each.

    Raises:
        HarnessError: the stride does not fit ``max_length``.
    """
    n = len(text)
    room = windowing.max_length
    spans_of_windows = [(0, n)] if room is None or n <= room else windows(n, room, windowing.stride)
    owner = owners(n, spans_of_windows)
    if windowing.truncate:
        first_length = spans_of_windows[0][1]
        spans_of_windows, owner = spans_of_windows[:1], np.where(np.arange(n) < first_length, 0, -1)
    offsets = np.array(text.spans, dtype=np.int64).reshape(n, 2)
    words = np.arange(n)
    return [
        TokenizedWindow(
            inputs=dict(inputs(WordWindow(text, start, length))),
            word_ids=np.arange(start, start + length),
            offsets=offsets[start : start + length],
            sequence_ids=np.zeros(length, dtype=np.int64),
            # 5 words in windows (0, 3) and (2, 3), owners [0, 0, 0, 1, 1]:
            # window 0 gets [0, 1, 2, -1, -1], window 1 gets [-1, -1, -1, 1, 2]
            word_to_token=np.where(owner == index, words - start, -1),
            window=index,
        )
        for index, (start, length) in enumerate(spans_of_windows)
    ]


def is_truncated(rows: Sequence[TokenizedWindow], text: Text, windowing: WindowOptions) -> bool:
    """Return whether ``windowing.truncate`` dropped words of ``text``."""
    return windowing.truncate and len(rows[0]) < len(text)
