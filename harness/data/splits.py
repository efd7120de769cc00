"""Cutting a split that a data set does not bring, and taking a part of one.

All order the examples by a hash of seed and position, so the choice depends on nothing else: not on the
machine, not on a library's version of a random generator, and a larger part always contains a smaller one.
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
    """What stayed (``rest``) and what was taken out (``part``), both in the order of the data, and sentences
    about what could not be done as asked."""

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
    """Take ``fraction`` of the examples out, at least one.

    Args:
        examples: at least two.
        fraction: in (0, 1).
        seed: the same seed gives the same cut of the same data on every machine.
        stratify: class of an example; every class gives its share (largest remainders), and the last example
            of a class is never taken.
        group: group of an example; a group is never torn apart (all questions of one article, say).

    Raises:
        HarnessError: the fraction is out of range, or there is nothing to cut.
    """
    if not 0 < fraction < 1:
        raise HarnessError(f"a split of fraction {fraction} cannot be cut: give a number between 0 and 1")
    if len(examples) < 2:
        raise HarnessError(f"a split cannot be cut from {len(examples)} example(s): give its file")
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
        notes.append(f"{len(single)} class(es) with a single example stay whole: {shown}")
    return _divide(examples, _by_class(classes, _quotas(counts, fraction, target), seed), notes)


def complete(
    read: Mapping[str, Sequence[T]],
    *,
    no_dev: bool,
    fractions: Mapping[str, float],
    seed: int,
    notes: list[str],
    stratify: Key[T] | None = None,
    train_size: int | None = None,
) -> dict[str, list[T]]:
    """All three splits: what the data lack is cut from train, test first; then train alone is made smaller.

    Args:
        read: by role, train at least.
        no_dev: leave dev empty.
        fractions: of train, by role.
        seed: of the cut.
        notes: gets a sentence about each split that was cut.
        stratify: the class of an example, when cuts and the smaller train are to keep their shares.
        train_size: examples that stay in train, see :func:`smaller`; all when None.
    """
    out = {role: list(read.get(role, ())) for role in ("train", "dev", "test")}
    for role in ("test", "dev"):
        if role in read or (role == "dev" and no_dev):
            continue
        done = cut(out["train"], fractions[role], seed, stratify=stratify)
        out["train"], out[role] = done.rest, done.part
        how = f"{100 * fractions[role]:g} % ({len(done.part)}) cut from train with seed {seed}"
        notes.append(f"{role}: {how}{', stratified' if stratify else ''}")
        notes += [f"{role}: {note}" for note in done.notes]
    if no_dev and not out["dev"]:
        notes.append("dev: none, as asked")
    out["train"] = smaller(out["train"], train_size, seed, notes=notes, stratify=stratify)
    return out


def smaller(
    train: Sequence[T], size: int | None, seed: int, *, notes: list[str], stratify: Key[T] | None = None
) -> list[T]:
    """``size`` examples of ``train`` in the order of the data, all when None; a larger size contains all
    smaller ones.

    Args:
        train: what training has once dev and test are cut.
        size: how many stay.
        seed: of the choice; it is the same for all seeds of a cell.
        notes: gets a sentence when examples are left out.
        stratify: class of an example. Every class is in as soon as there are as many examples as classes;
            beyond that the classes keep their shares to one example each.

    Raises:
        HarnessError: ``size`` is less than one, or more than there are.
    """
    if size is None:
        return list(train)
    if not 1 <= size <= len(train):
        raise HarnessError(
            f"task.train_size={size}: the training split has {len(train)} examples; give a number from 1 to "
            f"{len(train)}, or all"
        )
    order = _order(len(train), f"train_size/{seed}")
    if stratify is not None:
        order = _interleaved(order, [stratify(e) for e in train])
    how = f"seed {seed}{', stratified' if stratify else ''}"
    notes.append(f"train: {size} of {len(train)} examples, as asked ({how}; the same for every cell's seed)")
    return [train[i] for i in sorted(order[:size])]


def _interleaved(order: Sequence[int], classes: Sequence[Hashable]) -> list[int]:
    """``order`` such that any beginning of it holds the classes by their shares: the k-th of the n examples
    of a class comes at k / n of the way, the first of each class at the very start."""
    total, met = Counter(classes), Counter[Hashable]()
    place = {}
    for rank, i in enumerate(order):
        place[i] = (met[classes[i]] / total[classes[i]], rank)
        met[classes[i]] += 1
    return sorted(order, key=place.__getitem__)


def limit(examples: Sequence[T], most: int | None, seed: int = 0) -> list[T]:
    """At most ``most`` examples: a seeded sample in the order of the data; all of them when None.

    A larger limit contains every smaller one.

    Raises:
        HarnessError: ``most`` is less than one.
    """
    if most is None:
        return list(examples)
    if most < 1:
        raise HarnessError(f"limit={most}: at least one example is needed; null = no limit")
    return [examples[i] for i in sorted(_order(len(examples), seed)[:most])]


def _order(n: int, seed: int | str) -> list[int]:
    return sorted(range(n), key=lambda i: hashlib.blake2b(f"{seed}/{i}".encode(), digest_size=8).digest())


def _divide(examples: Sequence[T], taken: set[int], notes: list[str]) -> Cut[T]:
    rest = [e for i, e in enumerate(examples) if i not in taken]
    return Cut(rest, [examples[i] for i in sorted(taken)], notes)


def _quotas(counts: Counter[Hashable], fraction: float, target: int) -> dict[Hashable, int]:
    """How many each class gives: its share rounded down, then one more by largest remainder to the target."""
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
    members: dict[Hashable, list[int]] = defaultdict(list)
    for i, example in enumerate(examples):
        members[group(example)].append(i)
    if len(members) < 2:
        raise HarnessError("a split by groups cannot be cut: all examples are in one group; give its file")
    target = fraction * len(examples)
    groups = list(members.values())
    taken: set[int] = set()
    for n in _order(len(groups), seed):
        short = target - len(taken)
        nearer = abs(short - len(groups[n])) < short
        if (nearer or not taken) and len(taken) + len(groups[n]) < len(examples):
            taken.update(groups[n])
    return taken
