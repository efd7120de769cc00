"""Ensembles: the stored predictions of several cells are averaged, scored and recorded, without training.

An ensemble's folder is ``<results>/<task>/<encoder>+<encoder>/ensemble/<cell id>/seed-<n>/``. Its id is the
hash of its members' ids in any order (and of their seeds if they differ), so that the ensembles of the same
cells over several seeds are one row of the leaderboard. Its seed is that of its members, the lowest if they
differ.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from harness.config.cell_id import identity
from harness.config.stored import read_config
from harness.core.fingerprint import data_fingerprint, slug
from harness.core.provenance import git_state, versions
from harness.data.text import Example
from harness.errors import HarnessError
from harness.records.parts import TaskConfig
from harness.records.predictions import PREDICTIONS, read_predictions, write_predictions
from harness.records.record import CONFIG, Costs, Record, read_record, results_of, write_config, write_record
from harness.records.stored_files import check_contained
from harness.records.trust import INSTALLED, Trust
from harness.task import Averages, Prediction, Splits, Task, fitted_notes, fitted_part, is_unlabelled

T = TypeVar("T")
STRATEGY = "ensemble"
VERSION = 1
"""Incremented when the record for the same members changes."""
SPLITS = ("dev", "test")


@dataclass(frozen=True, slots=True)
class Member:
    """A complete cell: its folder, its record, its resolved configuration and its task."""

    folder: Path
    record: Record
    config: Mapping[str, object]
    task: TaskConfig

    @property
    def title(self) -> str:
        """``task/encoder/strategy/id/seed-n``."""
        return "/".join(self.folder.parts[-5:])


def combine(folders: Sequence[Path], trust: Trust = INSTALLED) -> tuple[Path, Record]:
    """Average the predictions of complete cells of one task and write a record.

    Args:
        folders: two or more seed folders, in any order.
        trust: the parts that stored configurations may name.

    Returns:
        the ensemble's folder and its record; the same members give the same folder.

    Raises:
        HarnessError: a member is not complete or occurs twice, members differ in task, data, limit or
            examples (the message names the difference), or the task cannot be averaged.
    """
    started, begin = datetime.now(UTC), time.perf_counter()
    members = sorted((read_member(folder, trust) for folder in folders), key=lambda m: m.title)
    _check(members)
    task, splits = _task(members[0])
    parts = {"dev": splits.dev, "test": splits.test}
    predicted = {split: _average(task, members, split, examples) for split, examples in parts.items()}
    record = _record(members, task, splits)
    if (part := fitted_part(task)) is not None:
        record.fitted = part.fit_on_dev(predicted["dev"], splits.dev)
        record.notes += fitted_notes(record.fitted)
        predicted = {split: part.apply_fitted(p, record.fitted) for split, p in predicted.items()}
    scored = {s for s in SPLITS if parts[s] and not is_unlabelled(parts[s])}
    scores = {s: task.score(predicted[s], parts[s]) if s in scored else {} for s in SPLITS}
    record.dev, record.test = dict(scores["dev"]), dict(scores["test"])
    folder = _folder(members, record)
    check_contained(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, _config(members, record))
    counted = write_predictions(folder, {s: (parts[s], predicted[s]) for s in SPLITS}, task=task)
    record.metric_from_stats, record.degenerate = counted.metric_from_stats, counted.degenerate
    record.started, record.finished = started.isoformat(), datetime.now(UTC).isoformat()
    spent = time.perf_counter() - begin
    record.costs.overhead_seconds += spent
    record.costs.total_seconds += spent
    write_record(folder, record)
    return folder, record


def read_member(folder: Path, trust: Trust = INSTALLED) -> Member:
    """Read a cell that can be a member.

    Raises:
        HarnessError: the cell is not complete, or a file is missing or damaged.
    """
    try:
        record = read_record(folder)
    except FileNotFoundError:
        raise HarnessError(f"{folder}: no record yet: the cell is running or was stopped") from None
    if record.status != "complete":
        raise HarnessError(f"{folder}: the cell is {record.status}; members must be complete")
    config = read_config(folder, trust)
    if not isinstance(config.get("task"), Mapping):
        raise HarnessError(f"{folder / CONFIG}: the section task is missing; run the cell again")
    try:
        read_predictions(folder)
    except FileNotFoundError:
        raise HarnessError(f"{folder}: {PREDICTIONS} is missing; run the cell again") from None
    except HarnessError as e:
        raise HarnessError(f"{e}; run the cell again") from e
    return Member(folder, record, config, TaskConfig.parse(_task_section(config)))


def _task_section(config: Mapping[str, object]) -> Mapping[str, object]:
    section = config["task"]
    assert isinstance(section, Mapping)  # checked by read_member
    return section


def _check(members: Sequence[Member]) -> None:
    """Refuse members that differ in task, data, limit or examples."""
    if len(members) < 2:
        raise HarnessError(f"{len(members)} cell(s): an ensemble needs at least two")
    for one, other in pairwise(members):
        if one.folder == other.folder:
            raise HarnessError(f"{one.title}: the cell is given twice")
    first = members[0]
    for other in members[1:]:
        difference = _difference(first, other)
        if difference:
            raise HarnessError(
                f"{first.title} and {other.title} cannot be averaged: {difference}; "
                "members must have the same task, data, limit and examples"
            )


def _difference(one: Member, other: Member) -> str | None:
    a, b = one.record, other.record
    for what, x, y in (
        ("task", a.task, b.task),
        ("kind of task", a.kind, b.kind),
        ("limit", a.partial, b.partial),
        ("data", a.data, b.data),
        ("metric", a.metric, b.metric),
    ):
        if x != y:
            return f"{what}: {x or 'none'} and {y or 'none'}"
    first, second = (identity(_task_section(m.config), group="task") for m in (one, other))
    for key in sorted({*first, *second}):
        if first.get(key) != second.get(key):
            return f"task.{key}: {first.get(key)} and {second.get(key)}"
    return None


def _task(member: Member) -> tuple[Task, Splits]:
    """Create the members' task and read its data with their limit."""
    task: Task = member.task.build()
    if not isinstance(task, Averages):
        raise HarnessError(f"task {task.name}: predictions of kind {task.kind} cannot be averaged")
    return task, task.splits(limit=member.record.partial)


