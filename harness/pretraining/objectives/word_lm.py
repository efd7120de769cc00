"""The AWD-LSTM's objective: the next word, forwards or backwards (Merity, Keskar & Socher 2018).

The documents form one stream in random order, which is cut into as many parallel streams as a batch has rows.
The state is carried from batch to batch without its gradient (truncated backpropagation through time).
Segment lengths are drawn (section 5: 95 % around ``bptt``, 5 % around half of it, standard deviation 5), and
the learning rate is proportional to the length. The cross-entropy is regularised by (section 4.6)

::

    alpha * mean(dropout(h_t) ^ 2) + beta * mean((h_t+1 - h_t) ^ 2)         h: states of the top layer

A backward model reads every document from its last token to its first, ``xxbos`` last, as the encoder does.

**Evaluation.** Each document is read on its own after ``xxbos``, which is not predicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from harness.data.targets import IGNORE_INDEX
from harness.encoders.awd_lstm.checkpoint import write_model
from harness.encoders.awd_lstm.fastai_rules import BOS, MAJ, PAD, REP, UNKNOWN, UP, WREP, fastai_tokens
from harness.encoders.awd_lstm.model import AwdLstm, AwdLstmLM, Dropouts, Hidden, Sizes, row_dropout
from harness.errors import HarnessError
from harness.pretraining.base import BatchLoss, EvalResult, Objective, TrainingBatch
from harness.pretraining.budget import Recipe
from harness.pretraining.text.corpus import Corpus, Document
from harness.pretraining.text.packing import TokenSequence, count_word_starts, pad, unigram_nll

MARKERS = (UNKNOWN, PAD, BOS, "xxeos", "xxfld", REP, WREP, UP, MAJ)
"""The first rows of fastai's vocabularies, in its order."""
CHUNK = 256
"""Time steps that are evaluated at once."""


