"""Which cells of a sweep are to run: what is there stays or is run again, and what that will cost.

``overwrite`` and ``retry`` decide over records that exist:

=========  =========  ==============================================================================
overwrite  record     outcome
=========  =========  ==============================================================================
never      complete   stays
never      failed     runs again when ``retry`` is ``all`` or ``failed``
never      timeout    runs again when ``retry`` is ``all`` or ``timeout``
failed     complete   stays; failed and timed-out ones run again, whatever ``retry`` says
always     any        runs again; what a complete run left goes to ``<results>/.archive``
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
from harness.records.record import Record, iter_records
from harness.sweeps.progress import duration

OVERWRITE = ("never", "failed", "always")
RETRY = ("all", "failed", "timeout", "none")


@dataclass(slots=True)
class Plan:
    """What becomes of each cell, by folder.

    Attributes:
        known: records of the cells that need no run.
        todo: the cells that do.
        again: folders of those that run although they are complete.
        complete: the cells whose complete record stays.
    """

    known: dict[str, Record] = field(default_factory=dict)
    todo: list[Cell] = field(default_factory=list)
    again: set[str] = field(default_factory=set)
    complete: list[Cell] = field(default_factory=list)


def make_plan(cells: Mapping[str, Cell], *, dry: bool = False) -> Plan:
    """Look at what is there and decide; skipped cells get their record unless it is a dry run.

    Raises:
        NewerSchema: a record that another version of this program wrote.
    """
    plan = Plan()
    for key, cell in cells.items():
        try:
            record = lifecycle.previous(cell)
        except NewerSchema:
            raise
        except HarnessError as e:  # costs this cell alone
            plan.known[key] = lifecycle.failure(cell, status="failed", reason=str(e))
            print(f"FAILED  {cell.title}\n    {e}", file=sys.stderr)
            continue
        if cell.skip is not None and (record is None or record.status != "complete"):
            plan.known[key] = _skipped(cell, record, dry=dry)
        elif record is not None and stays(record, cell.config):
            plan.known[key] = record
            if record.status == "complete":
                plan.complete.append(cell)
        else:
            plan.todo.append(cell)
            if record is not None and record.status == "complete":
                plan.again.add(key)
    return plan


def stays(record: Record, config: Mapping[str, object]) -> bool:
    """Whether a record is the answer, by ``overwrite`` and ``retry``; see the module."""
    overwrite, retry = config.get("overwrite", "never"), config.get("retry", "all")
    if record.status == "complete":
        return overwrite != "always"
    if record.status not in ("failed", "timeout") or overwrite != "never":
        return False
    return retry not in ("all", record.status)


def _skipped(cell: Cell, record: Record | None, *, dry: bool) -> Record:
    if record is not None and (record.status, record.reason) == ("skipped", cell.skip):
        return record
    made = lifecycle.skipped(cell)
    if not dry:
        lifecycle.store(cell, made, warn=lambda text: print(text, file=sys.stderr))
    return made


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a cell took before: mean seconds and most memory (MB) of ``n`` complete seeds or variants."""

    seconds: float
    memory_mb: float
    n: int


Kind = tuple[str, str, str, int | None, frozenset[tuple[str, str]] | None]
"""Task, encoder, strategy, limit, and the variant; None for the variant = all of them together."""


def estimates(roots: Iterable[Path]) -> dict[Kind, Estimate]:
    """From all complete records, for each variant and for all variants together."""
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


def describe(cells: Sequence[Cell], plan: Plan, *, slots: int) -> list[str]:
    """The grid as lines: a line a cell id with what becomes of its seeds, then counts, reasons and cost."""
    past = estimates({cell.folder.parents[4]: None for cell in cells})
    rows: dict[str, list[Cell]] = {}
    for cell in {str(c.folder): c for c in cells}.values():
        rows.setdefault(str(cell.folder.parent), []).append(cell)
    lines = [_row(members, plan, past) for members in rows.values()]
    counts: dict[str, int] = {}
    for members in rows.values():
        for cell in members:
            state = _state(cell, plan)
            counts[state] = counts.get(state, 0) + 1
    total = sum(counts.values())
    lines += ["", f"{total} cells: " + ", ".join(f"{n} {state}" for state, n in counts.items())]
    reasons = [r.reason for r in plan.known.values() if r.status == "skipped"]
    lines += [f"    skipped {reasons.count(r)}: {r}" for r in dict.fromkeys(reasons)]
    return lines + _cost(plan, past, slots=slots)


def _row(members: Sequence[Cell], plan: Plan, past: Mapping[Kind, Estimate]) -> str:
    states: dict[str, list[str]] = {}
    for cell in members:
        states.setdefault(_state(cell, plan), []).append(str(cell.seed))
    said = "; ".join(f"{state}: seed {','.join(seeds)}" for state, seeds in states.items())
    variant = " ".join(f"{k}={v}" for k, v in members[0].variant.items())
    known = _expected(members[0], past)
    cost = f"  about {duration(known.seconds)}, {known.memory_mb / 1000:.1f} GB a cell" if known else ""
    title = "/".join(members[0].folder.parts[-5:-1])
    return f"{title}  {variant + '  ' if variant else ''}{said}{cost if 'to run' in states else ''}"


def _state(cell: Cell, plan: Plan) -> str:
    record = plan.known.get(str(cell.folder))
    if record is not None:
        return record.status
    return "to run again" if str(cell.folder) in plan.again else "to run"


def _variant(variant: Mapping[str, object]) -> frozenset[tuple[str, str]]:
    return frozenset((key, str(value)) for key, value in variant.items())


def _expected(cell: Cell, past: Mapping[Kind, Estimate]) -> Estimate | None:
    """What cells of its variant took, else those of other variants."""
    task, encoder, strategy = (str(cell.config[g]["name"]) for g in ("task", "encoder", "strategy"))
    names = (task, encoder, strategy, cell.config.get("limit"))
    return past.get((*names, _variant(cell.variant))) or past.get((*names, None))


def _cost(plan: Plan, past: Mapping[Kind, Estimate], *, slots: int) -> list[str]:
    if not plan.todo:
        return []
    found = [e for cell in plan.todo if (e := _expected(cell, past)) is not None]
    unknown = len(plan.todo) - len(found)
    if not found:
        return ["no earlier cells of these tasks, encoders and strategies to estimate time and memory from"]
    seconds = sum(e.seconds for e in found) / max(1, min(slots, len(plan.todo)))
    seconds = max(seconds, *(e.seconds for e in found), 0.0)
    memory = max(e.memory_mb for e in found) / 1000
    lines = [f"about {duration(seconds)} on {slots} slot{'s' * (slots != 1)}, at most {memory:.1f} GB a cell"]
    if unknown:
        lines.append(f"    without {unknown} cells that have no earlier run to go by")
    return lines
