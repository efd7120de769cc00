"""Live metrics: equal to the scores of the record on complete data, and added up over batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchmetrics.classification import MulticlassMatthewsCorrCoef

from harness.task import HasLiveMetrics
from harness_tasks.classification.scoring import FROM_STATS, example_stats
from tests.data.test_statistics import drawn, made

CASES = [
    ("text_classification", "accuracy"),
    ("text_regression", "pearson"),
    ("ner", "span_f1"),
    ("ner", "character_macro_f1"),
    ("span_qa", "f1"),
]


@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_live_metrics_equal_the_scores(kind: str, metric: str) -> None:
    task = made(kind, metric)
    task.labels = list("abc") if kind == "text_classification" else []
    assert isinstance(task, HasLiveMetrics)
    examples, predicted = drawn(kind, n=90)
    # "d" is predicted but not a class of this task; the head cannot do that
    for e in examples:
        if predicted[e.id].value == "d":
            predicted[e.id] = predicted[examples[0].id]
    metrics = task.live_metrics(examples)
    for part in (examples[:40], examples[40:40], examples[40:]):
        metrics.update([predicted[e.id] for e in part], part)
    live = {name: float(value) for name, value in metrics.compute().items()}
    scores = task.score(predicted, examples)
    scores.pop("surface_f1", None)
    assert live.keys() >= scores.keys()
    assert {k: live[k] for k in scores} == pytest.approx(scores, abs=1e-6)
    metrics.reset()
    metrics.update([predicted[e.id] for e in examples[:9]], examples[:9])
    first = {e.id: predicted[e.id] for e in examples[:9]}
    assert float(metrics.compute()[metric]) == pytest.approx(
        task.score(first, examples[:9])[metric], abs=1e-6
    )


def test_the_mcc_of_a_constant_prediction_is_zero_as_in_scikit_learn_and_not_as_in_torchmetrics() -> None:
    """Gorodkin 2004 leaves 0 / 0 undefined; scikit-learn and this project define it as 0: a model that
    predicts one class has learnt nothing. torchmetrics adds an epsilon to the denominator of binary
    tables."""
    gold, predicted = [1] * 7 + [0] * 3, [1] * 10
    ours = FROM_STATS.compute(example_stats([str(g) for g in gold], [str(p) for p in predicted]))["mcc"]
    theirs = MulticlassMatthewsCorrCoef(2)(torch.tensor(predicted), torch.tensor(gold))
    assert ours == 0.0
    assert float(theirs) > 0.01


def test_classification_metrics_equal_torchmetrics_on_random_tables() -> None:
    from torchmetrics.functional.classification import multiclass_accuracy, multiclass_f1_score

    random = np.random.default_rng(0)
    for _ in range(50):
        k = int(random.integers(2, 6))
        gold, predicted = random.integers(0, k, (2, int(random.integers(1, 60))))
        ours = FROM_STATS.compute(example_stats([str(g) for g in gold], [str(p) for p in predicted]))
        pair = torch.from_numpy(predicted), torch.from_numpy(gold)
        assert ours["accuracy"] == pytest.approx(float(multiclass_accuracy(*pair, k, average="micro")))
        assert ours["macro_f1"] == pytest.approx(float(multiclass_f1_score(*pair, k, average="macro")))
