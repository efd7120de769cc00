"""Entities of many label sequences at once, as arrays over all words.

All sequences are laid end to end. A word *continues* an entity by conlleval's rule if it is not the first of
its sequence, its prefix is I or E, the preceding word's prefix is B or I, and both have the same type; every
other word with a prefix starts an entity, which ends before the next word that does not continue. Example::

    position   0     1     2   3     4     5
    sequence   0     0     0   0     1     1
    label      B-PER I-PER O   I-LOC I-LOC B-LOC
    continues  no    yes   no  no    no    no
    starts     yes   no    no  yes   yes   yes     entities [0, 2) PER, [3, 4) LOC, [4, 5) LOC, [5, 6) LOC

The result equals :func:`harness_tasks.tagging.schemes.entities` for each sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from harness_tasks.tagging.schemes import canonical

Labels = Sequence[str]


@dataclass(frozen=True, slots=True)
class LabelArrays:
    """Label sequences of the gold data and of predictions, end to end: T words of N sequences.

    Attributes:
        names: the different labels, sorted.
        gold, predicted: (T,) indices into ``names``.
        sequence: (T,) number of each word's sequence.
        size: N.
    """

    names: tuple[str, ...]
    gold: np.ndarray
    predicted: np.ndarray
    sequence: np.ndarray
    size: int

    @classmethod
    def of(cls, gold: Sequence[Labels], predicted: Sequence[Labels]) -> LabelArrays:
        """From N label sequences of equal length pairwise.

        Raises:
            ValueError: the lengths differ.
        """
        lengths = np.fromiter(map(len, gold), np.int64, len(gold))
        if not np.array_equal(lengths, np.fromiter(map(len, predicted), np.int64, len(predicted))):
            raise ValueError("gold and predicted label sequences differ in length")
        flat = [list(chain.from_iterable(side)) for side in (gold, predicted)]
        names = tuple(sorted(set(flat[0]) | set(flat[1])))
        number = {name: i for i, name in enumerate(names)}
        first, second = (np.fromiter(map(number.__getitem__, side), np.int64, len(side)) for side in flat)
        return cls(names, first, second, np.repeat(np.arange(len(gold)), lengths), len(gold))

    def per_sequence(self, words: np.ndarray) -> np.ndarray:
        """(N,) int64: how many of the words (a mask (T,) or positions) each sequence has."""
        return np.bincount(self.sequence[words], minlength=self.size)


@dataclass(frozen=True, slots=True)
class SpanArrays:
    """Entities of all sequences, in order.

    Attributes:
        start, end: (E,) positions in :class:`LabelArrays`, end excluded.
        type: (E,) index into the sorted types.
    """

    start: np.ndarray
    end: np.ndarray
    type: np.ndarray


@dataclass(frozen=True, slots=True)
class LabelParts:
    """Prefix and type of each different label.

    Attributes:
        types: the types of labels with a prefix, sorted.
        opens, inside, outside: (L,) bool: prefix B or I; I or E; none.
        begins: (L,) bool: the label starts with ``B``, as strict IOB2 demands of an entity's first word.
        type: (L,) index into ``types``; -1 without a prefix.
    """

    types: tuple[str, ...]
    opens: np.ndarray
    inside: np.ndarray
    outside: np.ndarray
    begins: np.ndarray
    type: np.ndarray

    @classmethod
    def of(cls, names: Iterable[str]) -> LabelParts:
        """Split labels of any scheme but ``none``."""
        labels = list(names)
        parts = [canonical(label) for label in labels]
        types = tuple(sorted({kind for prefix, kind in parts if prefix}))
        return cls(
            types,
            opens=np.array([prefix in ("B", "I") for prefix, _ in parts], dtype=bool),
            inside=np.array([prefix in ("I", "E") for prefix, _ in parts], dtype=bool),
            outside=np.array([not prefix for prefix, _ in parts], dtype=bool),
            begins=np.array([label.startswith("B") for label in labels], dtype=bool),
            type=np.array([types.index(kind) if prefix else -1 for prefix, kind in parts], dtype=np.int64),
        )


def spans(labels: np.ndarray, sequence: np.ndarray, parts: LabelParts, *, strict: bool = False) -> SpanArrays:
    """Find the entities of all sequences; see the module.

    Args:
        labels: (T,) indices of the labels that ``parts`` describes.
        sequence: (T,) number of each word's sequence.
        parts: prefix and type of each label.
        strict: only entities whose first label starts with ``B``
            (:func:`harness_tasks.tagging.schemes.strict_entities`).
    """
    continues = np.zeros(len(labels), dtype=bool)
    before, here = labels[:-1], labels[1:]
    same = (sequence[1:] == sequence[:-1]) & (parts.type[here] == parts.type[before])
    continues[1:] = same & parts.opens[before] & parts.inside[here]
    breaks = np.flatnonzero(~continues)
    start = np.flatnonzero(~continues & ~parts.outside[labels])
    if strict:
        start = start[parts.begins[labels[start]]]
    # an entity ends at the next break after its start
    end = np.append(breaks, len(labels))[np.searchsorted(breaks, start) + 1]
    return SpanArrays(start, end, parts.type[labels[start]])


def matching(gold: SpanArrays, predicted: SpanArrays) -> np.ndarray:
    """(E,) bool: which of the predicted entities are gold entities with the same ends and type."""
    at = np.searchsorted(gold.start, predicted.start)
    if not len(gold.start):
        return np.zeros(len(at), dtype=bool)
    at = np.minimum(at, len(gold.start) - 1)
    same = (gold.start[at] == predicted.start) & (gold.end[at] == predicted.end)
    return np.asarray(same & (gold.type[at] == predicted.type))
