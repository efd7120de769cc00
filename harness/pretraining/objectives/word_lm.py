"""The AWD-LSTM's objective: the next word, forwards or backwards (Merity, Keskar & Socher 2018).

Documents in random order are one stream, cut into as many parallel ones as a batch has rows; state is
carried from batch to batch and the gradient cut there. Lengths are drawn anew (section 5: 95 % around
``bptt``, 5 % around half of it, deviation 5), and the rate goes with the length. To the cross-entropy are
added (section 4.6)

::

    alpha * mean(dropped h_t ^ 2) + beta * mean((h_t+1 - h_t) ^ 2)          h: states of the top layer

A backward model reads every document from its last token to its first, ``xxbos`` last, as the encoder does.

**Held out.** Each document is read alone, from ``xxbos`` on; its own ``xxbos`` is not predicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from harness.data.targets import IGNORE_INDEX
from harness.encoders.awd_lstm.checkpoint import write_model
from harness.encoders.awd_lstm.fastai_rules import BOS, MAJ, PAD, REP, UNKNOWN, UP, WREP, fastai_tokens
from harness.encoders.awd_lstm.model import AwdLstm, AwdLstmLM, Dropouts, Sizes, row_dropout
from harness.errors import HarnessError
from harness.pretraining.base import Batch, HeldOut, Loss, Objective, Recipe
from harness.pretraining.text.corpus import Corpus, Document
from harness.pretraining.text.packing import Pieces, beginnings, padded, unigram_nll

MARKERS = (UNKNOWN, PAD, BOS, "xxeos", "xxfld", REP, WREP, UP, MAJ)
"""The first rows of fastai's vocabularies, in its order."""
CHUNK = 256


