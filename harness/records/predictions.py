"""Stored predictions: one row per example, keyed by split and example id. Imports neither torch nor Hydra."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.core.files import atomic_path
from harness.data.statistics import ExampleStats, load_metric, union
from harness.data.text import Example
from harness.errors import HarnessError
from harness.records.stored_files import cell_file, check_contained, parse_json
from harness.task import HasExampleStats, Prediction, Task, is_unlabelled

if TYPE_CHECKING:
    import pyarrow as pa

PREDICTIONS = "predictions.parquet"
SCHEMA_COLUMNS = ("split", "id", "gold", "prediction", "scores", "extra", "tags", "counts")
COUNTS, NAMES, METRIC = "counts", b"counts", b"metric_from_stats"
"""Name of the column of counts; metadata keys of the names of the counts (JSON) and of the dotted path of the
:class:`harness.data.statistics.MetricFromStats` that computes scores from them."""

StoredRow = dict[str, Any]
"""A row of the file; the types of ``gold``, ``prediction`` and ``extra`` depend on the task."""
PredictedSplits = Mapping[str, tuple[Sequence[Example], Mapping[str, Prediction]]]


@dataclass(frozen=True, slots=True)
class Summary:
    """Properties of the counts that the record stores; see :class:`harness.records.record.Record`."""

    metric_from_stats: str = ""
    degenerate: str = ""


@dataclass(frozen=True, slots=True)
class StoredCounts:
    """Stored counts of one split.

    Attributes:
        ids: N example ids.
        counts: statistics of the N examples.
        tags: tags of each example; empty if they were not requested.
        metric_from_stats: dotted path of the metric that computes scores from the counts.
    """

    ids: list[str]
    counts: ExampleStats
    tags: list[list[str]]
    metric_from_stats: str = ""


def write_predictions(folder: Path, splits: PredictedSplits, *, task: Task | None = None) -> Summary:
    """Write ``predictions.parquet`` with columns split, id, gold, prediction (JSON), scores (list of float),
    extra (JSON), tags (list of text), counts (list of float, see :class:`harness.task.HasExampleStats`; null
    without a task that counts); written under a temporary name, then renamed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_contained(folder)
    columns: dict[str, list[object]] = {
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


def _counted(splits: PredictedSplits, task: Task | None) -> dict[str, ExampleStats]:
    """Compute the counts of each split that has examples; an unlabelled one has none of them."""
    if not isinstance(task, HasExampleStats):
        return {}
    return {
        split: ExampleStats((), np.zeros((len(examples), 0)))
        if is_unlabelled(examples)
        else task.example_stats(predicted, examples)
        for split, (examples, predicted) in splits.items()
        if examples
    }


def _summary(task: Task | None, counted: Mapping[str, ExampleStats]) -> Summary:
    if not isinstance(task, HasExampleStats) or not counted:
        return Summary()
    test = counted.get("test")
    if test is not None and not test.names:  # an unlabelled split
        test = None
    degenerate = ""
    if test is not None:
        degenerate = load_metric(task.metric_from_stats).collapsed(test)
    return Summary(task.metric_from_stats, degenerate)


def _json(value: object) -> str:
    """Encode as JSON; lone surrogates (from a cut emoji), which UTF-8 cannot represent, are escaped."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()


def read_predictions(folder: Path, *, split: str = "test") -> list[StoredRow]:
    """Return the rows of one split as dicts, with JSON columns decoded and without the counts.

    Raises:
        FileNotFoundError: there is no file.
        HarnessError: the file is damaged.
    """
    table = read_columns(folder, [s for s in SCHEMA_COLUMNS if s != COUNTS])
    try:
        rows: list[StoredRow] = [row for row in table.to_pylist() if row["split"] == split]
        for row in rows:
            for column in ("gold", "prediction", "extra"):
                row[column] = parse_json(row[column])
    except (ValueError, TypeError) as e:
        raise damaged(folder, e) from e
    return rows


def read_columns(folder: Path, names: Sequence[str]) -> pa.Table:
    """Read columns of the file; those with the example's split and id are texts.

    Raises:
        FileNotFoundError: there is no file.
        HarnessError: the file is damaged, or a column is missing.
    """
    import pyarrow.parquet as pq

    path = cell_file(folder, PREDICTIONS)
    if not path.is_file():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            missing = [name for name in names if name not in file.schema_arrow.names]
            if missing:
                raise ValueError(f"no column {', '.join(missing)}")
            table = file.read(columns=list(names), use_threads=False).combine_chunks()
        for name in ("split", "id"):
            if name in names and not all(isinstance(v, str) for v in table[name].to_pylist()):
                raise ValueError(f"a value of the column {name} is not text")
        return table.replace_schema_metadata(file.schema_arrow.metadata)
    except (OSError, ValueError, TypeError) as e:  # pyarrow's errors are subclasses of these
        raise damaged(folder, e) from e


def damaged(folder: Path, why: object) -> HarnessError:
    """Return the error for a file of predictions that cannot be used."""
    return HarnessError(f"{folder / PREDICTIONS}: cannot be read ({' '.join(str(why).split())[:300]})")


def read_counts(folder: Path, *, split: str = "test", tags: bool = False) -> StoredCounts | None:
    """Read ids, counts and, if requested, tags of one split; None if there is no file or it has no counts.

    Only these columns are read.

    Raises:
        HarnessError: the file is damaged.
    """
    import pyarrow.parquet as pq

    path = cell_file(folder, PREDICTIONS)
    if not path.is_file():
        return None
    try:
        schema = pq.read_schema(path)
        metadata = schema.metadata or {}
        if COUNTS not in schema.names or NAMES not in metadata:
            return None
        table = read_columns(folder, ["split", "id", COUNTS, *(["tags"] if tags else [])])
        names = _names(metadata[NAMES])
        values = _values(table[COUNTS].combine_chunks(), len(names))
        rows = np.flatnonzero(np.asarray(table["split"].to_pylist(), dtype=object) == split)
        ids, all_tags = table["id"].to_pylist(), table["tags"].to_pylist() if tags else []
        return StoredCounts(
            [ids[i] for i in rows],
            ExampleStats(names, values[rows]),
            [[str(tag) for tag in all_tags[i] or []] for i in rows] if tags else [],
            metadata.get(METRIC, b"").decode(),
        )
    except (OSError, ValueError, TypeError, AttributeError) as e:
        raise damaged(folder, e) from e


def _names(data: bytes) -> tuple[str, ...]:
    names = parse_json(data)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("the names of the counts are not a list of texts")
    if len(set(names)) < len(names):
        raise ValueError("two counts have the same name")
    return tuple(names)


def _values(lists: pa.ListArray, n: int) -> np.ndarray:
    """The counts (N, n) of a column of lists."""
    if lists.null_count or set(lists.value_lengths().unique().to_pylist()) - {n}:
        raise ValueError(f"not {n} counts for each example")
    flat = lists.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat, dtype=np.float64).reshape(len(lists), n)
