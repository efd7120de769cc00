"""The leaderboard as plain data: one table per task and metric, with the notes needed to interpret it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.fingerprint import slug
from harness.errors import HarnessError, did_you_mean
from harness.leaderboard.table.comparable import split
from harness.leaderboard.table.configs import Configs
from harness.leaderboard.table.rows import (
    BoardRow,
    by_fields,
    by_variant,
    check_fields,
    data_sets,
    headline,
    pooled,
)
from harness.leaderboard.table.run_warnings import warning_lines
from harness.leaderboard.table.selection import select_on_dev
from harness.leaderboard.table.train_size import of_size
from harness.records.record import Record, iter_records

PARTIAL = "PARTIAL"


@dataclass(slots=True)
class TaskTable:
    """Rows of one task and one primary metric, best first.

    Attributes:
        notes: warnings and notes needed to compare the rows.
        part: what distinguishes these records from others of the task, such as the data fingerprint.
    """

    task: str
    metric: str
    maximize: bool
    rows: list[BoardRow]
    partial: bool = False
    notes: list[str] = field(default_factory=list)
    part: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """``task | test metric, higher is better``, then what distinguishes the table."""
        direction = ", higher is better" if self.maximize else ", lower is better"
        metric = f" | test {self.metric}{direction}" if self.metric else ""
        part = "".join(f" | {key} {value}" for key, value in self.part.items())
        return f"{PARTIAL + ': ' if self.partial else ''}{self.task}{metric}{part}"


@dataclass(slots=True)
class Board:
    """Tables, cells without a result, and notes.

    Attributes:
        tables: complete records first, then partial ones if requested.
        failed: (cell, line of the error) of failed and timed-out cells.
        skipped: (cell, reason) of skipped cells, grouped by reason.
        damaged: messages about record files that cannot be read or are copies of others.
        notes: further notes on the whole leaderboard.
        hidden: rows that consist of skipped cells only, if they are not shown.
    """

    tables: list[TaskTable]
    failed: list[tuple[str, str]]
    skipped: list[tuple[str, str]]
    damaged: list[str]
    notes: list[str]
    hidden: list[BoardRow] = field(default_factory=list)

    @property
    def skipped_title(self) -> str:
        """Heading of the list of skipped cells, with the option that shows their rows."""
        return "Skipped" + ("; --skipped show adds rows for them" if self.hidden else "")


@dataclass(slots=True)
class ResultsFolder:
    """Contents of a results folder: records, messages about damaged ones, and configurations."""

    records: list[Record]
    damaged: list[str]
    configs: Configs


def read(folder: Path, *, tasks: Sequence[str] = ()) -> ResultsFolder:
    """Read the records of a results folder, or of the folder of one task in it.

    Args:
        folder: ``results_dir`` of a run, or ``<results_dir>/<task>``.
        tasks: read only these tasks; all if empty.

    Raises:
        HarnessError: there are no records, or none of one of ``tasks``.
    """
    records: list[tuple[Record, Path]] = []
    damaged: list[str] = []
    for path, record in _records(folder):
        if isinstance(record, Record):
            records.append((record, path))
        else:
            damaged.append(str(record))
    if not records and not damaged:
        raise _no_records(folder)
    names = {record.task for record, _ in records}
    for task in tasks:
        if task not in names:
            raise HarnessError(f"--task {task}: no records in {folder}; {did_you_mean(task, names)}")
    selected = [(record, path) for record, path in records if not tasks or record.task in tasks]
    unique, copies = _without_copies(selected)
    return ResultsFolder([record for record, _ in unique], [*damaged, *copies], Configs(unique))


def _without_copies(
    records: Sequence[tuple[Record, Path]],
) -> tuple[list[tuple[Record, Path]], list[str]]:
    """Each cell and seed once, and messages about the others: a copied folder is not a second run of a seed.

    The record in the folder that matches its contents is used.
    """
    if len({_identity(record) for record, _ in records}) == len(records):
        return list(records), []
    originals: dict[tuple[str | int, ...], tuple[Record, Path]] = {}
    for record, path in sorted(records, key=lambda entry: not _in_own_folder(*entry)):
        originals.setdefault(_identity(record), (record, path))
    used = {id(record) for record, _ in originals.values()}
    copies = [
        f"{path}: a copy of {originals[_identity(record)][1]} (same cell and seed)"
        for record, path in records
        if id(record) not in used
    ]
    return [entry for entry in records if id(entry[0]) in used], copies


def _identity(record: Record) -> tuple[str | int, ...]:
    return record.task, record.encoder, record.strategy, record.cell, record.seed


def _in_own_folder(record: Record, path: Path) -> bool:
    return path.parts[-2:] == (record.cell, f"seed-{record.seed}") and slug(record.task) in path.parts


def _records(folder: Path) -> Iterator[tuple[Path, Record | HarnessError]]:
    """As :func:`iter_records`; if that finds nothing, ``folder`` is read as the folder of one task."""
    entry = None
    for entry in iter_records(folder):
        yield entry
    if entry is None and any(folder.glob("*/*/*/seed-*")):
        task = folder.absolute()
        yield from iter_records(task.parent, task=task.name)


def _no_records(folder: Path) -> HarnessError:
    if not folder.is_dir():
        return HarnessError(f"{folder}: no such folder; expected the results_dir of a run (default: results)")
    return HarnessError(
        f"{folder}: no records (<task>/<encoder>/<strategy>/<cell>/seed-<n>/record.json) in this folder; "
        "expected the results_dir of a run; to create one: harness task=mini_topic encoder=mini_bert"
    )


def make_board(
    records: Sequence[Record],
    *,
    damaged: Sequence[str] = (),
    partial: bool = False,
    select: bool = False,
    group_by: Sequence[str] = (),
    configs: Configs | None = None,
    mix: bool = False,
    skipped: bool = True,
    train_size: str | None = None,
) -> Board:
    """Make tables of records.

    Args:
        records: of one results folder.
        damaged: messages about unreadable record files.
        partial: show partial records, in separate tables.
        select: keep the variant with the best dev score per task, encoder and strategy.
        group_by: group by these fields and settings instead of by variant.
        configs: resolved settings, for those that are neither in the record nor in its variant.
        mix: put records of different data, test sizes and result versions of a task into one table.
        skipped: show rows for skipped cells; they are listed with their reasons in any case.
        train_size: keep only cells with this number of training examples; ``all`` is the largest per task.

    Raises:
        HarnessError: no record shown has one of the fields in ``group_by``, or this training-set size.
    """
    configs = configs or Configs()
    full = [r for r in records if r.partial is None]
    limited = [r for r in records if r.partial is not None]
    all_tasks = {r.task for r in full}
    if train_size is not None:
        full = of_size(full, train_size)
        limited = of_size(limited, train_size) if partial else limited
    shown = [*full, *limited] if partial else full
    check_fields(shown or limited, group_by, configs)

    def make_tables(records: Sequence[Record], *, partial: bool) -> list[TaskTable]:
        out = []
        for part, members in [({}, list(records))] if mix else split(records):
            rows = by_fields(members, group_by, configs=configs) if group_by else by_variant(members)
            tables = _tables(select_on_dev(rows) if select else rows, partial=partial)
            for table in tables:
                table.part = dict(part)
            out += tables
        return sorted(out, key=lambda t: t.task)

    tables = make_tables(full, partial=False)
    notes = [
        f"{task}: no cell was trained on {train_size} examples"
        for task in sorted(all_tasks - {r.task for r in full})
    ]
    if partial:
        tables += make_tables(limited, partial=True)
    elif limited:
        notes.append(_left_out(limited))
    hidden = [] if skipped else _hide(tables)
    tables = [table for table in tables if table.rows]
    return Board(tables, _failures(shown), _skips(shown), list(damaged), notes, hidden)


def _left_out(partial: Sequence[Record]) -> str:
    """Note on the records of runs with a limit that are not shown."""
    skipped = sum(r.status == "skipped" for r in partial)
    ran = len(partial) - skipped
    parts = [f"{_count(ran, 'partial record')} (run with a limit)"] if ran else []
    parts += [f"{_count(skipped, 'skipped cell')} of runs with a limit"] if skipped else []
    return f"left out: {' and '.join(parts)}; --partial shows them"


def _hide(tables: Iterable[TaskTable]) -> list[BoardRow]:
    """Remove rows that consist of skipped cells only from their tables, and return them."""
    out: list[BoardRow] = []
    for table in tables:
        out += [row for row in table.rows if row.state == "skipped"]
        table.rows = [row for row in table.rows if row.state != "skipped"]
    return out


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _tables(rows: Sequence[BoardRow], *, partial: bool) -> list[TaskTable]:
    metrics = _metrics_by_task(rows)
    by_metric: dict[tuple[str, str, bool], TaskTable] = {}
    for row in rows:
        metric, up = (row.metric, row.maximize) if row.metric else metrics[row.task][0]
        row.metric, row.maximize = metric, up
        table = TaskTable(row.task, metric, up, [], partial=partial)
        by_metric.setdefault((row.task, metric, up), table).rows.append(row)
    tables = [by_metric[key] for key in sorted(by_metric)]
    for table in tables:
        table.rows.sort(key=BoardRow.sort_key)
        table.notes = [*_warnings(table, metrics[table.task]), *warning_lines(table.rows)]
    return tables


def _metrics_by_task(rows: Iterable[BoardRow]) -> dict[str, list[tuple[str, bool]]]:
    out: dict[str, set[tuple[str, bool]]] = {}
    for row in rows:
        out.setdefault(row.task, set()).update([(row.metric, row.maximize)] if row.metric else [])
    return {task: sorted(metrics) or [("", True)] for task, metrics in out.items()}


def _warnings(table: TaskTable, metrics: Sequence[tuple[str, bool]]) -> list[str]:
    """Warnings and notes on what makes the rows of a table hard to compare."""
    done = [r for row in table.rows for r in row.complete]
    out = []
    if len(metrics) > 1:
        names = ", ".join(sorted({name for name, _ in metrics}))
        out.append(f"warning: records of {table.task} have different metrics ({names}): one table per metric")
    sets = data_sets(r for row in table.rows for r in row.records)[table.task]
    if len(sets) > 1:
        out.append(
            f"warning: task {table.task} has results of {len(sets)} different data sets; "
            "give each its own task.name"
        )
    sizes = sorted({r.n_test for r in done})
    if len(sizes) > 1:
        listed = " and ".join(map(str, sizes))
        out.append(f"warning: test sets of different sizes ({listed} examples): scores are not comparable")
    for key in sorted({k for r in done for k in r.versions if k.startswith("result")}):
        values = sorted({r.versions.get(key, "none") for r in done})
        if len(values) > 1:
            out.append(
                f"warning: different {key} ({', '.join(values)}): a fix changed the results in between"
            )
    hosts = {r.costs.host for r in done}
    if len(hosts) > 1:
        out.append(f"note: run on {len(hosts)} hosts; seconds are not comparable between rows")
    collapsed = sum(row.degenerate for row in table.rows)
    if collapsed:
        seeds = _count(collapsed, "seed")
        out.append(f"warning: {seeds} degenerate (one answer for every example); included in the means")
    varies = pooled(table.rows)
    if varies and varies != ["seeds"]:
        out.append(f"note: ± is the standard deviation over {', '.join(varies)}: rows pool these")
    return out


def _title(record: Record) -> str:
    return f"{record.task}/{record.encoder}/{record.strategy}/{record.cell}/seed-{record.seed}"


def _failures(records: Iterable[Record]) -> list[tuple[str, str]]:
    out = []
    for r in records:
        if r.status in ("failed", "timeout"):
            error = headline(r.reason)
            out.append((_title(r), error if r.status == "failed" else f"timeout: {error}"))
    return out


def _skips(records: Iterable[Record]) -> list[tuple[str, str]]:
    """Skipped cells by reason: the first cell with the number of further ones, and the reason."""
    by_reason: dict[str, list[Record]] = {}
    for r in records:
        if r.status == "skipped":
            by_reason.setdefault(r.reason.strip() or "no reason recorded", []).append(r)
    return [
        (_title(rs[0]) + (f" and {len(rs) - 1} more" if len(rs) > 1 else ""), reason)
        for reason, rs in by_reason.items()
    ]
