"""Metrics of dev during training, shared by the tasks: torchmetrics over predictions and examples.

``update`` takes predictions and their examples, in the same order; every state is reduced over ranks. The
values are for curves. A record's scores come from :meth:`harness.task.Task.score`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.wrappers.abstract import WrapperMetric

from harness.data.statistics import ExampleStats, MetricFromStats
from harness.data.text import Example
from harness.task import Prediction

ToStats = Callable[[Sequence[Prediction], Sequence[Example]], ExampleStats]
ToTensors = Callable[[Sequence[Prediction], Sequence[Example]], tuple[Tensor, Tensor]]


class StatsMetric(Metric):
    """All metrics that are functions of sums of per-example statistics (span F1, SQuAD's F1, ...).

    Args:
        from_stats: computes the metrics.
        names: columns of the statistics; the state is their sum over examples and ranks, (k,) float64.
        to_stats: computes the statistics of a batch.
    """

    full_state_update = False
    sums: Tensor

    def __init__(self, from_stats: MetricFromStats, names: Sequence[str], to_stats: ToStats) -> None:
        super().__init__()
        self.from_stats, self.names, self.to_stats = from_stats, tuple(names), to_stats
        self.add_state("sums", torch.zeros(len(self.names), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> None:
        if examples:
            stats = self.to_stats(predictions, examples).with_names(self.names)
            self.sums += torch.from_numpy(stats.sums()).to(self.sums.device)

    def compute(self) -> dict[str, Tensor]:
        scores = self.from_stats.scores(self.sums.cpu().numpy(), self.names)
        return {metric: torch.tensor(float(value)) for metric, value in scores.items()}


class TensorMetrics(WrapperMetric):
    """Metrics of torchmetrics over tensors, in float64. They reduce their own states over ranks.

    Args:
        metrics: by name.
        to_tensors: predictions and examples -> predicted and gold values.
    """

    def __init__(self, metrics: Mapping[str, Metric], to_tensors: ToTensors) -> None:
        super().__init__()
        self.metrics = MetricCollection(dict(metrics), compute_groups=False)
        self.metrics.set_dtype(torch.float64)
        self.to_tensors = to_tensors

    def update(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> None:
        if examples:
            self.metrics.update(*self.to_tensors(predictions, examples))

    def compute(self) -> dict[str, Tensor]:
        return dict(self.metrics.compute())

    def reset(self) -> None:
        super().reset()
        self.metrics.reset()


def collection(**metrics: Metric) -> MetricCollection:
    """Metrics that are updated with the same predictions and examples."""
    return MetricCollection(dict(metrics), compute_groups=False)
