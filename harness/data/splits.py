"""Cut missing splits from train, and take subsets of a split.

All functions order the examples by a hash of seed and position, so the choice does not depend on the machine
or on a library's random generator, and a larger subset always contains a smaller one.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from harness.errors import HarnessError

T = TypeVar("T")
Key = Callable[[T], Hashable]


@dataclass(frozen=True, slots=True)
class Cut(Generic[T]):
    """The remaining examples (``rest``) and the split (``part``), both in the order of the data, and notes on
    deviations from the request."""

    rest: list[T]
    part: list[T]
    notes: list[str] = field(default_factory=list)


def cut(
    examples: Sequence[T],
    fraction: float,
    seed: int,
    *,
    stratify: Key[T] | None = None,
    group: Key[T] | None = None,
) -> Cut[T]:
    """Split off ``fraction`` of the examples, at least one.

    Args:
        examples: at least two.
        fraction: in (0, 1).
        seed: the same seed gives the same cut of the same data on every machine.
        stratify: class of an example; each class contributes its share (largest remainders), and the last
            example of a class is never taken.
        group: group of an example; groups are never split (for example all questions of one article, or
            copies of one text). With ``stratify``, groups are taken while they bring the classes nearer to
            their shares.

    Raises:
        HarnessError: the fraction is out of range, or there are fewer than two examples or groups.
    """
    if not 0 < fraction < 1:
        raise HarnessError(f"cannot cut a split of fraction {fraction}: it must be between 0 and 1")
    if len(examples) < 2:
        raise HarnessError(f"cannot cut a split from {len(examples)} example(s): set its file")
    if group is not None and stratify is not None:
        return _divide(examples, _stratified_groups(examples, fraction, seed, stratify, group), [])
    if group is not None:
        return _divide(examples, _whole_groups(examples, fraction, seed, group), [])
    target = max(1, round(fraction * len(examples)))
    if stratify is None:
        return _divide(examples, set(_order(len(examples), seed)[:target]), [])
    classes = [stratify(e) for e in examples]
    counts = Counter(classes)
    single = [str(c) for c, n in counts.items() if n == 1]
    if len(single) == len(counts):
        taken = set(_order(len(examples), seed)[: min(target, len(examples) - 1)])
        return _divide(examples, taken, ["no class has two examples: the cut is not stratified"])
    notes = []
    if single:
        shown = ", ".join(repr(c) for c in single[:5]) + (", ..." if len(single) > 5 else "")
        notes.append(f"{len(single)} class(es) with a single example are not split: {shown}")
    return _divide(examples, _by_class(classes, _quotas(counts, fraction, target), seed), notes)


def complete(
    read: Mapping[str, Sequence[T]],
    *,
    no_dev: bool,
    fractions: Mapping[str, float],
    seed: int,
    notes: list[str],
    stratify: Key[T] | None = None,
    group: Key[T] | None = None,
    train_size: int | None = None,
) -> dict[str, list[T]]:
    """Return all three splits: missing ones are cut from train, test first; then train is reduced.

    Args:
        read: examples by role, with train at least.
        no_dev: leave dev empty.
        fractions: fraction of train to cut, by role.
        seed: seed of the cut.
        notes: receives a sentence about each split that was cut.
        stratify: class of an example, if cuts and the smaller train are stratified.
        group: group of an example; cuts do not split groups.
        train_size: number of training examples, see :func:`smaller`; None = all.
    """
    out = {role: list(read.get(role, ())) for role in ("train", "dev", "test")}
    for role in ("test", "dev"):
        if role in read or (role == "dev" and no_dev):
            continue
        done = cut(out["train"], fractions[role], seed, stratify=stratify, group=group)
        out["train"], out[role] = done.rest, done.part
        how = f"{100 * fractions[role]:g} % ({len(done.part)}) cut from train with seed {seed}"
        kept = ", groups and copies of a text kept together" if group else ""
        notes.append(f"{role}: {how}{', stratified' if stratify else ''}{kept}")
        notes += [f"{role}: {note}" for note in done.notes]
    if no_dev and not out["dev"]:
        notes.append("dev: none, as requested")
    out["train"] = smaller(out["train"], train_size, seed, notes=notes, stratify=stratify)
    return out


def smaller(
    train: Sequence[T], size: int | None, seed: int, *, notes: list[str], stratify: Key[T] | None = None
) -> list[T]:
    """Return ``size`` examples of ``train`` in the order of the data, or all if None. A larger subset
    contains all smaller ones.

    Args:
        train: the training examples after dev and test were cut.
        size: number of examples to keep.
        seed: seed of the choice, the same for all seeds of a cell.
        notes: receives a sentence if examples are left out.
        stratify: class of an example. Each class is represented as soon as there are as many examples as
            classes; beyond that the classes keep their shares to within one example.

    Raises:
        HarnessError: ``size`` is less than one or more than the number of examples.
    """
    if size is None:
        return list(train)
    if not 1 <= size <= len(train):
        raise HarnessError(
            f"task.train_size={size}: must be between 1 and {len(train)}, the number of training "
            "examples, or all"
        )
    order = _order(len(train), f"train_size/{seed}")
    if stratify is not None:
        order = _interleaved(order, [stratify(e) for e in train])
    how = f"seed {seed}{', stratified' if stratify else ''}"
    notes.append(
        f"train: {size} of {len(train)} examples, as requested ({how}; the same for every cell's seed)"
    )
    return [train[i] for i in sorted(order[:size])]


def _interleaved(order: Sequence[int], classes: Sequence[Hashable]) -> list[int]:
    """Reorder so that each prefix is stratified: the k-th of the n examples of a class has the key k / n.

    Example: classes a a a a b b in the order 0..5 have the keys 0, 1/4, 2/4, 3/4, 0, 1/2 and give the order
    0 4 1 2 5 3, that is a b a a b a.
    """
    total, seen = Counter(classes), Counter[Hashable]()
    key = {}
    for rank, i in enumerate(order):
        key[i] = (seen[classes[i]] / total[classes[i]], rank)
        seen[classes[i]] += 1
    return sorted(order, key=key.__getitem__)


def limit(examples: Sequence[T], n: int | None, seed: int = 0) -> list[T]:
    """Return at most ``n`` examples, a seeded sample in the order of the data; all if None.

    A larger limit contains every smaller one.

    Raises:
        HarnessError: ``n`` is less than one.
    """
    if n is None:
        return list(examples)
    if n < 1:
        raise HarnessError(f"limit={n}: must be at least 1; null = no limit")
    return [examples[i] for i in sorted(_order(len(examples), seed)[:n])]


def _order(n: int, seed: int | str) -> list[int]:
    return sorted(range(n), key=lambda i: hashlib.blake2b(f"{seed}/{i}".encode(), digest_size=8).digest())


def _divide(examples: Sequence[T], taken: set[int], notes: list[str]) -> Cut[T]:
    rest = [e for i, e in enumerate(examples) if i not in taken]
    return Cut(rest, [examples[i] for i in sorted(taken)], notes)


def _quotas(counts: Counter[Hashable], fraction: float, target: int) -> dict[Hashable, int]:
    """Number of examples per class: its share rounded down, then one more by largest remainder up to the
    target.

    Example: counts {a: 5, b: 3}, fraction 0.4, target 3: shares 2.0 and 1.2 round down to 2 and 1, the
    target.
    """
    quotas = {c: min(int(fraction * n), n - 1) for c, n in counts.items()}
    by_remainder = sorted(counts, key=lambda c: fraction * counts[c] - quotas[c], reverse=True)
    missing = target - sum(quotas.values())
    for c in by_remainder:
        if missing > 0 and quotas[c] + 1 < counts[c]:
            quotas[c] += 1
            missing -= 1
    return quotas


def _by_class(classes: Sequence[Hashable], quotas: dict[Hashable, int], seed: int) -> set[int]:
    left = dict(quotas)
    taken = set()
    for i in _order(len(classes), seed):
        if left[classes[i]] > 0:
            left[classes[i]] -= 1
            taken.add(i)
    return taken


def _whole_groups(examples: Sequence[T], fraction: float, seed: int, group: Key[T]) -> set[int]:
    groups = _members(examples, group)
    target = fraction * len(examples)
    taken: set[int] = set()
    for n in _order(len(groups), seed):
        short = target - len(taken)
        nearer = abs(short - len(groups[n])) < short
        if (nearer or not taken) and len(taken) + len(groups[n]) < len(examples):
            taken.update(groups[n])
    return taken


def _stratified_groups(
    examples: Sequence[T], fraction: float, seed: int, stratify: Key[T], group: Key[T]
) -> set[int]:
    """Take whole groups, in a seeded order, while that brings every class nearer to its quota.

    A group is taken if the summed distance of the classes from their quotas shrinks, and if each of its
    classes keeps an example. Example: quotas a 2, b 1; a group with two a is taken (distance 3 to 1), then
    one with two b is not (distance stays 1).
    """
    members = _members(examples, group)
    classes = [stratify(e) for e in examples]
    left = Counter(classes)
    short = _quotas(left, fraction, max(1, round(fraction * len(examples))))
    taken: set[int] = set()
    for n in _order(len(members), seed):
        counts = Counter(classes[i] for i in members[n])
        gain = sum(abs(short[c]) - abs(short[c] - k) for c, k in counts.items())
        if (gain > 0 or not taken) and all(left[c] > k for c, k in counts.items()):
            taken.update(members[n])
            left -= counts
            for c, k in counts.items():
                short[c] -= k
    if not taken:
        raise HarnessError(
            "cannot cut a split: each class consists of copies of one text, or of one group; give the split "
            "its own file"
        )
    return taken


def _members(examples: Sequence[T], group: Key[T]) -> list[list[int]]:
    members: dict[Hashable, list[int]] = defaultdict(list)
    for i, example in enumerate(examples):
        members[group(example)].append(i)
    if len(members) < 2:
        raise HarnessError(
            "cannot cut a split: all examples are copies of one text, or in one group; set its file"
        )
    return list(members.values())


def join_groups(*keys: Sequence[Hashable]) -> list[int]:
    """Number the groups of examples that are connected by equal keys.

    Example: texts a b a c and authors 1 2 3 2 give the groups 0 1 0 1: the first and third text are equal,
    and the second and fourth have the same author.

    Args:
        keys: one or more sequences with a key for each example; None is no key.
    """
    leader = list(range(len(keys[0])))

    def root(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    for sequence in keys:
        first: dict[Hashable, int] = {}
        for i, key in enumerate(sequence):
            if key is not None:
                a, b = root(first.setdefault(key, i)), root(i)
                leader[max(a, b)] = min(a, b)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(i), len(numbers)) for i in range(len(leader))]
