"""Rows of the leaderboard: the records that belong together, and what they amount to.

A row's score is the mean over its complete records of the test score on the primary metric. A record whose
score is NaN makes the whole row *diverged*: leaving it out of the mean would flatter the row, so the row has
no mean and is sorted below every row that has one.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from harness.errors import HarnessError, did_you_mean
from harness.leaderboard.table.configs import UNSET, Configs
from harness.leaderboard.table.train_size import N_TRAIN, NAMES, sizes_of
from harness.records.record import Costs, Record

RECORD_FIELDS = tuple(f.name for f in fields(Record) if f.name not in ("variant", "costs"))
COST_FIELDS = tuple(f"costs.{f.name}" for f in fields(Costs))
_PLACED = ("encoder", "strategy")
NOT_SET = "-"
"""Shown for a cell that has no such setting."""


@dataclass
class Row:
    """Records that are summarised together.

    Attributes:
        task: name of the task.
        metric, maximize: the primary metric and its direction; "" when no record of the row ran.
        labels: column heading -> text, in order; what tells the row from the others of its task.
        records: at least one; usually one a seed.
        tried: number of variants this one was chosen from, when it was chosen.
        ci, ci_kind, no_interval: interval of 95 %, what it is over, or why there is none.
        tied: whether a paired test cannot tell it from the best row; None where that is not known, and then
            ``untested`` says why there was no test, if one was wanted.
        error_reduction, p_baseline: against a chosen baseline.
    """

    task: str
    metric: str
    maximize: bool
    labels: dict[str, str]
    records: list[Record]
    tried: int | None = None
    notes: list[str] = field(default_factory=list)
    ci: tuple[float, float] | None = None
    ci_kind: str = ""
    no_interval: str = ""
    tied: bool | None = None
    untested: str = ""
    error_reduction: float | None = None
    p_baseline: float | None = None

    @cached_property
    def complete(self) -> list[Record]:
        return [r for r in self.records if r.status == "complete"]

    @property
    def failed(self) -> int:
        """Failed or timed out."""
        return sum(r.status in ("failed", "timeout") for r in self.records)

    @property
    def skipped(self) -> int:
        return sum(r.status == "skipped" for r in self.records)

    @cached_property
    def scores(self) -> list[float]:
        """Test score of each complete record that was tested; NaN where it diverged."""
        return [_number(r.test[self.metric]) for r in self.complete if self.metric in r.test]

    @cached_property
    def dev_scores(self) -> list[float]:
        return [_number(r.dev[self.metric]) for r in self.complete if self.metric in r.dev]

    @property
    def diverged(self) -> int:
        """Complete records whose test score is no number."""
        return sum(map(math.isnan, self.scores))

    @property
    def degenerate(self) -> int:
        """Complete records that predict the same for everything; they count in the mean."""
        return sum(bool(r.degenerate) for r in self.complete)

    @property
    def name(self) -> str:
        """``encoder/strategy variant``, or the labels it was grouped by."""
        rest = [v if k == "variant" else f"{k}={v}" for k, v in self.labels.items() if k not in _PLACED]
        if all(k in self.labels for k in _PLACED):
            return " ".join([f"{self.labels['encoder']}/{self.labels['strategy']}", *rest]).strip()
        return " ".join(f"{k}={v}" for k, v in self.labels.items())

    @cached_property
    def n_train(self) -> int | None:
        """Training examples of its complete records: a row never pools several sizes."""
        return max((r.n_train for r in self.complete), default=None)

    @cached_property
    def mean(self) -> float | None:
        return _mean(self.scores)

    @cached_property
    def dev(self) -> float | None:
        return _mean(self.dev_scores)

    @cached_property
    def std(self) -> float | None:
        """Sample standard deviation (n - 1); None below two scores."""
        return statistics.stdev(self.scores) if self.mean is not None and len(self.scores) > 1 else None

    @property
    def state(self) -> str:
        """``scored``, ``untested`` (no test split), ``diverged``, ``failed`` or ``skipped``."""
        if self.mean is not None:
            return "scored"
        if self.diverged:
            return "diverged"
        if self.complete:
            return "untested"
        return "failed" if self.failed else "skipped"

    @property
    def hosts(self) -> set[str]:
        return {r.costs.host for r in self.complete}

    def average(self, value: Callable[[Record], float]) -> float | None:
        """Mean of ``value`` over the complete records."""
        return statistics.fmean(map(value, self.complete)) if self.complete else None

    def rank(self) -> tuple[Any, ...]:
        """Sort key within a task: best first, rows without a mean last, ties by label."""
        order = ("scored", "untested", "diverged", "failed", "skipped").index(self.state)
        mean = self.mean or 0.0
        return (order, -mean if self.maximize else mean, *self.labels.values())


def _number(score: float | None) -> float:
    return math.nan if score is None or math.isinf(score) else score


def _mean(scores: Sequence[float]) -> float | None:
    return statistics.fmean(scores) if scores and not any(map(math.isnan, scores)) else None


def variant_text(variant: dict[str, Any]) -> str:
    """``optimizer.lr=0.001 trainer.epochs=3``; empty for the default."""
    return " ".join(f"{key}={_value(value)}" for key, value in sorted(variant.items()))


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def by_variant(records: Iterable[Record]) -> list[Row]:
    """One row a task, encoder, strategy and cell id: records that differ in nothing but the seed."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for r in records:
        groups.setdefault((r.task, r.encoder, r.strategy, r.cell), []).append(r)
    rows = []
    for (task, encoder, strategy, _), members in groups.items():
        labels = {"encoder": encoder, "strategy": strategy, "variant": variant_text(members[0].variant)}
        rows += _by_metric(task, labels, members)
    _tell_apart(rows)
    return rows


