"""Exact match and F1 of answers by the published definitions, as fractions in [0, 1], computed from
per-question statistics (:mod:`harness.data.statistics`).

SQuAD v1.1 (Rajpurkar et al. 2016, section 6.1) and v2.0 (Rajpurkar, Jia & Liang 2018): an answer is
lower-cased, all ASCII punctuation is deleted (not replaced by blanks), then the articles *a*, *an*, *the*,
then surplus white space. F1 is over the bag of words; a question's score is the maximum over its gold
answers; a data set's score is the mean over its questions. The versions differ for answers that are empty
after
normalisation: v2.0 counts two empty answers as equal and ignores empty gold answers; v1.1 scores them F1 = 0.

KorQuAD 1.0 (Lim, Kim & Lee 2019) keeps articles, replaces quotes and brackets by blanks and computes F1 over
characters, so that a particle after a noun costs little: ``unit="char"``.

Columns: ``n`` 1, ``exact_match`` 0 or 1, ``f1``; in data with unanswerable questions also ``HasAns_...`` and
``NoAns_...`` of the questions with and without an answer; ``empty`` 1 when no answer is predicted. This
module does not import torch.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from harness.data.statistics import ExampleStats, MetricFromStats, Scores, pick, ratio
from harness.task import Prediction

UNITS = ("word", "char")
GROUPS = ("HasAns", "NoAns")
COLUMNS: dict[str, tuple[str, str]] = {
    "exact_match": ("exact_match", "n"),
    "f1": ("f1", "n"),
    **{f"{group}_{name}": (f"{group}_{name}", f"{group}_n") for group in GROUPS for name in ("exact", "f1")},
}
"""The column of each metric's sum and the column of its count."""

TIE = 1e-9
"""Sums of scores that differ by less are equal."""
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_QUOTES_AND_BRACKETS = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))


def normalize(answer: str, *, unit: str = "word") -> str:
    """Normalise an answer for comparison."""
    if unit == "char":
        bare = answer.translate(_QUOTES_AND_BRACKETS).lower().translate(_NO_PUNCTUATION)
    else:
        bare = _ARTICLES.sub(" ", answer.lower().translate(_NO_PUNCTUATION))
    return " ".join(bare.split())


def f1(prediction: str, gold: str, *, unit: str = "word", unanswerable: bool = False) -> float:
    """F1 of one prediction against one gold answer; see :func:`best` for the arguments."""
    predicted, expected = (_tokens(text, unit) for text in (prediction, gold))
    if unanswerable and not (predicted and expected):
        return float(predicted == expected)
    overlap = sum((Counter(predicted) & Counter(expected)).values())
    if overlap == 0:
        return 0.0
    precision, recall = overlap / len(predicted), overlap / len(expected)
    return 2 * precision * recall / (precision + recall)


def best(
    prediction: str, golds: Sequence[str], *, unit: str = "word", unanswerable: bool = False
) -> tuple[float, float]:
    """Maximum exact match and maximum F1 over the gold answers.

    Args:
        prediction: the predicted text, ``""`` for no answer.
        golds: gold texts; empty when the question has no answer.
        unit: ``word``, or ``char`` for KorQuAD's definition.
        unanswerable: the data set has questions without an answer (the rules of SQuAD v2.0).
    """
    if unanswerable:
        golds = [g for g in golds if normalize(g, unit=unit)] or [""]
    predicted = normalize(prediction, unit=unit)
    exact = max(float(predicted == normalize(g, unit=unit)) for g in golds)
    return exact, max(f1(prediction, g, unit=unit, unanswerable=unanswerable) for g in golds)


def per_question(
    predictions: Mapping[str, str],
    golds: Mapping[str, Sequence[str]],
    *,
    unit: str = "word",
    unanswerable: bool = False,
) -> dict[str, tuple[float, float]]:
    """Exact match and F1 by question id. A question without a prediction scores (0, 0), in both versions."""
    return {
        key: best(predictions[key], texts, unit=unit, unanswerable=unanswerable)
        if key in predictions
        else (0.0, 0.0)
        for key, texts in golds.items()
    }


