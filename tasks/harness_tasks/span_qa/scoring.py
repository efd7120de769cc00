"""Exact match and F1 of answers, by the published definitions, as fractions in [0, 1].

SQuAD v1.1 (Rajpurkar et al. 2016, section 6.1) and v2.0 (Rajpurkar, Jia & Liang 2018): an answer is
lower-cased, loses every ASCII punctuation character (nothing takes its place), then the articles *a*, *an*,
*the*, then surplus white space. F1 is over the bag of words; the best gold answer of a question counts; the
score of a data set is the mean over its questions. The versions differ where nothing is left of an answer:
v2.0 takes two empty answers for equal and leaves out gold answers of which nothing is left; v1.1 gives F1 = 0
to them.

KorQuAD 1.0 (Lim, Kim & Lee 2019) keeps articles, turns quotes and brackets into blanks and takes F1 over
characters, so that a particle after a noun costs little: ``unit="char"``.

This module imports no torch.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

UNITS = ("word", "char")

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_QUOTES_AND_BRACKETS = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))


def normalize(answer: str, *, unit: str = "word") -> str:
    """The form in which answers are compared."""
    if unit == "char":
        bare = answer.translate(_QUOTES_AND_BRACKETS).lower().translate(_NO_PUNCTUATION)
    else:
        bare = _ARTICLES.sub(" ", answer.lower().translate(_NO_PUNCTUATION))
    return " ".join(bare.split())


def f1(prediction: str, gold: str, *, unit: str = "word", unanswerable: bool = False) -> float:
    """Overlap of one prediction and one gold answer; see :func:`best` for the arguments."""
    guess, truth = (_tokens(text, unit) for text in (prediction, gold))
    if unanswerable and not (guess and truth):
        return float(guess == truth)
    same = sum((Counter(guess) & Counter(truth)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(guess), same / len(truth)
    return 2 * precision * recall / (precision + recall)


def best(
    prediction: str, golds: Sequence[str], *, unit: str = "word", unanswerable: bool = False
) -> tuple[float, float]:
    """Exact match and F1 against the gold answer that fits best.

    Args:
        prediction: the predicted text, ``""`` for no answer.
        golds: gold texts; none when the question has no answer.
        unit: ``word``, or ``char`` for KorQuAD's definition.
        unanswerable: the data set has questions without an answer (SQuAD v2.0's rules).
    """
    if unanswerable:
        golds = [g for g in golds if normalize(g, unit=unit)] or [""]
    guess = normalize(prediction, unit=unit)
    exact = max(float(guess == normalize(g, unit=unit)) for g in golds)
    return exact, max(f1(prediction, g, unit=unit, unanswerable=unanswerable) for g in golds)


def per_question(
    predictions: Mapping[str, str],
    golds: Mapping[str, Sequence[str]],
    *,
    unit: str = "word",
    unanswerable: bool = False,
) -> dict[str, tuple[float, float]]:
    """Exact match and F1 by question id. A question without a prediction counts (0, 0), in both versions."""
    return {
        key: best(predictions[key], texts, unit=unit, unanswerable=unanswerable)
        if key in predictions
        else (0.0, 0.0)
        for key, texts in golds.items()
    }


def summary(
    values: Mapping[str, tuple[float, float]],
    golds: Mapping[str, Sequence[str]],
    *,
    unanswerable: bool = False,
) -> dict[str, float]:
    """Means over all questions, and with ``unanswerable`` over those with and without an answer apart.

    Returns:
        ``exact_match`` and ``f1``; for v2 also ``HasAns_exact``, ``HasAns_f1``, ``NoAns_exact`` and
        ``NoAns_f1``, each only when there is such a question.
    """
    scores = {"exact_match": _mean(values, golds, 0), "f1": _mean(values, golds, 1)}
    if unanswerable:
        for name, keys in (
            ("HasAns", [k for k, texts in golds.items() if texts]),
            ("NoAns", [k for k, texts in golds.items() if not texts]),
        ):
            if keys:
                scores[f"{name}_exact"] = _mean(values, keys, 0)
                scores[f"{name}_f1"] = _mean(values, keys, 1)
    return scores


def _tokens(answer: str, unit: str) -> list[str]:
    words = normalize(answer, unit=unit).split()
    return words if unit == "word" else [c for word in words for c in word]


def _mean(
    values: Mapping[str, tuple[float, float]], keys: Sequence[str] | Mapping[str, object], which: int
) -> float:
    return sum(values[k][which] for k in keys) / len(keys) if keys else 0.0
