"""Interfaces of pretraining: pretrainers, objectives trained by gradient descent, and what they exchange.

``conf/pretrain/encoder/<family>.yaml`` names a factory in ``_target_``. It is called with the YAML's options
as keyword arguments, after the size has been resolved (an option that is null takes the value that
``sizes.<size>`` gives it), and returns one of two things:

- an :class:`Objective` defines batches and their loss; :func:`harness.pretraining.trainer.train` trains it
  under Lightning, with checkpoints that an interrupted run resumes from;
- a :class:`Pretrainer` implements training itself (word vectors).

Both write the files that the family's encoder loads to ``run.folder``. :mod:`harness.pretraining.job` does
the rest: reading and splitting the corpus, the budget, the record, and publishing the folder atomically.

This module and :mod:`harness.pretraining.text.corpus` do not import torch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypedDict, TypeVar

from harness.pretraining.budget import Budget, Recipe, TrainingProgress

if TYPE_CHECKING:
    from torch import Tensor, device, nn

    from harness.pretraining.text.corpus import Corpus
    from harness.processes.distributed import World

ReportLine: TypeAlias = Callable[[str], None]
"""Receives complete lines of progress for the user."""
MAX_EXPONENT = 700.0
"""exp() of a larger number overflows a double."""


class TrainerOptions(TypedDict, total=False):
    """The ``trainer`` section; ``device`` (where to evaluate) is set by adaptation only."""

    accelerator: str
    devices: int | list[int]
    precision: str
    threads: int | None
    checkpoint_seconds: float
    log_seconds: float
    logger: str
    device: device


@dataclass(frozen=True, slots=True)
class EvalResult:
    """How well a model predicts the held-out documents.

    Attributes:
        nll: negative log-likelihood in nats, summed over the predicted tokens of text. Ends of documents do
            not count, markers such as ``xxmaj`` do. Bidirectional models give the mean of both directions.
        predicted: number of tokens in the sum.
        words: words of the text by the common word splitter; None if the objective assigns no probability to
            a text, so that perplexity per word is undefined (``reason`` says why).
        unknown_rate: share of the predicted tokens that are not in the vocabulary. An unknown token counts as
            predicted when the unknown class is, so a high rate makes the perplexity too optimistic.
        reason: why there is no perplexity per word.
        unigram_nll: nats of the same tokens under their unigram frequencies in the training text, see
            :func:`harness.pretraining.text.packing.unigram_nll`; NaN if the objective predicts no tokens.
        metrics: further numbers by name, for the record.
    """

    nll: float
    predicted: int
    words: int | None
    unknown_rate: float = 0.0
    reason: str = ""
    unigram_nll: float = math.nan
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def token_perplexity(self) -> float:
        """exp(nll / tokens); comparable only between models with the same vocabulary."""
        return _perplexity(self.nll, self.predicted)

    @property
    def word_perplexity(self) -> float | None:
        """exp(nll / words); comparable across vocabularies. None if undefined."""
        return None if self.words is None else _perplexity(self.nll, self.words)


def _perplexity(nll: float, count: int) -> float:
    if not count:
        return math.nan
    return math.exp(nll / count) if nll / count < MAX_EXPONENT else math.inf


@dataclass(slots=True)
class Run:
    """Inputs of one pretraining run.

    Attributes:
        corpus: documents, split into training and held-out ones.
        budget: limits; if empty, the family's default number of epochs applies.
        folder: empty folder for the encoder's files; renamed to its final name at the end.
        work: folder that survives a kill (checkpoints, logs).
        seed: determines every random draw. On a CPU the same seed gives bit-identical files.
        trainer: see :class:`TrainerOptions`.
        report: shows a line of progress.
        world: the ranks that train together; None = this process alone.
        log_info: arguments for the experiment logger.
    """

    corpus: Corpus
    budget: Budget
    folder: Path
    work: Path
    seed: int
    trainer: TrainerOptions
    report: ReportLine
    world: World | None = None
    log_info: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Outcome:
    """Result of one pretraining run, for the record ``pretrain.json``.

    Attributes:
        progress: what training consumed; ``progress.seconds`` is training time only, summed over restarts.
        epochs: passes over the training text.
        parameters: number of trained parameters, decoder included.
        encoder_parameters: number of parameters of the encoder that loads the folder.
        vocabulary: rows of the embedding table.
        held_out: None if nothing was held out.
        loss: mean loss per predicted token at the end of training in nats; NaN where undefined.
        notes: remarks for the reader of the record.
    """

    progress: TrainingProgress
    epochs: float
    parameters: int
    encoder_parameters: int
    vocabulary: int
    held_out: EvalResult | None
    loss: float = math.nan
    notes: list[str] = field(default_factory=list)


class Pretrainer(Protocol):
    """A pretrainer with its own training loop.

    Attributes:
        family: the encoder YAML that loads the result (``encoder=<family> encoder.path=DIR``).
    """

    family: str

    def pretrain(self, run: Run) -> Outcome:
        """Train within the budget and write the encoder's files to ``run.folder``."""
        ...


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """Input of one optimizer step.

    Attributes:
        tensors: inputs by name, as the objective's ``loss`` reads them; moved to the device before the step.
        tokens: tokens of text in the batch, special tokens excluded; the unit of the budget.
        words: words of text that begin in the batch.
        resets_carry: the batch does not continue the previous one, so carried state is dropped.
        lr_factor: factor of the learning rate for this step.
    """

    tensors: dict[str, Tensor]
    tokens: int
    words: int
    resets_carry: bool = True
    lr_factor: float = 1.0


