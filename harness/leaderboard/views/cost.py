"""What a row costs, which rows are worth it, and what to take within a budget.

Seconds and memory are compared within one kind of device only: the same accelerator by name, the same host
where the device is a CPU, whose name says nothing. Parameters and storage do not depend on the machine. A
row is on the Pareto front of a cost when no other of its group has as good a mean for less, or a better one
for as much. A group holds rows of one size of the training set: what learnt from less is cheaper for another
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.errors import HarnessError, did_you_mean
from harness.leaderboard.stats.comparisons import ALPHA, Comparison, Samples, compare
from harness.leaderboard.table.board import Board, Table
from harness.leaderboard.table.rows import Row
from harness.leaderboard.table.train_size import sizes_text
from harness.leaderboard.views.view import View, text
from harness.records.record import Costs, Record

BYTES_A_PARAMETER = 4
"""Of records that do not say: weights are kept in float32."""
MEASURED = ("encode_seconds", "train_seconds", "eval_seconds", "peak_memory_mb")
"""Costs that hold on one kind of device."""
OTHERS = ("examples_per_second", "adapt_seconds")
"""The same, without a front."""
MOST_NAMED = 8
"""Tied rows that a sentence names."""


def storage_mb(record: Record) -> float:
    """What must be kept for each task beside the shared encoder: the parameters that were trained."""
    return (record.trained_bytes or record.trained_parameters * BYTES_A_PARAMETER) / 2**20


COSTS: dict[str, Callable[[Record], float]] = {
    "encode_seconds": lambda r: r.costs.encode_seconds,
    "train_seconds": lambda r: r.costs.train_seconds,
    "eval_seconds": lambda r: r.costs.eval_seconds,
    "peak_memory_mb": lambda r: r.costs.peak_memory_mb,
    "parameters": lambda r: float(r.parameters),
    "trained_parameters": lambda r: float(r.trained_parameters),
    "storage_mb": storage_mb,
}


def kind_of_device(row: Row) -> str | None:
    """``NVIDIA ...``, ``2 x NVIDIA ...``, ``cpu of HOST``, or None for a row of several kinds."""
    kinds = {_kind(r.costs) for r in row.complete}
    return kinds.pop() if len(kinds) == 1 else None


def _kind(costs: Costs) -> str:
    kind = f"cpu of {costs.host or 'an unknown host'}" if costs.device == "cpu" else costs.device
    return kind if costs.devices == 1 else f"{costs.devices} x {kind}"


def cost_view(table: Table) -> View:
    """Costs of each scored row (means over its seeds), and of which costs it is on the Pareto front."""
    rows = [row for row in table.rows if row.mean is not None]
    sizes = {row.n_train for row in rows}
    adapted = any(r.costs.adapt_seconds for row in rows for r in row.complete)
    fronts = {name: pareto(rows, name) for name in COSTS}
    view = View("cost", f"{table.title}: cost", [])
    for row in rows:
        costs: dict[str, Any] = {name: row.average(value) for name, value in COSTS.items()}
        costs["examples_per_second"] = row.average(lambda r: r.costs.examples_per_second)
        if adapted:  # adapting is rare: no column of zeros
            costs["adapt_seconds"] = row.average(lambda r: r.costs.adapt_seconds)
        if kind_of_device(row) is None:
            costs |= dict.fromkeys(k for k in (*MEASURED, *OTHERS) if k in costs)
        size = {"n_train": row.n_train} if len(sizes) > 1 else {}
        on = [name for name in COSTS if any(row is other for other in fronts[name])]
        view.rows.append(
            {"task": table.task, "row": row.name, **size, "metric": table.metric, "mean": row.mean,
             "device": kind_of_device(row) or "several", **costs, "best_for": on}
        )  # fmt: skip
    view.notes = _notes(rows)
    return view


def _notes(rows: Sequence[Row]) -> list[str]:
    sizes = {row.n_train for row in rows if row.n_train is not None}
    which = " trained on as many examples" if len(sizes) > 1 else ""
    out = [
        f"best_for: no other row{which} scores as well for less of this",
        "encode_seconds is the full price, also where a cache paid it",
    ]
    kinds = {kind_of_device(row) or "several" for row in rows}
    if len(kinds) > 1:
        out.append(f"devices: {', '.join(sorted(kinds))}; seconds and memory are compared within each kind")
    slots = {r.costs.slots for row in rows for r in row.complete}
    if len(slots) > 1:
        out.append("cells shared their machine with different numbers of others: seconds are rough")
    return out


def pareto(rows: Sequence[Row], cost: str) -> list[Row]:
    """Rows that no other of the same kind of device and the same size of the training set beats: as good, as
    cheap, and better in one of both."""
    groups: dict[tuple[str, int | None], list[tuple[float, float, Row]]] = {}
    for row in rows:
        kind = kind_of_device(row) if cost in MEASURED else "any"
        value = row.average(COSTS[cost])
        if kind is not None and value is not None and row.mean is not None:
            loss = -row.mean if row.maximize else row.mean
            groups.setdefault((kind, row.n_train), []).append((value, loss, row))
    out: list[Row] = []
    for group in groups.values():
        best = (float("inf"), float("inf"))
        for value, loss, row in sorted(group, key=lambda g: g[:2]):
            if loss < best[1] or (value, loss) == best:
                best = (value, loss)
                out.append(row)
    return out


def parse_budget(text_: str) -> dict[str, float]:
    """``train_seconds=60,storage_mb=10`` as a mapping.

    Raises:
        HarnessError: an unknown cost or no number.
    """
    out = {}
    for part in text_.split(","):
        name, _, value = part.partition("=")
        if name.strip() not in COSTS:
            raise HarnessError(f"--budget {part}: {did_you_mean(name.strip(), COSTS)}")
        try:
            out[name.strip()] = float(value)
        except ValueError:
            raise HarnessError(f"--budget {part}: a number is wanted, such as {name.strip()}=60") from None
    return out


def recommend(board: Board, budget: dict[str, float], samples: Samples) -> View:
    """For each table and kind of device the best row within the budget, and the rows tied with it. Where
    there are several sizes of the training set, rows of the largest alone are looked at."""
    said = ", ".join(f"{name} <= {value:g}" for name, value in budget.items())
    view = View("recommendations", f"Within {said}", [], data_only=("tied_with", "said"))
    for table in board.tables:
        scored = [row for row in table.rows if row.mean is not None]
        rows, smaller = _largest(scored)
        groups = _within(rows, budget)
        for kind, fitting in sorted(groups.items()):
            view.rows.append(_recommendation(table, kind, fitting, samples))
            view.lines.append("{task}, {device}: {said}".format(**view.rows[-1]))
        view.notes += _about_fit(table, rows, smaller, budget, fits=bool(groups))
    return view


def _largest(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Rows of the largest training set, and the others."""
    most = max((row.n_train or 0 for row in rows), default=0)
    return [r for r in rows if (r.n_train or 0) == most], [r for r in rows if (r.n_train or 0) < most]


