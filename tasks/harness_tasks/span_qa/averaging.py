"""Averaging the span probabilities of several models. Does not import torch.

A member's predictions contain its best spans with their scores and, with unanswerable questions, the null
score. A member's probabilities are the softmax over these; spans outside its list have probability 0. The
mean is therefore over the spans that each model ranks highest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.errors import HarnessError
from harness.task import Prediction

CharSpan = tuple[int, int]
NULL: CharSpan = (-1, -1)
N_BEST = 5


def average_spans(
    predictions: Sequence[Prediction], name: str, *, context: str, unanswerable: bool, null_threshold: float
) -> Prediction:
    """The span with the highest mean probability, or "" where the log probability of null exceeds it by more
    than the threshold.

    Args:
        predictions: of the members, as decoded by the span head.
        name: the example's id, for messages.
        context: the text that the spans refer to.
        unanswerable, null_threshold: options of the task.

    Raises:
        HarnessError: a member's spans do not match this context, or it has no null score.
    """
    means: dict[CharSpan, float] = {}
    for prediction in predictions:
        for place, share in _shares(prediction, name, context=context, unanswerable=unanswerable).items():
            means[place] = means.get(place, 0.0) + share / len(predictions)
    null = _log(means.pop(NULL, 0.0))
    ranked = sorted(means, key=lambda place: (-means[place], place))[:N_BEST]
    scores = [_log(means[span]) for span in ranked]
    nbest = [
        {"text": context[a:b], "start": a, "end": b, "score": score}
        for (a, b), score in zip(ranked, scores, strict=True)
    ]
    extra: dict[str, object] = {"nbest": nbest, "start": None, "end": None}
    margin = null - scores[0] if ranked else math.inf
    if unanswerable:
        extra |= {"null_score": null, "null_margin": margin if ranked else None}
    value = ""
    if ranked and not (unanswerable and margin > null_threshold):
        start, end = ranked[0]
        value = context[start:end]
        extra |= {"start": start, "end": end}
    return Prediction(value, tuple(scores), extra)


def _shares(prediction: Prediction, name: str, *, context: str, unanswerable: bool) -> dict[CharSpan, float]:
    """Probability of each span in a member's list, and of null."""
    extra = prediction.extra or {}
    scores: dict[CharSpan, float] = {}
    for span in extra.get("nbest", []):
        if context[span["start"] : span["end"]] != span["text"]:
            raise HarnessError(f"example {name!r}: a member's spans do not match the context; rerun it")
        scores[span["start"], span["end"]] = float(span["score"])
    if unanswerable:
        if extra.get("null_score") is None:
            raise HarnessError(f"example {name!r}: a member has no null score; rerun it")
        scores[NULL] = float(extra["null_score"])
    if not scores:
        return {}
    top = max(scores.values())
    weights = {place: math.exp(score - top) for place, score in scores.items()}
    total = sum(weights.values())
    return {place: weight / total for place, weight in weights.items()}


def _log(share: float) -> float:
    return math.log(share) if share > 0 else -1e9
