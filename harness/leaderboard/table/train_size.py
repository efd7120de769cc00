"""Training-set sizes of cells: a row never averages over training sets of different sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from harness.errors import HarnessError
from harness.records.record import Record

TRAIN_SIZE = "task.train_size"
N_TRAIN = "n_train"
NAMES = (N_TRAIN, TRAIN_SIZE)
"""Fields to group by that determine the training-set size of a row."""

ALL = "all"
"""The largest training set of a task; a whole split has no explicit size in the configuration."""

Sizes = Mapping[tuple[str, str], int]


def sizes_of(records: Iterable[Record]) -> Sizes:
    """Number of training examples by task and cell id.

    A cell that did not run has the size that its variant sets, or else the largest size of its task, since
    the default is the whole split.
    """
    sizes: dict[tuple[str, str], int] = {}
    largest: dict[str, int] = {}
    others = []
    for r in records:
        if r.status == "complete":
            sizes[r.task, r.cell] = r.n_train
            largest[r.task] = max(largest.get(r.task, 0), r.n_train)
        else:
            others.append(r)
    for r in others:
        size = r.variant.get(TRAIN_SIZE)
        sizes.setdefault((r.task, r.cell), size if isinstance(size, int) else largest.get(r.task, 0))
    return sizes


def of_size(records: Sequence[Record], train_size: str) -> list[Record]:
    """The records of cells with this training-set size: a number, or ``all`` for the largest of each task.

    Raises:
        HarnessError: ``train_size`` is not a size, or no record has it.
    """
    if train_size != ALL and not train_size.isdecimal():
        raise HarnessError(f"--train-size {train_size}: expected a number of training examples, or {ALL}")
    sizes, largest = sizes_of(records), dict[str, int]()
    for (task, _), size in sizes.items():
        largest[task] = max(largest.get(task, 0), size)
    selected = [
        r
        for r in records
        if sizes[r.task, r.cell] == (largest[r.task] if train_size == ALL else int(train_size))
    ]
    if records and not selected:
        available = ", ".join(map(str, sorted({r.n_train for r in records if r.status == "complete"})))
        raise HarnessError(
            f"--train-size {train_size}: no cell has this many training examples; available sizes: "
            f"{available or 'none'}"
        )
    return selected


def sizes_text(sizes: Iterable[int]) -> str:
    """``30, 100 and 500``."""
    *others, last = map(str, sorted(set(sizes)))
    return f"{', '.join(others)} and {last}" if others else last
