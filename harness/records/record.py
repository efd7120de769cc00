"""The record a cell leaves: a typed, versioned schema, written atomically.

A cell's folder is ``<results>/<task>/<encoder>/<strategy>/<cell id>/seed-<n>/`` and holds ``record.json``
(this schema), ``config.yaml`` (resolved), ``predictions.parquet`` and ``log.txt``. ``record.json`` is written
last: a folder without it is an unfinished cell. This module imports neither torch nor Hydra.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from harness.core.files import write_atomic

try:
    from yaml import CSafeDumper as _Dumper
except ImportError:  # PyYAML without its C part
    from yaml import SafeDumper as _Dumper

from harness.errors import HarnessError, NewerSchema

ENGINE_VERSION = 1
"""Incremented when a fix in the engine changes results; part of every cell id."""
SCHEMA = 1
STATUSES = ("complete", "failed", "skipped", "timeout")
RECORD = "record.json"
CONFIG = "config.yaml"
CONFIG_JSON = "config.json"


@dataclass(slots=True)
class Costs:
    """What the cell cost. Seconds are wall time. ``encode_seconds`` is the full price of tokenising and
    computing frozen features, also when the cache paid (then ``encode_cached`` is True).
    ``adapt_seconds`` is in the same way the full price of adapting the encoder to the task's texts, 0 where
    the strategy does not. ``load_seconds`` is what this run spent on reading the encoder's weights and
    tokenizer, or on drawing them; ``overhead_seconds`` on anything but that, adapting, encoding, training and
    evaluation (reading data, building the task's network, writing the record). Of a cell over several
    ``devices``, ``examples_per_second`` is over all, and ``peak_memory_mb`` the fullest device's, on the CPU
    all processes' together."""

    encode_seconds: float = 0.0
    encode_cached: bool = False
    adapt_seconds: float = 0.0
    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    load_seconds: float = 0.0
    overhead_seconds: float = 0.0
    total_seconds: float = 0.0
    examples_per_second: float = 0.0
    peak_memory_mb: float = 0.0
    slots: int = 1
    device: str = "cpu"
    host: str = ""
    devices: int = 1


@dataclass(slots=True)
class Record:
    """One cell's outcome.

    Attributes:
        status: complete, failed, skipped or timeout.
        reason: why it failed or was skipped (the error's last lines).
        task, encoder, strategy: names; ``kind`` the task's kind; ``cell`` the cell id; ``seed``.
        variant: resolved settings that differ from the defaults of this encoder, strategy and task.
        metric, maximize: the primary metric and its direction.
        dev, test: scores by name; empty when there is no such split.
        dev_history: primary metric on dev after each epoch (NaN as None).
        epoch: the chosen epoch, counted from 1; ``epochs`` how many were run.
        partial: the limit on examples a split, or None.
        n_train, n_dev, n_test: examples.
        data: fingerprint of the task's files; empty where the data come from a hub.
        parameters, trained_parameters: counts, embeddings included.
        coverage: the tokenizer's report (share of words known, unknown tokens, texts cut).
        notes: where splits came from, data repaired; ``warnings``: what the run warned of.
        versions: of Python, packages and result versions; ``git``: commit and dirty flag, if any.
        metric_from_stats: dotted path of the :class:`harness.data.statistics.MetricFromStats` that computes
            scores from the statistics in ``predictions.parquet``; empty when it contains none.
        degenerate: what the test predictions have collapsed to, such as "predicts nothing but HUM".
        trained_bytes: size of the trained parameters; 0 in records from before it was kept.
        mix: what the scalar mix of layers has learnt: ``layers`` (their numbers, 0 the embeddings),
            ``weights`` (their shares, summing to 1), ``gamma``, and ``late_weights``, ``late_gamma`` of the
            mix behind the body, if any; empty without a mix.
        members: of an ensemble, ``task/encoder/strategy/id/seed-n`` of the cells that it averages.
    """

    status: str
    task: str
    encoder: str
    strategy: str
    cell: str
    seed: int
    kind: str = ""
    reason: str = ""
    variant: dict[str, Any] = field(default_factory=dict)
    metric: str = ""
    maximize: bool = True
    dev: dict[str, float | None] = field(default_factory=dict)
    test: dict[str, float | None] = field(default_factory=dict)
    dev_history: list[float | None] = field(default_factory=list)
    epoch: int | None = None
    epochs: int | None = None
    partial: int | None = None
    n_train: int = 0
    n_dev: int = 0
    n_test: int = 0
    data: str = ""
    parameters: int = 0
    trained_parameters: int = 0
    costs: Costs = field(default_factory=Costs)
    coverage: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    git: dict[str, Any] = field(default_factory=dict)
    metric_from_stats: str = ""
    degenerate: str = ""
    trained_bytes: int = 0
    mix: dict[str, list[float]] = field(default_factory=dict)
    members: list[str] = field(default_factory=list)
    started: str = ""
    finished: str = ""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status {self.status!r} is not one of {', '.join(STATUSES)}")


def write_record(folder: Path, record: Record) -> None:
    """Write ``record.json`` so that a reader sees the old one or the new one, never a part."""
    text = json.dumps(_finite(asdict(record)), ensure_ascii=False, indent=1, allow_nan=False)
    write_atomic(folder / RECORD, text.encode("utf-8", "backslashreplace"))  # half a surrogate is escaped


def results_of(folder: Path) -> Path:
    """The results folder that a cell's folder lies in, five levels above."""
    return folder.parents[4]


def write_config(folder: Path, config: Mapping[str, object]) -> None:
    """Write the resolved configuration: ``config.yaml`` for readers, ``config.json`` for programs."""
    text = yaml.dump(dict(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    write_atomic(folder / CONFIG, text.encode())
    data = json.dumps(dict(config), ensure_ascii=False, indent=1)
    write_atomic(folder / CONFIG_JSON, data.encode("utf-8", "backslashreplace"))


def read_record(folder: Path) -> Record:
    """Read ``record.json`` of a cell's folder.

    Raises:
        FileNotFoundError: the cell has none.
        HarnessError: the file is damaged or from a newer schema; the message names it.
    """
    path = folder / RECORD
    raw = path.read_bytes()
    try:
        data = json.loads(raw)
        if data["schema"] > SCHEMA:
            raise NewerSchema(f"{path}: schema {data['schema']} is newer than this harness knows ({SCHEMA})")
        data["costs"] = Costs(**_typed(Costs, data.get("costs", {})))
        return Record(**_typed(Record, data))
    except (ValueError, KeyError, TypeError) as e:
        raise HarnessError(
            f"{path}: not a record ({e}); `harness rm` archives the cell so that it can run again"
        ) from e


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "int | None": (int, type(None)),
    "list[str]": (list,),
    "list[float | None]": (list,),
    "Costs": (Costs,),
}
_VALUES: dict[str, tuple[type, ...]] = {
    "dict[str, float | None]": (int, float, type(None)),
    "dict[str, float]": (int, float, type(None)),
    "dict[str, str]": (str,),
    "dict[str, list[float]]": (list,),
}


@cache
def _checks(schema: type) -> dict[str, tuple[str, tuple[type, ...], tuple[type, ...] | None]]:
    """By field: its type, what a value may be, and what the values in it may be. Once a schema: a board reads
    ten thousand records."""
    kinds = {f.name: str(f.type) for f in fields(schema)}
    return {name: (kind, _KINDS.get(kind, (dict,)), _VALUES.get(kind)) for name, kind in kinds.items()}


def _typed(schema: type, values: Any) -> dict[str, Any]:
    """Those of ``values`` that are fields, when each is of its field's type.

    Raises:
        TypeError: names the first that is not.
    """
    if not isinstance(values, dict):
        raise TypeError(f"{values!r} is no mapping")
    out = {}
    for name, (kind, valid, inside) in _checks(schema).items():
        if name not in values:
            continue
        value = values[name]
        good = isinstance(value, valid) and (kind == "bool" or not isinstance(value, bool))
        if good and inside is not None:
            good = all(isinstance(v, inside) for v in value.values())
        if not good:
            raise TypeError(f"{name}={value!r} is no {kind}")
        out[name] = value
    return out


def iter_records(results: Path) -> Iterator[tuple[Path, Record | HarnessError]]:
    """All records below ``results`` with their folders, in path order; damaged ones as the error."""
    for path in sorted(results.glob(f"*/*/*/*/seed-*/{RECORD}")):
        try:
            yield path.parent, read_record(path.parent)
        except HarnessError as e:
            yield path.parent, e
        except FileNotFoundError:  # another process was faster
            continue
        except OSError as e:
            yield path.parent, HarnessError(f"{path}: cannot be read ({e.strerror or e})")


def _finite(value: Any) -> Any:
    """NaN and infinities as None: JSON has neither."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


LOG = "log.txt"
