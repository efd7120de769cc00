"""Rows of the leaderboard: records that are summarised together, and their statistics.

A row's score is the mean test score (primary metric) of its complete records. A record whose score is NaN
makes the whole row *diverged*: excluding it would bias the mean upwards, so the row has no mean and is sorted
below every row that has one.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

from harness.errors import HarnessError, did_you_mean
from harness.leaderboard.table.configs import UNSET, Configs
from harness.leaderboard.table.train_size import N_TRAIN, NAMES, sizes_of
from harness.records.record import Costs, Record

RECORD_FIELDS = tuple(f.name for f in fields(Record) if f.name not in ("variant", "costs"))
COST_FIELDS = tuple(f"costs.{f.name}" for f in fields(Costs))
_IN_NAME = ("encoder", "strategy")
NOT_SET = "-"
"""Shown for cells without such a setting."""
STATES = ("scored", "untested", "diverged", "failed", "skipped")
"""States of a row, in the order of the table."""


@dataclass
class BoardRow:
    """Records that are summarised together.

    Attributes:
        task: name of the task.
        metric, maximize: the primary metric and its direction; "" if no record of the row is complete.
        labels: column heading -> text, in order; they distinguish the row from the others of its task.
        records: at least one; usually one per seed.
        tried: number of variants this one was selected from, if it was selected.
        ci, ci_kind, no_interval: 95 % confidence interval, what it covers, or why there is none.
        tied: True for the best row and rows that do not differ significantly from it; None if unknown, and
            then ``untested`` is the reason if a test was requested.
        error_reduction, p_baseline: relative error reduction against a baseline, and the test's p-value.
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
        """Its complete records."""
        return [r for r in self.records if r.status == "complete"]

    @property
    def failed(self) -> int:
        """Number of records that failed or timed out."""
        return sum(r.status in ("failed", "timeout") for r in self.records)

    @property
    def skipped(self) -> int:
        """Number of skipped records."""
        return sum(r.status == "skipped" for r in self.records)

    @cached_property
    def scores(self) -> list[float]:
        """Test score of each complete record that has one; NaN if it diverged."""
        return [_number(r.test[self.metric]) for r in self.complete if self.metric in r.test]

    @cached_property
    def dev_scores(self) -> list[float]:
        """Dev score of each complete record that has one; NaN if it diverged."""
        return [_number(r.dev[self.metric]) for r in self.complete if self.metric in r.dev]

    @property
    def diverged(self) -> int:
        """Number of complete records whose test score is NaN."""
        return sum(map(math.isnan, self.scores))

    @property
    def degenerate(self) -> int:
        """Number of complete records that predict one answer for every example; they count in the mean."""
        return sum(bool(r.degenerate) for r in self.complete)

    @property
    def name(self) -> str:
        """``encoder/strategy variant``, or the labels it is grouped by."""
        rest = [v if k == "variant" else f"{k}={v}" for k, v in self.labels.items() if k not in _IN_NAME]
        if all(k in self.labels for k in _IN_NAME):
            return " ".join([f"{self.labels['encoder']}/{self.labels['strategy']}", *rest]).strip()
        return " ".join(f"{k}={v}" for k, v in self.labels.items())

    @cached_property
    def n_train(self) -> int | None:
        """Training examples of its complete records; a row never pools several sizes."""
        return max((r.n_train for r in self.complete), default=None)

    @cached_property
    def mean(self) -> float | None:
        """Mean test score; None without scores or with a NaN among them."""
        return _mean(self.scores)

    @cached_property
    def dev(self) -> float | None:
        """Mean dev score."""
        return _mean(self.dev_scores)

    @cached_property
    def std(self) -> float | None:
        """Sample standard deviation (n - 1); None with fewer than two scores."""
        return statistics.stdev(self.scores) if self.mean is not None and len(self.scores) > 1 else None

    @property
    def state(self) -> str:
        """``scored``, ``untested`` (no test split, or one without labels), ``diverged``, ``failed`` or
        ``skipped``."""
        if self.mean is not None:
            return "scored"
        if self.diverged:
            return "diverged"
        if self.complete:
            return "untested"
        return "failed" if self.failed else "skipped"

    @property
    def hosts(self) -> set[str]:
        """Hosts of its complete records."""
        return {r.costs.host for r in self.complete}

    def average(self, value: Callable[[Record], float]) -> float | None:
        """Mean of ``value`` over the complete records."""
        return statistics.fmean(map(value, self.complete)) if self.complete else None

    def sort_key(self) -> tuple[int, float, tuple[str, ...]]:
        """Best first, rows without a mean last, ties by label."""
        mean = self.mean or 0.0
        return STATES.index(self.state), -mean if self.maximize else mean, tuple(self.labels.values())


