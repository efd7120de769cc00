"""Costs of rows, Pareto fronts, and the best row within a budget.

Seconds and memory are compared only within one kind of device: accelerators of the same name, or CPUs of the
same host, since the device name of a CPU is not informative. Parameters and storage do not depend on the
machine. A row is on the Pareto front of a cost if no other row of its group has the same mean for less or a
better mean for the same cost. A group has one training-set size: rows with fewer examples are cheaper for a
different reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.errors import HarnessError, did_you_mean
from harness.leaderboard.stats.comparisons import ALPHA, Comparison, Samples, compare
from harness.leaderboard.table.board import Board, TaskTable
from harness.leaderboard.table.rows import BoardRow
from harness.leaderboard.table.train_size import sizes_text
from harness.leaderboard.views.view import View, ViewRow, text
from harness.records.record import Costs, Record

BYTES_PER_PARAMETER = 4
"""float32, for records without the size of the trained parameters."""
MEASURED = ("encode_seconds", "train_seconds", "eval_seconds", "peak_memory_mb")
"""Costs that are comparable only within one kind of device."""
WITHOUT_FRONT = ("examples_per_second", "adapt_seconds")
"""Further device-dependent columns, without a Pareto front."""
MAX_NAMED = 8
"""Maximum number of tied rows in a sentence."""


def storage_mb(record: Record) -> float:
    """Storage per task in addition to the shared encoder: the trained parameters."""
    return (record.trained_bytes or record.trained_parameters * BYTES_PER_PARAMETER) / 2**20


COSTS: dict[str, Callable[[Record], float]] = {
    "encode_seconds": lambda r: r.costs.encode_seconds,
    "train_seconds": lambda r: r.costs.train_seconds,
    "eval_seconds": lambda r: r.costs.eval_seconds,
    "peak_memory_mb": lambda r: r.costs.peak_memory_mb,
    "parameters": lambda r: float(r.parameters),
    "trained_parameters": lambda r: float(r.trained_parameters),
    "storage_mb": storage_mb,
}


def kind_of_device(row: BoardRow) -> str | None:
    """``NVIDIA ...``, ``2 x NVIDIA ...``, ``cpu of HOST``; None if the records have several kinds."""
    kinds = {_kind(r.costs) for r in row.complete}
    return kinds.pop() if len(kinds) == 1 else None


def _kind(costs: Costs) -> str:
    kind = f"cpu of {costs.host or 'an unknown host'}" if costs.device == "cpu" else costs.device
    return kind if costs.devices == 1 else f"{costs.devices} x {kind}"


def cost_view(table: TaskTable) -> View:
    """Costs of each scored row (means over its seeds), and the costs for which it is on the Pareto front."""
    rows = [row for row in table.rows if row.mean is not None]
    sizes = {row.n_train for row in rows}
    adapted = any(r.costs.adapt_seconds for row in rows for r in row.complete)
    fronts = {name: pareto(rows, name) for name in COSTS}
    view = View("cost", f"{table.title}: cost", [])
    for row in rows:
        costs: dict[str, object] = {name: row.average(value) for name, value in COSTS.items()}
        costs["examples_per_second"] = row.average(lambda r: r.costs.examples_per_second)
        if adapted:  # rare, so the column is omitted if it is all zeros
            costs["adapt_seconds"] = row.average(lambda r: r.costs.adapt_seconds)
        if kind_of_device(row) is None:
            costs |= dict.fromkeys(k for k in (*MEASURED, *WITHOUT_FRONT) if k in costs)
        size = {"n_train": row.n_train} if len(sizes) > 1 else {}
        on = [name for name in COSTS if any(row is other for other in fronts[name])]
        view.rows.append(
            {"task": table.task, "row": row.name, **size, "metric": table.metric, "mean": row.mean,
             "device": kind_of_device(row) or "several", **costs, "best_for": on}
        )  # fmt: skip
    view.notes = _notes(rows)
    return view


def _notes(rows: Sequence[BoardRow]) -> list[str]:
    sizes = {row.n_train for row in rows if row.n_train is not None}
    which = " with the same training-set size" if len(sizes) > 1 else ""
    out = [
        f"best_for: costs for which the row is on the Pareto front (no other row{which} is as good for less)",
        "encode_seconds is the full cost of encoding, even if the features came from a cache",
    ]
    kinds = {kind_of_device(row) or "several" for row in rows}
    if len(kinds) > 1:
        out.append(f"devices: {', '.join(sorted(kinds))}; seconds and memory are compared within each kind")
    slots = {r.costs.slots for row in rows for r in row.complete}
    if len(slots) > 1:
        out.append("the number of cells that ran at the same time varies: seconds are approximate")
    return out


def pareto(rows: Sequence[BoardRow], cost: str) -> list[BoardRow]:
    """Rows on the Pareto front of a cost, per kind of device and training-set size.

    Example with (cost, error): (1, 0.3), (2, 0.2), (3, 0.25), (4, 0.1). Sorted by cost, (3, 0.25) does not
    improve on the error 0.2 that is available for 2, so the front is the other three.
    """
    groups: dict[tuple[str, int | None], list[tuple[float, float, BoardRow]]] = {}
    for row in rows:
        kind = kind_of_device(row) if cost in MEASURED else "any"
        value = row.average(COSTS[cost])
        if kind is not None and value is not None and row.mean is not None:
            loss = -row.mean if row.maximize else row.mean  # lower is better for both metrics and costs
            groups.setdefault((kind, row.n_train), []).append((value, loss, row))
    out: list[BoardRow] = []
    for group in groups.values():
        best = (float("inf"), float("inf"))
        for value, loss, row in sorted(group, key=lambda g: g[:2]):
            if loss < best[1] or (value, loss) == best:  # ties are all on the front
                best = (value, loss)
                out.append(row)
    return out


def parse_budget(budget: str) -> dict[str, float]:
    """Parse ``train_seconds=60,storage_mb=10`` into maximum values by cost.

    Raises:
        HarnessError: a cost is unknown or its value is not a number.
    """
    out = {}
    for part in budget.split(","):
        name, _, value = part.partition("=")
        if name.strip() not in COSTS:
            raise HarnessError(f"--budget {part}: {did_you_mean(name.strip(), COSTS)}")
        try:
            out[name.strip()] = float(value)
        except ValueError:
            raise HarnessError(f"--budget {part}: expected a number, such as {name.strip()}=60") from None
    return out


def recommend(board: Board, budget: dict[str, float], samples: Samples) -> View:
    """The best row within the budget and the rows tied with it, per table and kind of device.

    Only rows of the largest training set are considered."""
    limits = ", ".join(f"{name} <= {value:g}" for name, value in budget.items())
    view = View("recommendations", f"Within {limits}", [], data_only=("tied_with", "summary"))
    for table in board.tables:
        scored = [row for row in table.rows if row.mean is not None]
        rows, smaller = _largest(scored)
        groups = _within(rows, budget)
        for kind, fitting in sorted(groups.items()):
            row = _recommendation(table, kind, fitting, samples)
            view.rows.append(row)
            view.lines.append("{task}, {device}: {summary}".format(**row))
        view.notes += _budget_notes(table, rows, smaller, budget, fits=bool(groups))
    return view


def _largest(rows: Sequence[BoardRow]) -> tuple[list[BoardRow], list[BoardRow]]:
    """Rows of the largest training set, and the others."""
    size = max((row.n_train or 0 for row in rows), default=0)
    return [r for r in rows if (r.n_train or 0) == size], [r for r in rows if (r.n_train or 0) < size]


def _within(rows: Sequence[BoardRow], budget: dict[str, float]) -> dict[str, list[BoardRow]]:
    """Rows within the budget, best first, by kind of device if a cost depends on it."""
    groups: dict[str, list[BoardRow]] = {}
    for row in rows:
        kind = kind_of_device(row) if any(name in MEASURED for name in budget) else "any"
        if kind is not None and all((row.average(COSTS[n]) or 0.0) <= v for n, v in budget.items()):
            groups.setdefault(kind, []).append(row)
    return groups


def _budget_notes(
    table: TaskTable,
    rows: Sequence[BoardRow],
    smaller: Sequence[BoardRow],
    budget: dict[str, float],
    *,
    fits: bool,
) -> list[str]:
    """Notes that no row is within the budget, and on the rows with smaller training sets."""
    out = [] if fits else [f"{table.task}: no row is within the budget"]
    if smaller:
        within = sum(map(len, _within(smaller, budget).values()))
        sizes = sizes_text(row.n_train or 0 for row in smaller)
        out.append(
            f"{table.task}: only rows of the largest training set ({rows[0].n_train} examples); left out: "
            f"{len(smaller)} rows of {sizes} ({within} within the budget); --train-size N selects those of N"
        )
    return out


def _recommendation(table: TaskTable, kind: str, rows: list[BoardRow], samples: Samples) -> ViewRow:
    best, *others = rows
    tests = compare([(best, row) for row in others], samples)
    tied, untested = [], 0
    for row, test in zip(others, tests, strict=True):
        if isinstance(test, Comparison):
            tied += [row] if test.p_holm >= ALPHA else []
        else:
            untested += 1
    # the fastest row should not be one whose seeds all predict a single answer
    sound = [row for row in (best, *tied) if row.degenerate < len(row.complete)]
    fastest = min(sound or [best], key=lambda row: row.average(COSTS["train_seconds"]) or 0.0)
    return {
        "task": table.task, "metric": table.metric, "device": kind, "best": best.name, "mean": best.mean,
        "n_train": best.n_train, "tied": len(tied), "tied_with": [row.name for row in tied],
        "fastest_of_these": fastest.name, "train_seconds": fastest.average(COSTS["train_seconds"]),
        "fitting_rows": len(rows), "summary": _summary(best, tied, untested),
    }  # fmt: skip


def _summary(best: BoardRow, tied: Sequence[BoardRow], untested: int) -> str:
    interval = f" ({text(best.ci[0])} to {text(best.ci[1])})" if best.ci else ""
    more = f" and {len(tied) - MAX_NAMED} more" if len(tied) > MAX_NAMED else ""
    names = ", ".join(row.name for row in tied[:MAX_NAMED])
    return (
        f"{best.name}: {text(best.mean)}{interval}"
        + (f"; not significantly different: {names}{more}" if tied else "")
        + (f"; {untested} rows cannot be tested" if untested else "")
    )


def check_costs(board: Board) -> list[View]:
    """The cost view of each table with a score."""
    return [view for table in board.tables if (view := cost_view(table)).rows] or [
        View("cost", "Cost: no row has a score", [])
    ]
