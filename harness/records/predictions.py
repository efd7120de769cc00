"""Predictions on disk: one row an example, keyed by split and example id. Imports neither torch nor Hydra."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.files import atomic_path
from harness.data.statistics import ExampleStats, load_metric, union
from harness.data.text import Example
from harness.task import HasExampleStats, Prediction, Task

PREDICTIONS = "predictions.parquet"
COUNTS, NAMES, METRIC = "counts", b"counts", b"metric_from_stats"
"""Name of the column of counts; keys of the file's metadata: their names as JSON, and the dotted path of the
:class:`harness.data.statistics.MetricFromStats` that computes scores from them."""

Kept = Mapping[str, tuple[Sequence[Example], Mapping[str, Prediction]]]


@dataclass(frozen=True, slots=True)
class Summary:
    """What the record keeps of the counts; see :class:`harness.records.record.Record`."""

    metric_from_stats: str = ""
    degenerate: str = ""


@dataclass(frozen=True, slots=True)
class StoredCounts:
    """Counts of one split as they were written.

    Attributes:
        ids: of the N examples.
        counts: theirs.
        tags: of each example; empty when they were not asked for.
        metric_from_stats: dotted path of the metric that computes scores from the counts.
    """

    ids: list[str]
    counts: ExampleStats
    tags: list[list[str]]
    metric_from_stats: str = ""


def write_predictions(folder: Path, splits: Kept, *, task: Task | None = None) -> Summary:
    """Write ``predictions.parquet`` with columns split, id, gold, prediction (JSON), scores (list of float),
    extra (JSON), tags (list of text), counts (list of float, see :class:`harness.task.HasExampleStats`; null without
    a task that counts); written under a temporary name, then renamed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, list[Any]] = {
        k: [] for k in ("split", "id", "gold", "prediction", "scores", "extra", "tags")
    }
    for split, (examples, predicted) in splits.items():
        for example in examples:
            p = predicted[example.id]
            columns["split"].append(split)
            columns["id"].append(_text(example.id))
            columns["gold"].append(_json(example.gold))
            columns["prediction"].append(_json(p.value))
            columns["scores"].append([float(s) for s in p.scores])
            columns["extra"].append(_json(p.extra))
            columns["tags"].append([_text(tag) for tag in example.tags])
    strings = ("split", "id", "gold", "prediction", "extra")
    schema = pa.schema(
        [(k, pa.string()) for k in strings]
        + [("scores", pa.list_(pa.float32())), ("tags", pa.list_(pa.string()))]
    )
    counted = _counted(splits, task)
    table = pa.table(columns, schema=schema)
    if counted:
        names = union(counted.values())
        flat = np.concatenate([counts.with_names(names).values for counts in counted.values()])
        offsets = np.arange(len(flat) + 1, dtype=np.int32) * len(names)
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat.ravel()))
        table = table.append_column(COUNTS, lists)
        path = task.metric_from_stats if isinstance(task, HasExampleStats) else ""
        table = table.replace_schema_metadata({NAMES: json.dumps(names, ensure_ascii=False), METRIC: path})
    with atomic_path(folder / PREDICTIONS) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    return _summary(task, counted)


def _counted(splits: Kept, task: Task | None) -> dict[str, ExampleStats]:
    """Counts of each split that has examples."""
    if not isinstance(task, HasExampleStats):
        return {}
    return {
        split: task.example_stats(predicted, examples)
        for split, (examples, predicted) in splits.items()
        if examples
    }


def _summary(task: Task | None, counted: Mapping[str, ExampleStats]) -> Summary:
    if not isinstance(task, HasExampleStats) or not counted:
        return Summary()
    test = counted.get("test")
    degenerate = ""
    if test is not None:
        degenerate = load_metric(task.metric_from_stats).collapsed(test)
    return Summary(task.metric_from_stats, degenerate)


def _json(value: Any) -> str:
    """JSON that UTF-8 can hold: half a surrogate pair, as a cut emoji leaves it, is escaped."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()


def read_predictions(folder: Path, *, split: str = "test") -> list[dict[str, Any]]:
    """Rows of one split as dicts, JSON columns decoded, counts left out."""
    import pyarrow.parquet as pq

    known = [c for c in pq.read_schema(folder / PREDICTIONS).names if c != COUNTS]
    table = pq.read_table(folder / PREDICTIONS, columns=known, filters=[("split", "=", split)])
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        for column in ("gold", "prediction", "extra"):
            row[column] = json.loads(row[column])
    return rows


def read_counts(folder: Path, *, split: str = "test", tags: bool = False) -> StoredCounts | None:
    """Ids, counts and, when asked for, tags of one split; None when the file or its counts are not there.

    Only these columns are read. ``OSError`` and pyarrow's ``ArrowInvalid`` (a ValueError) tell of a damaged
    file.
    """
    import pyarrow.parquet as pq

    path = folder / PREDICTIONS
    if not path.is_file():
        return None
    with pq.ParquetFile(path, memory_map=True) as file:
        metadata = file.schema_arrow.metadata or {}
        if COUNTS not in file.schema_arrow.names or NAMES not in metadata:
            return None
        wanted = ["split", "id", COUNTS, *(["tags"] if tags else [])]
        table = file.read(columns=wanted, use_threads=False).combine_chunks()
    names = tuple(json.loads(metadata[NAMES]))
    kept = np.flatnonzero(np.asarray(table["split"].to_pylist(), dtype=object) == split)
    flat = table[COUNTS].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    ids = table["id"].to_pylist()
    found = table["tags"].to_pylist() if tags else []
    return StoredCounts(
        [ids[i] for i in kept],
        ExampleStats(names, flat.reshape(-1, len(names))[kept]),
        [found[i] or [] for i in kept] if tags else [],
        metadata.get(METRIC, b"").decode(),
    )
