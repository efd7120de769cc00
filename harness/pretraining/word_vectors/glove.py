"""GloVe (Pennington et al. 2014): word vectors by weighted least squares on co-occurrence counts.

With X from :mod:`harness.pretraining.word_vectors.cooccurrence`, the sum over all pairs of words that
co-occur

    J = sum_ij f(X_ij) (w_i . v_j + b_i + c_j - log X_ij)^2,    f(x) = min(1, (x / x_max)^alpha)

(equations 8 and 9) is minimised by AdaGrad in batches of pairs in random order; if pairs of a batch share a
row, their gradients are added. The vector of a word is w_i + v_i (section 4.2).

Each row of the two matrices contains its bias and a one for the other's bias, so that one dot product gives
the sum of the first three terms::

    [w_i, b_i, 1] . [v_j, 1, c_j] = w_i . v_j + b_i + c_j
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias, TypedDict

import numpy as np
import torch
from torch import Tensor

from harness.errors import HarnessError
from harness.pretraining.base import Outcome, Run
from harness.pretraining.budget import TrainingProgress
from harness.pretraining.word_vectors.common import (
    CheckpointManager,
    ProgressReporter,
    SentenceReader,
    check_format,
    checked_options,
    coverage_result,
    write_vectors,
)
from harness.pretraining.word_vectors.cooccurrence import Cooccurrence, Pairs, number_blocks, parts_for

UNKNOWN = "<unk>"
RARE = 100
"""Number of least frequent words whose mean is the vector of unknown words."""
NO_PERPLEXITY = "GloVe fits co-occurrence counts and assigns no probability to a text"
Triples: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""(n,) Long i, (n,) Long j, and (n,) float32 log X_ij."""


@dataclass(frozen=True, slots=True)
class GloVeOptions:
    """Hyperparameters, see :class:`GloVe`."""

    dim: int = 100
    window: int = 10
    x_max: float = 100.0
    alpha: float = 0.75
    lr: float = 0.05
    epochs: float = 50.0
    batch: int = 4096
    squares: float = 1.0


@dataclass(slots=True)
class DataPosition:
    """Position in the data.

    Attributes:
        epoch: number of the epoch.
        part: number of parts of the epoch that are done.
        pair: number of pairs of the current part that are done.
    """

    epoch: int = 0
    part: int = 0
    pair: int = 0


class FitState(TypedDict):
    """Content of a checkpoint, see :meth:`GloVeFit.state`."""

    tables: list[np.ndarray]
    seen: TrainingProgress
    place: DataPosition
    rest: tuple[float, list[float], float]


