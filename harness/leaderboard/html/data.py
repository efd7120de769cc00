"""Data of the HTML report: everything that its script draws is computed here.

The script only sorts, filters and draws. Names, labels and reasons from data are passed on as text.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from harness.data.reading.card import DataCard
from harness.errors import HarnessError
from harness.leaderboard.html.charts import heat_map, mixes, slice_table
from harness.leaderboard.html.disagreements import disagreements
from harness.leaderboard.html.pairs import pairs
from harness.leaderboard.html.schema import (
    AcrossData,
    BudgetData,
    CardData,
    ReportData,
    RowData,
    SeedData,
    TableData,
)
from harness.leaderboard.render.columns import score_text
from harness.leaderboard.stats import across_tasks
from harness.leaderboard.stats.comparisons import Samples
from harness.leaderboard.table.board import Board, TaskTable
from harness.leaderboard.table.rows import BoardRow, headline, variant_text
from harness.leaderboard.views import comparisons
from harness.leaderboard.views import published as papers
from harness.leaderboard.views.cost import COSTS, MEASURED, kind_of_device, pareto, recommend
from harness.records.record import Record

MAX_NOTES = 12
"""Maximum number of run notes per table."""
MAX_CARDS = 3
"""Maximum number of different data cards per table."""
MAX_LISTED = 500
"""Maximum number of failed and of skipped cells in the lists."""
MAX_VALUES = 8
"""Maximum number of different values of a version, host or commit."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Options of a report.

    Attributes:
        folder: the results folder, as given by the user.
        max_rows: number of rows per table with intervals and tests.
        pair_seeds: pair equal seeds in comparisons.
        papers: add the published figures on the same data.
        selected: rows whose comparison is shown initially; the best three if empty.
        budget: maximum of each cost, for a recommendation.
    """

    folder: str
    max_rows: int
    pair_seeds: bool = False
    papers: bool = False
    selected: Sequence[str] = ()
    budget: dict[str, float] | None = None


def report(board: Board, samples: Samples, options: ReportOptions) -> ReportData:
    """The data of a report on a board whose intervals and ties have been computed."""
    rows = [*(row for table in board.tables for row in table.rows), *board.hidden]
    records = [r for row in rows for r in row.records]
    return {
        "folder": options.folder,
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cells": dict(Counter(r.status for r in records)),
        "tables": [_table(t, samples, options) for t in board.tables],
        "across": _across(board, samples),
        "failed": board.failed[:MAX_LISTED],
        "skipped": board.skipped[:MAX_LISTED],
        "more": (max(0, len(board.failed) - MAX_LISTED), max(0, len(board.skipped) - MAX_LISTED)),
        "damaged": board.damaged[:MAX_LISTED],
        "notes": board.notes,
        "provenance": provenance(records),
        "papers": papers.figures_beside(board) if options.papers else None,
        "budget": _budget(board, samples, options.budget),
    }


def _table(table: TaskTable, samples: Samples, options: ReportOptions) -> TableData:
    max_rows = options.max_rows
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
        "curves": comparisons.curve_points(table),
        "mixes": mixes(table),
        "slices": slice_table(table, samples, max_rows=max_rows),
        "pairs": pairs(table, samples, max_rows=max_rows, pair_seeds=options.pair_seeds),
        "selected": _selected(table, options.selected),
        "disagreements": disagreements(table, samples),
        "run_notes": _run_notes(r for row in table.rows for r in row.complete),
        "cards": data_cards(r for row in table.rows for r in row.complete),
    }


def _row(row: BoardRow, fronts: Mapping[str, set[int]], common: Mapping[str, object]) -> RowData:
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
        "ci_kind": row.ci_kind,
        "no_interval": row.no_interval,
        "tied": row.tied,
        "n": len(row.scores),
        "dev": row.dev,
        "tried": row.tried,
        "degenerate": row.degenerate,
        "failed_or_skipped": row.failed + row.skipped,
        "error_reduction": row.error_reduction,
        "p": row.p_baseline,
        "costs": _costs(row),
        "device": kind_of_device(row) or "several",
        "n_train": row.n_train,
        "front": [name for name in COSTS if id(row) in fronts[name]],
        "cell": cells.pop() if len(cells) == 1 else f"{len(cells)} cells",
        "seeds": [_seed(r, row.metric) for r in sorted(row.records, key=lambda r: r.seed)],
        "notes": [*row.notes, *reasons],
    }


def _common(rows: Sequence[BoardRow]) -> dict[str, object]:
    """Settings that all variants have in common; they are shown once above the table."""
    variants = [row.records[0].variant for row in rows]
    if len(rows) < 2 or any("variant" not in row.labels for row in rows):
        return {}
    return {k: v for k, v in variants[0].items() if all(k in o and o[k] == v for o in variants)}


def _without(row: BoardRow, common: Mapping[str, object]) -> dict[str, str]:
    """The row's labels, its variant without the settings of all rows."""
    variant = row.records[0].variant
    full, rest = variant_text(variant), {k: v for k, v in variant.items() if k not in common}
    label = row.labels.get("variant", "")
    if not common or not label.startswith(full):
        return row.labels
    return {**row.labels, "variant": f"{variant_text(rest)} {label[len(full) :].strip()}".strip()}


