"""What the HTML report is made of, as plain data: everything that its script draws is computed here.

The script sorts, filters and draws; it estimates nothing. Names, labels and reasons come from data and go
through as text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from harness.errors import HarnessError
from harness.leaderboard.html.charts import heat_map, mixes, slice_table
from harness.leaderboard.html.disagreements import disagreements
from harness.leaderboard.html.pairs import pairs
from harness.leaderboard.render.columns import score_text
from harness.leaderboard.stats import across_tasks
from harness.leaderboard.stats.comparisons import Samples
from harness.leaderboard.table.board import Board, Table
from harness.leaderboard.table.rows import Row, headline, variant_text
from harness.leaderboard.views import comparisons
from harness.leaderboard.views import published as papers
from harness.leaderboard.views.cost import COSTS, MEASURED, kind_of_device, pareto, recommend
from harness.leaderboard.views.view import View, rounded
from harness.records.record import Record

MOST_NOTES = 12
MOST_LISTED = 500
"""Failed and skipped cells that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a report is asked for.

    Attributes:
        folder: where the records come from, as it was named.
        most: rows of a table that statistics are computed for.
        pair_seeds: pair equal seeds in comparisons.
        papers: add the published figures on the same data.
        chosen: rows that are compared to begin with; the best three where it is empty.
        budget: most of each cost, for a recommendation.
    """

    folder: str
    most: int
    pair_seeds: bool = False
    papers: bool = False
    chosen: Sequence[str] = ()
    budget: dict[str, float] | None = None


def report(board: Board, samples: Samples, wanted: Wanted) -> dict[str, Any]:
    """The data of a report on a board with intervals and ties."""
    rows = [*(row for table in board.tables for row in table.rows), *board.hidden]
    records = [r for row in rows for r in row.records]
    data = {
        "folder": wanted.folder,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cells": dict(Counter(r.status for r in records)),
        "tables": [_table(t, samples, wanted) for t in board.tables],
        "across": _across(board, samples),
        "failed": board.failed[:MOST_LISTED],
        "skipped": board.skipped[:MOST_LISTED],
        "more": [max(0, len(cells) - MOST_LISTED) for cells in (board.failed, board.skipped)],
        "damaged": board.damaged[:MOST_LISTED],
        "notes": board.notes,
        "provenance": provenance(records),
        "papers": papers.beside(board) if wanted.papers else None,
        "budget": _budget(board, samples, wanted.budget),
    }
    clean: dict[str, Any] = rounded(data)
    return clean


def _table(table: Table, samples: Samples, wanted: Wanted) -> dict[str, Any]:
    most = wanted.most
    scored = [row for row in table.rows if row.mean is not None]
    common = _common(table.rows)
    fronts = {name: {id(row) for row in pareto(scored, name)} for name in COSTS}
    return {
        "title": table.title,
        "task": table.task,
        "metric": table.metric or "score",
        "maximize": table.maximize,
        "partial": table.partial,
        "part": table.part,
        "notes": table.notes,
        "labels": list(dict.fromkeys(label for row in table.rows for label in row.labels)),
        "rows": [_row(row, fronts, common) for row in table.rows],
        "common": variant_text(common),
        "heat": heat_map(table),
        "curves": _curves(table),
        "mixes": mixes(table),
        "slices": slice_table(table, samples, most=most),
        "pairs": pairs(table, samples, most=most, pair_seeds=wanted.pair_seeds),
        "chosen": _chosen(table, wanted.chosen),
        "disagree": disagreements(table, samples),
        "said": _said(r for row in table.rows for r in row.complete),
    }


def _row(row: Row, fronts: dict[str, set[int]], common: dict[str, Any]) -> dict[str, Any]:
    cells = {r.cell for r in row.records}
    shown = _without(row, common)
    reasons = sorted({headline(r.reason) for r in row.records if r.reason.strip()})
    return {
        "name": row.name,
        "short": _name(shown),
        "labels": row.labels,
        "shown": shown,
        "state": row.state,
        "text": score_text(row),
        "mean": row.mean,
        "std": row.std,
        "ci": row.ci,
        "kind": row.ci_kind,
        "why": row.no_interval,
        "tied": row.tied,
        "n": len(row.scores),
        "dev": row.dev,
        "tried": row.tried,
        "degenerate": row.degenerate,
        "lost": row.failed + row.skipped,
        "err": row.error_reduction,
        "p": row.p_baseline,
        "costs": _costs(row),
        "device": kind_of_device(row) or "several",
        "n_train": row.n_train,
        "front": [name for name in COSTS if id(row) in fronts[name]],
        "cell": cells.pop() if len(cells) == 1 else f"{len(cells)} cells",
        "seeds": [_seed(r, row.metric) for r in sorted(row.records, key=lambda r: r.seed)],
        "notes": [*row.notes, *reasons],
    }


def _common(rows: Sequence[Row]) -> dict[str, Any]:
    """Settings that all rows name in their variant: told once above them."""
    variants = [row.records[0].variant for row in rows]
    if len(rows) < 2 or any("variant" not in row.labels for row in rows):
        return {}
    return {k: v for k, v in variants[0].items() if all(k in o and o[k] == v for o in variants)}


def _without(row: Row, common: dict[str, Any]) -> dict[str, str]:
    """The row's labels, its variant without what is common to all."""
    variant = row.records[0].variant
    whole, rest = variant_text(variant), {k: v for k, v in variant.items() if k not in common}
    label = row.labels.get("variant", "")
    if not common or not label.startswith(whole):
        return row.labels
    return {**row.labels, "variant": f"{variant_text(rest)} {label[len(whole) :].strip()}".strip()}


