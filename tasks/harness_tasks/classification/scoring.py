"""Classification metrics, computed from per-example statistics (:mod:`harness.data.statistics`).

With t_k, p_k the gold and predicted counts of class k, c_k the correct ones, n examples and c = sum_k c_k:

    accuracy  c / n                                  (equals the micro-averaged F1)
    f1_k      2 c_k / (t_k + p_k)
    macro_f1  mean of f1_k over the classes that occur in gold or predictions
    mcc       (c n - sum_k t_k p_k) / sqrt((n^2 - sum_k p_k^2) (n^2 - sum_k t_k^2))

mcc is 0 where the denominator is 0 (Gorodkin 2004, the K-category correlation coefficient). Classes that do
not occur change no score, and no score is an average over batches.

Columns: ``n``, ``right`` (0 or 1), and per class k ``gold/k``, ``predicted/k``, ``right/k``; the class that
``f1`` refers to again as ``positive/gold`` and so on. This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.data.statistics import ClassCounts, ExampleStats, MetricFromStats, Scores, f1, pick, ratio
from harness.data.text import Example
from harness.errors import HarnessError, did_you_mean
from harness.task import Prediction

METRICS = ("accuracy", "macro_f1", "mcc", "f1")
PARTS = ("right", "predicted", "gold")
POSITIVE = tuple(f"positive/{part}" for part in PARTS)


def score(
    predictions: Mapping[str, Prediction], examples: Sequence[Example], *, positive: str | None = None
) -> dict[str, float]:
    """Compute all scores of the examples.

    Args:
        predictions: by example id; predictions of other examples are ignored.
        examples: at least one; their gold is the class.
        positive: the class that ``f1`` refers to; None = no ``f1``.

    Raises:
        HarnessError: an example has no prediction, or there is no example.
    """
    check_complete(predictions, examples)
    gold, predicted = [e.gold for e in examples], [predictions[e.id].value for e in examples]
    return FROM_STATS.compute(example_stats(gold, predicted, positive=positive))


def check_complete(predictions: Mapping[str, Prediction], examples: Sequence[Example]) -> None:
    """Raise HarnessError when there is no example or one without a prediction."""
    if not examples:
        raise HarnessError("there are no examples to score")
    missing = [e.id for e in examples if e.id not in predictions]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise HarnessError(f"{len(missing)} of {len(examples)} examples have no prediction: {shown}")


def check_metric(metric: str) -> None:
    """Raise HarnessError for a metric that :func:`score` does not compute."""
    if metric not in METRICS:
        raise HarnessError(f"task.metric={metric}: {did_you_mean(metric, METRICS)}")


def example_stats(
    gold: Sequence[str], predicted: Sequence[str], *, positive: str | None = None
) -> ExampleStats:
    """Statistics of N examples over the K classes that occur.

    Example: gold a, b and predictions a, a give the columns

        n  right  right/a right/b  predicted/a predicted/b  gold/a gold/b
        1    1       1       0          1           0          1      0
        1    0       0       0          1           0          0      1
    """
    classes = sorted({*gold, *predicted})
    index = {c: i for i, c in enumerate(classes)}
    g, p = (np.array([index[c] for c in side], dtype=np.int64) for side in (gold, predicted))
    rows, right = np.arange(len(g)), g == p
    tables = {part: np.zeros((len(g), len(classes))) for part in PARTS}  # (N, K) each
    tables["gold"][rows, g] = 1
    tables["predicted"][rows, p] = 1
    # wrong predictions leave their row of zeros
    tables["right"][rows[right], g[right]] = 1
    names = ["n", "right", *(f"{part}/{c}" for part in PARTS for c in classes)]
    columns = [np.ones((len(g), 1)), right[:, None].astype(float), *tables.values()]
    if positive is not None:
        names += POSITIVE
        empty = np.zeros((len(g), 1))
        # the positive class may occur on neither side, such as in a small slice
        columns += [tables[part][:, [index[positive]]] if positive in index else empty for part in PARTS]
    return ExampleStats(tuple(names), np.hstack(columns))


def _columns(metric: str, names: Sequence[str]) -> list[str]:
    by_class = [name for name in names if name.partition("/")[0] in PARTS and "/" in name]
    needed = {
        "accuracy": ["n", "right"],
        "macro_f1": by_class,
        "mcc": ["n", "right", *(name for name in by_class if not name.startswith("right/"))],
        "f1": list(POSITIVE) if POSITIVE[0] in names else [],
    }
    return needed.get(metric, [])


def _scores(sums: np.ndarray, names: Sequence[str]) -> Scores:
    out: Scores = {}
    # (..., K) each: the leading axes are those of the resamples
    right_k, predicted_k, gold_k = (_block(sums, names, part) for part in PARTS)
    if "right" in names and "n" in names:
        n, right = pick(sums, names, "n", "right")
        out["accuracy"] = ratio(right, n)
    if right_k is not None and predicted_k is not None and gold_k is not None:
        occurs = (predicted_k + gold_k) > 0
        # a class that does not occur in a resample has f1 0 and is left out of the denominator
        out["macro_f1"] = ratio(f1(right_k, predicted_k, gold_k).sum(axis=-1), occurs.sum(axis=-1))
    if "accuracy" in out and predicted_k is not None and gold_k is not None:
        out["mcc"] = _mcc(n, right, predicted=predicted_k, gold=gold_k)
    if POSITIVE[0] in names:
        out["f1"] = f1(*pick(sums, names, *POSITIVE))
    return out


def _block(sums: np.ndarray, names: Sequence[str], part: str) -> np.ndarray | None:
    """(..., K) counts per class; None when ``names`` has none."""
    columns = [i for i, name in enumerate(names) if name.startswith(f"{part}/")]
    return sums[..., columns] if columns else None


def _mcc(n: np.ndarray, right: np.ndarray, *, predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    # Example: gold a a b and predictions a b b give n = 3, c = 2, t = [2, 1], p = [1, 2]:
    # (2 * 3 - (2 * 1 + 1 * 2)) / sqrt((9 - 5) (9 - 5)) = 2 / 4 = 0.5
    covariance = right * n - (gold * predicted).sum(axis=-1)
    variances = (n**2 - (predicted**2).sum(axis=-1)) * (n**2 - (gold**2).sum(axis=-1))
    # rounding must not make the root NaN
    return ratio(covariance, np.sqrt(np.maximum(variances, 0.0)))


def _degenerate(sums: np.ndarray, names: Sequence[str]) -> str:
    """A single class is predicted although gold has several."""
    predicted = {n: s for n, s in zip(names, sums, strict=True) if n.startswith("predicted/") and s}
    several = sum(bool(s) for n, s in zip(names, sums, strict=True) if n.startswith("gold/")) > 1
    if len(predicted) == 1 and several:
        return f"predicts nothing but {next(iter(predicted)).partition('/')[2]}"
    return ""


def _per_class(sums: np.ndarray, names: Sequence[str]) -> list[ClassCounts]:
    total = dict(zip(names, sums.tolist(), strict=True))
    classes = [name.removeprefix("gold/") for name in names if name.startswith("gold/")]
    return [ClassCounts(c, *(total.get(f"{part}/{c}", 0.0) for part in PARTS)) for c in classes]


def _correct(values: np.ndarray, names: Sequence[str]) -> np.ndarray:
    return pick(values, names, "right")[0] > 0


FROM_STATS = MetricFromStats(
    _scores,
    _columns,
    bounds={"mcc": (-1.0, 1.0)},
    degenerate=_degenerate,
    per_class=_per_class,
    correct=_correct,
)