def by_fields(
    records: Sequence[Record], names: Sequence[str], *, configs: Configs | None = None
) -> list[Row]:
    """One row a task and combination of values of ``names``: fields of the record, or resolved settings.
    Where such a row would pool training sets of different sizes, there is one for each, named ``n_train``."""
    configs, sizes = configs or Configs(), sizes_of(records)
    groups: dict[tuple[str, ...], dict[int, list[Record]]] = {}
    for r in records:
        key = (r.task, *(_field(r, name, configs) for name in names))
        groups.setdefault(key, {}).setdefault(sizes[r.task, r.cell], []).append(r)
    several = {key[0] for key, by_size in groups.items() if len(by_size) > 1}
    rows = []
    for (task, *values), by_size in groups.items():
        for size, members in by_size.items():
            labels = dict(zip(names, values, strict=True))
            if task in several and not set(NAMES) & set(names):
                labels[N_TRAIN] = str(size)
            rows += _by_metric(task, labels, members)
    return rows


def check_fields(records: Sequence[Record], names: Sequence[str], configs: Configs) -> None:
    """Refuse what is neither a record's field nor a setting of any cell.

    Raises:
        HarnessError: it names the nearest fields and settings.
    """
    variant_keys = {key for r in records for key in r.variant}
    for name in names:
        if name in variant_keys or name in RECORD_FIELDS + COST_FIELDS:
            continue
        if all(configs.get(r, name) is UNSET for r in records):
            hint = nearest([*RECORD_FIELDS, *COST_FIELDS, *variant_keys, *configs.keys()], name)
            raise HarnessError(f"--group-by {name}: no record or configuration has this, {hint}")


def nearest(options: Iterable[str], name: str) -> str:
    """A half sentence: the options that end in ``name``, else those that read like it."""
    same = sorted({o for o in options if o.rpartition(".")[2] == name and "recipe" not in o})
    return f"did you mean {' or '.join(same[:3])}?" if same else did_you_mean(name, options)


def _field(record: Record, name: str, configs: Configs) -> str:
    if name in COST_FIELDS:
        return _value(getattr(record.costs, name.removeprefix("costs.")))
    if name in RECORD_FIELDS:
        return _value(getattr(record, name))
    if name in record.variant:
        return _value(record.variant[name])
    value = configs.get(record, name)
    return NOT_SET if value is UNSET else _value(value)


def pooled(rows: Iterable[Row]) -> list[str]:
    """What differs within rows, the seed first: the spread of such a row is over all of it."""
    found: dict[str, bool] = {}
    for group in (row.complete for row in rows):
        kinds = {(r.encoder, r.strategy) for r in group}
        differ = {
            "seeds": len({r.seed for r in group}) > 1,
            "encoders": len({encoder for encoder, _ in kinds}) > 1,
            "strategies": len({strategy for _, strategy in kinds}) > 1,
            "variants": len({(r.encoder, r.strategy, variant_text(r.variant)) for r in group}) > len(kinds),
            "data sets": len({r.data for r in group if r.data}) > 1,
        }
        differ["cells"] = len({r.cell for r in group}) > 1 and not any([*differ.values()][1:])
        found = {name: found.get(name, False) or value for name, value in differ.items()}
    return [name for name, value in found.items() if value]


def headline(reason: str) -> str:
    """The line of a reason that says what went wrong: the first, or the last below a traceback's head."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()] or ["no reason kept"]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


def _by_metric(task: str, labels: dict[str, str], records: list[Record]) -> list[Row]:
    """A row for each primary metric among the complete records; the others go to the first."""
    metrics = sorted({(r.metric, r.maximize) for r in records if r.status == "complete"})
    if not metrics:
        return [Row(task, "", True, dict(labels), records)]
    parts = {metric: [r for r in records if _is(r, metric)] for metric in metrics}
    parts[metrics[0]] += [r for r in records if r.status != "complete"]
    return [Row(task, metric, up, dict(labels), parts[metric, up]) for metric, up in metrics]


def _is(record: Record, metric: tuple[str, bool]) -> bool:
    return record.status == "complete" and (record.metric, record.maximize) == metric


def _tell_apart(rows: list[Row]) -> None:
    """Name the data where a task has several; where two rows would still read the same, the size of their
    training sets or else the cell."""
    sets = data_sets(row.records[0] for row in rows)
    for row in rows:
        first = row.records[0]
        if first.data and len(sets[row.task]) > 1:
            row.labels["variant"] = f"{row.labels['variant']} data={first.data[:8]}".strip()
    seen: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        seen.setdefault((row.task, row.metric, *row.labels.values()), []).append(row)
    for alike in seen.values():
        sizes = sizes_of(r for row in alike for r in row.records)
        for row in alike if len(alike) > 1 else ():
            first = row.records[0]
            told = len(set(sizes.values())) == len(alike)
            name = f"n_train={sizes[first.task, first.cell]}" if told else f"cell={first.cell[:8]}"
            row.labels["variant"] = f"{row.labels['variant']} {name}".strip()


def data_sets(records: Iterable[Record]) -> dict[str, set[str]]:
    """Fingerprints of the data that each task's name stands for; unknown ones left out."""
    out: dict[str, set[str]] = {}
    for r in records:
        out.setdefault(r.task, set()).update([r.data] if r.data else [])
    return out
