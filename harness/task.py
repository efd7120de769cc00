"""What a task is to the engine. Tasks import this and :mod:`harness.data`, nothing deeper.

A task knows how to read its data, what one prediction is, how to train for it and how to score it; it never
knows which encoder or strategy serves it. Importing this module does not import torch.
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
    from harness.data.statistics import ExampleStats
    from harness.data.tokens import EncoderOutput, TokenizedWindow


@dataclass(slots=True)
class Splits:
    """Examples by split, and what a reader of the record should know about where they came from.

    Attributes:
        train, dev, test: examples; ``dev`` may be empty when the user asked for none.
        notes: sentences such as "dev: 10 % cut from train with seed 13".
        report: counts (entities repaired, labels absent from train, ...).
    """

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    notes: list[str] = field(default_factory=list)
    report: dict[str, float] = field(default_factory=dict)

    def items(self) -> list[tuple[str, list[Example]]]:
        return [("train", self.train), ("dev", self.dev), ("test", self.test)]


@dataclass(frozen=True, slots=True)
class Prediction:
    """The one prediction of one example.

    Attributes:
        value: what is compared with the example's gold; anything ``json.dumps`` takes.
        scores: the numbers behind it (logits; for spans the n-best list's scores), flat.
        extra: further detail kept in the file (n-best texts, ...); anything ``json.dumps`` takes.
    """

    value: Any
    scores: Sequence[float] = ()
    extra: Any = None


@dataclass(frozen=True, slots=True)
class HeadInput:
    """What a head is built on.

    Attributes:
        hidden_size: H of the states it will see.
        pooling: how a row becomes a vector (see :func:`harness.data.tokens.pool`).
        pooled: True when :attr:`EncoderOutput.pooler_output` of width H will be there (a pretrained pooler).
        pairs: ``joint``, ``separate`` or, for single texts, ``single``.
        dropout: before the output layer.
    """

    hidden_size: int
    pooling: str
    pooled: bool
    pairs: str
    dropout: float


class Head(Protocol):
    """An ``nn.Module`` from states to the task's outputs."""

    def __call__(self, encoded: tuple[EncoderOutput, ...], batch: Batch) -> dict[str, Tensor]:
        """Outputs by name; the first axis of each is B rows (or N examples, as the head likes)."""
        ...

    def loss(self, outputs: dict[str, Tensor], batch: Batch) -> tuple[Tensor, int]:
        """Sum of the losses of the items in this batch (0-d) and the number of items. The engine divides by
        the items of the whole optimiser step, so micro-batches and devices change nothing."""
        ...

    def decode(self, outputs: dict[str, Tensor], batch: Batch) -> list[Prediction]:
        """One prediction for each example of the batch, its windows joined."""
        ...


@runtime_checkable
class Task(Protocol):
    """A task over one data set.

    Attributes:
        name: as in the results path; tells data sets of one kind apart.
        kind: ``text_classification``, ``ner``, ``span_qa``, ...
        metric: primary metric, a key of :meth:`score`.
        maximize: whether more of it is better.
        n_texts: 1 or 2.
        truncate: True when only the first window of a long text is read (classification).
        max_first: most tokens a question may take in a joint row; None = no bound.
    """

    name: str
    kind: str
    metric: str
    maximize: bool
    n_texts: int
    truncate: bool
    max_first: int | None

    def splits(self, *, limit: int | None = None) -> Splits:
        """Read the data, at most ``limit`` examples a split. Must be called before the methods below."""
        ...

    def row_targets(self, example: Example, rows: Sequence[TokenizedWindow]) -> list[dict[str, np.ndarray]]:
        """Training targets of each window of an example: 0-d or 1-d integer or float arrays by name, -100
        where no loss is wanted. ``rows`` are the windows that hold the example's last text."""
        ...

    def head(self, spec: HeadInput) -> Head:
        """A fresh head; its weights come from torch's global generator."""
        ...

    def score(self, predictions: Mapping[str, Prediction], examples: Sequence[Example]) -> dict[str, float]:
        """Scores in [0, 1] or the metric's own range by name.

        Raises:
            HarnessError: an example has no prediction.
        """
        ...


@runtime_checkable
class Averages(Protocol):
    """A task whose predictions can be averaged over models (``harness ensemble``); most can.

    Attributes:
        averaging: a sentence for the record, what is averaged.
    """

    averaging: str

    def average(
        self, members: Sequence[Mapping[str, Prediction]], examples: Sequence[Example]
    ) -> dict[str, Prediction]:
        """One prediction an example from those of each member, by example id. :meth:`Task.splits` was called.
        One member alone, or several that agree in all, give their own values.

        Raises:
            HarnessError: the members' predictions do not fit each other.
        """
        ...


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
    """A task whose metrics on dev can be accumulated over batches and ranks, for the curves of the loggers."""

    def live_metrics(self, examples: Sequence[Example]) -> MetricCollection:
        """Fresh metrics; ``update(predictions, examples)`` takes a batch's predictions and examples, in the
        same order, of any share of ``examples``. :meth:`Task.splits` was called.

        Args:
            examples: all examples that will be predicted; their gold determines the classes.
        """
        ...
