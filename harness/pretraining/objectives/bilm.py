"""ELMo's objective, the bidirectional language model of Peters et al. 2018, section 3.1 ::

    sum_k  log p(t_k | t_1 .. t_k-1; X, F, S)  +  log p(t_k | t_k+1 .. t_N; X, B, S)

X is the character network and S the softmax, both shared; F and B are the LSTMs of the two directions. A row
consists of neighbouring lines of a document between sentence markers; every batch starts from zero states.
Row lengths are sampled again in every epoch, so that the model sees single sentences as well as longer
passages.

Large vocabularies use an adaptive softmax (Grave et al. 2017), small ones a full softmax. Words that are not
in the vocabulary share one class, but are read by their characters like all others.

**Evaluation.** Each document is read on its own; the sentence markers are not predicted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from harness.data.text import split_words
from harness.encoders.elmo.characters import boundary_ids, character_ids
from harness.encoders.elmo.encoder import ElmoEncoder
from harness.encoders.elmo.files import ElmoOptions
from harness.errors import HarnessError, did_you_mean
from harness.pretraining.base import MAX_EXPONENT, BatchLoss, EvalResult, Objective, TrainingBatch
from harness.pretraining.budget import Recipe
from harness.pretraining.objectives.bilm_model import MARKERS, UNKNOWN, BiLM
from harness.pretraining.text.corpus import Corpus, Document
from harness.pretraining.text.packing import unigram_nll

SOFTMAX = ("auto", "full", "adaptive")
MAX_FULL_SOFTMAX = 12_000
"""Number of classes up to which ``auto`` uses the full softmax."""
MAX_EVAL_ROW = 1_000
"""Words of a held-out document that are read at once."""
POOL = 16
"""Number of batches that are sorted by length together."""
Line: TypeAlias = np.ndarray
"""(words,) int64, word types of a line."""
WordDocument: TypeAlias = Sequence[Sequence[str]]
"""Words of each line of a document."""


class BiLMObjective(Objective[BiLM, None]):
    """Bidirectional language model, see the module.

    Args:
        options: the architecture.
        recipe: optimizer hyperparameters.
        max_vocabulary: maximum number of softmax classes.
        min_frequency: rarer words share the class of unknown ones.
        softmax: ``full``, ``adaptive``, or ``auto`` = by the number of classes.
        row_words: maximum number of words per row; each row draws a limit between a quarter of this and this.
        batch_words: words per step.
    """

    def __init__(
        self,
        options: ElmoOptions,
        recipe: Recipe,
        *,
        max_vocabulary: int,
        min_frequency: int,
        softmax: str,
        row_words: int,
        batch_words: int,
    ) -> None:
        if softmax not in SOFTMAX:
            raise HarnessError(f"encoder.softmax={softmax}: {did_you_mean(softmax, SOFTMAX)}")
        self.family, self.options, self.recipe, self.softmax = "elmo", options, recipe, softmax
        self.max_vocabulary, self.min_frequency = max_vocabulary, min_frequency
        self.row_words, self.batch_words = row_words, batch_words
        self.notes: list[str] = []

    def prepare(self, corpus: Corpus, *, seed: int) -> None:
        self.prepare_words(*(map(_split_lines, part) for part in (corpus.train, corpus.held_out)))

    def prepare_words(self, train: Iterable[WordDocument], test: Iterable[WordDocument]) -> None:
        """Prepare documents whose lines are split into words.

        Words are represented by three numberings: the type (every distinct word of both parts, in the order
        of occurrence), the class of a type in the softmax (unknown words share one), and its characters.
        """
        self.types: dict[str, int] = {}
        self.train = [self._to_types(d) for d in train]
        # held-out words are types as well, but only words of the training text get a class of their own
        counts = Counter(t for document in self.train for line in document for t in line.tolist())
        self.test = [self._to_types(d) for d in test]
        names = list(self.types)
        ranked = sorted(
            (t for t, n in counts.items() if n >= self.min_frequency and names[t] not in MARKERS),
            key=lambda t: (-counts[t], names[t]),
        )[: max(1, self.max_vocabulary - len(MARKERS))]
        self.words = [*MARKERS, *(names[t] for t in ranked)]
        self.classes = np.full(len(names), MARKERS.index(UNKNOWN), dtype=np.int64)
        # types [cat the zyx] with ranked [1 0] (the, cat) have the classes [4 3 0]; 0 is <UNK>
        self.classes[ranked] = np.arange(len(MARKERS), len(self.words))
        length = self.options.max_characters
        self.characters = np.stack([character_ids(w, length=length) for w in names])
        self.tokens_per_epoch = sum(len(line) for document in self.train for line in document)

    def _to_types(self, document: WordDocument) -> list[Line]:
        return [np.array([self.types.setdefault(w, len(self.types)) for w in line], int) for line in document]

    def build(self) -> BiLM:
        encoder = ElmoEncoder(self.options, None, name="elmo", dropout=self.options.dropout)
        large = len(self.words) > MAX_FULL_SOFTMAX
        adaptive = self.softmax == "adaptive" or (self.softmax == "auto" and large)
        return BiLM(encoder, len(self.words), adaptive=adaptive).train()

    def batches(self, *, seed: int, epoch: int) -> Iterator[TrainingBatch]:
        rng = np.random.default_rng([seed, epoch])
        rows = [
            row
            # neighbouring lines stay together, documents are in random order
            for number in rng.permutation(len(self.train)).tolist()
            for row in join_lines(self.train[number], self.row_words, rng)
        ]
        # rows are drawn into pools at random and sorted by length only within a pool
        order = rng.permutation(len(rows)).tolist()
        batches = list(self._sorted_batches([rows[i] for i in order]))
        for number in rng.permutation(len(batches)).tolist():
            yield self.batch(batches[number])

    def _sorted_batches(self, rows: Sequence[Line]) -> Iterator[list[Line]]:
        """Group rows of similar length: a batch takes as many time steps as its longest row."""
        pool: list[Line] = []
        words = 0
        for row in rows:
            pool.append(row)
            words += len(row)
            if words >= POOL * self.batch_words:
                yield from group_rows(sorted(pool, key=len), self.batch_words)
                pool, words = [], 0
        yield from group_rows(sorted(pool, key=len), self.batch_words)

    def batch(self, rows: Sequence[Line]) -> TrainingBatch:
        """Make the input of :meth:`BiLM.forward`.

        Each distinct word's characters are in the batch once. Example: rows with types [7 4] and [7] give
        ``characters`` of 4, 7 and the two sentence markers, and ``words`` [[1 0] [1 -]] (- = padding).
        """
        lengths = np.array([len(row) for row in rows])
        mask = np.arange(max(1, lengths.max()))[None] < lengths[:, None]  # (B, S)
        flat = np.concatenate(rows)
        distinct, index = np.unique(flat, return_inverse=True)
        words, classes = np.zeros(mask.shape, np.int64), np.zeros(mask.shape, np.int64)
        # a Boolean index is filled row by row, the order of `flat`
        words[mask], classes[mask] = index, self.classes[flat]
        markers = boundary_ids(length=self.options.max_characters)
        arrays = {
            # the two sentence markers come last, where shard() and the model look for them
            "characters": np.concatenate([self.characters[distinct], markers]),
            "words": words,
            "classes": classes,
            "mask": mask,
        }
        tensors = {name: torch.from_numpy(a) for name, a in arrays.items()}
        return TrainingBatch(tensors, tokens=len(flat), words=len(flat))

    def shard(self, batch: TrainingBatch, *, rank: int, size: int) -> TrainingBatch:
        """Every ``size``-th row, with the characters of the words in these rows only."""
        rows = {k: batch.tensors[k][rank::size] for k in ("words", "classes", "mask")}
        if not len(rows["mask"]):
            return replace(batch, tensors={})
        characters, mask = batch.tensors["characters"], rows["mask"]
        # this part uses fewer words: renumber them from 0 without gaps
        distinct, index = torch.unique(rows["words"][mask], return_inverse=True)
        words = torch.zeros_like(rows["words"])
        words[mask] = index
        own_characters = torch.cat([characters[distinct], characters[-2:]])
        return replace(batch, tensors={**rows, "words": words, "characters": own_characters})

    def loss(self, model: BiLM, batch: TrainingBatch, carry: None) -> BatchLoss[None]:
        total, positions = model.summed(batch.tensors)
        # the objective is the sum of both directions; their mean is displayed
        return BatchLoss(total / positions, float(total.detach()) / 2, positions)

    @torch.no_grad()
    def evaluate(self, model: BiLM) -> EvalResult:
        device = next(model.parameters()).device
        documents = [np.concatenate(d) for d in self.test]
        rows = [d[at : at + MAX_EVAL_ROW] for d in documents for at in range(0, len(d), MAX_EVAL_ROW)]
        sums = torch.zeros(2, dtype=torch.float64)
        for group in group_rows(sorted(rows, key=len), self.batch_words):
            tensors = {k: v.to(device) for k, v in self.batch(group).tensors.items()}
            nll, is_word = model(tensors)
            # nll is (2, M), one row per direction; sentence markers are not counted
            sums += torch.where(is_word, nll, 0.0).double().sum(1).cpu()
        words = sum(map(len, rows))
        unknown = sum(int((self.classes[row] == 0).sum()) for row in rows)  # class 0 is <UNK>
        directions = zip(("forward", "backward"), sums.tolist(), strict=True)
        return EvalResult(
            float(sums.mean()),
            words,
            words=words,
            unknown_rate=unknown / max(1, words),
            unigram_nll=unigram_nll(
                *((self.classes[line] for d in part for line in d) for part in (self.train, self.test)),
                vocabulary_size=len(self.words),
            ),
            metrics={
                f"perplexity_{name}": math.exp(min(MAX_EXPONENT, nll / max(1, words)))
                for name, nll in directions
            },
        )

    def save(self, model: BiLM, folder: Path) -> None:
        """Write ``options.json`` and ``weights.hdf5``, the published format.

        Also writes ``vocabulary.txt`` and ``softmax.safetensors``, which the encoder does not need but
        further training of the language model does.
        """
        from safetensors.torch import save

        model.encoder.save(folder)
        (folder / "vocabulary.txt").write_text("\n".join([*self.words, ""]), encoding="utf-8")
        softmax = {k: v for k, v in model.state_dict().items() if not k.startswith("encoder.")}
        serialized = save({k: v.detach().cpu().contiguous() for k, v in softmax.items()})
        (folder / "softmax.safetensors").write_bytes(serialized)

    def vocabulary_size(self) -> int:
        return len(self.words)

    def encoder_parameters(self, model: BiLM) -> int:
        return sum(p.numel() for p in model.encoder.parameters())


def _split_lines(document: Document) -> WordDocument:
    return [[line[a:b] for a, b in split_words(line)] for line in document]


def join_lines(lines: Sequence[Line], max_words: int, rng: np.random.Generator) -> Iterator[Line]:
    """Join neighbouring lines up to a length that is drawn for each row; longer lines are split."""
    row: list[Line] = []
    words, limit = 0, _draw_limit(max_words, rng)
    for line in lines:
        for at in range(0, len(line), max_words):
            part = line[at : at + max_words]
            # with limits of 4, lines of 2, 1 and 3 words give rows of 3 (2 + 1) and 3; a part that is longer
            # than the limit is a separate row
            if row and words + len(part) > limit:
                yield np.concatenate(row)
                row, words, limit = [], 0, _draw_limit(max_words, rng)
            row.append(part)
            words += len(part)
    if words:
        yield np.concatenate(row)


def _draw_limit(max_words: int, rng: np.random.Generator) -> int:
    return int(rng.integers(max(1, max_words // 4), max_words + 1))


def group_rows(rows: Sequence[Line], max_words: int) -> Iterator[list[Line]]:
    """Group neighbouring rows into batches of at most ``max_words`` words, at least one row per batch."""
    group: list[Line] = []
    total = 0
    for row in rows:
        if group and total + len(row) > max_words:
            yield group
            group, total = [], 0
        if len(row):
            group.append(row)
            total += len(row)
    if group:
        yield group
