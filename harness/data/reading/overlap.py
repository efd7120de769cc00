"""Comparison of the splits of a data set: texts in several splits, repeated texts, contradictory labels.

Two texts are the same if they are equal after Unicode normalisation (NFC) and after runs of white space are
replaced by one blank.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from harness.data.reading.log import ReadLog
from harness.errors import HarnessError, did_you_mean

T = TypeVar("T")
DUPLICATES = ("keep", "drop", "error")
Keys = Callable[[T], tuple[Hashable, Hashable]]
"""Function of an example: its text key and its label."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Texts of one split that are in an earlier one.

    Attributes:
        split, other: names of the splits, ``split`` the later one.
        shared: number of examples of ``split`` whose text is in ``other``.
        other_label: how many of these have a label there that differs from theirs.
        examples: number of examples of ``split``.
    """

    split: str
    other: str
    shared: int
    other_label: int
    examples: int

    def __str__(self) -> str:
        differing = f", {self.other_label} of them with another label" if self.other_label else ""
        return f"{self.shared} of {self.examples} {self.split} texts are in {self.other}{differing}"


@dataclass(frozen=True, slots=True)
class Overlap:
    """The result of :func:`compare`.

    Attributes:
        shared: pairs of splits that share texts.
        repeated: number of examples per split whose text occurred before in the same split; without zeros.
        contradictory: number of different texts per split that have several labels; without zeros.
    """

    shared: tuple[Shared, ...] = ()
    repeated: dict[str, int] = field(default_factory=dict)
    contradictory: dict[str, int] = field(default_factory=dict)

    def warnings(self) -> list[str]:
        """Return a sentence for each finding that affects scores."""
        out = [str(s) for s in self.shared]
        out += [f"{n} texts in {split} have contradictory labels" for split, n in self.contradictory.items()]
        return out

    def notes(self) -> list[str]:
        """Return a sentence for each finding that need not be an error."""
        return [f"{n} examples in {split} repeat an earlier text" for split, n in self.repeated.items()]


def text_key(*texts: str) -> str:
    """Return the normalised text, or texts, by which examples are compared."""
    return "\x1f".join(" ".join(unicodedata.normalize("NFC", text).split()) for text in texts)


def compare(splits: Mapping[str, Sequence[tuple[Hashable, Hashable]]]) -> Overlap:
    """Compare the examples of all splits.

    Example: train [(a, 1), (a, 2), (b, 1)] and test [(a, 1), (b, 2)] give: 2 of 2 test texts in train, 1 of
    them (b) with another label; 1 repeated and 1 contradictory text in train.

    Args:
        splits: key (:func:`text_key`) and label of each example by split, in the order train, dev, test.
    """
    labels: dict[str, dict[Hashable, set[Hashable]]] = {}
    repeated, contradictory = {}, {}
    for split, examples in splits.items():
        seen: dict[Hashable, set[Hashable]] = {}
        for key, label in examples:
            seen.setdefault(key, set()).add(label)
        labels[split] = seen
        if copies := len(examples) - len(seen):
            repeated[split] = copies
        if several := sum(len(values) > 1 for values in seen.values()):
            contradictory[split] = several
    names = list(splits)
    shared = [_shared(splits, labels, a, b) for j, b in enumerate(names) for a in names[:j]]
    return Overlap(tuple(s for s in shared if s.shared), repeated, contradictory)


def _shared(
    splits: Mapping[str, Sequence[tuple[Hashable, Hashable]]],
    labels: Mapping[str, Mapping[Hashable, set[Hashable]]],
    other: str,
    split: str,
) -> Shared:
    earlier = labels[other]
    both = [(key, label) for key, label in splits[split] if key in earlier]
    differing = sum(label not in earlier[key] for key, label in both)
    return Shared(split, other, len(both), differing, len(splits[split]))


def treat_duplicates(
    splits: Mapping[str, Sequence[T]], keys: Keys[T], treatment: str, log: ReadLog
) -> dict[str, list[T]]:
    """Keep, drop or refuse repeated texts.

    With ``drop``, an example whose text and label occurred before in its split is left out, and so is an
    example of train or dev whose text is in a later split, so that test stays comparable. Equal texts with
    different labels in one split stay, because neither label is known to be right.

    Args:
        splits: examples by split, in the order train, dev, test.
        keys: text key (:func:`text_key`) and label of an example.
        treatment: one of :data:`DUPLICATES`.
        log: receives the numbers of examples left out.

    Raises:
        HarnessError: an unknown treatment, or repeated texts with ``error``.
    """
    if treatment not in DUPLICATES:
        raise HarnessError(f"task.duplicates={treatment}: {did_you_mean(treatment, DUPLICATES)}")
    if treatment == "keep":
        return {split: list(examples) for split, examples in splits.items()}
    if treatment == "error":
        found = compare({split: [keys(e) for e in examples] for split, examples in splits.items()})
        if lines := [*found.warnings(), *found.notes()]:
            raise HarnessError(f"task.duplicates=error: {'; '.join(lines)}; drop leaves repeated texts out")
        return {split: list(examples) for split, examples in splits.items()}
    return _drop(splits, keys, log)


def _drop(splits: Mapping[str, Sequence[T]], keys: Keys[T], log: ReadLog) -> dict[str, list[T]]:
    out: dict[str, list[T]] = {}
    later: dict[Hashable, str] = {}
    for split, examples in reversed(list(splits.items())):
        seen: set[tuple[Hashable, Hashable]] = set()
        kept = []
        for example in examples:
            key = keys(example)
            if key[0] in later:
                log.exclude(split, f"the text is also in {later[key[0]]} (task.duplicates=drop)")
            elif key in seen:
                log.exclude(split, "text and label occurred before (task.duplicates=drop)")
            else:
                kept.append(example)
            seen.add(key)
        out[split] = kept
        for text, _ in seen:
            later.setdefault(text, split)
    return {split: out[split] for split in splits}
