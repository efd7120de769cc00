"""Predictions on disk: one row an example, keyed by split and example id. Imports neither torch nor Hydra."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.data.text import Example
from harness.task import Prediction

PREDICTIONS = "predictions.parquet"


def write_predictions(
    folder: Path, splits: Mapping[str, tuple[Sequence[Example], Mapping[str, Prediction]]]
) -> None:
    """Write ``predictions.parquet`` with columns split, id, gold, prediction (JSON), scores (list of float),
    extra (JSON), tags (list of text); written under a temporary name, then renamed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, list[Any]] = {
        k: [] for k in ("split", "id", "gold", "prediction", "scores", "extra", "tags")
    }
    for split, (examples, predicted) in splits.items():
        for example in examples:
            p = predicted[example.id]
            columns["split"].append(split)
            columns["id"].append(example.id)
            columns["gold"].append(json.dumps(example.gold, ensure_ascii=False))
            columns["prediction"].append(json.dumps(p.value, ensure_ascii=False))
            columns["scores"].append([float(s) for s in p.scores])
            columns["extra"].append(json.dumps(p.extra, ensure_ascii=False))
            columns["tags"].append(list(example.tags))
    strings = ("split", "id", "gold", "prediction", "extra")
    schema = pa.schema(
        [(k, pa.string()) for k in strings]
        + [("scores", pa.list_(pa.float32())), ("tags", pa.list_(pa.string()))]
    )
    temporary = folder / f".tmp-{PREDICTIONS}"
    pq.write_table(pa.table(columns, schema=schema), temporary, compression="zstd")
    with temporary.open("rb") as f:
        os.fsync(f.fileno())
    os.replace(temporary, folder / PREDICTIONS)


def read_predictions(folder: Path, *, split: str = "test") -> list[dict[str, Any]]:
    """Rows of one split as dicts, JSON columns decoded."""
    import pyarrow.parquet as pq

    rows = pq.read_table(folder / PREDICTIONS, filters=[("split", "=", split)]).to_pylist()
    for row in rows:
        for column in ("gold", "prediction", "extra"):
            row[column] = json.loads(row[column])
    return rows
