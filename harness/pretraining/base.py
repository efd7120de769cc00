"""What makes an encoder from a corpus.

``conf/pretrain/encoder/<family>.yaml`` names a :class:`Pretrainer` by ``_target_``. It is called with the
YAML's options by keyword, ``size`` already resolved (an option left at null has the value that
``sizes.<size>`` gives it), and its :meth:`Pretrainer.pretrain` does the whole work: vocabulary, training,
held-out measure, and files in ``run.folder`` that the family's own encoder reads. What is common to all
(reading and dividing the corpus, the budget, the record, writing the folder at once or not at all) is done
around it by :mod:`harness.cli.pretrain`.

An objective that is trained by gradient is an :class:`Objective`: it says what a batch is and what its loss
is, and inherits a ``pretrain`` that trains it under Lightning with checkpoints that a killed run continues
from (:mod:`harness.pretraining.trainer`). Others implement ``pretrain`` themselves.

This module and :mod:`harness.pretraining.text.corpus` are free of torch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.pretraining.budget import Budget, Recipe, Seen

if TYPE_CHECKING:
    from torch import Tensor, nn

    from harness.pretraining.text.corpus import Corpus
    from harness.processes.distributed import World

Progress = Callable[[str], None]
"""Gets finished lines for a person."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How well the model predicts the held-out documents.

    Attributes:
        nll: nats, summed over the predicted tokens of text; ends of documents are not counted, markers such as
            ``xxmaj`` are. A model of two directions gives the mean of both sums.
        predicted: tokens the sum runs over.
        words: words of the text by the common word splitter; None where the objective gives no probability of
            a text, so that perplexity per word is undefined; then ``why`` says so.
        unknown: share of the predicted tokens that the vocabulary lacks. An unknown token counts as
            predicted when its class is, so with many of them the perplexity is too good.
        why: why there is no perplexity per word.
        unigram: nats that the tokens' frequencies in the training text give the same tokens, see
            :func:`harness.pretraining.text.packing.unigram_nll`; NaN where the objective predicts no tokens.
        more: further numbers by name, for the record.
    """

    nll: float
    predicted: int
    words: int | None
    unknown: float = 0.0
    why: str = ""
    unigram: float = math.nan
    more: Mapping[str, float] = field(default_factory=dict)

    @property
    def token_perplexity(self) -> float:
        """exp(nll / tokens): comparable between models with one vocabulary only."""
        return _exp(self.nll, self.predicted)

    @property
    def word_perplexity(self) -> float | None:
        """exp(nll / words), whatever the tokens: comparable across vocabularies. None = undefined."""
        return None if self.words is None else _exp(self.nll, self.words)


def _exp(nll: float, count: int) -> float:
    if not count:
        return math.nan
    return math.exp(nll / count) if nll / count < 700 else math.inf


@dataclass(slots=True)
class Run:
    """What one pretraining is given.

    Attributes:
        corpus: the documents, divided into training and held-out ones.
        budget: limits; may be empty, then the family's own default counts (``budget.or_epochs``).
        folder: an empty folder for the encoder's files. It is renamed to its final name when all is done.
        work: a folder that outlives a kill: checkpoints, logs.
        seed: decides every draw. On a CPU the same seed gives the same files, bit for bit.
        trainer: ``accelerator``, ``precision``, ``threads``, ``checkpoint_seconds``, ``logger``,
            ``log_seconds``.
        say: shows a line of progress.
        world: the ranks that train it together; None = this process alone.
        about: what a log is told of it.
    """

    corpus: Corpus
    budget: Budget
    folder: Path
    work: Path
    seed: int
    trainer: Mapping[str, Any]
    say: Progress
    world: World | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Outcome:
    """What one pretraining tells for the record ``pretrain.json``.

    Attributes:
        seen: consumed by training; ``seen.seconds`` is training alone, over all processes that took part.
        epochs: passes over the training text.
        parameters: of everything that was trained, the decoder included; ``encoder_parameters`` of what the
            encoder that loads the folder has.
        vocabulary: rows of the table.
        held_out: None when nothing was held out.
        loss: mean loss per predicted token at the end of training, in nats; NaN where that means nothing.
        notes: what a reader must know.
    """

    seen: Seen
    epochs: float
    parameters: int
    encoder_parameters: int
    vocabulary: int
    held_out: HeldOut | None
    loss: float = math.nan
    notes: list[str] = field(default_factory=list)


class Pretrainer(Protocol):
    """``family`` is the encoder's YAML that loads the result: ``encoder=<family> encoder.path=DIR``."""

    family: str

    def pretrain(self, run: Run) -> Outcome:
        """Train within the budget and leave the encoder's files in ``run.folder``."""
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's input.

    Attributes:
        tensors: what the objective itself made and reads, by name; plain tensors, moved to the device for it.
        tokens: tokens of text in it, special ones not counted; they are what the budget counts.
        words: words of text that begin in it.
        fresh: it does not continue the batch before it: state that was carried is forgotten.
        rate: factor of the learning rate for this step alone.
    """

    tensors: dict[str, Tensor]
    tokens: int
    words: int
    fresh: bool = True
    rate: float = 1.0


@dataclass(slots=True)
class Loss:
    """Of one batch.

    Attributes:
        mean: scalar with gradient, what is minimised: the mean over predicted tokens, regularisers added.
        nll: nats over the predicted tokens, without regularisers: shown and logged.
        predicted: how many there were.
        carry: state for the next batch without gradient, None if none: nested tuples or lists of tensors with
            rows in their dimension 1.
        more: further scalars to log by name.
        also: further means that are minimised with it, each with the number of items it is over, which may be
            others than the predicted tokens. As many for every batch.
    """

    mean: Tensor
    nll: float
    predicted: int
    carry: Any = None
    more: dict[str, float] = field(default_factory=dict)
    also: tuple[tuple[Tensor, int], ...] = ()


class Objective(ABC):
    """A :class:`Pretrainer` that is trained by gradient.

    ``prepare`` is called first, then ``build``, then batches are drawn. Whatever is drawn at random is drawn
    from ``numpy.random.default_rng([seed, epoch])`` in ``batches`` (so a run that is taken up again sees the
    same batches) and from torch's global generator in ``build`` and ``loss`` (set anew from seed and step
    before each).

    Attributes:
        family: see :class:`Pretrainer`.
        recipe: rates, see :class:`Recipe`.
        rate_key: where the rate was set, for messages.
    """

    family: str
    recipe: Recipe
    rate_key: str = "encoder.recipe.lr"

    @abstractmethod
    def prepare(self, corpus: Corpus, *, seed: int) -> None:
        """Build tokenizer and vocabulary from the training documents, and turn both parts into tokens. The
        same corpus and seed give the same vocabulary. ``self.tokens_per_epoch`` and ``self.notes`` are set.
        """

    tokens_per_epoch: int
    notes: list[str]

    @abstractmethod
    def build(self) -> nn.Module:
        """The model in training mode with random weights."""

    @abstractmethod
    def batches(self, *, seed: int, epoch: int) -> Iterator[Batch]:
        """One pass over the training text, in an order of its own."""

    @abstractmethod
    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """Loss of a batch that lies on the model's device; ``carry`` is the last batch's, None when fresh.

        Args:
            model: from :meth:`build`, in training mode.
            batch: from :meth:`batches`.
            carry: of the :class:`Loss` before.
        """

    @abstractmethod
    def held_out(self, model: Any) -> HeldOut:
        """The measure on the held-out documents; the model is in eval mode and no gradient is kept."""

    @abstractmethod
    def save(self, model: Any, folder: Path) -> None:
        """Write the encoder's files in its family's published format."""

    @abstractmethod
    def vocabulary_size(self) -> int:
        """Rows of the table."""

    def share(self, batch: Batch, *, rank: int, size: int) -> Batch:
        """What one of ``size`` ranks takes of a step: every ``size``-th row, by default of each tensor; no
        tensors when there is none for it. Tokens and words stay those of the whole step."""
        tensors = {k: v[rank::size] for k, v in batch.tensors.items()}
        return replace(batch, tensors=tensors if all(map(len, tensors.values())) else {})

    def speeds(self, model: Any) -> list[tuple[list[nn.Parameter], float]]:
        """All parameters in groups, each with a factor of the rate; by default one group."""
        return [(list(model.parameters()), 1.0)]

    def encoder_parameters(self, model: Any) -> int:
        """Parameters that the saved encoder has; by default all."""
        return sum(p.numel() for p in model.parameters())

    def pretrain(self, run: Run) -> Outcome:
        """Train under Lightning; see :func:`harness.pretraining.trainer.pretrain`."""
        from harness.pretraining.trainer import pretrain

        return pretrain(self, run)
