"""Averaging the class probabilities of several models. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.data.text import Example
from harness.errors import HarnessError
from harness.task import Prediction
from harness_tasks.averaging import log_mean


def average_classes(
    members: Sequence[Mapping[str, Prediction]], examples: Sequence[Example], *, labels: Sequence[str]
) -> dict[str, Prediction]:
    """The class with the highest mean probability (the first of several equal ones) and the logs of the
    means.

    Raises:
        HarnessError: a member does not have one score per class.
    """
    if not examples:
        return {}
    for member in members:
        for example in examples:
            if (n := len(member[example.id].scores)) != len(labels):
                raise HarnessError(
                    f"example {example.id!r}: a member has {n} scores, the task {len(labels)} classes: "
                    "its probabilities cannot be averaged; run it again"
                )
    scores = np.array([[member[e.id].scores for e in examples] for member in members])
    joined = log_mean(scores)  # (N, K)
    best = joined.argmax(axis=1).tolist()
    return {
        e.id: Prediction(labels[k], row) for e, k, row in zip(examples, best, joined.tolist(), strict=True)
    }
