"""Joining the label probabilities of several models, word by word. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.errors import HarnessError
from harness.task import Prediction
from harness_tasks.averaging import log_mean
from harness_tasks.tagging.schemes import bridge


def average_labels(
    predictions: Sequence[Prediction], name: str, *, labels: Sequence[str], fallback: str
) -> Prediction:
    """The label of the highest mean probability of each word; ``scores`` are the logs of the means.

    A member's say on a word that its tokenizer deleted is left out; where all deleted it, the fallback stays.

    Args:
        predictions: of the members, as the tagging head leaves them.
        name: the example's id, for messages.
        labels, fallback: the task's.

    Raises:
        HarnessError: members that speak of other words or labels.
    """
    shape = [int((p.extra or {}).get("shape", [-1])[0]) for p in predictions]
    if len(set(shape)) > 1 or any(
        list((p.extra or {}).get("labels", [])) != list(labels) for p in predictions
    ):
        raise HarnessError(
            f"example {name!r}: the members' labels or words differ: their probabilities cannot be averaged"
        )
    n = shape[0]
    scores = np.array([p.scores for p in predictions], dtype=np.float64).reshape(
        len(predictions), n, len(labels)
    )
    said = np.ones((len(predictions), n), dtype=bool)
    for member, prediction in zip(said, predictions, strict=True):
        member[list(prediction.extra.get("no_tokens", []))] = False
    joined = np.zeros((n, len(labels)))
    for word in range(n):
        if said[:, word].any():
            joined[word] = log_mean(scores[said[:, word], word])
    heard: np.ndarray = np.asarray(said.any(axis=0))
    best = joined.argmax(axis=1).tolist() if n else []
    read = bridge([labels[b] if h else None for b, h in zip(best, list(heard), strict=True)])
    value = [fallback if label is None else label for label in read]
    extra: dict[str, Any] = {"shape": [n, len(labels)], "labels": list(labels)}
    if not heard.all():
        extra["no_tokens"] = np.flatnonzero(~heard).tolist()
    return Prediction(value, joined.flatten().tolist(), extra)