class GloVe:
    """A :class:`harness.pretraining.base.Pretrainer`.

    Args:
        dim: size of a vector.
        window: maximum distance of co-occurring words, weighted by one over their distance.
        x_max, alpha: of the weighting function f.
        lr: AdaGrad's learning rate.
        epochs: passes over the pairs if no budget is given.
        batch: pairs per step.
        squares: initial value of AdaGrad's sums of squares. The published program uses 1, which a corpus of
            billions of words soon outweighs; small corpora need less.
        min_count, max_words, lower, across_lines: see
            :class:`~harness.pretraining.word_vectors.common.SentenceReader`.
        format, digits: see :func:`~harness.pretraining.word_vectors.common.write_vectors`; text has no
            header.
        unknown: write ``<unk>``, the mean of the :data:`RARE` least frequent words.
    """

    family = "static"

    @checked_options
    def __init__(
        self, *, dim: int = 100, window: int = 10, x_max: float = 100.0, alpha: float = 0.75,
        lr: float = 0.05, epochs: float = 50.0, batch: int = 4096, squares: float = 1.0, min_count: int = 5,
        max_words: int | None = None, lower: bool = False, across_lines: bool = True, format: str = "text",
        digits: int = 6, unknown: bool = True,
    ) -> None:  # fmt: skip
        check_format(format)
        self.options = GloVeOptions(dim, window, x_max, alpha, lr, epochs, batch, squares)
        self.reader = SentenceReader(lower, across_lines, min_count, max_words)
        self.form, self.digits, self.unknown = format, digits, unknown

    def pretrain(self, run: Run) -> Outcome:
        """Count, fit and write. An epoch over the pairs counts as one over the corpus."""
        sentences = self.reader.sentences(run.corpus.train)
        counts = self.reader.vocabulary(sentences)
        words = list(counts)
        total = sum(map(len, sentences))
        ids = {w: i for i, w in enumerate(words)}
        for leftover in run.work.glob("pairs-*"):
            shutil.rmtree(leftover)  # of an earlier process of this run that was killed
        with tempfile.TemporaryDirectory(dir=run.work, prefix="pairs-") as folder:
            parts = parts_for(total, window=self.options.window)
            table = Cooccurrence(len(words), window=self.options.window, folder=Path(folder), parts=parts)
            begin = time.perf_counter()
            table.count(number_blocks(sentences, ids))
            fit = GloVeFit(len(words), self.options, seed=run.seed)
            loss = self._fit(fit, table, run, total=total, count_seconds=time.perf_counter() - begin)
        matrix = fit.vectors()
        if self.unknown and UNKNOWN not in ids:
            words.append(UNKNOWN)
            # rows are sorted by descending count: the last ones are the least frequent
            matrix = np.concatenate([matrix, matrix[-RARE:].mean(axis=0, keepdims=True)])
        write_vectors(run.folder, words, matrix, form=self.form, digits=self.digits, header=False)
        return Outcome(
            progress=fit.progress,
            epochs=fit.progress.tokens / total,
            parameters=2 * len(counts) * (self.options.dim + 1),
            encoder_parameters=matrix.size,
            vocabulary=len(words),
            held_out=coverage_result(run, self.reader, counts, reason=NO_PERPLEXITY),
            loss=loss,
            notes=[f"{fit.pairs:,} distinct pairs of words; the loss is J divided by their number"],
        )

    def _fit(
        self, fit: GloVeFit, table: Cooccurrence, run: Run, *, total: int, count_seconds: float
    ) -> float:
        """Train within the budget, from the newest checkpoint if there is one.

        Returns:
            The loss of the last epoch.
        """
        budget = run.budget.or_epochs(self.options.epochs)
        checkpoints = CheckpointManager[FitState](run, asdict(self.options) | asdict(self.reader))
        state = checkpoints.load()
        if state is not None:
            fit.restore(state)
            run.report(f"resuming after {fit.progress.steps:,} steps")
        else:
            fit.progress = TrainingProgress(seconds=count_seconds)
        report = ProgressReporter(run)
        fit.pairs = table.pairs()
        if not fit.pairs:
            raise HarnessError("corpus: no two words of the vocabulary co-occur; raise encoder.window")
        # the budget counts words, training counts pairs: an epoch over the pairs is one over the words
        words_per_pair = total / fit.pairs
        while (used := budget.used(fit.progress, tokens_per_epoch=total)) < 1:
            fit.step(table, words_per_pair=words_per_pair)
            if checkpoints.due():
                checkpoints.save(fit.state())
            report(fit.progress, used, f", loss {fit.loss():.4f}")
        if not fit.progress.steps and budget.steps != 0:
            raise HarnessError(
                f"budget.seconds={budget.seconds}: counting pairs alone took {fit.progress.seconds:.1f} s"
            )
        return fit.loss()