class WordLM(Objective):
    """See the module.

    Args:
        sizes: widths and layers; the words are counted later.
        dropouts: rates.
        recipe: rates of learning.
        backwards: read from right to left.
        max_vocabulary, min_frequency: which words get rows; the others are ``xxunk``.
        batch_rows: parallel streams.
        bptt: tokens the gradient goes back through, on average.
        alpha, beta: of the activation's and the temporal activation's regularisation.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        dropouts: Dropouts,
        recipe: Recipe,
        *,
        backwards: bool,
        max_vocabulary: int,
        min_frequency: int,
        batch_rows: int,
        bptt: int,
        alpha: float,
        beta: float,
    ) -> None:
        self.family, self.sizes, self.dropouts, self.recipe = "ulmfit", dict(sizes), dropouts, recipe
        self.backwards, self.batch_rows, self.bptt = backwards, batch_rows, bptt
        self.max_vocabulary, self.min_frequency = max_vocabulary, min_frequency
        self.alpha, self.beta = alpha, beta
        self.begin, self.unknown = MARKERS.index(BOS), MARKERS.index(UNKNOWN)
        self.notes: list[str] = []

    def prepare(self, corpus: Corpus, *, seed: int) -> None:
        train = [_tokens(d) for d in corpus.train]
        self.words = vocabulary(
            (t for tokens, _ in train for t in tokens), most=self.max_vocabulary, least=self.min_frequency
        )
        if len(self.words) <= len(MARKERS):
            raise HarnessError(
                f"encoder.max_vocabulary={self.max_vocabulary}, min_frequency={self.min_frequency}: no word "
                "of the corpus is left, only markers; raise the one or lower the other"
            )
        self._rows = {word: i for i, word in enumerate(self.words)}
        self.train = [self._numbered(tokens, words) for tokens, words in train]
        self.test = [self._numbered(*_tokens(d)) for d in corpus.held_out]
        self.tokens_per_epoch = sum(map(len, self.train))
        longest = self.tokens_per_epoch // self.batch_rows
        if longest < 2:
            raise HarnessError(
                f"encoder.batch_rows={self.batch_rows}: the corpus has {self.tokens_per_epoch} tokens only"
            )

    def _numbered(self, tokens: Sequence[str], words: np.ndarray) -> Pieces:
        """In the order in which the model reads, without ``xxbos``."""
        ids = np.array([self._rows.get(t, self.unknown) for t in tokens], dtype=np.int64)
        return Pieces(ids[::-1].copy(), words[::-1].copy()) if self.backwards else Pieces(ids, words)

    def build(self) -> AwdLstmLM:
        model = AwdLstmLM(AwdLstm(Sizes(len(self.words), **self.sizes), self.dropouts))
        return model.train()

    def batches(self, *, seed: int, epoch: int) -> Iterator[Batch]:
        rng = np.random.default_rng([seed, epoch])
        stop = Pieces(np.array([self.begin]), np.array([0]))
        order = rng.permutation(len(self.train))
        stream = Pieces.join([stop, *(part for i in order for part in (self.train[i], stop))])
        length = (len(stream) - 1) // self.batch_rows
        end = length * self.batch_rows
        inputs, targets, words = (
            a.reshape(self.batch_rows, length)
            for a in (stream.ids[:end], stream.ids[1 : end + 1], stream.words[1 : end + 1])
        )
        at = 0
        while at < length:
            size = min(random_length(self.bptt, rng), length - at)
            here = slice(at, at + size)
            gold = targets[:, here]
            yield Batch(
                {
                    "input_ids": torch.from_numpy(inputs[:, here].copy()),
                    "labels": torch.from_numpy(gold.copy()),
                },
                tokens=int((gold != self.begin).sum()),
                words=int(words[:, here].sum()),
                fresh=at == 0,
                rate=size / self.bptt,
            )
            at += size

    def loss(self, model: AwdLstmLM, batch: Batch, carry: Any) -> Loss:
        core = model.core
        outs, state = core(core.table(batch.tensors["input_ids"]), carry)
        raw = outs[-1]
        top = row_dropout(raw, core.dropouts.output, model.training)
        logits = F.linear(top, core.table.whole(), model.bias).float()
        gold = batch.tensors["labels"]
        mean = F.cross_entropy(logits.flatten(0, 1), gold.flatten())
        nll = float(mean.detach()) * gold.numel()
        mean = mean + self.alpha * top.float().pow(2).mean()
        if raw.shape[1] > 1:
            mean = mean + self.beta * (raw[:, 1:] - raw[:, :-1]).float().pow(2).mean()
        return Loss(mean, nll, gold.numel(), carry=[(h.detach(), c.detach()) for h, c in state])

    @torch.no_grad()
    def held_out(self, model: AwdLstmLM) -> HeldOut:
        device = next(model.parameters()).device
        documents = sorted((d.ids for d in self.test), key=len)
        nll, predicted = 0.0, 0
        for at in range(0, len(documents), self.batch_rows):
            rows = documents[at : at + self.batch_rows]
            shown = padded([np.concatenate([[self.begin], ids[:-1]]) for ids in rows], 0)
            gold = padded(rows, IGNORE_INDEX)
            hidden = None
            for start in range(0, gold.shape[1], CHUNK):
                here = slice(start, start + CHUNK)
                out = model(torch.from_numpy(shown[:, here].copy()).to(device), hidden)
                labels = torch.from_numpy(gold[:, here].copy()).to(device)
                hidden = out.hidden
                logits = out.logits.float().flatten(0, 1)
                nll += float(
                    F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum")
                )
                predicted += int((labels != IGNORE_INDEX).sum())
        unknown = sum(int((d.ids == self.unknown).sum()) for d in self.test)
        words = sum(int(d.words.sum()) for d in self.test)
        return HeldOut(
            nll,
            predicted,
            words=words,
            unknown=unknown / max(1, predicted),
            unigram=unigram_nll(
                (d.ids for d in self.train), (d.ids for d in self.test), size=len(self.words)
            ),
        )

    def save(self, model: AwdLstmLM, folder: Path) -> None:
        write_model(folder, model.weights(), self.words, backwards=self.backwards)

    def vocabulary_size(self) -> int:
        return len(self.words)

    def encoder_parameters(self, model: AwdLstmLM) -> int:
        return sum(p.numel() for p in model.core.parameters())


def _tokens(document: Document) -> tuple[list[str], np.ndarray]:
    """fastai's tokens of a document and, for each, the words that begin in it."""
    text = " ".join(document)
    tokens = fastai_tokens(text)
    return [t.text for t in tokens], beginnings(text, [t.end for t in tokens])


def vocabulary(tokens: Iterator[str], *, most: int, least: int) -> list[str]:
    """fastai's markers, then tokens from the most frequent down, those of one frequency in the order of the
    alphabet; at most ``most`` rows, none seen less than ``least`` times."""
    counts = Counter(t for t in tokens if t not in MARKERS)
    ranked = sorted((t for t, n in counts.items() if n >= least), key=lambda t: (-counts[t], t))
    return [*MARKERS, *ranked[: max(0, most - len(MARKERS))]]


def random_length(bptt: int, rng: np.random.Generator) -> int:
    """Units of the next batch (Merity et al. 2018, section 5), at least 5 and at most ``bptt`` + 20."""
    middle = bptt if rng.random() < 0.95 else bptt / 2
    return int(min(max(5, round(rng.normal(middle, 5))), bptt + 20))
