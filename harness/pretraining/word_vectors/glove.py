"""GloVe (Pennington et al. 2014): word vectors by weighted least squares on co-occurrence counts.

With X from :mod:`harness.pretraining.word_vectors.cooccurrence`, the sum over all pairs of words that occur together

    J = sum_ij f(X_ij) (w_i . v_j + b_i + c_j - log X_ij)^2,    f(x) = min(1, (x / x_max)^alpha)

(equations 8 and 9) is minimised by AdaGrad, in batches of pairs in random order; of a row that several pairs
of a batch share, the gradients are added. The vector of a word is w_i + v_i (section 4.2).

A row of either matrix carries its bias and a one for the other's, so that one product gives the bracket.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.errors import HarnessError
from harness.pretraining.base import Outcome, Run, Seen
from harness.pretraining.word_vectors.common import (
    Keeper,
    Reading,
    Reporter,
    check_format,
    checked_options,
    measured,
    write_vectors,
)
from harness.pretraining.word_vectors.cooccurrence import Cooccurrence, Pairs, number_blocks, parts_for

UNKNOWN = "<unk>"
RARE = 100
"""Words whose mean is the vector of unknown ones."""
WHY = "GloVe fits counts of pairs and gives no probability of a text"


@dataclass(frozen=True, slots=True)
class Settings:
    """See :class:`GloVe`."""

    dim: int = 100
    window: int = 10
    x_max: float = 100.0
    alpha: float = 0.75
    lr: float = 0.05
    epochs: float = 50.0
    batch: int = 4096
    squares: float = 1.0


class GloVe:
    """A :class:`harness.pretraining.base.Pretrainer`.

    Args:
        dim: numbers a word.
        window: words on either side, weighted by one over their distance.
        x_max, alpha: of the weighting function f.
        lr: AdaGrad's rate.
        epochs: passes over the pairs when there is no budget.
        batch: pairs a step.
        squares: what AdaGrad's sums of squares start from; 1 as in the published program, where a corpus of
            billions of words soon outweighs it. Small corpora want less.
        min_count, max_words, lower, across_lines: see :class:`~harness.pretraining.word_vectors.common.Reading`.
        format, digits: see :func:`~harness.pretraining.word_vectors.common.write_vectors`; text has no header.
        unknown: write ``<unk>``, the mean of the :data:`RARE` least frequent words.
    """

    family = "static"

    @checked_options
    def __init__(
        self,
        *,
        dim: int = 100,
        window: int = 10,
        x_max: float = 100.0,
        alpha: float = 0.75,
        lr: float = 0.05,
        epochs: float = 50.0,
        batch: int = 4096,
        squares: float = 1.0,
        min_count: int = 5,
        max_words: int | None = None,
        lower: bool = False,
        across_lines: bool = True,
        format: str = "text",
        digits: int = 6,
        unknown: bool = True,
    ) -> None:
        check_format(format)
        self.settings = Settings(dim, window, x_max, alpha, lr, epochs, batch, squares)
        self.reading = Reading(lower, across_lines, min_count, max_words)
        self.form, self.digits, self.unknown = format, digits, unknown

    def pretrain(self, run: Run) -> Outcome:
        """Count, fit, write. A pass is over all pairs, so it counts as one over the corpus."""
        sentences = self.reading.sentences(run.corpus.train)
        counts = self.reading.vocabulary(sentences)
        words = list(counts)
        total = sum(map(len, sentences))
        ids = {w: i for i, w in enumerate(words)}
        for left in run.work.glob("pairs-*"):
            shutil.rmtree(left)  # of a part of this run that was killed
        with tempfile.TemporaryDirectory(dir=run.work, prefix="pairs-") as folder:
            parts = parts_for(total, window=self.settings.window)
            table = Cooccurrence(len(words), window=self.settings.window, folder=Path(folder), parts=parts)
            begin = time.perf_counter()
            table.count(number_blocks(sentences, ids))
            fit = Fit(len(words), self.settings, seed=run.seed)
            loss = self._fit(fit, table, run, total=total, counting=time.perf_counter() - begin)
        matrix = fit.vectors()
        if self.unknown and UNKNOWN not in ids:
            words.append(UNKNOWN)
            matrix = np.concatenate([matrix, matrix[-RARE:].mean(axis=0, keepdims=True)])
        write_vectors(run.folder, words, matrix, form=self.form, digits=self.digits, header=False)
        return Outcome(
            seen=fit.seen,
            epochs=fit.seen.tokens / total,
            parameters=2 * len(counts) * (self.settings.dim + 1),
            encoder_parameters=matrix.size,
            vocabulary=len(words),
            held_out=measured(run, self.reading, counts, why=WHY),
            loss=loss,
            notes=[f"{fit.pairs:,} different pairs of words; loss is J over their number"],
        )

    def _fit(self, fit: Fit, table: Cooccurrence, run: Run, *, total: int, counting: float) -> float:
        """Train within the budget, from a checkpoint where there is one; the loss of the last pass."""
        budget = run.budget.or_epochs(self.settings.epochs)
        keeper = Keeper(run, asdict(self.settings) | asdict(self.reading))
        kept = keeper.load()
        if kept is not None:
            fit.restore(kept)
            run.say(f"going on after {fit.seen.steps:,} steps")
        else:
            fit.seen = Seen(seconds=counting)
        tell = Reporter(run)
        fit.pairs = table.pairs()
        if not fit.pairs:
            raise HarnessError("corpus: no two of the words that are kept stand near each other")
        share = total / fit.pairs
        while (used := budget.used(fit.seen, tokens_per_epoch=total)) < 1:
            fit.step(table, words_per_pair=share)
            if keeper.due():
                keeper.save(fit.state())
            tell(fit.seen, used, f", loss {fit.loss():.4f}")
        if not fit.seen.steps and budget.steps != 0:
            raise HarnessError(
                f"budget.seconds={budget.seconds}: counting pairs alone took {fit.seen.seconds:.1f} s"
            )
        return fit.loss()


@dataclass(slots=True)
class Place:
    """Where in a pass a fit is: the pass, how many parts of it are done, and pairs of the one in work."""

    epoch: int = 0
    part: int = 0
    pair: int = 0


class Fit:
    """The two matrices, their AdaGrad sums, and the place in the data.

    Args:
        words: V.
        settings: see :class:`GloVe`.
        seed: of the first values and of the order of pairs.
    """

    def __init__(self, words: int, settings: Settings, *, seed: int) -> None:
        self.settings, self.seed = settings, seed
        draw = np.random.default_rng([seed, 0])
        size = (2, words, settings.dim + 1)
        start = ((draw.random(size) - 0.5) / settings.dim).astype(np.float32)
        one = np.ones((words, 1), np.float32)
        # [w, b, 1] and [v, 1, c]
        self.main = torch.from_numpy(np.concatenate([start[0], one], axis=1))
        self.context = torch.from_numpy(np.concatenate([start[1, :, :-1], one, start[1, :, -1:]], axis=1))
        self.squares = [torch.full_like(t, settings.squares) for t in (self.main, self.context)]
        self.seen, self.place, self.pairs = Seen(), Place(), 0
        self._words = 0.0
        self._loss = [0.0, 0.0]
        self._last = math.nan
        self._data: tuple[tuple[int, int], Tensor, Tensor, Tensor] | None = None

    def step(self, table: Cooccurrence, *, words_per_pair: float) -> None:
        """One batch; ``words_per_pair`` tells how many words of the corpus a pair stands for."""
        begin = time.perf_counter()
        first, second, logs = self._part(table)
        at, n = self.place.pair, self.settings.batch
        i, j, x = first[at : at + n], second[at : at + n], logs[at : at + n]
        self._learn(i, j, x)
        self._words += len(i) / 2 * words_per_pair
        words = round(self._words)
        self._move(len(first), len(table))
        done, seconds = words - self.seen.words, time.perf_counter() - begin
        self.seen = self.seen.add(tokens=done, words=done, seconds=seconds)

    def _part(self, table: Cooccurrence) -> tuple[Tensor, Tensor, Tensor]:
        """Both orders of every pair of the part in work, in random order, with log X."""
        key = (self.place.epoch, self.place.part)
        if self._data is None or self._data[0] != key:
            order = np.random.default_rng([self.seed, 1, self.place.epoch]).permutation(len(table))
            pairs = table.part(int(order[self.place.part]))
            shuffle = np.random.default_rng([self.seed, 2, *key])
            self._data = (key, *_both_orders(pairs, shuffle))
        return self._data[1:]

    def _move(self, pairs: int, parts: int) -> None:
        place = self.place
        place.pair += self.settings.batch
        if place.pair < pairs:
            return
        place.pair, place.part = 0, place.part + 1
        if place.part == parts:
            place.part, place.epoch = 0, place.epoch + 1
            self._last, self._loss = self._loss[0] / max(1.0, self._loss[1]), [0.0, 0.0]

    def _learn(self, i: Tensor, j: Tensor, logs: Tensor) -> None:
        settings = self.settings
        weight = ((logs - math.log(settings.x_max)) * settings.alpha).exp().clamp(max=1)
        w, v = self.main[i], self.context[j]
        error = (w * v).sum(1) - logs
        push = weight * error
        self._loss[0] += float((push * error).sum())
        self._loss[1] += len(i)
        # the ones stay ones
        self._adagrad(self.main, self.squares[0], i, push[:, None] * v, fixed=-1)
        self._adagrad(self.context, self.squares[1], j, push[:, None] * w, fixed=-2)

    def _adagrad(
        self, table: Tensor, squares: Tensor, rows: Tensor, gradients: Tensor, *, fixed: int
    ) -> None:
        different, which = rows.unique(return_inverse=True)
        total = gradients.new_zeros(len(different), gradients.shape[1]).index_add_(0, which, gradients)
        total[:, fixed] = 0
        moment = squares[different].addcmul_(total, total)
        squares[different] = moment
        table[different] -= self.settings.lr * total / moment.sqrt()

    def loss(self) -> float:
        """Mean over the pairs of the last whole pass, of the running one in the first, NaN before."""
        if not math.isnan(self._last):
            return self._last
        return self._loss[0] / self._loss[1] if self._loss[1] else math.nan

    def vectors(self) -> np.ndarray:
        """(V, dim) float32: the sums of both vectors."""
        dim = self.settings.dim
        return (self.main[:, :dim] + self.context[:, :dim]).numpy()

    def state(self) -> dict[str, Any]:
        """All that a fit goes on from."""
        return {
            "tables": [t.numpy() for t in (self.main, self.context, *self.squares)],
            "seen": self.seen,
            "place": self.place,
            "rest": (self._words, list(self._loss), self._last),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state`."""
        tables = [torch.from_numpy(t) for t in state["tables"]]
        self.main, self.context, self.squares = tables[0], tables[1], tables[2:]
        self.seen, self.place = state["seen"], state["place"]
        self._words, self._loss, self._last = state["rest"]


def _both_orders(pairs: Pairs, draw: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    mixed = pairs.first != pairs.second
    first = np.concatenate([pairs.first, pairs.second[mixed]]).astype(np.int64)
    second = np.concatenate([pairs.second, pairs.first[mixed]]).astype(np.int64)
    logs = np.log(np.concatenate([pairs.count, pairs.count[mixed]]))
    order = draw.permutation(len(first))
    return tuple(torch.from_numpy(a[order]) for a in (first, second, logs))  # type: ignore[return-value]