def _average(
    task: Task, members: Sequence[Member], split: str, examples: Sequence[Example]
) -> dict[str, Prediction]:
    assert isinstance(task, Averages)
    return task.average([_predictions(m, split, examples) for m in members], examples)


def _predictions(member: Member, split: str, examples: Sequence[Example]) -> dict[str, Prediction]:
    """Read a member's predictions of a split, by example id.

    Raises:
        HarnessError: their ids or gold values are not those of ``examples``.
    """
    rows = {row["id"]: row for row in read_predictions(member.folder, split=split)}
    if len(rows) != len(examples) or any(e.id not in rows for e in examples):
        raise HarnessError(
            f"{member.title}: {len(rows)} stored predictions for {split} do not match the {len(examples)} "
            "examples of the data: have the files changed? Run the cell again"
        )
    for e in examples:
        if rows[e.id]["gold"] != json.loads(json.dumps(e.gold)):
            raise HarnessError(
                f"{member.title}: the gold of {split} example {e.id!r} differs from the data: "
                "have the files changed? Run the cell again"
            )
    return {
        name: Prediction(row["prediction"], tuple(row["scores"]), row["extra"]) for name, row in rows.items()
    }


def _record(members: Sequence[Member], task: Task, splits: Splits) -> Record:
    records = [m.record for m in members]
    first = records[0]
    assert isinstance(task, Averages)
    return Record(
        status="complete",
        task=first.task,
        encoder="+".join(r.encoder for r in records),
        strategy=STRATEGY,
        cell=_cell_id(members),
        seed=min(r.seed for r in records),
        kind=first.kind,
        variant=_variant(records),
        metric=first.metric,
        maximize=first.maximize,
        partial=first.partial,
        n_train=first.n_train,
        n_dev=len(splits.dev),
        n_test=len(splits.test),
        data=first.data,
        parameters=sum(r.parameters for r in records),
        trained_parameters=sum(r.trained_parameters for r in records),
        costs=_costs([r.costs for r in records]),
        coverage=_common([r.coverage for r in records]),
        notes=[
            *(n for n in first.notes if all(n in r.notes for r in records)),
            f"ensemble: {task.averaging}",
        ],
        warnings=sorted({w for r in records for w in r.warnings}),
        versions={**versions(), **_common([r.versions for r in records]), "ensemble": str(VERSION)},
        git=git_state(),
        members=[m.title for m in members],
    )


def _cell_id(members: Sequence[Member]) -> str:
    apart = len({m.record.seed for m in members}) > 1
    names = sorted(
        [m.record.encoder, m.record.strategy, m.record.cell, *([m.record.seed] if apart else [])]
        for m in members
    )
    return data_fingerprint({"members": names, "version": VERSION})[:12]


def _variant(records: Sequence[Record]) -> dict[str, object]:
    """Return what distinguishes the ensemble from others of the same encoders: the members' strategies, the
    settings that all members share, and their seeds if they differ."""
    strategies, seeds = [r.strategy for r in records], [r.seed for r in records]
    joined = strategies[0] if len(set(strategies)) == 1 else "+".join(strategies)
    apart = {"seeds": "+".join(map(str, seeds))} if len(set(seeds)) > 1 else {}
    return {**_common([r.variant for r in records]), "of": joined, **apart}


def _costs(costs: Sequence[Costs]) -> Costs:
    """Return the cost of running the members one after the other: seconds are summed, memory is the
    maximum."""
    seconds = {f.name: sum(getattr(c, f.name) for c in costs) for f in fields(Costs) if "_seconds" in f.name}
    n_examples = sum(c.examples_per_second * c.train_seconds for c in costs)
    return Costs(
        **seconds,
        encode_cached=any(c.encode_cached for c in costs),
        examples_per_second=n_examples / seconds["train_seconds"] if seconds["train_seconds"] else 0.0,
        peak_memory_mb=max(c.peak_memory_mb for c in costs),
        slots=max(c.slots for c in costs),
        device="+".join(sorted({c.device for c in costs})),
        host="+".join(sorted({c.host for c in costs})),
    )


def _common(maps: Sequence[Mapping[str, T]]) -> dict[str, T]:
    """Return the items that all mappings share; the others are in the members' records."""
    return {k: v for k, v in maps[0].items() if all(k in m and m[k] == v for m in maps)}


def _folder(members: Sequence[Member], record: Record) -> Path:
    results = results_of(members[0].folder)
    for part in (record.task, record.encoder, record.strategy, record.cell):
        results /= slug(part)
    return results / f"seed-{record.seed}"


def _config(members: Sequence[Member], record: Record) -> dict[str, object]:
    return {
        "task": dict(_task_section(members[0].config)),
        "encoder": {"name": record.encoder},
        "strategy": {"name": record.strategy},
        "members": record.members,
        "seed": record.seed,
        "limit": record.partial,
    }
