"""Check what a task and its head return against :mod:`harness.task`, with one line for each violation.

These checks cost nothing next to a batch. Without them a wrong shape fails later, in code that its author
does not know. This module does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from harness.data.statistics import load_metric
from harness.data.text import Example
from harness.errors import HarnessError
from harness.task import HasExampleStats, Prediction, Task

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


def check_task(task: object) -> None:
    """Check that a task has the members of :class:`harness.task.Task`, and that its statistics can be read.

    Raises:
        HarnessError: names the class and the member.
    """
    name = type(task).__name__
    members = (*Task.__annotations__, "splits", "row_targets", "head", "score")
    missing = [member for member in members if not hasattr(task, member)]
    if missing:
        raise HarnessError(f"{name}: {', '.join(missing)} missing; harness/task.py documents each")
    if hasattr(task, "example_stats") != hasattr(task, "metric_from_stats"):
        raise HarnessError(
            f"{name}: example_stats and metric_from_stats belong together; rows without have no interval"
        )
    if isinstance(task, HasExampleStats):
        try:
            load_metric(task.metric_from_stats)
        except HarnessError as e:
            raise HarnessError(f"{name}.metric_from_stats={e}") from None


def checked_targets(targets: Any, *, rows: int, task: object) -> list[dict[str, np.ndarray]]:
    """Return the targets of an example's windows if there is a dict for each.

    Raises:
        HarnessError: names the class and what it returned.
    """
    listed = isinstance(targets, list) and all(isinstance(target, dict) for target in targets)
    if not listed or len(targets) != rows:
        got = f"{len(targets)}" if isinstance(targets, list) else type(targets).__name__
        raise HarnessError(
            f"{type(task).__name__}.row_targets: expected a list of {rows} dicts, one per window of the "
            f"example; got {got}"
        )
    return list(targets)


def checked_outputs(outputs: Any, *, head: object) -> dict[str, Tensor]:
    """Return the outputs of a head if they are tensors by name.

    Raises:
        HarnessError: names the class and what it returned.
    """
    if not isinstance(outputs, dict) or not all(
        hasattr(value, "is_floating_point") for value in outputs.values()
    ):
        raise HarnessError(
            f"{type(head).__name__}.forward: expected a dict of tensors, got {type(outputs).__name__}"
        )
    return outputs


def checked_loss(result: Any, *, head: object) -> tuple[Tensor, int]:
    """Return the loss of a batch if it is a sum that gradients flow through, and the number of its items.

    Raises:
        HarnessError: names the class and what it returned.
    """
    expected = (
        f"{type(head).__name__}.loss: expected the sum of the items' losses (a 0-d tensor) and their number"
    )
    if not isinstance(result, tuple) or len(result) != 2:
        raise HarnessError(f"{expected}; got {_described(result)}")
    loss, count = result
    if not hasattr(loss, "requires_grad") or loss.ndim != 0 or not isinstance(count, Integral):
        raise HarnessError(f"{expected}; got {_described(loss)} and {_described(count)}")
    return loss, int(count)


def checked_predictions(predictions: Any, examples: Sequence[Example], *, head: object) -> list[Prediction]:
    """Return the predictions of a batch if there is one for each example.

    Raises:
        HarnessError: names the class and what it returned.
    """
    name = f"{type(head).__name__}.decode"
    if not isinstance(predictions, list) or len(predictions) != len(examples):
        got = len(predictions) if isinstance(predictions, list) else type(predictions).__name__
        raise HarnessError(
            f"{name}: expected a list of {len(examples)} predictions, one per example; got {got}"
        )
    for prediction in predictions:
        if not isinstance(prediction, Prediction):
            raise HarnessError(f"{name}: expected harness.task.Prediction, got {_described(prediction)}")
    return predictions


def scores_of(
    task: Task, predictions: Mapping[str, Prediction], examples: Sequence[Example]
) -> dict[str, float]:
    """Compute a task's scores, and check that they have the primary metric within its bounds.

    Raises:
        HarnessError: names the class and the score.
    """
    scores: Any = task.score(predictions, examples)
    name = type(task).__name__
    if not isinstance(scores, Mapping) or task.metric not in scores:
        got = ", ".join(map(str, scores)) if isinstance(scores, Mapping) else _described(scores)
        raise HarnessError(
            f"{name}.score: expected scores by name with the task's metric {task.metric}, got {got}"
        )
    if isinstance(task, HasExampleStats):
        low, high = load_metric(task.metric_from_stats).range(task.metric)
        score = float(scores[task.metric])
        if not math.isnan(score) and not low - TOLERANCE <= score <= high + TOLERANCE:
            raise HarnessError(
                f"{name}.score: {task.metric}={score:.4g} is outside {low:g} to {high:g}; give its range "
                f'as bounds in {task.metric_from_stats}, such as bounds={{"{task.metric}": (0, math.inf)}}'
            )
    return dict(scores)


TOLERANCE = 1e-6


def _described(value: Any) -> str:
    """The type of a value, and a tensor's shape."""
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__}{'' if shape is None else f' of shape {tuple(shape)}'}"
