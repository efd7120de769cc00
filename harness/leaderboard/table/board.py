"""The whole leaderboard as plain data: one table a task and metric, and everything a reader must be told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.fingerprint import slug
from harness.errors import HarnessError, did_you_mean
from harness.leaderboard.table.comparable import split
from harness.leaderboard.table.configs import Configs
from harness.leaderboard.table.rows import (
    Row,
    by_fields,
    by_variant,
    check_fields,
    data_sets,
    headline,
    pooled,
)
from harness.leaderboard.table.selection import select_on_dev
from harness.leaderboard.table.train_size import of_size
from harness.records.record import RECORD, Record, iter_records, read_record

PARTIAL = "PARTIAL"


@dataclass(slots=True)
class Table:
    """Rows of one task and one primary metric, best first.

    Attributes:
        notes: what must be known before these rows are compared.
        part: what sets the records apart from others of the task, such as the data's fingerprint.
    """

    task: str
    metric: str
    maximize: bool
    rows: list[Row]
    partial: bool = False
    notes: list[str] = field(default_factory=list)
    part: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        better = "" if not self.metric else ", higher is better" if self.maximize else ", lower is better"
        what = f" | test {self.metric}{better}" if self.metric else ""
        apart = "".join(f" | {key} {value}" for key, value in self.part.items())
        return f"{PARTIAL + ': ' if self.partial else ''}{self.task}{what}{apart}"


@dataclass(slots=True)
class Board:
    """Tables, then lists of (cell, reason), then sentences that concern the whole.

    Attributes:
        tables: complete records first, partial ones (if asked for) after them.
        failed: failed and timed-out cells with the line that names their error.
        skipped: skipped cells grouped by reason.
        damaged: record files that cannot be read, and copies of others.
        notes: further lines.
        hidden: rows of skipped cells alone, where they are not shown.
    """

    tables: list[Table]
    failed: list[tuple[str, str]]
    skipped: list[tuple[str, str]]
    damaged: list[str]
    notes: list[str]
    hidden: list[Row] = field(default_factory=list)

    @property
    def skipped_title(self) -> str:
        """A heading; of cells that have no rows it says how to get them."""
        return "Skipped" + ("; --skipped show gives them rows" if self.hidden else "")


@dataclass(slots=True)
class Found:
    """What lies below a results folder: readable records, messages about damaged ones, configurations."""

    records: list[Record]
    damaged: list[str]
    configs: Configs


def read(folder: Path, *, tasks: Sequence[str] = ()) -> Found:
    """The records of a results folder, or of one task's folder in it; of ``tasks`` alone if any are given.

    Raises:
        HarnessError: there are no records, or none of such a task.
    """
    filed: list[tuple[Record, Path]] = []
    damaged: list[str] = []
    for place, found in _records(folder):
        if isinstance(found, Record):
            filed.append((found, place))
        else:
            damaged.append(str(found))
    if not filed and not damaged:
        raise _nothing(folder)
    names = {record.task for record, _ in filed}
    for task in tasks:
        if task not in names:
            raise HarnessError(f"--task {task}: no record of it in {folder}; {did_you_mean(task, names)}")
    kept = [(record, place) for record, place in filed if not tasks or record.task in tasks]
    kept, copies = _once(kept)
    damaged += copies
    return Found([record for record, _ in kept], damaged, Configs(kept))


def _once(filed: Sequence[tuple[Record, Path]]) -> tuple[list[tuple[Record, Path]], list[str]]:
    """Each cell and seed once, and what was left out: a copied folder is no second draw of a seed. The one
    that lies where its record says counts."""
    if len({_draw(record) for record, _ in filed}) == len(filed):
        return list(filed), []
    known: dict[tuple[str | int, ...], tuple[Record, Path]] = {}
    for record, place in sorted(filed, key=lambda one: not _in_place(*one)):
        known.setdefault(_draw(record), (record, place))
    kept = {id(record) for record, _ in known.values()}
    copies = [
        f"{place}: a copy of {known[_draw(record)][1]}, the same cell and seed"
        for record, place in filed
        if id(record) not in kept
    ]
    return [one for one in filed if id(one[0]) in kept], copies


def _draw(record: Record) -> tuple[str | int, ...]:
    return record.task, record.encoder, record.strategy, record.cell, record.seed


def _in_place(record: Record, place: Path) -> bool:
    wanted = (record.cell, f"seed-{record.seed}")
    return place.parts[-2:] == wanted and slug(record.task) in place.parts


def _records(folder: Path) -> Iterator[tuple[Path, Record | HarnessError]]:
    """As :func:`iter_records`; where that finds nothing, ``folder`` is taken for one task's."""
    one = None
    for one in iter_records(folder):
        yield one
    for path in sorted(folder.glob(f"*/*/*/seed-*/{RECORD}")) if one is None else ():
        try:
            yield path.parent, read_record(path.parent)
        except HarnessError as e:
            yield path.parent, e