ModelT = TypeVar("ModelT", bound="nn.Module")
CarryT = TypeVar("CarryT")


@dataclass(slots=True)
class BatchLoss(Generic[CarryT]):
    """Loss of one batch.

    Attributes:
        mean: scalar with gradient that is minimised: the mean over predicted tokens, plus regularisers.
        nll: nats over the predicted tokens, without regularisers, for display and logs.
        predicted: number of predicted tokens.
        carry: detached state for the next batch, None if there is none: nested tuples or lists of tensors
            with the batch rows in dimension 1.
        metrics: further scalars to log by name.
        extra_means: further means to minimise, each with the number of items that it averages (which may
            differ from the predicted tokens). Every batch has the same number of them.
    """

    mean: Tensor
    nll: float
    predicted: int
    carry: CarryT | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    extra_means: tuple[tuple[Tensor, int], ...] = ()


class Objective(ABC, Generic[ModelT, CarryT]):
    """A pretraining objective that is trained by gradient descent.

    ``prepare`` is called first, then ``build``, then batches are drawn. Random draws come from
    ``numpy.random.default_rng([seed, epoch])`` in ``batches`` (so that a resumed run sees the same batches)
    and from torch's global generator in ``build`` and ``loss`` (reseeded from seed and step before each).

    Attributes:
        family: see :class:`Pretrainer`.
        recipe: optimizer hyperparameters.
        rate_key: config key of the learning rate, for error messages.
        tokens_per_epoch: tokens of the training text; set by ``prepare``.
        notes: remarks for the record.
    """

    family: str
    recipe: Recipe
    rate_key: str = "encoder.recipe.lr"
    tokens_per_epoch: int
    notes: list[str]

    @abstractmethod
    def prepare(self, corpus: Corpus, *, seed: int) -> None:
        """Build tokenizer and vocabulary from the training documents and tokenize both parts.

        The same corpus and seed give the same vocabulary. Sets ``tokens_per_epoch`` and ``notes``.
        """

    @abstractmethod
    def build(self) -> ModelT:
        """Build the randomly initialised model in training mode.

        Every loss must use the model's first trainable parameter: on several devices, a rank without rows
        takes part in the reduction of gradients through it.
        """

    @abstractmethod
    def batches(self, *, seed: int, epoch: int) -> Iterator[TrainingBatch]:
        """Yield the batches of one pass over the training text, in an order drawn for this epoch."""

    @abstractmethod
    def loss(self, model: ModelT, batch: TrainingBatch, carry: CarryT | None) -> BatchLoss[CarryT]:
        """Compute the loss of a batch.

        Args:
            model: from :meth:`build`, in training mode.
            batch: from :meth:`batches`, on the model's device.
            carry: :attr:`BatchLoss.carry` of the previous batch; None after a reset.
        """

    @abstractmethod
    def evaluate(self, model: ModelT) -> EvalResult:
        """Evaluate on the held-out documents; the model is in eval mode."""

    @abstractmethod
    def save(self, model: ModelT, folder: Path) -> None:
        """Write the encoder's files in the published format of its family."""

    @abstractmethod
    def vocabulary_size(self) -> int:
        """Rows of the embedding table."""

    def shard(self, batch: TrainingBatch, *, rank: int, size: int) -> TrainingBatch:
        """Return the part of a step that one of ``size`` ranks computes.

        By default every ``size``-th row of each tensor; no tensors if there is no row for this rank.
        ``tokens`` and ``words`` remain those of the whole step.
        """
        tensors = {k: v[rank::size] for k, v in batch.tensors.items()}
        return replace(batch, tensors=tensors if all(map(len, tensors.values())) else {})

    def param_groups(self, model: ModelT) -> list[tuple[list[nn.Parameter], float]]:
        """All parameters in groups, each with a factor of the learning rate; one group by default."""
        return [(list(model.parameters()), 1.0)]

    def encoder_parameters(self, model: ModelT) -> int:
        """Number of parameters that the saved encoder has; by default all."""
        return sum(p.numel() for p in model.parameters())


AnyObjective: TypeAlias = "Objective[Any, Any]"
"""An objective whose model and carried state do not matter to the caller."""