def _number(score: float | None) -> float:
    return math.nan if score is None or math.isinf(score) else score


def _mean(scores: Sequence[float]) -> float | None:
    return statistics.fmean(scores) if scores and not any(map(math.isnan, scores)) else None


def variant_text(variant: Mapping[str, object]) -> str:
    """``optimizer.lr=0.001 trainer.epochs=3``; empty for the default."""
    return " ".join(f"{key}={_value(value)}" for key, value in sorted(variant.items()))


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def by_variant(records: Iterable[Record]) -> list[BoardRow]:
    """One row per task, encoder, strategy and cell id: its records differ only in the seed."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for r in records:
        groups.setdefault((r.task, r.encoder, r.strategy, r.cell), []).append(r)
    rows = []
    for (task, encoder, strategy, _), members in groups.items():
        labels = {"encoder": encoder, "strategy": strategy, "variant": variant_text(members[0].variant)}
        rows += _by_metric(task, labels, members)
    _make_unique(rows)
    return rows


def by_fields(
    records: Sequence[Record], names: Sequence[str], *, configs: Configs | None = None
) -> list[BoardRow]:
    """One row per task and combination of values of ``names``: record fields or resolved settings.

    A row that would pool training sets of different sizes is split by size, with the label ``n_train``."""
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
    """Check that each name is a record field or a setting of some cell.

    Raises:
        HarnessError: a name is neither; the message suggests the nearest ones.
    """
    variant_keys = {key for r in records for key in r.variant}
    for name in names:
        if name in variant_keys or name in RECORD_FIELDS + COST_FIELDS:
            continue
        if all(configs.get(r, name) is UNSET for r in records):
            hint = nearest([*RECORD_FIELDS, *COST_FIELDS, *variant_keys, *configs.keys()], name)
            raise HarnessError(f"--group-by {name}: not a field of any record or configuration; {hint}")


def nearest(options: Iterable[str], name: str) -> str:
    """``did you mean ...?`` with the options that end in ``name``, or else similar ones."""
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


def pooled(rows: Iterable[BoardRow]) -> list[str]:
    """What varies within rows, the seed first: their standard deviation covers all of it."""
    varies: dict[str, bool] = {}
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
        varies = {name: varies.get(name, False) or value for name, value in differ.items()}
    return [name for name, value in varies.items() if value]


def headline(reason: str) -> str:
    """The error's line in a reason: the first line, or the last line of a traceback."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()] or ["no reason recorded"]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


def _by_metric(task: str, labels: dict[str, str], records: list[Record]) -> list[BoardRow]:
    """One row per primary metric of the complete records; records without a result go to the first."""
    metrics = sorted({(r.metric, r.maximize) for r in records if r.status == "complete"})
    if not metrics:
        return [BoardRow(task, "", True, dict(labels), records)]
    by_metric = {metric: [r for r in records if _has_metric(r, metric)] for metric in metrics}
    by_metric[metrics[0]] += [r for r in records if r.status != "complete"]
    return [BoardRow(task, metric, up, dict(labels), by_metric[metric, up]) for metric, up in metrics]


def _has_metric(record: Record, metric: tuple[str, bool]) -> bool:
    return record.status == "complete" and (record.metric, record.maximize) == metric


def _make_unique(rows: list[BoardRow]) -> None:
    """Add to variants what distinguishes them: the data if a task has several data sets; the training-set
    size, or else the cell id, if two rows still have the same labels."""
    sets = data_sets(row.records[0] for row in rows)
    for row in rows:
        first = row.records[0]
        if first.data and len(sets[row.task]) > 1:
            row.labels["variant"] = f"{row.labels['variant']} data={first.data[:8]}".strip()
    seen: dict[tuple[str, ...], list[BoardRow]] = {}
    for row in rows:
        seen.setdefault((row.task, row.metric, *row.labels.values()), []).append(row)
    for same in seen.values():
        sizes = sizes_of(r for row in same for r in row.records)
        for row in same if len(same) > 1 else ():
            first = row.records[0]
            differ = len(set(sizes.values())) == len(same)
            name = f"n_train={sizes[first.task, first.cell]}" if differ else f"cell={first.cell[:8]}"
            row.labels["variant"] = f"{row.labels['variant']} {name}".strip()


def data_sets(records: Iterable[Record]) -> dict[str, set[str]]:
    """Data fingerprints per task name, without records whose fingerprint is unknown."""
    out: dict[str, set[str]] = {}
    for r in records:
        out.setdefault(r.task, set()).update([r.data] if r.data else [])
    return out