def _nothing(folder: Path) -> HarnessError:
    if not folder.is_dir():
        return HarnessError(f"{folder}: no such folder; give the results_dir of a run, `results` by default")
    return HarnessError(
        f"{folder}: no records below it (<task>/<encoder>/<strategy>/<cell>/seed-<n>/record.json); give the "
        "results_dir of a run itself, or run something first: harness task=mini_topic encoder=mini_bert"
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
    """Turn records into a board.

    Args:
        records: of one results folder.
        damaged: messages about files that are no records.
        partial: show partial records, in tables of their own.
        select: keep of each task, encoder and strategy the variant that is best on dev.
        group_by: group by these fields and settings instead of by variant.
        configs: where the settings are found that neither record nor variant holds.
        mix: put records of different data, test sizes and result versions of a task into one table.
        skipped: give cells that were skipped rows of their own; they are listed with their reasons anyway.
        train_size: keep cells trained on so many examples alone; ``all`` keeps the most of each task.

    Raises:
        HarnessError: nothing that is shown has one of the fields in ``group_by``, or was trained on so many.
    """
    configs = configs or Configs()
    whole = [r for r in records if r.partial is None]
    left = [r for r in records if r.partial is not None]
    before = whole
    if train_size is not None:
        whole = of_size(whole, train_size)
        left = of_size(left, train_size) if partial else left
    shown = [*whole, *left] if partial else whole
    check_fields(shown or left, group_by, configs)

    def tables_of(some: Sequence[Record], *, partial: bool) -> list[Table]:
        out = []
        for part, members in [({}, list(some))] if mix else split(some):
            rows = by_fields(members, group_by, configs=configs) if group_by else by_variant(members)
            found = _tables(select_on_dev(rows) if select else rows, partial=partial)
            for table in found:
                table.part = dict(part)
            out += found
        return sorted(out, key=lambda t: t.task)

    tables = tables_of(whole, partial=False)
    notes = [
        f"{task}: no cell was trained on {train_size} examples"
        for task in sorted({r.task for r in before} - {r.task for r in whole})
    ]
    if partial:
        tables += tables_of(left, partial=True)
    elif left:
        notes.append(_left_out(left))
    hidden = [] if skipped else _hide(tables)
    tables = [table for table in tables if table.rows]
    return Board(tables, _failures(shown), _skips(shown), list(damaged), notes, hidden)


def _left_out(partial: Sequence[Record]) -> str:
    """How many records of runs with a limit are not shown: those that ran, and those that were skipped."""
    skipped = sum(r.status == "skipped" for r in partial)
    ran = len(partial) - skipped
    parts = [f"{_count(ran, 'partial record')} (run with a limit)"] if ran else []
    parts += [f"{_count(skipped, 'skipped cell')} of runs with a limit"] if skipped else []
    return f"{' and '.join(parts)} left out; --partial shows them"


def _hide(tables: Iterable[Table]) -> list[Row]:
    """Take rows that say nothing but that they were skipped out of their tables."""
    out: list[Row] = []
    for table in tables:
        out += [row for row in table.rows if row.state == "skipped"]
        table.rows = [row for row in table.rows if row.state != "skipped"]
    return out


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _tables(rows: Sequence[Row], *, partial: bool) -> list[Table]:
    metrics = _metrics_by_task(rows)
    found: dict[tuple[str, str, bool], Table] = {}
    for row in rows:
        metric, up = (row.metric, row.maximize) if row.metric else metrics[row.task][0]
        row.metric, row.maximize = metric, up
        table = found.setdefault((row.task, metric, up), Table(row.task, metric, up, [], partial=partial))
        table.rows.append(row)
    tables = [found[key] for key in sorted(found)]
    for table in tables:
        table.rows.sort(key=Row.rank)
        table.notes = _warnings(table, metrics[table.task])
    return tables


def _metrics_by_task(rows: Iterable[Row]) -> dict[str, list[tuple[str, bool]]]:
    out: dict[str, list[tuple[str, bool]]] = {}
    for row in rows:
        known = out.setdefault(row.task, [])
        if row.metric and (row.metric, row.maximize) not in known:
            known.append((row.metric, row.maximize))
    return {task: sorted(known) or [("", True)] for task, known in out.items()}


def _warnings(table: Table, metrics: Sequence[tuple[str, bool]]) -> list[str]:
    """What keeps the rows of a table from being comparable."""
    done = [r for row in table.rows for r in row.complete]
    out = []
    if len(metrics) > 1:
        names = ", ".join(sorted({name for name, _ in metrics}))
        out.append(f"warning: records of {table.task} have different metrics ({names}): one table each")
    sets = data_sets(r for row in table.rows for r in row.records)[table.task]
    if len(sets) > 1:
        out.append(
            f"warning: task {table.task} holds results of {len(sets)} different data sets: "
            "give each its own task.name"
        )
    sizes = sorted({r.n_test for r in done})
    if len(sizes) > 1:
        seen = " and ".join(map(str, sizes))
        out.append(f"warning: test sets of different sizes ({seen} examples): scores are not comparable")
    for key in sorted({k for r in done for k in r.versions if k.startswith("result")}):
        values = sorted({r.versions.get(key, "none") for r in done})
        if len(values) > 1:
            out.append(f"warning: different {key} ({', '.join(values)}): a fix lies between these scores")
    hosts = {r.costs.host for r in done}
    if len(hosts) > 1:
        out.append(f"note: run on {len(hosts)} hosts: seconds are not comparable between rows")
    collapsed = sum(row.degenerate for row in table.rows)
    if collapsed:
        seeds = _count(collapsed, "seed")
        out.append(f"warning: {seeds} collapsed to one answer for everything; they count in the means")
    over = pooled(table.rows)
    if over and over != ["seeds"]:
        out.append(f"note: ± over {', '.join(over)}: a row pools what it does not name")
    return out


def _title(record: Record) -> str:
    return f"{record.task}/{record.encoder}/{record.strategy}/{record.cell}/seed-{record.seed}"


def _failures(records: Iterable[Record]) -> list[tuple[str, str]]:
    out = []
    for r in records:
        if r.status in ("failed", "timeout"):
            said = headline(r.reason)
            out.append((_title(r), said if r.status == "failed" else f"timeout: {said}"))
    return out


def _skips(records: Iterable[Record]) -> list[tuple[str, str]]:
    """Skipped cells by reason: the reason, and how many cells it holds for."""
    count: dict[str, list[Record]] = {}
    for r in records:
        if r.status == "skipped":
            count.setdefault(r.reason.strip() or "no reason kept", []).append(r)
    return [
        (_title(rs[0]) + (f" and {len(rs) - 1} more" if len(rs) > 1 else ""), reason)
        for reason, rs in count.items()
    ]
