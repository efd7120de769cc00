"""The record of a cell: a typed, versioned schema, written atomically.

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
from harness.records.stored_files import cell_file, check_contained, parse_json, read_bytes, seed_folders

try:
    from yaml import CSafeDumper as _Dumper
except ImportError:  # PyYAML without its C extension
    from yaml import SafeDumper as _Dumper

from harness.errors import HarnessError, NewerSchema

ENGINE_VERSION = 1
"""Incremented when a fix in the engine changes results; part of every cell id."""
SCHEMA = 1
STATUSES = ("complete", "failed", "skipped", "timeout")
RECORD = "record.json"
CONFIG = "config.yaml"
CONFIG_JSON = "config.json"
LOG = "log.txt"


@dataclass(slots=True)
class Costs:
    """Cost of a cell; seconds are wall time.

    Attributes:
        encode_seconds: full cost of tokenising and of computing frozen features, also if they came from the
            cache (``encode_cached`` is then True).
        adapt_seconds: full cost of adapting the encoder to the task's texts, cached or not; 0 without
            adaptation.
        load_seconds: time of this run for reading the encoder's weights and tokenizer, or for initialising
            them randomly.
        overhead_seconds: the rest: reading data, building the task's network, writing the record.
        examples_per_second: training throughput over all ``devices``.
        threads: CPU threads of arithmetic per device.
        peak_memory_mb: of the device with the highest peak; on the CPU, the sum over all processes.
    """

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
    threads: int = 1


@dataclass(slots=True)
class Record:
    """The outcome of a cell.

    Attributes:
        status: complete, failed, skipped or timeout.
        reason: why it failed (the last lines of the error) or was skipped.
        task, encoder, strategy: names; ``kind`` the task's kind; ``cell`` the cell id; ``seed``.
        variant: resolved settings that differ from the defaults of this encoder, strategy and task.
        metric, maximize: the primary metric and its direction.
        dev, test: scores by name; empty if there is no such split.
        dev_history: primary metric on dev after each epoch (NaN as None).
        epoch: the selected epoch, counted from 1; ``epochs``: the number of epochs run.
        partial: the limit on the examples per split, or None.
        n_train, n_dev, n_test: numbers of examples.
        data: fingerprint of the task's files; empty if the data come from a hub.
        parameters, trained_parameters: counts, embeddings included.
        coverage: the tokenizer's report (share of known words, unknown tokens, truncated texts).
        notes: origin of the splits, repaired data; ``warnings``: warnings about the data and of the run.
        data_card: how the data were read and what they contain, see
            :class:`harness.data.reading.card.DataCard`; empty in older records.
        versions: of Python, packages and result versions; ``git``: commit and dirty flag, if any.
        metric_from_stats: dotted path of the :class:`harness.data.statistics.MetricFromStats` that computes
            scores from the statistics in ``predictions.parquet``; empty when it contains none.
        degenerate: description of collapsed test predictions, such as "predicts nothing but HUM".
        trained_bytes: size of the trained parameters; 0 in older records.
        mix: the trained scalar mix of layers: ``layers`` (numbers, 0 = embeddings), ``weights`` (summing to
            1), ``gamma``, and ``late_weights``, ``late_gamma`` of the mix after the body, if any; empty
            without a mix.
        fitted: values that were fitted on dev, such as a threshold, by name, see
            :class:`harness.task.FitsOnDev`.
        members: for an ensemble, ``task/encoder/strategy/id/seed-n`` of the averaged cells.
    """

    status: str
    task: str
    encoder: str
    strategy: str
    cell: str
    seed: int
    kind: str = ""
    reason: str = ""
    variant: dict[str, object] = field(default_factory=dict)
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
    data_card: dict[str, object] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    git: dict[str, str | bool] = field(default_factory=dict)
    metric_from_stats: str = ""
    degenerate: str = ""
    trained_bytes: int = 0
    mix: dict[str, list[float]] = field(default_factory=dict)
    fitted: dict[str, float] = field(default_factory=dict)
    members: list[str] = field(default_factory=list)
    started: str = ""
    finished: str = ""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status {self.status!r} is not one of {', '.join(STATUSES)}")


def write_record(folder: Path, record: Record) -> None:
    """Write ``record.json`` atomically: readers see the old file or the complete new one.

    Raises:
        HarnessError: the folder is a link that leaves the results folder.
    """
    check_contained(folder)
    text = json.dumps(_finite(asdict(record)), ensure_ascii=False, indent=1, allow_nan=False)
    write_atomic(folder / RECORD, text.encode("utf-8", "backslashreplace"))


def results_of(folder: Path) -> Path:
    """Return the results folder of a cell's folder, five levels above it."""
    return folder.parents[4]


def write_config(folder: Path, config: Mapping[str, object]) -> None:
    """Write the resolved configuration: ``config.yaml`` for readers, ``config.json`` for programs.

    Raises:
        HarnessError: the folder is a link that leaves the results folder.
    """
    check_contained(folder)
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
    path = cell_file(folder, RECORD)
    raw = read_bytes(path)
    try:
        data = parse_json(raw)
        if not isinstance(data, dict):
            raise TypeError("expected an object")
        if data["schema"] > SCHEMA:
            raise NewerSchema(
                f"{path}: schema {data['schema']} is newer than this version supports ({SCHEMA})"
            )
        data["costs"] = Costs(**_typed(Costs, data.get("costs", {})))
        return Record(**_typed(Record, data))
    except (ValueError, KeyError, TypeError) as e:
        raise HarnessError(
            f"{path}: not a record ({str(e)[:300]}); `harness rm` archives the cell so that it can run again"
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
    """Return for each field its annotation, the valid types, and the valid types of the values of a mapping.

    Cached, because a leaderboard reads ten thousand records.
    """
    kinds = {f.name: str(f.type) for f in fields(schema)}
    return {name: (kind, _KINDS.get(kind, (dict,)), _VALUES.get(kind)) for name, kind in kinds.items()}


def _typed(schema: type, values: object) -> dict[str, Any]:
    """Return the values of known fields after checking their types; unknown keys are ignored.

    Raises:
        TypeError: names the first value of a wrong type.
    """
    if not isinstance(values, dict):
        raise TypeError(f"{values!r} is not a mapping")
    out = {}
    for name, (kind, valid, inside) in _checks(schema).items():
        if name not in values:
            continue
        value = values[name]
        good = isinstance(value, valid) and (kind == "bool" or not isinstance(value, bool))
        if good and inside is not None:
            good = all(isinstance(v, inside) for v in value.values())
        if not good:
            raise TypeError(f"{name}={value!r} is not of type {kind}")
        out[name] = value
    return out


def iter_records(results: Path, *, task: str | None = None) -> Iterator[tuple[Path, Record | HarnessError]]:
    """Yield the folder and record of each cell below ``results``, in path order; a HarnessError if it is
    damaged, or if the folder is a link that leaves the results folder.

    Args:
        results: results folder; nothing is yielded if it does not exist.
        task: only cells of this task.
    """
    folders, refused = seed_folders(results, task=task) if results.is_dir() else ([], [])
    for error in refused:
        yield results, error
    for folder in folders:
        try:
            yield folder, read_record(folder)
        except HarnessError as e:
            yield folder, e
        except (FileNotFoundError, NotADirectoryError):  # unfinished, or removed by another process
            continue
        except OSError as e:
            yield folder, HarnessError(f"{folder / RECORD}: cannot be read ({e.strerror or e})")


def _finite(value: object) -> object:
    """Replace NaN and infinities by None, since JSON has neither."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
