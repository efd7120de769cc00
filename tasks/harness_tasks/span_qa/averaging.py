"""Joining the spans of several models. Imports no torch.

A member's file holds its best spans with their scores and, where questions may have no answer, null's score.
The softmax over these is taken for its probabilities; a span that it does not list has none of them. So the
mean is over what each model thought likely; what lies below a member's list is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from harness.errors import HarnessError
from harness.task import Prediction

Place = tuple[int, int]
NULL: Place = (-1, -1)
KEPT = 5


def average_spans(
    predictions: Sequence[Prediction], name: str, *, context: str, unanswerable: bool, null_threshold: float
) -> Prediction:
    """The span of the highest mean probability, or "" where null's log exceeds it by more than the threshold.

    Args:
        predictions: of the members, as the span head leaves them.
        name: the example's id, for messages.
        context: what the spans are characters of.
        unanswerable, null_threshold: the task's.

    Raises:
        HarnessError: a member lists spans that are none of this context, or no null score.
    """
    means: dict[Place, float] = {}
    for prediction in predictions:
        for place, share in _shares(prediction, name, context=context, unanswerable=unanswerable).items():
            means[place] = means.get(place, 0.0) + share / len(predictions)
    null = _log(means.pop(NULL, 0.0))
    ranked = sorted(means, key=lambda place: (-means[place], place))[:KEPT]
    nbest: list[dict[str, Any]] = [
        {"text": context[a:b], "start": a, "end": b, "score": _log(means[a, b])} for a, b in ranked
    ]
    extra: dict[str, Any] = {"nbest": nbest, "start": None, "end": None}
    margin = null - nbest[0]["score"] if nbest else math.inf
    if unanswerable:
        extra |= {"null_score": null, "null_margin": margin if nbest else None}
    value = ""
    if nbest and not (unanswerable and margin > null_threshold):
        value = nbest[0]["text"]
        extra |= {"start": nbest[0]["start"], "end": nbest[0]["end"]}
    return Prediction(value, tuple(span["score"] for span in nbest), extra)


def _shares(prediction: Prediction, name: str, *, context: str, unanswerable: bool) -> dict[Place, float]:
    """Probability of each span that a member lists, and of null."""
    extra = prediction.extra or {}
    scores: dict[Place, float] = {}
    for span in extra.get("nbest", []):
        if context[span["start"] : span["end"]] != span["text"]:
            raise HarnessError(f"example {name!r}: a member's spans are of another context; run it again")
        scores[span["start"], span["end"]] = float(span["score"])
    if unanswerable:
        if extra.get("null_score") is None:
            raise HarnessError(f"example {name!r}: a member has no score for no answer; run it again")
        scores[NULL] = float(extra["null_score"])
    if not scores:
        return {}
    top = max(scores.values())
    weights = {place: math.exp(score - top) for place, score in scores.items()}
    total = sum(weights.values())
    return {place: weight / total for place, weight in weights.items()}


def _log(share: float) -> float:
    return math.log(share) if share > 0 else -1e9
