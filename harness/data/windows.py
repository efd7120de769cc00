"""Overlapping windows over a long text, and which window answers for which token.

Windows start every ``room - stride`` tokens and cover everything. A token that several windows show belongs to
the one with the most context around it: the largest ``min(left, right) + 0.01 * length`` with ``left`` and
``right`` the tokens between it and the window's ends and ``length`` the window's, the published rule of BERT's
SQuAD code (Devlin et al. 2019, ``run_squad.py``). Of equals the first window wins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.errors import HarnessError

LENGTH_WEIGHT = 0.01


def windows(n: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Starts and lengths of the windows over ``n`` tokens.

    Args:
        n: tokens to cover; 0 gives the one empty window ``[(0, 0)]``.
        room: most tokens a window holds.
        stride: tokens that neighbouring windows share.

    Raises:
        HarnessError: no room, or an stride that leaves no step forward.
    """
    if room < 1:
        raise HarnessError(f"windows of {room} tokens hold no text: raise max_length")
    if not 0 <= stride < room:
        raise HarnessError(
            f"stride={stride} does not fit windows with room for {room} tokens: "
            f"it must lie between 0 and {room - 1} (trainer.stride), or raise trainer.max_length"
        )
    step = room - stride
    starts = range(0, max(1, n - stride), step)
    return [(start, min(room, n - start)) for start in starts]


def owners(n: int, wins: Sequence[tuple[int, int]]) -> np.ndarray:
    """(n,) int64: for each token the index of the window that shows the most context around it, -1 if none."""
    best = np.full(n, -np.inf)
    owner = np.full(n, -1, dtype=np.int64)
    for index, (start, length) in enumerate(wins):
        place = np.arange(length)
        score = np.minimum(place, length - 1 - place) + LENGTH_WEIGHT * length
        here = slice(start, start + length)
        better = score > best[here]
        best[here][better] = score[better]
        owner[here][better] = index
    return owner
