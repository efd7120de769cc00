"""Examples on which two rows disagree: ids, gold, predictions and tags, a few per pair.

Predictions do not contain texts, and the data are not read again: examples are identified by their id.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.errors import HarnessError
from harness.leaderboard.html.schema import DisagreeingPair, Disagreements, ExampleData
from harness.leaderboard.stats.comparisons import Samples
from harness.leaderboard.table.board import TaskTable
from harness.leaderboard.table.rows import BoardRow
from harness.records.predictions import PREDICTIONS, read_columns
from harness.records.record import Record

MAX_ROWS, MAX_EXAMPLES = 8, 20
"""Maximum number of rows whose predictions are read, and of examples shown per pair."""
MAX_TEXT, MAX_LIST = 300, 80
"""Maximum number of characters of a text, and of labels of a sentence."""
COLUMNS = ("split", "id", "gold", "prediction", "tags")


@dataclass(frozen=True, slots=True)
class SeedPredictions:
    """Test predictions of one seed, in file order.

    Attributes:
        ids: of the N examples.
        gold, predictions: N JSON texts each.
        tags: of each example.
        right: (N,) bool, whether the prediction is correct.
        seed: seed number.
    """

    ids: list[str]
    gold: list[str]
    predictions: list[str]
    tags: list[list[str]]
    right: np.ndarray
    seed: int


def disagreements(table: TaskTable, samples: Samples) -> Disagreements | None:
    """Disagreements among the best rows with the same test examples; None with fewer than two such rows."""
    scored = [i for i, row in enumerate(table.rows) if row.mean is not None][:MAX_ROWS]
    by_row = {i: p for i in scored if (p := _read(table.rows[i], samples)) is not None}
    ids = next((p.ids for p in by_row.values()), [])
    by_row = {i: p for i, p in by_row.items() if p.ids == ids}
    if len(by_row) < 2:
        return None
    pairs = [_pair(a, b, by_row) for a, b in itertools.combinations(by_row, 2)]
    shown = dict.fromkeys(k for pair in pairs for k in pair["shown"])
    return {
        "rows": list(by_row),
        "seeds": {str(i): p.seed for i, p in by_row.items()},
        "numeric": _is_number(next(iter(by_row.values())).gold),
        "pairs": pairs,
        "examples": {str(k): _example(k, by_row) for k in shown},
    }


def _read(row: BoardRow, samples: Samples) -> SeedPredictions | None:
    """Predictions of the row's first seed; None if there are none or they cannot be read."""
    for record in sorted(row.complete, key=lambda r: r.seed):
        folder = samples.configs.folder(record)
        if folder is not None and (folder / PREDICTIONS).is_file():
            try:
                return _load(folder, record, samples)
            except (OSError, ValueError, KeyError, TypeError, IndexError, HarnessError):
                return None
    return None


def _load(folder: Path, record: Record, samples: Samples) -> SeedPredictions:
    table = read_columns(folder, COLUMNS)
    columns = {name: table[name].to_pylist() for name in COLUMNS}
    test = [i for i, split in enumerate(columns.pop("split")) if split == "test"]
    ids, gold, predictions, tags = ([columns[name][i] for i in test] for name in COLUMNS[1:])
    right = np.array([g == p for g, p in zip(gold, predictions, strict=True)])
    stored = samples.stored(record)
    if not isinstance(stored, str) and stored.ids == ids:
        from_stats = samples.trust.metric(record.metric_from_stats)
        correct = from_stats.correct(stored.counts.values, stored.counts.names)
        right = right if correct is None else correct
    return SeedPredictions(ids, gold, predictions, [t or [] for t in tags], right, record.seed)


def _is_number(gold: list[str]) -> bool:
    return bool(gold) and isinstance(json.loads(gold[0]), int | float)


def _pair(i: int, j: int, by_row: dict[int, SeedPredictions]) -> DisagreeingPair:
    """How often rows i and j differ, which of them is right then, and the examples to show."""
    a, b = by_row[i], by_row[j]
    if _is_number(a.gold):
        differ, only_a, only_b, shown = _compare_numbers(a, b)
    else:
        differ, only_a, only_b, shown = _compare_labels(a, b)
    counts = (int(mask.sum()) for mask in (differ, only_a, only_b))
    n_differ, a_right, b_right = counts
    return {"a": i, "b": j, "differ": n_differ, "a_right": a_right, "b_right": b_right, "shown": shown}


def _compare_labels(
    a: SeedPredictions, b: SeedPredictions
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
    """Masks (N,): the predictions differ, only a is right, only b is right; and the examples to show."""
    differ = np.array([x != y for x, y in zip(a.predictions, b.predictions, strict=True)])
    only_a, only_b = differ & a.right & ~b.right, differ & b.right & ~a.right
    # as many examples of either kind; the rest are those that both get wrong
    halves = _spread_out(only_a, MAX_EXAMPLES // 2) + _spread_out(only_b, MAX_EXAMPLES // 2)
    neither = _spread_out(differ & ~only_a & ~only_b, MAX_EXAMPLES - len(halves))
    return differ, only_a, only_b, sorted(halves + neither)


def _compare_numbers(
    a: SeedPredictions, b: SeedPredictions
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
    """As :func:`_compare_labels`, with *closer to gold* for *right*; the largest differences are shown.

    Example: gold 3, predictions 2.5 and 4: errors 0.5 and 1, so a is closer, and the difference is 1.5.
    """
    gold, x, y = (np.array([_number(v) for v in side]) for side in (a.gold, a.predictions, b.predictions))
    closer = np.abs(x - gold) - np.abs(y - gold)
    distance = np.nan_to_num(np.abs(x - y), nan=0.0)
    shown = [int(i) for i in np.argsort(-distance, kind="stable")[:MAX_EXAMPLES] if distance[i] > 0]
    return distance > 0, closer < 0, closer > 0, shown


def _number(text: str) -> float:
    value = json.loads(text)
    return float(value) if isinstance(value, int | float) else float("nan")


def _spread_out(mask: np.ndarray, limit: int) -> list[int]:
    """At most ``limit`` indices of the mask (N,), evenly spaced: of 9 and limit 3 the 1st, 5th and 9th."""
    indices = np.flatnonzero(mask)
    if len(indices) > limit:
        indices = indices[np.linspace(0, len(indices) - 1, max(limit, 0)).astype(int)]
    return [int(i) for i in indices]


def _example(k: int, by_row: dict[int, SeedPredictions]) -> ExampleData:
    first = next(iter(by_row.values()))
    return {
        "id": first.ids[k],
        "gold": _shown(first.gold[k]),
        "tags": first.tags[k],
        "predictions": {str(i): _shown(p.predictions[k]) for i, p in by_row.items()},
        "right": {str(i): bool(p.right[k]) for i, p in by_row.items()},
    }


def _shown(text: str) -> str | list[str]:
    """A JSON value for display: labels of words as a list, everything else as one text."""
    value = json.loads(text)
    if isinstance(value, dict) and isinstance(value.get("answers"), list):
        texts = [str(a.get("text", "")) for a in value["answers"] if isinstance(a, dict)]
        value = " | ".join(dict.fromkeys(texts)) or "no answer"
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return value[:MAX_LIST] + (["..."] if len(value) > MAX_LIST else [])
    if isinstance(value, float):
        return f"{value:.4g}"
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shown[:MAX_TEXT] + ("..." if len(shown) > MAX_TEXT else "")