class WordLM(Objective[AwdLstmLM, Hidden]):
    """Word-level language model, see the module.

    Args:
        sizes: widths and number of layers.
        dropouts: dropout rates.
        recipe: optimizer hyperparameters.
        backwards: read from right to left.
        max_vocabulary, min_frequency: words beyond these limits are ``xxunk``.
        batch_rows: number of parallel streams.
        bptt: mean segment length in tokens.
        alpha, beta: weights of activation and temporal activation regularisation.
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
        self.word_ids: Mapping[str, int] = {}
        self.train: list[TokenSequence] = []
        self.test: list[TokenSequence] = []
        self.notes: list[str] = []

    def prepare(self, corpus: Corpus, *, seed: int) -> None:
        train = [document_tokens(d) for d in corpus.train]
        self.words = build_vocabulary(
            (token for tokens, _ in train for token in tokens),
            max_size=self.max_vocabulary,
            min_frequency=self.min_frequency,
        )
        if len(self.words) <= len(MARKERS):
            raise HarnessError(
                f"encoder.max_vocabulary={self.max_vocabulary}, min_frequency={self.min_frequency}: no word "
                "of the corpus is left; raise the first or lower the second"
            )
        self.word_ids = {word: i for i, word in enumerate(self.words)}
        self.train = [self.to_ids(tokens, words) for tokens, words in train]
        self.test = [self.to_ids(*document_tokens(d)) for d in corpus.held_out]
        self.tokens_per_epoch = sum(map(len, self.train))
        if self.tokens_per_epoch // self.batch_rows < 2:
            raise HarnessError(
                f"encoder.batch_rows={self.batch_rows}: the corpus has only {self.tokens_per_epoch} tokens; "
                "lower it to at most half of that"
            )

    def to_ids(self, tokens: Sequence[str], words: np.ndarray) -> TokenSequence:
        """Map tokens to ids in the order in which the model reads them, without ``xxbos``."""
        ids = np.array([self.word_ids.get(t, self.unknown) for t in tokens], dtype=np.int64)
        if self.backwards:
            return TokenSequence(ids[::-1].copy(), words[::-1].copy())
        return TokenSequence(ids, words)

    def build(self) -> AwdLstmLM:
        model = AwdLstmLM(AwdLstm(Sizes(len(self.words), **self.sizes), self.dropouts))
        return model.train()

    def batches(self, *, seed: int, epoch: int) -> Iterator[TrainingBatch]:
        rng = np.random.default_rng([seed, epoch])
        # no word begins in xxbos, so it counts 0 words
        begin = TokenSequence(np.array([self.begin]), np.array([0]))
        order = rng.permutation(len(self.train))
        stream = TokenSequence.join([begin, *(part for i in order for part in (self.train[i], begin))])
        # stream 0 1 .. 10 and 2 rows: inputs [0 1 2 3 4], [5 6 7 8 9]; targets one later, [1 .. 5], [6 .. 10]
        # - 1: the last token has no successor; what does not fill all rows is left out of this epoch
        length = (len(stream) - 1) // self.batch_rows
        end = length * self.batch_rows
        inputs, targets, words = (
            a.reshape(self.batch_rows, length)  # row r is one stream, segments are cut along the columns
            for a in (stream.ids[:end], stream.ids[1 : end + 1], stream.words[1 : end + 1])
        )
        at = 0
        while at < length:
            size = min(random_length(self.bptt, rng), length - at)
            segment = slice(at, at + size)
            gold = targets[:, segment]
            yield TrainingBatch(
                {
                    "input_ids": torch.from_numpy(inputs[:, segment].copy()),
                    "labels": torch.from_numpy(gold.copy()),
                },
                # xxbos is predicted, but is not a token of the text
                tokens=int((gold != self.begin).sum()),
                words=int(words[:, segment].sum()),
                # a new epoch has a new stream: its state starts from zero
                resets_carry=at == 0,
                lr_factor=size / self.bptt,
            )
            at += size

    def loss(self, model: AwdLstmLM, batch: TrainingBatch, carry: Hidden | None) -> BatchLoss[Hidden]:
        core = model.core
        layers, state = core(core.table(batch.tensors["input_ids"]), carry)
        raw = layers[-1]
        top = row_dropout(raw, core.dropouts.output, model.training)
        logits = F.linear(top, core.table.all_rows(), model.bias).float()
        gold = batch.tensors["labels"]
        mean = F.cross_entropy(logits.flatten(0, 1), gold.flatten())
        # before the regularisers are added: nats of the text only
        nll = float(mean.detach()) * gold.numel()
        mean = mean + self.alpha * top.float().pow(2).mean()
        if raw.shape[1] > 1:  # the mean over no differences would be NaN
            mean = mean + self.beta * (raw[:, 1:] - raw[:, :-1]).float().pow(2).mean()
        detached = [(h.detach(), c.detach()) for h, c in state]
        return BatchLoss(mean, nll, gold.numel(), carry=detached)

    @torch.no_grad()
    def evaluate(self, model: AwdLstmLM) -> EvalResult:
        device = next(model.parameters()).device
        documents = sorted((d.ids for d in self.test), key=len)
        nll, predicted = 0.0, 0
        for at in range(0, len(documents), self.batch_rows):
            rows = documents[at : at + self.batch_rows]
            # document a b c: inputs xxbos a b, gold a b c
            inputs = pad([np.concatenate([[self.begin], ids[:-1]]) for ids in rows], 0)
            gold = pad(rows, IGNORE_INDEX)
            hidden = None
            # in chunks, with the state carried over: logits of whole documents, (B, S, V), are too large
            for start in range(0, gold.shape[1], CHUNK):
                chunk = slice(start, start + CHUNK)
                output = model(torch.from_numpy(inputs[:, chunk].copy()).to(device), hidden)
                labels = torch.from_numpy(gold[:, chunk].copy()).to(device)
                hidden = output.hidden
                logits = output.logits.float().flatten(0, 1)
                # rows that have ended go on with padding, whose labels are ignored
                nll += float(
                    F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum")
                )
                predicted += int((labels != IGNORE_INDEX).sum())
        unknown = sum(int((d.ids == self.unknown).sum()) for d in self.test)
        return EvalResult(
            nll,
            predicted,
            words=sum(int(d.words.sum()) for d in self.test),
            unknown_rate=unknown / max(1, predicted),
            unigram_nll=unigram_nll(
                (d.ids for d in self.train), (d.ids for d in self.test), vocabulary_size=len(self.words)
            ),
        )

    def save(self, model: AwdLstmLM, folder: Path) -> None:
        write_model(folder, model.weights(), self.words, backwards=self.backwards)

    def vocabulary_size(self) -> int:
        return len(self.words)

    def encoder_parameters(self, model: AwdLstmLM) -> int:
        return sum(p.numel() for p in model.core.parameters())


def document_tokens(document: Document) -> tuple[list[str], np.ndarray]:
    """fastai's tokens of a document, and for each the number of words that begin in it."""
    text = " ".join(document)
    tokens = fastai_tokens(text)
    return [t.text for t in tokens], count_word_starts(text, [t.end for t in tokens])


def build_vocabulary(tokens: Iterable[str], *, max_size: int, min_frequency: int) -> list[str]:
    """fastai's markers, then tokens by descending frequency and alphabetically within a frequency.

    Args:
        tokens: the training text.
        max_size: maximum number of rows, markers included.
        min_frequency: rarer tokens get no row.
    """
    counts = Counter(t for t in tokens if t not in MARKERS)
    ranked = sorted((t for t, n in counts.items() if n >= min_frequency), key=lambda t: (-counts[t], t))
    return [*MARKERS, *ranked[: max(0, max_size - len(MARKERS))]]


def random_length(bptt: int, rng: np.random.Generator) -> int:
    """Draw the length of a segment in [5, ``bptt`` + 20] (Merity et al. 2018, section 5)."""
    mean = bptt if rng.random() < 0.95 else bptt / 2
    # example, bptt 70: most lengths are near 70, about one in twenty is near 35
    return int(min(max(5, round(rng.normal(mean, 5))), bptt + 20))
