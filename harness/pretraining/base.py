"""What makes an encoder from a corpus.

``conf/pretrain/encoder/<family>.yaml`` names a :class:`Pretrainer` by ``_target_``. It is called with the
YAML's options by keyword, ``size`` already resolved (an option left at null has the value that
``sizes.<size>`` gives it), and its :meth:`Pretrainer.pretrain` does the whole work: vocabulary, training,
held-out measure, and files in ``run.folder`` that the family's own encoder reads. What is common to all
(reading and dividing the corpus, the budget, the record, writing the folder at once or not at all) is done
around it by :mod:`harness.commands.pretrain`.

An objective that is trained by gradient is an :class:`Objective`: it says what a batch is and what its loss
is, and inherits a ``pretrain`` that trains it under Lightning with checkpoints that a killed run continues
from (:mod:`harness.pretraining.trainer`). Others implement ``pretrain`` themselves.

This module and :mod:`harness.pretraining.corpus` are free of torch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.errors import HarnessError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from harness.pretraining.corpus import Corpus

Progress = Callable[[str], None]
"""Gets finished lines for a person."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What training has consumed: units of text (special ones not counted), words of text by the common word
    splitter, optimiser steps (0 where there are none), seconds of training. Repeated text counts each time.
    """

    tokens: int = 0
    words: int = 0
    steps: int = 0
    seconds: float = 0.0

    def add(self, *, tokens: int, words: int, seconds: float) -> Seen:
        """After one more step."""
        return Seen(self.tokens + tokens, self.words + words, self.steps + 1, self.seconds + seconds)


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits; the first one that is reached ends the training. ``epochs`` are passes over the corpus."""

    tokens: int | None = None
    seconds: float | None = None
    steps: int | None = None
    epochs: float | None = None

    def __bool__(self) -> bool:
        return any(v is not None for v in (self.tokens, self.seconds, self.steps, self.epochs))

    def or_epochs(self, epochs: float) -> Budget:
        """This budget, or where it says nothing so many passes."""
        return self if self else Budget(epochs=epochs)

    def used(self, seen: Seen, *, tokens_per_epoch: int) -> float:
        """Share of the budget that is used up, from 0 to 1: rates are a function of it, so that they fit a
        budget of any kind."""
        shares = [
            seen.tokens / self.tokens if self.tokens else 0.0,
            seen.seconds / self.seconds if self.seconds else 0.0,
            seen.steps / self.steps if self.steps else 0.0,
            seen.tokens / (self.epochs * tokens_per_epoch) if self.epochs else 0.0,
        ]
        return min(1.0, max(shares))


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How well the model predicts the held-out documents.

    Attributes:
        nll: nats, summed over the predicted units of text; ends of documents are not counted, markers such as
            ``xxmaj`` are. A model of two directions gives the mean of both sums.
        predicted: units the sum runs over.
        words: words of the text by the common word splitter; None where the objective gives no probability of
            a text, so that perplexity per word is undefined; then ``why`` says so.
        unknown: share of the predicted units that the vocabulary lacks. An unknown unit counts as
            predicted when its class is, so with many of them the perplexity is too good.
        why: why there is no perplexity per word.
        more: further numbers by name, for the record.
    """

    nll: float
    predicted: int
    words: int | None
    unknown: float = 0.0
    why: str = ""
    more: Mapping[str, float] = field(default_factory=dict)

    @property
    def unit_perplexity(self) -> float:
        """exp(nll / units): comparable between models with one vocabulary only."""
        return _exp(self.nll, self.predicted)

    @property
    def word_perplexity(self) -> float | None:
        """exp(nll / words), whatever the units: comparable across vocabularies. None = undefined."""
        return None if self.words is None else _exp(self.nll, self.words)


def _exp(nll: float, count: int) -> float:
    return math.exp(min(700.0, nll / count)) if count else math.nan


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
    """

    corpus: Corpus
    budget: Budget
    folder: Path
    work: Path
    seed: int
    trainer: Mapping[str, Any]
    say: Progress


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
        loss: mean loss per predicted unit at the end of training, in nats; NaN where that means nothing.
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
        tokens: units of text in it, special ones not counted; they are what the budget counts.
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
        mean: scalar with gradient, what is minimised: the mean over predicted units, regularisers added.
        nll: nats over the predicted units, without regularisers: shown and logged.
        predicted: how many there were.
        carry: state for the next batch without gradient (nested tuples or lists of tensors), None if none.
        more: further scalars to log by name.
    """

    mean: Tensor
    nll: float
    predicted: int
    carry: Any = None
    more: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How it is trained: AdamW (biases and norms without decay) or Adam, gradient clipped, a rate that rises
    linearly over ``warmup`` (a share of the budget) and then falls as ``schedule`` (``linear``, ``cosine``,
    ``constant``) says; or, ``slanted``, both as Howard & Ruder 2018 have it (equation 3), from a
    :data:`SLANT`-th up and down to it again. ``epochs`` counts when no budget is given."""

    lr: float
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    warmup: float = 0.06
    schedule: str = "linear"
    max_grad_norm: float | None = 1.0
    epochs: float = 10.0

    def factor(self, used: float) -> float:
        """Factor of the rate when the share ``used`` of the budget is used up; never 0 at the start."""
        if self.schedule == "slanted":
            return _slanted(min(1.0, used), top=max(1e-9, self.warmup))
        if used < self.warmup:
            return max(used / self.warmup, 1e-3)
        left = (1 - used) / max(1e-9, 1 - self.warmup)
        if self.schedule == "linear":
            return max(0.0, left)
        if self.schedule == "cosine":
            return 0.5 * (1 - math.cos(math.pi * max(0.0, left)))
        if self.schedule == "constant":
            return 1.0
        raise HarnessError(f"encoder.schedule={self.schedule}: linear, cosine or constant is wanted")


SLANT = 32
"""How many times smaller the slanted triangle's lowest rate is than its highest (Howard & Ruder 2018)."""


def _slanted(used: float, *, top: float) -> float:
    height = used / top if used < top else (1 - used) / max(1e-9, 1 - top)
    return (1 + height * (SLANT - 1)) / SLANT


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
    rate_key: str = "encoder.lr"

    @abstractmethod
    def prepare(self, corpus: Corpus, *, seed: int) -> None:
        """Build tokenizer and vocabulary from the training documents, and turn both parts into units. The
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
