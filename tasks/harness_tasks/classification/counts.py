"""Counts of one example of classification, and the scores of their sums (:mod:`harness.data.statistics`).

``n`` 1, ``right`` 0 or 1, and for each class k ``gold/k``, ``predicted/k`` and ``right/k``; the class that
``f1`` is of once more as ``positive/gold`` and so on. Formulas as in :mod:`harness_tasks.classification.scoring`.
Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.data.statistics import Aggregate, Counts, Scores, f1, pick, ratio

PARTS = ("right", "predicted", "gold")
POSITIVE = tuple(f"positive/{part}" for part in PARTS)


def count(gold: Sequence[str], predicted: Sequence[str], *, positive: str | None = None) -> Counts:
    """Counts of N examples over the classes that occur."""
    classes = sorted({*gold, *predicted})
    at = {c: i for i, c in enumerate(classes)}
    g, p = (np.array([at[c] for c in side], dtype=np.int64) for side in (gold, predicted))
    rows, right = np.arange(len(g)), g == p
    tables = {part: np.zeros((len(g), len(classes))) for part in PARTS}
    tables["gold"][rows, g] = 1
    tables["predicted"][rows, p] = 1
    tables["right"][rows[right], g[right]] = 1
    names = ["n", "right", *(f"{part}/{c}" for part in PARTS for c in classes)]
    columns = [np.ones((len(g), 1)), right[:, None].astype(float), *tables.values()]
    if positive is not None:
        names += POSITIVE
        empty = np.zeros((len(g), 1))
        columns += [tables[part][:, [at[positive]]] if positive in at else empty for part in PARTS]
    return Counts(tuple(names), np.hstack(columns))


def columns(metric: str, names: Sequence[str]) -> list[str]:
    """The columns a metric needs."""
    per_class = [name for name in names if name.partition("/")[0] in PARTS and "/" in name]
    needed = {
        "accuracy": ["n", "right"],
        "macro_f1": per_class,
        "mcc": ["n", "right", *(name for name in per_class if not name.startswith("right/"))],
        "f1": list(POSITIVE) if POSITIVE[0] in names else [],
    }
    return needed.get(metric, [])


def scores(sums: np.ndarray, names: Sequence[str]) -> Scores:
    """(..., k) -> each score (...)."""
    out: Scores = {}
    per_class = [_block(sums, names, part) for part in PARTS]
    if "right" in names and "n" in names:
        n, right = pick(sums, names, "n", "right")
        out["accuracy"] = ratio(right, n)
        if per_class[1] is not None and per_class[2] is not None:
            out["mcc"] = _mcc(n, right, predicted=per_class[1], gold=per_class[2])
    if all(block is not None for block in per_class):
        right_k, predicted_k, gold_k = (np.asarray(block) for block in per_class)
        occurs = (predicted_k + gold_k) > 0
        out["macro_f1"] = ratio(f1(right_k, predicted_k, gold_k).sum(axis=-1), occurs.sum(axis=-1))
    if POSITIVE[0] in names:
        out["f1"] = f1(*pick(sums, names, *POSITIVE))
    return out


def _block(sums: np.ndarray, names: Sequence[str], part: str) -> np.ndarray | None:
    at = [i for i, name in enumerate(names) if name.startswith(f"{part}/")]
    return sums[..., at] if at else None


def _mcc(n: np.ndarray, right: np.ndarray, *, predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    above = right * n - (gold * predicted).sum(axis=-1)
    below = (n**2 - (predicted**2).sum(axis=-1)) * (n**2 - (gold**2).sum(axis=-1))
    return ratio(above, np.sqrt(np.maximum(below, 0.0)))


def degenerate(sums: np.ndarray, names: Sequence[str]) -> str:
    """The one class that is predicted for everything, where gold has several."""
    predicted = {n: s for n, s in zip(names, sums, strict=True) if n.startswith("predicted/") and s}
    several = sum(bool(s) for n, s in zip(names, sums, strict=True) if n.startswith("gold/")) > 1
    if len(predicted) == 1 and several:
        return f"predicts nothing but {next(iter(predicted)).partition('/')[2]}"
    return ""


AGGREGATE = Aggregate(scores, columns, bounds={"mcc": (-1.0, 1.0)}, degenerate=degenerate)
