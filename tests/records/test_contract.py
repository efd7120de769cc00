"""Tasks and heads that return something else than the protocol says are refused in one line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from harness.data.statistics import MetricFromStats
from harness.errors import HarnessError
from harness.records.contract import (
    check_task,
    checked_loss,
    checked_outputs,
    checked_predictions,
    checked_targets,
    scores_of,
)
from harness.task import Prediction

ERRORS = MetricFromStats(
    scores=lambda sums, names: {"error": sums[..., 0]}, columns=lambda metric, names: ["e"]
)
UNBOUNDED = MetricFromStats(scores=ERRORS.scores, columns=ERRORS.columns, bounds={"error": (0, np.inf)})


class Head:
    """Stands for a contributor's head in messages."""


class Counting:
    """A complete task whose score is ``value``."""

    name, kind, metric, maximize, n_texts, truncate, max_first = (
        "count",
        "count",
        "error",
        False,
        1,
        True,
        None,
    )
    metric_from_stats = f"{__name__}.ERRORS"
    value: Any = 1.5

    def splits(self, *, limit: int | None = None) -> Any: ...
    def row_targets(self, example: Any, rows: Any) -> Any: ...
    def head(self, spec: Any) -> Any: ...
    def example_stats(self, predictions: Any, examples: Any) -> Any: ...
    def score(self, predictions: Any, examples: Any) -> Any:
        return self.value


def without(*members: str) -> Any:
    kept = {k: v for k, v in vars(Counting).items() if k not in (*members, "__dict__", "__weakref__")}
    return type("Counting", (), kept)()


def test_members_that_a_task_lacks_are_named() -> None:
    check_task(Counting())
    check_task(without("example_stats", "metric_from_stats"))
    with pytest.raises(HarnessError, match=r"^Counting: maximize, score missing"):
        check_task(without("maximize", "score"))
    with pytest.raises(HarnessError, match=r"^Counting: example_stats and metric_from_stats belong together"):
        check_task(without("metric_from_stats"))


def test_statistics_that_cannot_be_imported_are_refused_before_training() -> None:
    task = without()
    task.metric_from_stats = f"{__name__}.ERROR"
    with pytest.raises(
        HarnessError, match=r"^Counting.metric_from_stats=.*test_contract.ERROR: cannot be imported"
    ):
        check_task(task)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (0.5, "got float"),
        ({"mae": 0.5}, "the task's metric error, got mae"),
        ({"error": 1.5}, r"error=1.5 is outside 0 to 1; give its range as bounds in .*ERRORS"),
    ],
)
def test_scores_have_the_metric_within_its_bounds(value: object, problem: str) -> None:
    task = without()
    task.value = value
    with pytest.raises(HarnessError, match=f"^Counting.score: .*{problem}"):
        scores_of(task, {}, [])


@pytest.mark.parametrize("score", [0.0, 1.0, float("nan")])
def test_scores_at_the_bounds_and_undefined_scores_are_accepted(score: float) -> None:
    task = without()
    task.value = {"error": score}
    assert scores_of(task, {}, []).keys() == {"error"}


def test_a_metric_may_declare_other_bounds() -> None:
    task = without()
    task.value, task.metric_from_stats = {"error": 17.0}, f"{__name__}.UNBOUNDED"
    assert scores_of(task, {}, []) == {"error": 17.0}


@pytest.mark.parametrize(
    ("result", "got"),
    [
        (torch.tensor(1.0), r"got Tensor of shape \(\)"),
        ((torch.ones(3), 3), r"got Tensor of shape \(3,\) and int"),
        ((1.0, 3), "got float and int"),
        ((torch.tensor(1.0), 3.0), r"got Tensor of shape \(\) and float"),
    ],
)
def test_a_loss_is_a_sum_and_the_number_of_items(result: object, got: str) -> None:
    with pytest.raises(HarnessError, match=f"^Head.loss: expected the sum .*{got}$"):
        checked_loss(result, head=Head())


def test_a_loss_may_count_its_items_with_numpy() -> None:
    assert checked_loss((torch.tensor(1.0), np.int64(3)), head=Head())[1] == 3


@pytest.mark.parametrize(
    ("predictions", "got"), [([], "one per example; got 0"), ([0.5], "got float"), (None, "NoneType")]
)
def test_there_is_one_prediction_for_each_example(predictions: object, got: str) -> None:
    example: Any = SimpleNamespace(id="0")
    with pytest.raises(HarnessError, match=f"^Head.decode: .*{got}$"):
        checked_predictions(predictions, [example], head=Head())
    assert checked_predictions([Prediction(1)], [example], head=Head()) == [Prediction(1)]


@pytest.mark.parametrize("outputs", [torch.ones(2), {"logits": 1.0}, None])
def test_outputs_are_tensors_by_name(outputs: object) -> None:
    with pytest.raises(HarnessError, match=r"^Head.forward: expected a dict of tensors"):
        checked_outputs(outputs, head=Head())


@pytest.mark.parametrize(("targets", "got"), [([], "0"), (np.ones(1), "ndarray"), ([{}, {}], "2")])
def test_each_window_has_its_targets(targets: object, got: str) -> None:
    with pytest.raises(
        HarnessError, match=f"^Counting.row_targets: expected a list of 1 dicts.*; got {got}$"
    ):
        checked_targets(targets, rows=1, task=Counting())