def example_stats(
    values: Sequence[tuple[float, float]],
    *,
    answered: Sequence[bool],
    empty: Sequence[bool],
    unanswerable: bool = False,
) -> ExampleStats:
    """Statistics of N questions.

    Args:
        values: exact match and F1.
        answered: whether the question has an answer.
        empty: whether no answer is predicted.
        unanswerable: the data set has questions without an answer: add the columns of :data:`GROUPS`, each
            only when there is such a question.
    """
    table = np.array(values, dtype=np.float64).reshape(-1, 2)
    has = np.array(answered, dtype=np.float64)[:, None]
    names, columns = ["n", "exact_match", "f1", "empty"], [np.ones_like(has), table]
    columns.append(np.array(empty, dtype=np.float64)[:, None])
    for group, member in zip(GROUPS, (has, 1 - has), strict=True):
        if unanswerable and member.any():
            names += [f"{group}_n", f"{group}_exact", f"{group}_f1"]
            columns += [member, member * table]
    return ExampleStats(tuple(names), np.hstack(columns))


def _tokens(answer: str, unit: str) -> list[str]:
    words = normalize(answer, unit=unit).split()
    return words if unit == "word" else [c for word in words for c in word]


def _columns(metric: str, names: Sequence[str]) -> list[str]:
    needed = list(COLUMNS.get(metric, ()))
    return needed if set(needed) <= set(names) else []


def _scores(sums: np.ndarray, names: Sequence[str]) -> Scores:
    return {
        metric: ratio(*pick(sums, names, *pair)) for metric, pair in COLUMNS.items() if {*pair} <= {*names}
    }


def _degenerate(sums: np.ndarray, names: Sequence[str]) -> str:
    """Every prediction is empty although not every answer is."""
    n, empty, unanswered = pick(sums, names, "n", "empty", "NoAns_n")
    return "predicts no answer" if n > 0 and empty == n and unanswered < n else ""


def _correct(values: np.ndarray, names: Sequence[str]) -> np.ndarray:
    return pick(values, names, "exact_match")[0] > 0


def best_threshold(
    margins: Sequence[float | None], answered: Sequence[float], unanswered: Sequence[float]
) -> float:
    """Threshold on the null margin that maximises the summed score of N questions; finite.

    As the official script of SQuAD v2.0 does, each cut of the questions in the order of their margins is
    tried, and the lowest of equally good ones is taken. Questions with equal margins cannot be cut apart. The
    threshold is the middle between the two margins at the cut, and one below or above all margins where the
    cut is at an end.

    Example: margins -1 and 3, scores 1 and 0 if answered, 0 and 1 if not: the middle, 1, scores 2.

    Args:
        margins: null score minus the best span's score; None = there is no span.
        answered, unanswered: score of each question with its best span, and with no answer.
    """
    gains: dict[float, float] = {}
    for margin, with_answer, without in zip(margins, answered, unanswered, strict=True):
        if margin is not None and math.isfinite(margin):
            gains[margin] = gains.get(margin, 0.0) + with_answer - without
    if not gains:
        return 0.0
    ordered = sorted(gains)
    cuts = [*(low + (high - low) / 2 for low, high in pairwise(ordered)), ordered[-1] + 1]
    best, total, threshold = 0.0, 0.0, ordered[0] - 1
    for margin, cut in zip(ordered, cuts, strict=True):
        total += gains[margin]
        if total > best + TIE:
            best, threshold = total, cut
    return threshold


def apply_threshold(prediction: Prediction, threshold: float) -> Prediction:
    """The best span, or "" where there is none or the null margin exceeds the threshold."""
    extra = dict(prediction.extra or {})
    if "nbest" not in extra:
        return prediction
    spans, margin = extra["nbest"], extra.get("null_margin")
    if not spans or (margin is not None and margin > threshold):
        return replace(prediction, value="", extra={**extra, "start": None, "end": None})
    top = spans[0]
    return replace(prediction, value=top["text"], extra={**extra, "start": top["start"], "end": top["end"]})


FROM_STATS = MetricFromStats(_scores, _columns, degenerate=_degenerate, correct=_correct)
