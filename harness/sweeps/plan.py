"""The plan of a sweep: which cells run, which records are kept, and the estimated cost.

``overwrite`` and ``retry`` decide what happens to existing records:

=========  =========  ==============================================================================
overwrite  record     outcome
=========  =========  ==============================================================================
never      complete   kept
never      failed     runs again if ``retry`` is ``all`` or ``failed``
never      timeout    runs again if ``retry`` is ``all`` or ``timeout``
failed     complete   kept; failed and timed-out cells run again, whatever ``retry`` is
always     any        runs again; files of a complete run are moved to ``<results>/.archive``
=========  =========  ==============================================================================
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import HarnessError, NewerSchema
from harness.records import lifecycle
from harness.records.cell import Cell
from harness.records.parts import RunOptions
from harness.records.record import Record, iter_records
from harness.sweeps.progress import duration

OVERWRITE = ("never", "failed", "always")
RETRY = ("all", "failed", "timeout", "none")


@dataclass(slots=True)
class SweepPlan:
    """What happens to each cell.

    Attributes:
        settled: records of the cells that are not run, by folder.
        to_run: the cells to run.
        force_rerun: folders of those that run although they are complete.
        complete: the cells whose complete record is kept.
    """

    settled: dict[str, Record] = field(default_factory=dict)
    to_run: list[Cell] = field(default_factory=list)
    force_rerun: set[str] = field(default_factory=set)
    complete: list[Cell] = field(default_factory=list)


def make_plan(cells: Mapping[str, Cell], *, dry: bool = False) -> SweepPlan:
    """Decide from the existing records which cells run; write the records of skipped ones unless ``dry``.

    Raises:
        NewerSchema: a record was written by a newer version of this program.
    """
    plan = SweepPlan()
    for key, cell in cells.items():
        try:
            record = lifecycle.load_record_or_none(cell)
        except NewerSchema:
            raise
        except HarnessError as e:  # affects this cell only
            plan.settled[key] = lifecycle.failure(cell, status="failed", reason=str(e))
            print(f"FAILED  {cell.title}\n    {e}", file=sys.stderr)
            continue
        if cell.skip is not None and (record is None or record.status != "complete"):
            plan.settled[key] = _skipped(cell, record, dry=dry)
        elif record is not None and is_up_to_date(record, cell.options):
            plan.settled[key] = record
            if record.status == "complete":
                plan.complete.append(cell)
        else:
            plan.to_run.append(cell)
            if record is not None and record.status == "complete":
                plan.force_rerun.add(key)
    return plan


def is_up_to_date(record: Record, options: RunOptions) -> bool:
    """Whether a record is kept under ``overwrite`` and ``retry`` (see the module docstring)."""
    overwrite, retry = options.overwrite, options.retry
    if record.status == "complete":
        return overwrite != "always"
    if record.status not in ("failed", "timeout") or overwrite != "never":
        return False
    return retry not in ("all", record.status)


def _skipped(cell: Cell, record: Record | None, *, dry: bool) -> Record:
    if record is not None and (record.status, record.reason) == ("skipped", cell.skip):
        return record
    skipped = lifecycle.skipped(cell)
    if not dry:
        lifecycle.write_record_or_warn(cell, skipped, warn=lambda text: print(text, file=sys.stderr))
    return skipped


@dataclass(frozen=True, slots=True)
class Estimate:
    """Mean seconds and maximum memory (MB) of ``n`` complete seeds or variants."""

    seconds: float
    memory_mb: float
    n: int


Kind = tuple[str, str, str, int | None, frozenset[tuple[str, str]] | None]
"""Task, encoder, strategy, limit and variant; variant None = all variants together."""


def estimates(roots: Iterable[Path]) -> dict[Kind, Estimate]:
    """Estimate costs from all complete records, per variant and over all variants."""
    groups: dict[Kind, list[Record]] = {}
    for root in roots:
        for _, record in iter_records(root):
            if isinstance(record, Record) and record.status == "complete":
                names = (record.task, record.encoder, record.strategy, record.partial)
                for variant in (_variant(record.variant), None):
                    groups.setdefault((*names, variant), []).append(record)
    return {
        key: Estimate(
            statistics.fmean(r.costs.total_seconds for r in records),
            max(r.costs.peak_memory_mb for r in records),
            len(records),
        )
        for key, records in groups.items()
    }


def describe(cells: Sequence[Cell], plan: SweepPlan, *, slots: int) -> list[str]:
    """Describe a sweep: one line per cell id with the state of its seeds, then counts, reasons and cost."""
    history = estimates({cell.results_dir: None for cell in cells})
    rows: dict[str, list[Cell]] = {}
    for cell in {str(c.folder): c for c in cells}.values():
        rows.setdefault(str(cell.folder.parent), []).append(cell)
    lines = [_row(members, plan, history) for members in rows.values()]
    counts: dict[str, int] = {}
    for members in rows.values():
        for cell in members:
            state = _state(cell, plan)
            counts[state] = counts.get(state, 0) + 1
    total = sum(counts.values())
    lines += ["", f"{total} cells: " + ", ".join(f"{n} {state}" for state, n in counts.items())]
    reasons = [r.reason for r in plan.settled.values() if r.status == "skipped"]
    lines += [f"    skipped {reasons.count(r)}: {r}" for r in dict.fromkeys(reasons)]
    return lines + _cost(plan, history, slots=slots)


def _row(members: Sequence[Cell], plan: SweepPlan, history: Mapping[Kind, Estimate]) -> str:
    states: dict[str, list[str]] = {}
    for cell in members:
        states.setdefault(_state(cell, plan), []).append(str(cell.seed))
    summary = "; ".join(f"{state}: seed {','.join(seeds)}" for state, seeds in states.items())
    variant = " ".join(f"{k}={v}" for k, v in members[0].variant.items())
    estimate = _expected(members[0], history)
    cost = (
        f"  about {duration(estimate.seconds)} and {estimate.memory_mb / 1000:.1f} GB per cell"
        if estimate
        else ""
    )
    title = "/".join(members[0].folder.parts[-5:-1])
    return f"{title}  {variant + '  ' if variant else ''}{summary}{cost}"


def _state(cell: Cell, plan: SweepPlan) -> str:
    record = plan.settled.get(str(cell.folder))
    if record is not None:
        return record.status
    return "to run again" if str(cell.folder) in plan.force_rerun else "to run"


def _variant(variant: Mapping[str, object]) -> frozenset[tuple[str, str]]:
    return frozenset((key, str(value)) for key, value in variant.items())


def _expected(cell: Cell, history: Mapping[Kind, Estimate]) -> Estimate | None:
    """Cost of cells of the same variant, else of other variants."""
    names = (cell.task.name, cell.encoder.name, cell.strategy.name, cell.options.limit)
    return history.get((*names, _variant(cell.variant))) or history.get((*names, None))


def _cost(plan: SweepPlan, history: Mapping[Kind, Estimate], *, slots: int) -> list[str]:
    if not plan.to_run:
        return []
    estimated = [e for cell in plan.to_run if (e := _expected(cell, history)) is not None]
    unknown = len(plan.to_run) - len(estimated)
    if not estimated:
        return ["time and memory unknown: there are no earlier cells of these tasks, encoders and strategies"]
    seconds = sum(e.seconds for e in estimated) / max(1, min(slots, len(plan.to_run)))
    seconds = max(seconds, *(e.seconds for e in estimated), 0.0)
    memory = max(e.memory_mb for e in estimated) / 1000
    lines = [
        f"about {duration(seconds)} on {slots} slot{'s' * (slots != 1)}, at most {memory:.1f} GB per cell"
    ]
    if unknown:
        lines.append(f"    excludes {unknown} cells without an earlier run to estimate from")
    return lines
