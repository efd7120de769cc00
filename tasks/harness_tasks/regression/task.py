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
from harness.data.text import Example, Text
from harness.errors import HarnessError, did_you_mean
from harness.task import Head, HeadInput, Prediction, Splits
from harness_tasks.classification.columns import Columns, Labels, Names
from harness_tasks.classification.reader import HUB_COLUMNS, LabelledRow, RowReader
from harness_tasks.regression import scoring

if TYPE_CHECKING:
    from torchmetrics import MetricCollection

    from harness.data.tokens import TokenizedWindow


class TextRegression:
    """One number per text or pair of texts; see :class:`harness.task.Task`.

    Args:
        name: name of the data set, used in the results path.
        kind: kind of task.
        text, text_b, id, tags, allow_empty, data: as in
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
        columns = Columns(text, text_b, label, id, tags)
        self._reader = RowReader(self._source, columns, Labels(), allow_empty)

    def splits(self, *, limit: int | None = None) -> Splits:
        """Read all data and the scale of train as far as it is used; a limit then takes a seeded sample a
        split.

        Raises:
            HarnessError: data that cannot be read, a gold value that is no finite number, or a train split
                whose numbers are all the same.
        """
        log = self._source.log()
        rows = self._source.complete(self._reader.rows(log), log)
        examples = {role: [row.card_example() for row in part] for role, part in rows.items()}
        card = make_card(log, examples, counted="")
        read = {role: [_number(row) for row in part] for role, part in rows.items()}
        values = np.array(read["train"])
        mean, std = float(values.mean()), float(values.std())
        if std == 0:
            raise HarnessError(f"train holds the same number {mean:g} everywhere: there is nothing to learn")
        self._scale = mean, std
        pairs = {role: list(zip(rows[role], read[role], strict=True)) for role in rows}
        train, dev, test = (
            [_example(*pair) for pair in take(pairs[role], limit)] for role in ("train", "dev", "test")
        )
        report = {"train_mean": mean, "train_std": std, **log.counts}
        return Splits(train, dev, test, notes=log.notes, report=report, warnings=log.warnings, card=card)

    def row_targets(self, example: Example, rows: Sequence[TokenizedWindow]) -> list[dict[str, np.ndarray]]:
        """``value``: 0-d, the gold."""
        return [{"value": np.array(example.gold, dtype=np.float32)} for _ in rows]

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


def _number(row: LabelledRow) -> float:
    try:
        value = float(row.label)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise HarnessError(
            f"example {row.id!r}: the label {row.label!r} is no finite number; mend or remove the row, or "
            "name another column with task.label"
        )
    return value


def _example(row: LabelledRow, value: float) -> Example:
    return Example(row.id, tuple(Text.from_string(t) for t in row.texts), value, row.tags)
