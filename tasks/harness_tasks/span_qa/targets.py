"""Token targets of each window from the character span of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from harness.data.tokens import TokenizedWindow

NULL = -1
"""Target of a window without the answer: the null position, whose scores the head defines."""


def token_spans(rows: Sequence[TokenizedWindow], start: int, end: int) -> list[tuple[int, int] | None]:
    """First and last token of the smallest token span that covers characters [start, end), by window.

    None for a window that does not contain the whole answer. Characters that the tokenizer drops everywhere
    (format characters, blanks) are ignored.

    Example: characters [4, 9) and offsets [(0, 3), (4, 6), (6, 9)] give (1, 2). A second window with offsets
    [(6, 9), (10, 14)] touches the answer in [6, 9) only and gets None.

    Args:
        rows: all windows of the example; the context is the last text of the row.
        start, end: characters of the answer in the context.
    """
    touching = [_touching(row, start, end) for row in rows]
    reach = [
        (int(row.offsets[t, 0].min()), int(row.offsets[t, 1].max())) if len(t) else None
        for row, t in zip(rows, touching, strict=True)
    ]
    reached = [r for r in reach if r is not None]
    if not reached:
        return [None] * len(rows)
    whole = (min(a for a, _ in reached), max(b for _, b in reached))
    return [(int(t[0]), int(t[-1])) if r == whole else None for r, t in zip(reach, touching, strict=True)]


def _touching(row: TokenizedWindow, start: int, end: int) -> np.ndarray:
    """Indices of the context's tokens that share a character with [start, end)."""
    if not len(row):
        return np.empty(0, dtype=np.int64)
    context = row.sequence_ids == max(int(row.sequence_ids.max()), 0)
    return np.flatnonzero(context & (row.offsets[:, 0] < end) & (row.offsets[:, 1] > start))


def is_joint(row: TokenizedWindow) -> bool:
    """Whether the row contains the question as well."""
    return len(row) > 0 and int(row.sequence_ids.max()) == 1
