"""Synthetic results folders with predictions: three tasks, every kind of answer, hostile names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.records.record import Costs, Record, write_record

CLASSIFIED = "harness_tasks.classification.scoring.FROM_STATS"
HOSTILE = "</script><script>window.broken=1</script><b class='hostile'>&amp;x"
SYSTEMS = [
    ("glove", "frozen", 0.62),
    ("glove", "full", 0.66),
    ("elmo", "frozen", 0.74),
    ("elmo", "full", 0.75),
    ("bert_base", "frozen", 0.78),
    ("bert_base", "full", 0.85),
    ("bert_base", "ulmfit", 0.84),
]


def write(
    root: Path,
    golds: Sequence[Any],
    predictions: Sequence[Any],
    right: np.ndarray,
    *,
    tags: Sequence[Sequence[str]] | None = None,
    **given: Any,
) -> Record:
    """Write a complete cell with these predictions; its metric is the share of ``right`` (N,)."""
    n, share = len(golds), float(np.mean(right))
    plain: dict[str, Any] = {
        "status": "complete", "task": "t", "encoder": "e", "strategy": "full", "metric": "accuracy",
        "seed": 0, "n_test": n, "test": {"accuracy": share}, "dev": {"accuracy": share},
        "metric_from_stats": CLASSIFIED, "parameters": 1000, "trained_parameters": 1000, "n_train": 500,
        "epoch": 2, "epochs": 3,
        "costs": Costs(train_seconds=2.0, encode_seconds=1.0, host="h"), "data": "d0",
        "versions": {"python": "3.11", "torch": "2.9"}, "git": {"commit": "0123456789abcdef", "dirty": False},
        "finished": "2026-01-02T03:04:05+00:00",
    }  # fmt: skip
    plain |= {"cell": f"{given.get('encoder', 'e')}-{given.get('strategy', 'full')}"}
    record = Record(**(plain | given))
    folder = (
        root
        / record.task
        / record.encoder.replace("/", "_")[:40]
        / record.strategy
        / record.cell
        / f"seed-{record.seed}"
    )
    write_record(folder, record)
    counts = np.stack([np.ones(n), right], axis=1).astype(float)
    columns = {
        "split": ["test"] * n, "id": [f"q{i}" for i in range(n)], "gold": list(map(json.dumps, golds)),
        "prediction": list(map(json.dumps, predictions)), "tags": [list(t) for t in tags or [[]] * n],
        "counts": counts.tolist(),
    }  # fmt: skip
    table = pa.table(columns).replace_schema_metadata({b"counts": b'["n", "right"]'})
    pq.write_table(table, folder / "predictions.parquet")
    return record


def labels(
    root: Path,
    level: float,
    *,
    n: int = 120,
    seed: int = 0,
    draw: int = 0,
    names: Sequence[str] = "abc",
    **given: Any,
) -> Record:
    """Write a cell that labels examples, about ``level`` of them correctly."""
    names = "abc"
    random = np.random.default_rng([draw, seed])
    gold = [names[i % len(names)] for i in range(n)]
    right = random.random(n) < level
    predictions = [
        g if r else names[(names.index(g) + 1) % len(names)] for g, r in zip(gold, right, strict=True)
    ]
    tags = [["length:short" if i % 3 else "length:long"] for i in range(n)]
    return write(root, gold, predictions, right, seed=seed, tags=tags, **given)


def grid(root: Path) -> Path:
    """Write tasks ``qa`` (texts), ``tags`` (word labels, a hostile name), ``topics`` (sizes, layers)."""
    for k, (encoder, strategy, level) in enumerate(SYSTEMS):
        costs = Costs(
            train_seconds=2.0 * 4**k, encode_seconds=3.0, eval_seconds=1.0, peak_memory_mb=300, host="h"
        )
        common: dict[str, Any] = {
            "encoder": encoder, "strategy": strategy, "costs": costs, "parameters": 10_000 * 3**k,
            "trained_parameters": 1000 * 3**k, "notes": ["split off the training file"],
        }  # fmt: skip
        for seed in range(3):
            _answers(root, level, draw=k, seed=seed, task="qa", **common)
            _words(root, level, draw=k, seed=seed, task="tags", **common)
            _sizes(root, level, draw=k, seed=seed, **common)
    for task in ("qa", "tags"):
        write_record(
            root / task / "glove" / "scratch" / "f" / "seed-0",
            Record("failed", task, "glove", "scratch", "f", 0, reason=f"Traceback\nValueError: {HOSTILE}"),
        )
    _words(root, 0.5, draw=9, seed=0, task="tags", encoder=HOSTILE, strategy="full", cell="hostile")
    return root


def _answers(root: Path, level: float, *, draw: int, seed: int, **given: Any) -> None:
    random = np.random.default_rng([draw, seed, 1])
    right = random.random(120) < level
    gold = [{"answers": [{"text": f"answer {i}", "start": 0, "end": 8}]} for i in range(120)]
    predictions = [
        f"answer {i}" if r else f"wrong {i} {HOSTILE if i % 9 == 0 else ''}" for i, r in enumerate(right)
    ]
    write(root, gold, predictions, right, seed=seed, **given)


def _words(root: Path, level: float, *, draw: int, seed: int, **given: Any) -> None:
    random = np.random.default_rng([draw, seed, 2])
    right = random.random(120) < level
    gold = [["O", "B-PER", "I-PER", "O", "O", "B-LOC", HOSTILE if i == 3 else "O"] for i in range(120)]
    predictions = [g if r else [*g[:1], "O", "B-LOC", *g[3:]] for g, r in zip(gold, right, strict=True)]
    tags = [["unseen-entity" if i % 4 else "seen-entity"] for i in range(120)]
    write(root, gold, predictions, right, tags=tags, seed=seed, **given)


def _sizes(root: Path, level: float, *, draw: int, seed: int, **given: Any) -> None:
    weights = {"layers": [0.0, 1.0, 2.0], "weights": [0.2, 0.5, 0.3], "gamma": [1.1]}
    system = f"{given['encoder']}-{given['strategy']}"
    for size in (100, 300, 1000):
        labels(
            root, level * (0.7 + size / 4000), draw=draw, seed=seed, task="topics", n_train=size,
            mix=weights if given["encoder"] == "elmo" else {},
            variant={"task.train_size": size}, **given | {"cell": f"{system}-{size}"},
        )  # fmt: skip