def _name(labels: dict[str, str]) -> str:
    return Row("", "", True, labels, []).name


def _seed(record: Record, metric: str) -> dict[str, Any]:
    return {
        "seed": record.seed,
        "status": record.status,
        "test": record.test.get(metric),
        "dev": record.dev.get(metric),
        "epoch": record.epoch,
        "epochs": record.epochs,
        "said": record.degenerate,
    }


def _costs(row: Row) -> dict[str, float | None]:
    out = {name: row.average(value) for name, value in COSTS.items()}
    return out | dict.fromkeys(MEASURED) if kind_of_device(row) is None else out


def _chosen(table: Table, names: Sequence[str]) -> list[int]:
    found = [comparisons.find(table, name, option="--compare") for name in names]
    return [i for i, row in enumerate(table.rows) if any(row is other for other in found)]


def _budget(board: Board, samples: Samples, budget: dict[str, float] | None) -> dict[str, Any] | None:
    if budget is None:
        return None
    view = recommend(board, budget, samples)
    return {"title": view.title, "lines": [*view.lines, *view.notes]}


def _curves(table: Table) -> list[dict[str, Any]]:
    try:
        (view,) = comparisons.curves(Board([table], [], [], [], []))
    except HarnessError:
        return []
    return view.rows


def _across(board: Board, samples: Samples) -> dict[str, Any] | None:
    try:
        view: View = across_tasks.across(board, samples)
    except HarnessError:
        return None
    return {"title": view.title, "rows": view.rows, "notes": view.notes}


def _said(records: Iterable[Record]) -> list[tuple[str, int]]:
    """What the records note and warn of, with the number of cells."""
    count = Counter(line for r in records for line in {*r.notes, *r.warnings})
    return count.most_common(MOST_NOTES)


def provenance(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Versions, hosts and dates behind the numbers: a name and its values, with counts where they differ."""
    done = [r for r in records if r.status == "complete"]
    out = [("complete cells", str(len(done)))]
    if not done:
        return out
    dates = sorted(r.finished[:10] for r in done if r.finished)
    if dates:
        out.append(("finished", dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"))
    found = {
        "device": Counter(r.costs.device for r in done),
        "host": Counter(r.costs.host or "unknown" for r in done),
        "commit": Counter(_commit(r) for r in done),
        "data": Counter(f"{r.task} {r.data}" for r in done if r.data),
    }
    for key in dict.fromkeys(k for r in done for k in r.versions):
        found[key] = Counter(r.versions.get(key, "none") for r in done)
    return out + [(name, _counted(values)) for name, values in found.items() if values]


def _commit(record: Record) -> str:
    known = str(record.git.get("commit", ""))[:10]
    return f"{known}{' with changes' if record.git.get('dirty') else ''}" if known else "none"


def _counted(values: Counter[str]) -> str:
    if len(values) == 1:
        return next(iter(values))
    shown = [f"{value} ({n})" for value, n in values.most_common(8)]
    return ", ".join(shown) + (f", {len(values) - 8} more" if len(values) > 8 else "")
