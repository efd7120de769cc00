"""Metrics of dev during training: correlations and mean squared error of torchmetrics."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import MeanSquaredError, MetricCollection, PearsonCorrCoef, SpearmanCorrCoef

from harness.data.text import Example
from harness.task import Prediction
from harness_tasks.live_metrics import TensorMetrics, collection


class _Pearson(PearsonCorrCoef):
    """Pearson's r; NaN without a warning where a side is constant."""

    def compute(self) -> Tensor:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="The variance of predictions or target is close to zero"
            )
            return super().compute()


def live_metrics() -> MetricCollection:
    """Pearson's r, Spearman's rho and mean squared error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*will save all targets and predictions in the buffer")
        spearman = SpearmanCorrCoef()
    metrics = {"pearson": _Pearson(), "spearman": spearman, "mse": MeanSquaredError()}
    return collection(numbers=TensorMetrics(metrics, _to_tensors))


def _to_tensors(predictions: Sequence[Prediction], examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    predicted = torch.tensor([float(p.value) for p in predictions], dtype=torch.float64)
    return predicted, torch.tensor([float(e.gold) for e in examples], dtype=torch.float64)