class GloVeFit:
    """The two matrices, their AdaGrad sums, and the position in the data.

    Args:
        words: V.
        options: hyperparameters.
        seed: of the initial values and of the order of pairs.
    """

    def __init__(self, words: int, options: GloVeOptions, *, seed: int) -> None:
        self.options, self.seed = options, seed
        rng = np.random.default_rng([seed, 0])
        size = (2, words, options.dim + 1)
        # uniform in +-0.5 / dim, like the published program; the biases too
        initial = ((rng.random(size) - 0.5) / options.dim).astype(np.float32)
        one = np.ones((words, 1), np.float32)
        # rows [w, b, 1] and [v, 1, c], see the module
        self.main = torch.from_numpy(np.concatenate([initial[0], one], axis=1))
        self.context = torch.from_numpy(np.concatenate([initial[1, :, :-1], one, initial[1, :, -1:]], axis=1))
        self.squares = [torch.full_like(t, options.squares) for t in (self.main, self.context)]
        self.progress, self.position, self.pairs = TrainingProgress(), DataPosition(), 0
        self._words = 0.0
        self._loss = [0.0, 0.0]  # sum, and number of pairs, of the running epoch
        self._last_loss = math.nan
        self._part_data: tuple[tuple[int, int], Triples] | None = None

    def step(self, table: Cooccurrence, *, words_per_pair: float) -> None:
        """Train on one batch; ``words_per_pair`` is how many words of the corpus a pair stands for."""
        begin = time.perf_counter()
        first, second, logs = self._part(table)
        start, stop = self.position.pair, self.position.pair + self.options.batch
        i, j, log_counts = first[start:stop], second[start:stop], logs[start:stop]
        self._update(i, j, log_counts)
        # both orders of a pair are trained, hence the half
        self._words += len(i) / 2 * words_per_pair
        self._advance(len(first), len(table))
        words = round(self._words) - self.progress.words
        seconds = time.perf_counter() - begin
        self.progress = self.progress.add(tokens=words, words=words, seconds=seconds)

    def _part(self, table: Cooccurrence) -> Triples:
        """Both orders of every pair of the current part, in random order."""
        key = (self.position.epoch, self.position.part)
        if self._part_data is None or self._part_data[0] != key:
            # every order has a generator of its own position, so a resumed run needs no generator state
            order = np.random.default_rng([self.seed, 1, self.position.epoch]).permutation(len(table))
            pairs = table.part(int(order[self.position.part]))
            shuffle = np.random.default_rng([self.seed, 2, *key])
            self._part_data = (key, _both_orders(pairs, shuffle))
        return self._part_data[1]

    def _advance(self, pairs: int, parts: int) -> None:
        position = self.position
        position.pair += self.options.batch
        if position.pair < pairs:
            return
        position.pair, position.part = 0, position.part + 1
        if position.part == parts:
            position.part, position.epoch = 0, position.epoch + 1
            self._last_loss = self._loss[0] / max(1.0, self._loss[1])
            self._loss = [0.0, 0.0]

    def _update(self, i: Tensor, j: Tensor, log_counts: Tensor) -> None:
        """Take one AdaGrad step on J / 2, whose gradient with respect to w_i is f(X_ij) * error * v_j."""
        options = self.options
        # f(x) = min(1, (x / x_max)^alpha), computed from log x
        # example: x_max 100, alpha 0.75: f(10) = 0.1^0.75 = 0.178; pairs above x_max have weight 1
        weight = ((log_counts - math.log(options.x_max)) * options.alpha).exp().clamp(max=1)
        w, v = self.main[i], self.context[j]  # (n, dim + 2)
        error = (w * v).sum(1) - log_counts
        weighted_error = weight * error
        self._loss[0] += float((weighted_error * error).sum())
        self._loss[1] += len(i)
        # the columns of ones are constants: [w, b, 1] has it last, [v, 1, c] last but one
        self._adagrad(self.main, self.squares[0], i, weighted_error[:, None] * v, constant=-1)
        self._adagrad(self.context, self.squares[1], j, weighted_error[:, None] * w, constant=-2)

    def _adagrad(
        self, table: Tensor, squares: Tensor, rows: Tensor, gradients: Tensor, *, constant: int
    ) -> None:
        """Update rows of a table in place.

        Rows that occur several times are updated once, with the sum of their gradients. Example: rows [4 7 4]
        have distinct rows [4 7] and index [0 1 0], so gradients 0 and 2 are added up for row 4.

        Args:
            table: (V, dim + 2).
            squares: (V, dim + 2) AdaGrad's sums of squared gradients.
            rows: (n,) Long.
            gradients: (n, dim + 2).
            constant: column that is not trained.
        """
        # `table[rows] -= x` would apply only one of the updates of a row that occurs several times
        distinct, index = torch.unique(rows, return_inverse=True)
        total = gradients.new_zeros(len(distinct), gradients.shape[1]).index_add_(0, index, gradients)
        total[:, constant] = 0
        # AdaGrad divides by the sum that already includes this gradient
        row_squares = squares[distinct].addcmul_(total, total)
        squares[distinct] = row_squares
        table[distinct] -= self.options.lr * total / row_squares.sqrt()

    def loss(self) -> float:
        """Mean over the pairs of the last complete epoch; in the first epoch, of the pairs so far, or NaN."""
        if not math.isnan(self._last_loss):
            return self._last_loss
        return self._loss[0] / self._loss[1] if self._loss[1] else math.nan

    def vectors(self) -> np.ndarray:
        """(V, dim) float32, the sums w_i + v_i."""
        dim = self.options.dim
        vectors: np.ndarray = (self.main[:, :dim] + self.context[:, :dim]).numpy()
        return vectors

    def state(self) -> FitState:
        """Everything needed to resume."""
        return {
            "tables": [t.numpy() for t in (self.main, self.context, *self.squares)],
            "seen": self.progress,
            "place": self.position,
            "rest": (self._words, list(self._loss), self._last_loss),
        }

    def restore(self, state: FitState) -> None:
        """Resume from a :meth:`state`."""
        tables = [torch.from_numpy(t) for t in state["tables"]]
        self.main, self.context, self.squares = tables[0], tables[1], tables[2:]
        self.progress, self.position = state["seen"], state["place"]
        self._words, self._loss, self._last_loss = state["rest"]


def _both_orders(pairs: Pairs, rng: np.random.Generator) -> Triples:
    """(i, j, log X_ij) and (j, i, log X_ij) of every pair, in random order; pairs of equal words once."""
    mixed = pairs.first != pairs.second
    # the pairs (0, 1) and (2, 2) give i = [0 2 1] and j = [1 2 0]
    first = np.concatenate([pairs.first, pairs.second[mixed]]).astype(np.int64)
    second = np.concatenate([pairs.second, pairs.first[mixed]]).astype(np.int64)
    logs = np.log(np.concatenate([pairs.count, pairs.count[mixed]]))
    order = rng.permutation(len(first))
    return torch.from_numpy(first[order]), torch.from_numpy(second[order]), torch.from_numpy(logs[order])