def _within(rows: Sequence[Row], budget: dict[str, float]) -> dict[str, list[Row]]:
    """Rows that cost no more than this, best first, by kind of device where a cost depends on it."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        kind = kind_of_device(row) if any(name in MEASURED for name in budget) else "any"
        if kind is not None and all((row.average(COSTS[n]) or 0.0) <= v for n, v in budget.items()):
            groups.setdefault(kind, []).append(row)
    return groups


def _about_fit(
    table: Table, rows: Sequence[Row], smaller: Sequence[Row], budget: dict[str, float], *, fits: bool
) -> list[str]:
    """That nothing fits, and which rows were not looked at since they were trained on less."""
    out = [] if fits else [f"{table.task}: nothing fits"]
    if smaller:
        would = sum(map(len, _within(smaller, budget).values()))
        sizes = sizes_text(row.n_train or 0 for row in smaller)
        out.append(
            f"{table.task}: of rows trained on {rows[0].n_train} examples, the most there are; "
            f"{len(smaller)} of {sizes} are left out ({would} within the budget), --train-size N takes them"
        )
    return out


def _recommendation(table: Table, kind: str, rows: list[Row], samples: Samples) -> dict[str, Any]:
    best, *others = rows
    found = compare([(best, row) for row in others], samples)
    tied, unknown = [], 0
    for row, test in zip(others, found, strict=True):
        if isinstance(test, Comparison):
            tied += [row] if test.p_holm >= ALPHA else []
        else:
            unknown += 1
    sound = [row for row in (best, *tied) if row.degenerate < len(row.complete)]
    cheapest = min(sound or [best], key=lambda row: row.average(COSTS["train_seconds"]) or 0.0)
    return {
        "task": table.task, "metric": table.metric, "device": kind, "take": best.name, "mean": best.mean,
        "n_train": best.n_train, "tied": len(tied), "tied_with": [row.name for row in tied],
        "quickest_of_these": cheapest.name, "train_seconds": cheapest.average(COSTS["train_seconds"]),
        "fitting_rows": len(rows), "said": _sentence(best, tied, unknown),
    }  # fmt: skip


def _sentence(best: Row, tied: Sequence[Row], unknown: int) -> str:
    interval = f" ({text(best.ci[0])} to {text(best.ci[1])})" if best.ci else ""
    more = f" and {len(tied) - MOST_NAMED} more" if len(tied) > MOST_NAMED else ""
    names = ", ".join(row.name for row in tied[:MOST_NAMED])
    return (
        f"{best.name}: {text(best.mean)}{interval}"
        + (f"; not told apart: {names}{more}" if tied else "")
        + (f"; {unknown} rows cannot be tested" if unknown else "")
    )


def check_costs(board: Board) -> list[View]:
    """The cost view of each table that has a score."""
    return [view for table in board.tables if (view := cost_view(table)).rows] or [
        View("cost", "Cost: no row has a score", [])
    ]
