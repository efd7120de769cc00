"""Regression: one number for each text, or for each pair of texts (similarity, relatedness). Imports no torch
until a head is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

import numpy as np

from harness.data.reading.card import make_card
from harness.data.reading.source import DataOptions, DataSource
from harness.data.splits import limit as take
from harness.data.statistics import ExampleStats
from harness.data.text import Example
from harness.errors import HarnessError, did_you_mean
from harness.task import Head, HeadInput, Prediction, Splits
from harness_tasks.classification.columns import Columns, Names
from harness_tasks.classification.reader import HUB_COLUMNS, RowReader, unlabelled_labels
from harness_tasks.regression import scoring
from harness_tasks.regression.numbers import NumberedRow, read_numbers

if TYPE_CHECKING:
    from torchmetrics import MetricCollection

    from harness.data.tokens import TokenizedWindow


class TextRegression:
    """One number per text or pair of texts; see :class:`harness.task.Task`.

    Args:
        name: name of the data set, used in the results path.
        kind: kind of task.
        text, text_b, id, tags, group, unlabelled, allow_empty, data: as in
            :class:`harness_tasks.classification.task.TextClassification`.
        label: column of the number; null = guessed.
        metric: ``pearson``, ``spearman`` or ``mse``.

    Raises:
        HarnessError: an unknown metric.
    """

    truncate = True
    max_first: int | None = None
    metric_from_stats = "harness_tasks.regression.scoring.FROM_STATS"
    averaging = "the mean of the members' numbers"

    def __init__(
        self,
        *,
        name: str = "text_regression",
        kind: str = "text_regression",
        text: Names = None,
        text_b: Names = None,
        label: Names = None,
        id: str | None = None,
        tags: Names = None,
        group: Names = None,
        unlabelled: object = None,
        metric: str = "pearson",
        allow_empty: bool = False,
        **data: Unpack[DataOptions],
    ) -> None:
        if metric not in scoring.METRICS:
            raise HarnessError(f"task.metric={metric}: {did_you_mean(metric, scoring.METRICS)}")
        self.name, self.kind, self.metric = name, kind, metric
        self.maximize = metric != "mse"
        self.n_texts = 2 if text_b else 1
        self._scale: tuple[float, float] | None = None
        self._source = DataSource.of(data, hub_columns=HUB_COLUMNS)
        self._columns = Columns(text, text_b, label, id, tags, group)
        self._reader = RowReader(
            self._source, self._columns, allow_empty, None, unlabelled_labels(unlabelled), kind
        )

    def splits(self, *, limit: int | None = None) -> Splits:
        """Read all data and the scale of train as far as it is used; a limit then takes a seeded sample a
        split.

        Raises:
            HarnessError: data that cannot be read, a gold value that is no finite number, or a train split
                whose numbers are all the same.
        """
        log = self._source.log()
        read = read_numbers(self._reader.rows(log), log)
        rows = self._source.complete(
            read,
            log,
            keys=NumberedRow.key,
            group=(lambda numbered: numbered.row.group) if self._columns.group else None,
        )
        examples = {role: [numbered.row.card_example() for numbered in part] for role, part in rows.items()}
        card = make_card(log, examples, counted="")
        values = np.array([numbered.value for numbered in rows["train"]], dtype=np.float64)
        mean, std = float(values.mean()), float(values.std())
        if std == 0:
            raise HarnessError(f"train holds the same number {mean:g} everywhere: there is nothing to learn")
        self._scale = mean, std
        train, dev, test = (
            [numbered.example() for numbered in take(rows[role], limit)] for role in ("train", "dev", "test")
        )
        report = {"train_mean": mean, "train_std": std, **log.counts}
        return Splits(train, dev, test, notes=log.notes, report=report, warnings=log.warnings, card=card)

    def row_targets(self, example: Example, rows: Sequence[TokenizedWindow]) -> list[dict[str, np.ndarray]]:
        """``value``: 0-d, the gold; NaN without one."""
        value = math.nan if example.gold is None else example.gold
        return [{"value": np.array(value, dtype=np.float32)} for _ in rows]

    def head(self, spec: HeadInput) -> Head:
        from harness_tasks.regression.head import RegressionHead

        if self._scale is None:
            raise RuntimeError("splits() must be called first: it finds the scale")
        return RegressionHead(spec, mean=self._scale[0], std=self._scale[1])

    def score(self, predictions: Mapping[str, Prediction], examples: Sequence[Example]) -> dict[str, float]:
        """See :func:`harness_tasks.regression.scoring.score`."""
        return scoring.score(predictions, examples)

    def example_stats(
        self, predictions: Mapping[str, Prediction], examples: Sequence[Example]
    ) -> ExampleStats:
        """See :func:`harness_tasks.regression.scoring.example_stats`."""
        predicted = [float(predictions[e.id].value) for e in examples]
        return scoring.example_stats(predicted, [e.gold for e in examples])

    def live_metrics(self, examples: Sequence[Example]) -> MetricCollection:
        """See :class:`harness.task.HasLiveMetrics`."""
        from harness_tasks.regression.live_metrics import live_metrics

        return live_metrics()

    def average(
        self, members: Sequence[Mapping[str, Prediction]], examples: Sequence[Example]
    ) -> dict[str, Prediction]:
        """The mean of the members' numbers; see :class:`harness.task.Averages`."""
        out = {}
        for e in examples:
            mean = math.fsum(float(member[e.id].value) for member in members) / len(members)
            out[e.id] = Prediction(mean, (mean,))
        return out
