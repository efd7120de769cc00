"""Distance-weighted co-occurrence counts of words (Pennington et al. 2014, section 4.2)::

    X_ij = sum over positions t, and t' at most window words away, of 1 / |t - t'|    with i at t and j at t'

X is symmetric: only pairs i <= j are stored, with X_ij of one order. Counts are summed block by block. If
they do not fit into memory, they are divided into parts by a hash of the pair and spilled to disk, and each
part is summed on its own, so memory is bounded by a block and a part. Since the hash is random, a part is a
random sample of the pairs. Does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

GAP = -1
"""Separates sentences: no window extends across it."""
BLOCK = 1 << 18
"""Words that are counted at once."""
PART = 1 << 23
"""Maximum number of pairs of a part before equal ones are summed; 16 bytes each."""
MERGE_AFTER = 16
"""Number of blocks whose counts are held in memory before they are merged."""
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio (Fibonacci hashing)."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Distinct pairs of words.

    Attributes:
        first, second: (n,) int32 word numbers, ``first`` <= ``second``.
        count: (n,) float32, X of one order.
    """

    first: np.ndarray
    second: np.ndarray
    count: np.ndarray

    def __len__(self) -> int:
        return len(self.count)


class Cooccurrence:
    """The counts of a corpus, in parts.

    Args:
        words: V, size of the vocabulary.
        window: maximum distance of the two words.
        folder: where parts are spilled if there are several.
        parts: number of parts, see :func:`parts_for`.
    """

    def __init__(self, words: int, *, window: int, folder: Path, parts: int = 1) -> None:
        self.words, self.window, self.folder, self.parts = words, window, folder, parts
        self._keys: list[np.ndarray] = []
        self._weights: list[np.ndarray] = []

    def __len__(self) -> int:
        """Number of parts."""
        return self.parts

    def count(self, blocks: Iterable[np.ndarray]) -> None:
        """Count blocks of word numbers with :data:`GAP` between sentences; windows stay within a block."""
        for number, ids in enumerate(blocks):
            keys, weights = sum_by_key(*pairs_of(ids, window=self.window, words=self.words))
            if self.parts == 1:
                self._keep(keys, weights)
                continue
            # the upper bits of the product are the well mixed ones
            part = (keys.astype(np.uint64) * _HASH_FACTOR >> np.uint64(40)) % np.uint64(self.parts)
            for p in range(self.parts):
                in_part = part == p
                self._spill(p, number, keys[in_part], weights[in_part])

    def part(self, number: int) -> Pairs:
        """The pairs of a part, in the order of their keys."""
        if self.parts == 1:
            keys, weights = self._merge()
        else:
            paths = sorted(self.folder.glob(f"pairs-{number}-*.npz"))
            loaded = [np.load(path) for path in paths]
            keys, weights = sum_by_key(
                np.concatenate([block["keys"] for block in loaded]),
                np.concatenate([block["weights"] for block in loaded]),
            )
        # the inverse of pairs_of(): with 3 words, key 5 is the pair (1, 2)
        first, second = np.divmod(keys, self.words)
        # in the definition of X_ii a pair of equal words counts in both orders, pairs_of() counts it once
        count = np.where(first == second, 2 * weights, weights).astype(np.float32)
        return Pairs(first.astype(np.int32), second.astype(np.int32), count)

    def pairs(self) -> int:
        """Number of distinct pairs in all parts."""
        return sum(len(self.part(number)) for number in range(self.parts))

    def _keep(self, keys: np.ndarray, weights: np.ndarray) -> None:
        self._keys.append(keys)
        self._weights.append(weights)
        if len(self._keys) >= MERGE_AFTER:
            self._merge()

    def _merge(self) -> tuple[np.ndarray, np.ndarray]:
        if len(self._keys) != 1:
            keys, weights = sum_by_key(
                # the empty array lets concatenate() accept a corpus without blocks
                np.concatenate([*self._keys, np.empty(0, np.int64)]),
                np.concatenate([*self._weights, np.empty(0)]),
            )
            self._keys, self._weights = [keys], [weights]
        return self._keys[0], self._weights[0]

    def _spill(self, part: int, number: int, keys: np.ndarray, weights: np.ndarray) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        np.savez(self.folder / f"pairs-{part}-{number:08d}.npz", keys=keys, weights=weights)


def parts_for(words: int, *, window: int, max_pairs: int = PART) -> int:
    """Number of parts that keeps each part of a corpus of ``words`` words below ``max_pairs`` pairs."""
    # each word has at most `window` pairs with words to its right; -(-a // b) rounds up
    return max(1, -(-words * window // max_pairs))


def pairs_of(ids: np.ndarray, *, window: int, words: int) -> tuple[np.ndarray, np.ndarray]:
    """List the pairs of a block.

    The pairs at one distance are two slices of the block, shifted against each other. Example with window 2,
    words 3::

        ids          0  2  1 GAP  0          sentence  0 0 0 1 1
        distance 1   (0,2) (2,1)             keys 0*3+2, 1*3+2, weight 1
        distance 2   (0,1)                   key  0*3+1, weight 1/2; (2, GAP) and (1, 0) cross the gap

    Returns:
        (n,) int64 keys ``i * words + j`` with i <= j, and (n,) float64 weights.
    """
    keys, weights = [np.empty(0, np.int64)], [np.empty(0)]
    sentence = np.cumsum(ids == GAP)
    for distance in range(1, min(window, len(ids) - 1) + 1):
        left, right = ids[:-distance], ids[distance:]
        # a GAP has the number of the sentence after it: on the right it differs from left's number, on the
        # left it has to be excluded
        inside = (sentence[:-distance] == sentence[distance:]) & (left >= 0)
        a, b = left[inside].astype(np.int64), right[inside].astype(np.int64)
        keys.append(np.minimum(a, b) * words + np.maximum(a, b))
        weights.append(np.full(len(a), 1.0 / distance))
    return np.concatenate(keys), np.concatenate(weights)


def sum_by_key(keys: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum the weights of equal keys.

    Example: keys [5 2 5], weights [1 1 .5] are sorted to [2 5 5], [1 1 .5]; runs start at 0 and 1, so the
    result is [2 5], [1 1.5].

    Returns:
        Distinct keys in ascending order, and their sums.
    """
    if not len(keys):
        return keys, weights
    # a stable sort fixes the order of the additions, hence the bits of the sums
    order = np.argsort(keys, kind="stable")
    keys, weights = keys[order], weights[order]
    # the first position of each run of equal keys
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[starts], np.add.reduceat(weights, starts)


def number_blocks(sentences: Iterable[Sequence[str]], ids: dict[str, int]) -> Iterator[np.ndarray]:
    """Yield sentences as blocks of word numbers with gaps between them.

    Unknown words are left out, and a sentence is never divided between blocks.
    """
    block: list[int] = []
    for sentence in sentences:
        block += [ids[w] for w in sentence if w in ids]
        block.append(GAP)
        if len(block) >= BLOCK:
            yield np.array(block, dtype=np.int64)
            block = []
    if block:
        yield np.array(block, dtype=np.int64)
