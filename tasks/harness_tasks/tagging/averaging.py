"""Averaging the label probabilities of several models, word by word. Does not import torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.errors import HarnessError
from harness.task import Prediction
from harness_tasks.averaging import log_mean
from harness_tasks.tagging.schemes import bridge


def average_labels(
    predictions: Sequence[Prediction], name: str, *, labels: Sequence[str], fallback: str
) -> Prediction:
    """The label with the highest mean probability for each word; ``scores`` are the logs of the means.

    A member is left out for words that its tokenizer deleted; a word that all deleted gets the fallback.

    Args:
        predictions: of the members, as decoded by the tagging head.
        name: the example's id, for messages.
        labels, fallback: of the task.

    Raises:
        HarnessError: the members differ in words or labels.
    """
    lengths = [int((p.extra or {}).get("shape", [-1])[0]) for p in predictions]
    if len(set(lengths)) > 1 or any(
        list((p.extra or {}).get("labels", [])) != list(labels) for p in predictions
    ):
        raise HarnessError(
            f"example {name!r}: the members' labels or words differ: their probabilities cannot be averaged"
        )
    n = lengths[0]
    scores = np.array([p.scores for p in predictions], dtype=np.float64).reshape(
        len(predictions), n, len(labels)
    )
    known = np.ones((len(predictions), n), dtype=bool)  # (members, words): the word has a token
    for member, prediction in zip(known, predictions, strict=True):
        member[list(prediction.extra.get("no_tokens", []))] = False
    joined = np.zeros((n, len(labels)))
    for word in range(n):
        if known[:, word].any():
            joined[word] = log_mean(scores[known[:, word], word])
    predicted: np.ndarray = np.asarray(known.any(axis=0))
    best = joined.argmax(axis=1).tolist() if n else []
    bridged = bridge([labels[b] if p else None for b, p in zip(best, list(predicted), strict=True)])
    value = [fallback if label is None else label for label in bridged]
    extra: dict[str, object] = {"shape": [n, len(labels)], "labels": list(labels)}
    if not predicted.all():
        extra["no_tokens"] = np.flatnonzero(~predicted).tolist()
    return Prediction(value, joined.flatten().tolist(), extra)
