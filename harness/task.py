"""The task protocol. Tasks import only this module, :mod:`harness.data` and :mod:`harness.errors`.

A task defines how its data are read, what a prediction is, how it is trained and how it is scored; it does
not depend on the encoder or strategy. Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from harness.data.text import Example

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor
    from torchmetrics import MetricCollection

    from harness.data.batch import Batch
    from harness.data.reading.card import DataCard
    from harness.data.statistics import ExampleStats
    from harness.data.tokens import EncoderOutput, TokenizedWindow


@dataclass(slots=True)
class Splits:
    """Examples by split, with notes on their origin for the record.

    Attributes:
        train, dev, test: examples; ``dev`` is empty with ``dev=none``.
        notes: sentences such as "dev: 10 % cut from train with seed 13".
        report: counts (entities repaired, labels absent from train, ...).
        warnings: what looks wrong with the data, such as texts that are in train and in test.
        card: how the data were read and what they contain; None = made from the examples.
    """

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    notes: list[str] = field(default_factory=list)
    report: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    card: DataCard | None = None

    def items(self) -> list[tuple[str, list[Example]]]:
        """Return name and examples of each split."""
        return [("train", self.train), ("dev", self.dev), ("test", self.test)]


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction of one example.

    Attributes:
        value: what is compared with the example's gold; JSON-serialisable.
        scores: the model's scores (logits; for spans those of the n-best list), flat.
        extra: further details for the file (n-best texts, ...); JSON-serialisable.
    """

    value: Any
    scores: Sequence[float] = ()
    extra: Any = None


@dataclass(frozen=True, slots=True)
class HeadInput:
    """Properties of the states that a head reads.

    Attributes:
        hidden_size: H of the states.
        pooling: how a row is summarised by a vector (see :func:`harness.data.tokens.pool`).
        pooled: True when :attr:`EncoderOutput.pooler_output` of width H is available (a pretrained pooler).
        pairs: ``joint``, ``separate`` or, for single texts, ``single``.
        dropout: rate before the output layer.
    """

    hidden_size: int
    pooling: str
    pooled: bool
    pairs: str
    dropout: float


class Head(Protocol):
    """An ``nn.Module`` that maps states to the task's outputs."""

    def __call__(self, encoded: tuple[EncoderOutput, ...], batch: Batch) -> dict[str, Tensor]:
        """Compute the outputs by name; the first axis of each is B rows or N examples."""
        ...

    def loss(self, outputs: dict[str, Tensor], batch: Batch) -> tuple[Tensor, int]:
        """Sum of the losses of the batch's items (0-d) and the number of items. The trainer divides by the
        items of the whole optimizer step, so the result does not depend on micro-batches and devices."""
        ...

    def decode(self, outputs: dict[str, Tensor], batch: Batch) -> list[Prediction]:
        """One prediction per example of the batch, over all its windows."""
        ...


@runtime_checkable
class Task(Protocol):
    """A task over one data set.

    Attributes:
        name: as in the results path; distinguishes data sets of the same kind.
        kind: ``text_classification``, ``ner``, ``span_qa``, ...
        metric: primary metric, a key of :meth:`score`.
        maximize: whether higher is better.
        n_texts: 1 or 2.
        truncate: True when only the first window of a long text is used (classification).
        max_first: maximum number of question tokens in a joint row; None = no limit.
    """

    name: str
    kind: str
    metric: str
    maximize: bool
    n_texts: int
    truncate: bool
    max_first: int | None

    def splits(self, *, limit: int | None = None) -> Splits:
        """Read the data, at most ``limit`` examples per split. Must be called before the methods below."""
        ...

    def row_targets(self, example: Example, rows: Sequence[TokenizedWindow]) -> list[dict[str, np.ndarray]]:
        """Training targets of each window of an example: 0-d or 1-d integer or float arrays by name, with
        :data:`harness.data.targets.IGNORE_INDEX` where there is no loss. ``rows`` are the windows of the
        example's last text."""
        ...

    def head(self, spec: HeadInput) -> Head:
        """Create a head; its weights are drawn from torch's global generator."""
        ...

    def score(self, predictions: Mapping[str, Prediction], examples: Sequence[Example]) -> dict[str, float]:
        """Compute the scores by name, in [0, 1] or the metric's range.

        Raises:
            HarnessError: an example has no prediction.
        """
        ...


def is_unlabelled(examples: Sequence[Example]) -> bool:
    """Whether a split has examples, but none with a gold value: it is predicted, not scored."""
    return bool(examples) and all(example.gold is None for example in examples)


@runtime_checkable
class Averages(Protocol):
    """A task whose predictions can be averaged over models (``harness ensemble``).

    Attributes:
        averaging: what is averaged, for the record.
    """

    averaging: str

    def average(
        self, members: Sequence[Mapping[str, Prediction]], examples: Sequence[Example]
    ) -> dict[str, Prediction]:
        """Average the members' predictions, by example id. :meth:`Task.splits` was called. A single member,
        or members with equal predictions, keep their values.

        Raises:
            HarnessError: the members' predictions do not match each other.
        """
        ...


@runtime_checkable
class FitsOnDev(Protocol):
    """A task that fits values of its decisions, such as a threshold, on dev and applies them to all splits.

    It is fitted to the dev predictions of each epoch, before they are scored; test gets the values of the
    selected epoch. An ensemble is fitted to its averaged dev predictions.
    """

    def needs_fit(self) -> bool:
        """Whether there is anything to fit with this task's options and data. :meth:`Task.splits` was
        called."""
        ...

    def fit_on_dev(
        self, predictions: Mapping[str, Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Fit the values, by name, to the predictions of all dev examples. The result does not depend on the
        order of ``predictions``."""
        ...

    def apply_fitted(
        self, predictions: Mapping[str, Prediction], fitted: Mapping[str, float]
    ) -> dict[str, Prediction]:
        """Return the predictions under these values."""
        ...


def fitted_part(task: Task) -> FitsOnDev | None:
    """Return the task if it has values to fit on dev."""
    return task if isinstance(task, FitsOnDev) and task.needs_fit() else None


def fitted_notes(fitted: Mapping[str, float]) -> list[str]:
    """Sentences for the record about values that were fitted on dev."""
    return [f"{name}: {value:.6g}, chosen on dev" for name, value in fitted.items()]


@runtime_checkable
class HasExampleStats(Protocol):
    """A task whose scores are functions of per-example statistics, as intervals and paired tests require.

    Attributes:
        metric_from_stats: dotted path of a :class:`harness.data.statistics.MetricFromStats` in a module that
            does not import torch. It computes the primary metric as :meth:`Task.score` does.
    """

    metric_from_stats: str

    def example_stats(
        self, predictions: Mapping[str, Prediction], examples: Sequence[Example]
    ) -> ExampleStats:
        """Statistics of each example, in the order of ``examples``.

        Raises:
            HarnessError: an example has no prediction.
        """
        ...


@runtime_checkable
class HasLiveMetrics(Protocol):
    """A task whose metrics on dev can be accumulated over batches and ranks, for the curves of the
    loggers."""

    def live_metrics(self, examples: Sequence[Example]) -> MetricCollection:
        """Fresh metrics; ``update(predictions, examples)`` takes a batch's predictions and examples, in the
        same order, of any share of ``examples``. :meth:`Task.splits` was called.

        Args:
            examples: all examples that will be predicted; their gold determines the classes.
        """
        ...
