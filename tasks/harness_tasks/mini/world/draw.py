"""Random choices that are the same on every machine and in every Python version.

Only ``random.Random(text).random()`` is used, because it is the only method of the generator whose sequence
is guaranteed to stay the same between versions.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import TypeVar

T = TypeVar("T")
ZIPF_SHIFT = 2.0
"""Item r (counted from 0) of a list has the weight 1 / (r + ZIPF_SHIFT) in :meth:`Draw.zipf`."""


class Draw:
    """An independent stream of choices; the same ``seed`` gives the same stream."""

    def __init__(self, seed: str) -> None:
        self._next = random.Random(f"mini world/{seed}").random

    def chance(self, share: float) -> bool:
        return self._next() < share

    def below(self, n: int) -> int:
        """An integer from 0 to n - 1."""
        return int(self._next() * n)

    def between(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return low + self.below(high - low + 1)

    def one(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def weighted(self, options: Sequence[tuple[T, float]]) -> T:
        """An option with a probability proportional to its weight."""
        cumulative = list(accumulate(weight for _, weight in options))
        return options[min(bisect(cumulative, self._next() * cumulative[-1]), len(options) - 1)][0]

    def zipf(self, options: Sequence[T]) -> T:
        """An option by Zipf's law: the first is the most frequent."""
        cumulative = _cumulative(len(options))
        return options[min(bisect(cumulative, self._next() * cumulative[-1]), len(options) - 1)]

    def some(self, options: Sequence[T], n: int) -> list[T]:
        """n different options in random order."""
        return self.shuffled(options)[:n]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        out = list(options)
        for i in range(len(out) - 1, 0, -1):
            j = self.below(i + 1)
            out[i], out[j] = out[j], out[i]
        return out


@cache
def _cumulative(n: int) -> list[float]:
    return list(accumulate(1 / (rank + ZIPF_SHIFT) for rank in range(n)))
