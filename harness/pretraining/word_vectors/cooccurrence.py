"""How often words stand near each other, each pair weighted by one over its distance (Pennington et al. 2014,
section 4.2)::

    X_ij = sum over places t, and t' <= window words away, of 1 / |t - t'|    with i at t and j at t'

X is symmetric: only pairs i <= j are kept, with X_ij of one order. Sums are made block by block. What does
not fit is spilled to disk by a hash of the pair, and each part is summed on its own, so memory is bounded
by the block and the part; as the hash is random, a part is a random sample of the pairs. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

GAP = -1
"""Between sentences: no window reaches across it."""
BLOCK = 1 << 18
"""Words that are counted at once."""
PART = 1 << 23
"""Pairs, repeated ones too, that a part may get before it is summed; 16 bytes each."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Some different pairs: ``first`` <= ``second`` (n,) int32, ``count`` (n,) float32 X of one order."""

    first: np.ndarray
    second: np.ndarray
    count: np.ndarray

    def __len__(self) -> int:
        return len(self.count)


class Cooccurrence:
    """The counts of a corpus, in parts.

    Args:
        words: V, size of the vocabulary.
        window: most words between the two, the farther one counted.
        folder: where parts are spilled when there are several.
        parts: number of parts; see :func:`parts_for`.
    """

    def __init__(self, words: int, *, window: int, folder: Path, parts: int = 1) -> None:
        self.words, self.window, self.folder = words, window, folder
        self._keys: list[list[np.ndarray]] = [[] for _ in range(parts)]
        self._weights: list[list[np.ndarray]] = [[] for _ in range(parts)]

    def __len__(self) -> int:
        """Number of parts."""
        return len(self._keys)

    def count(self, blocks: Iterable[np.ndarray]) -> None:
        """Count blocks of word numbers, :data:`GAP` between sentences; windows do not reach across blocks."""
        for number, ids in enumerate(blocks):
            keys, weights = summed(*pairs_of(ids, window=self.window, words=self.words))
            if len(self) == 1:
                self._keep(0, keys, weights)
                continue
            part = (keys.astype(np.uint64) * _FACTOR >> np.uint64(40)) % np.uint64(len(self))
            for p in range(len(self)):
                here = part == p
                self._spill(p, number, keys[here], weights[here])

    def part(self, number: int) -> Pairs:
        """The pairs of a part, in the order of their numbers."""
        if len(self) == 1:
            keys, weights = self._total(0)
        else:
            runs = sorted(self.folder.glob(f"pairs-{number}-*.npz"))
            loaded = [np.load(path) for path in runs]
            keys, weights = summed(
                np.concatenate([run["keys"] for run in loaded]),
                np.concatenate([run["weights"] for run in loaded]),
            )
        first, second = np.divmod(keys, self.words)
        # both orders of a pair of equal words are one number
        count = np.where(first == second, 2 * weights, weights).astype(np.float32)
        return Pairs(first.astype(np.int32), second.astype(np.int32), count)

    def pairs(self) -> int:
        """Different pairs of all parts."""
        return sum(len(self.part(number)) for number in range(len(self)))

    def _keep(self, part: int, keys: np.ndarray, weights: np.ndarray) -> None:
        self._keys[part].append(keys)
        self._weights[part].append(weights)
        if len(self._keys[part]) >= 16:
            self._total(part)

    def _total(self, part: int) -> tuple[np.ndarray, np.ndarray]:
        none = (np.empty(0, np.int64), np.empty(0))
        if len(self._keys[part]) != 1:
            keys, weights = (np.concatenate([*x, n]) for x, n in zip(
                (self._keys[part], self._weights[part]), none, strict=True))  # fmt: skip
            keys, weights = summed(keys, weights)
            self._keys[part], self._weights[part] = [keys], [weights]
        return self._keys[part][0], self._weights[part][0]

    def _spill(self, part: int, number: int, keys: np.ndarray, weights: np.ndarray) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        np.savez(self.folder / f"pairs-{part}-{number:08d}.npz", keys=keys, weights=weights)


def parts_for(words: int, *, window: int, most: int = PART) -> int:
    """Parts that a corpus of so many words needs for each to stay below ``most`` pairs."""
    return max(1, -(-words * window // most))


def pairs_of(ids: np.ndarray, *, window: int, words: int) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of a block: (n,) int64 ``i * words + j`` with i <= j, and (n,) float64 weights."""
    keys, weights = [np.empty(0, np.int64)], [np.empty(0)]
    sentence = np.cumsum(ids == GAP)
    for distance in range(1, min(window, len(ids) - 1) + 1):
        left, right = ids[:-distance], ids[distance:]
        inside = (sentence[:-distance] == sentence[distance:]) & (left >= 0)
        a, b = left[inside].astype(np.int64), right[inside].astype(np.int64)
        keys.append(np.minimum(a, b) * words + np.maximum(a, b))
        weights.append(np.full(len(a), 1.0 / distance))
    return np.concatenate(keys), np.concatenate(weights)


def summed(keys: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Different keys in their order, and the sum of the weights of each."""
    if not len(keys):
        return keys, weights
    order = np.argsort(keys, kind="stable")
    keys, weights = keys[order], weights[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[starts], np.add.reduceat(weights, starts)


def number_blocks(sentences: Iterable[Sequence[str]], ids: dict[str, int]) -> Iterator[np.ndarray]:
    """Sentences as blocks of word numbers with gaps between them, unknown words left out. A sentence is never
    cut."""
    block: list[int] = []
    for sentence in sentences:
        block += [ids[w] for w in sentence if w in ids]
        block.append(GAP)
        if len(block) >= BLOCK:
            yield np.array(block, dtype=np.int64)
            block = []
    if block:
        yield np.array(block, dtype=np.int64)
