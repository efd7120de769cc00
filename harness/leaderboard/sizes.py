"""How much each cell was trained on: rows are never averages over training sets of different sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harness.record import Record

TRAIN_SIZE = "task.train_size"
NAMES = ("n_train", TRAIN_SIZE)
"""What a row can be grouped by that holds its size."""

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
