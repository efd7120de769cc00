"""Overlapping windows over a long text, and the window that owns each token.

Windows start every ``room - stride`` tokens and cover all tokens. A token in several windows belongs to the
one with the most context around it: the largest ``min(left, right) + 0.01 * length`` with ``left`` and
``right`` the numbers of tokens between it and the window's ends and ``length`` that of the window, the
published rule of BERT's SQuAD code (Devlin et al. 2019, ``run_squad.py``). Ties go to the first window.

Example: 7 tokens, room 5, stride 3 give windows (0, 5), (2, 5), as (start, length). Token 3 has min(3, 1) = 1
in the first and min(1, 3) = 1 in the second: the first owns it. Token 4 has 0 and 2: the second owns it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.errors import HarnessError

LENGTH_WEIGHT = 0.01

MAX_LENGTH = 512
"""Tokens per window if neither the encoder nor the configuration sets a limit."""


def windows(n: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Compute (start, length) of the windows over ``n`` tokens.

    Args:
        n: number of tokens; 0 gives one empty window ``[(0, 0)]``.
        room: maximum number of tokens per window.
        stride: number of tokens that neighbouring windows share.

    Raises:
        HarnessError: ``room`` is not positive, or ``stride`` is not less than ``room``.
    """
    if room < 1:
        raise HarnessError(f"windows have room for {room} tokens of text: increase trainer.max_length")
    if not 0 <= stride < room:
        raise HarnessError(
            f"trainer.stride={stride}: must be between 0 and {room - 1} where windows have room for {room} "
            "tokens of text; or increase trainer.max_length"
        )
    step = room - stride
    starts = range(0, max(1, n - stride), step)
    return [(start, min(room, n - start)) for start in starts]


def owners(n: int, wins: Sequence[tuple[int, int]]) -> np.ndarray:
    """(n,) int64: for each token the index of the window that owns it, -1 if no window contains it."""
    best = np.full(n, -np.inf)
    owner = np.full(n, -1, dtype=np.int64)
    for index, (start, length) in enumerate(wins):
        position = np.arange(length)
        context = np.minimum(position, length - 1 - position) + LENGTH_WEIGHT * length
        span = slice(start, start + length)
        better = context > best[span]
        best[span][better] = context[better]
        owner[span][better] = index
    return owner
