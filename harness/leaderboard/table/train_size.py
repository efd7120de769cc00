"""How much each cell was trained on: rows are never averages over training sets of different sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from harness.errors import HarnessError
from harness.records.record import Record

TRAIN_SIZE = "task.train_size"
N_TRAIN = "n_train"
NAMES = (N_TRAIN, TRAIN_SIZE)
"""What a row can be grouped by that holds its size."""

WHOLE = "all"
"""The largest size that a task was trained on; the whole split is what nobody asks for."""

Sizes = Mapping[tuple[str, str], int]


def sizes_of(records: Iterable[Record]) -> Sizes:
    """Training examples by task and cell id. What never ran has those that were asked for, else, since the
    whole split is what nobody asks for, the most of any cell of its task."""
    known: dict[tuple[str, str], int] = {}
    most: dict[str, int] = {}
    others = []
    for r in records:
        if r.status == "complete":
            known[r.task, r.cell] = r.n_train
            most[r.task] = max(most.get(r.task, 0), r.n_train)
        else:
            others.append(r)
    for r in others:
        asked = r.variant.get(TRAIN_SIZE)
        known.setdefault((r.task, r.cell), asked if isinstance(asked, int) else most.get(r.task, 0))
    return known


def of_size(records: Sequence[Record], wanted: str) -> list[Record]:
    """The records of cells trained on so many examples: a number, or ``all`` for the most of each task.

    Raises:
        HarnessError: no record was, or ``wanted`` is no size.
    """
    if wanted != WHOLE and not wanted.isdecimal():
        raise HarnessError(f"--train-size {wanted}: a number of training examples is wanted, or {WHOLE}")
    sizes, most = sizes_of(records), dict[str, int]()
    for (task, _), size in sizes.items():
        most[task] = max(most.get(task, 0), size)
    kept = [r for r in records if sizes[r.task, r.cell] == (most[r.task] if wanted == WHOLE else int(wanted))]
    if records and not kept:
        known = ", ".join(map(str, sorted({r.n_train for r in records if r.status == "complete"})))
        raise HarnessError(
            f"--train-size {wanted}: no cell was trained on so many; there are {known or 'none'}"
        )
    return kept


def sizes_text(sizes: Iterable[int]) -> str:
    """``30, 100 and 500``."""
    *some, last = map(str, sorted(set(sizes)))
    return f"{', '.join(some)} and {last}" if some else last
