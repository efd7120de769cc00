"""Examples on which two rows disagree: ids, gold, both predictions and tags, a few of each pair.

Texts are not kept with predictions, and data are not read again: an id says where the example is.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.statistics import load_metric
from harness.errors import HarnessError
from harness.leaderboard.stats.comparisons import Samples
from harness.leaderboard.table.board import Table
from harness.leaderboard.table.rows import Row
from harness.records.predictions import PREDICTIONS
from harness.records.record import Record

ROWS, EXAMPLES = 8, 20
"""Rows whose predictions are read; examples shown of each pair."""
LONGEST_TEXT, LONGEST_LIST = 300, 80
COLUMNS = ("split", "id", "gold", "prediction", "tags")


@dataclass(frozen=True, slots=True)
class Told:
    """Test predictions of one seed: JSON texts in file order, and whether each is right.

    Attributes:
        ids, gold, told: N texts each.
        tags: of each example.
        right: (N,) bool.
        seed: whose they are.
    """

    ids: list[str]
    gold: list[str]
    told: list[str]
    tags: list[list[str]]
    right: np.ndarray
    seed: int


def disagreements(table: Table, samples: Samples) -> dict[str, Any] | None:
    """Of the best rows with the same test examples: ``rows``, their ``seeds``, ``pairs`` and ``examples``."""
    scored = [i for i, row in enumerate(table.rows) if row.mean is not None][:ROWS]
    read = {i: told for i in scored if (told := _read(table.rows[i], samples)) is not None}
    ids = next((told.ids for told in read.values()), [])
    read = {i: told for i, told in read.items() if told.ids == ids}
    if len(read) < 2:
        return None
    shown: dict[int, None] = {}
    found = []
    for a, b in itertools.combinations(read, 2):
        pair, chosen = _pair(read[a], read[b])
        shown |= dict.fromkeys(chosen)
        found.append({"a": a, "b": b, **pair, "shown": chosen})
    return {
        "rows": list(read),
        "seeds": {str(i): told.seed for i, told in read.items()},
        "closer": _is_number(next(iter(read.values())).gold),
        "pairs": found,
        "examples": {str(k): _example(k, read) for k in shown},
    }


def _read(row: Row, samples: Samples) -> Told | None:
    """Predictions of the row's first seed; None where there are none."""
    for record in sorted(row.complete, key=lambda r: r.seed):
        folder = samples.configs.folder(record)
        if folder is not None and (folder / PREDICTIONS).is_file():
            try:
                return _load(folder, record, samples)
            except (OSError, ValueError, KeyError, HarnessError):
                return None
    return None


def _load(folder: Path, record: Record, samples: Samples) -> Told:
    import pyarrow.parquet as pq

    with pq.ParquetFile(folder / PREDICTIONS, memory_map=True) as file:
        table = file.read(columns=list(COLUMNS), use_threads=False)
    columns = {name: table[name].to_pylist() for name in COLUMNS}
    kept = [i for i, split in enumerate(columns.pop("split")) if split == "test"]
    ids, gold, told, tags = ([columns[name][i] for i in kept] for name in COLUMNS[1:])
    right = np.array([g == t for g, t in zip(gold, told, strict=True)])
    stored = samples.stored(record)
    if not isinstance(stored, str) and stored.ids == ids:
        from_stats = load_metric(record.metric_from_stats)
        correct = from_stats.correct(stored.counts.values, stored.counts.names)
        right = right if correct is None else correct
    return Told(ids, gold, told, [t or [] for t in tags], right, record.seed)


def _is_number(gold: list[str]) -> bool:
    return bool(gold) and isinstance(json.loads(gold[0]), int | float)


def _pair(a: Told, b: Told) -> tuple[dict[str, int], list[int]]:
    """How often they differ and who is right then; the examples to show."""
    if _is_number(a.gold):
        return _numbers(a, b)
    differ = np.array([x != y for x, y in zip(a.told, b.told, strict=True)])
    only_a, only_b = differ & a.right & ~b.right, differ & b.right & ~a.right
    neither = differ & ~only_a & ~only_b
    counts = {"differ": int(differ.sum()), "a_right": int(only_a.sum()), "b_right": int(only_b.sum())}
    halves = _spread(only_a, EXAMPLES // 2) + _spread(only_b, EXAMPLES // 2)
    return counts, sorted(halves + _spread(neither, EXAMPLES - len(halves)))


def _numbers(a: Told, b: Told) -> tuple[dict[str, int], list[int]]:
    gold, x, y = (np.array([_number(v) for v in side]) for side in (a.gold, a.told, b.told))
    closer = np.abs(x - gold) - np.abs(y - gold)
    apart = np.nan_to_num(np.abs(x - y), nan=0.0)
    counts = {
        "differ": int((apart > 0).sum()),
        "a_right": int((closer < 0).sum()),
        "b_right": int((closer > 0).sum()),
    }
    return counts, [int(i) for i in np.argsort(-apart, kind="stable")[:EXAMPLES] if apart[i] > 0]


def _number(text: str) -> float:
    value = json.loads(text)
    return float(value) if isinstance(value, int | float) else float("nan")


def _spread(chosen: np.ndarray, most: int) -> list[int]:
    """At most ``most`` of the chosen, spread over all of them."""
    at = np.flatnonzero(chosen)
    if len(at) > most:
        at = at[np.linspace(0, len(at) - 1, max(most, 0)).astype(int)]
    return [int(i) for i in at]


def _example(k: int, read: dict[int, Told]) -> dict[str, Any]:
    first = next(iter(read.values()))
    return {
        "id": first.ids[k],
        "gold": _shown(first.gold[k]),
        "tags": first.tags[k],
        "told": {str(i): _shown(told.told[k]) for i, told in read.items()},
        "right": {str(i): bool(told.right[k]) for i, told in read.items()},
    }


def _shown(text: str) -> str | list[str]:
    """A value as the report shows it: labels of words stay a list, everything else is one text."""
    value = json.loads(text)
    if isinstance(value, dict) and isinstance(value.get("answers"), list):
        texts = [str(a.get("text", "")) for a in value["answers"] if isinstance(a, dict)]
        value = " | ".join(dict.fromkeys(texts)) or "no answer"
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return value[:LONGEST_LIST] + (["..."] if len(value) > LONGEST_LIST else [])
    if isinstance(value, float):
        return f"{value:.4g}"
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return said[:LONGEST_TEXT] + ("..." if len(said) > LONGEST_TEXT else "")
