"""Metrics of dev during training: accuracy and F1 of torchmetrics over class numbers.

MCC is computed as in :mod:`.scoring`: torchmetrics does not return 0 for a classifier that predicts one
class.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from harness.data.statistics import ExampleStats
from harness.data.text import Example
from harness.task import Prediction
from harness_tasks.classification.scoring import FROM_STATS, PARTS, example_stats
from harness_tasks.live_metrics import StatsMetric, TensorMetrics, collection


def live_metrics(classes: Sequence[str], positive: str | None) -> MetricCollection:
    """Accuracy, macro F1, MCC and, with a positive class, its F1.

    Args:
        classes: K >= 2 classes that occur in gold or predictions.
        positive: the class that ``f1`` refers to.
    """
    number = {c: i for i, c in enumerate(classes)}

    def to_tensors(predictions: Sequence[Prediction], examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
        predicted = torch.tensor([number[p.value] for p in predictions])
        return predicted, torch.tensor([number[e.gold] for e in examples])

    def to_stats(predictions: Sequence[Prediction], examples: Sequence[Example]) -> ExampleStats:
        return example_stats([e.gold for e in examples], [p.value for p in predictions])

    metrics: dict[str, Metric] = {
        "accuracy": MulticlassAccuracy(len(classes), average="micro"),
        "macro_f1": MulticlassF1Score(len(classes), average="macro"),
    }
    if positive is not None:
        metrics["f1"] = _ClassF1(len(classes), number[positive])
    names = ["n", "right", *(f"{part}/{c}" for part in PARTS[1:] for c in classes)]
    return collection(classes=TensorMetrics(metrics, to_tensors), mcc=_Mcc(FROM_STATS, names, to_stats))


class _ClassF1(MulticlassF1Score):
    """F1 of one class."""

    def __init__(self, num_classes: int, index: int) -> None:
        super().__init__(num_classes, average=None)
        self.index = index

    def compute(self) -> Tensor:
        return super().compute()[self.index]


class _Mcc(StatsMetric):
    def compute(self) -> dict[str, Tensor]:
        return {"mcc": super().compute()["mcc"]}