def _name(labels: dict[str, str]) -> str:
    return BoardRow("", "", True, labels, []).name


def _seed(record: Record, metric: str) -> SeedData:
    return {
        "seed": record.seed,
        "status": record.status,
        "test": record.test.get(metric),
        "dev": record.dev.get(metric),
        "epoch": record.epoch,
        "epochs": record.epochs,
        "degenerate": record.degenerate,
    }


def _costs(row: BoardRow) -> dict[str, float | None]:
    out = {name: row.average(value) for name, value in COSTS.items()}
    return out | dict.fromkeys(MEASURED) if kind_of_device(row) is None else out


def _selected(table: TaskTable, names: Sequence[str]) -> list[int]:
    selected = [comparisons.find(table, name, option="--compare") for name in names]
    return [i for i, row in enumerate(table.rows) if any(row is other for other in selected)]


def _budget(board: Board, samples: Samples, budget: dict[str, float] | None) -> BudgetData | None:
    if budget is None:
        return None
    view = recommend(board, budget, samples)
    return {"title": view.title, "lines": [*view.lines, *view.notes]}


def _across(board: Board, samples: Samples) -> AcrossData | None:
    try:
        view, systems = across_tasks.rank_systems(board, samples)
    except HarnessError:  # fewer than two tasks
        return None
    return {"title": view.title, "rows": systems, "notes": view.notes}


def _run_notes(records: Iterable[Record]) -> list[tuple[str, int]]:
    """The most frequent notes and warnings of the records, with their number of cells."""
    count = Counter(line for r in records for line in {*r.notes, *r.warnings})
    return count.most_common(MAX_NOTES)


def data_cards(records: Iterable[Record]) -> list[CardData]:
    """The most frequent data cards of the records, as lines; records without one do not count."""
    count = Counter(json.dumps(r.data_card, sort_keys=True) for r in records if r.data_card)
    cards: list[CardData] = []
    for text, n in count.most_common(MAX_CARDS):
        try:
            lines = DataCard.from_json(json.loads(text)).lines()
        except HarnessError as e:
            lines = [str(e)]
        cards.append({"lines": lines, "cells": n})
    return cards


def provenance(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Versions, hosts and dates of the complete records: name and value, with counts if values differ."""
    done = [r for r in records if r.status == "complete"]
    out = [("complete cells", str(len(done)))]
    if not done:
        return out
    dates = sorted(r.finished[:10] for r in done if r.finished)
    if dates:
        out.append(("finished", dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"))
    counts = {
        "device": Counter(r.costs.device for r in done),
        "host": Counter(r.costs.host or "unknown" for r in done),
        "commit": Counter(_commit(r) for r in done),
        "data": Counter(f"{r.task} {r.data}" for r in done if r.data),
    }
    for key in dict.fromkeys(k for r in done for k in r.versions):
        counts[key] = Counter(r.versions.get(key, "none") for r in done)
    return out + [(name, _counted(values)) for name, values in counts.items() if values]


def _commit(record: Record) -> str:
    commit = str(record.git.get("commit", ""))[:10]
    return f"{commit}{' with local changes' if record.git.get('dirty') else ''}" if commit else "none"


def _counted(values: Counter[str]) -> str:
    if len(values) == 1:
        return next(iter(values))
    shown = [f"{value} ({n})" for value, n in values.most_common(MAX_VALUES)]
    return ", ".join(shown) + (f", {len(values) - MAX_VALUES} more" if len(values) > MAX_VALUES else "")
