"""word2vec (Mikolov et al. 2013a and b): skip-gram and CBOW with negative sampling, trained by gensim.

Trained in blocks of at most :data:`BLOCK` words, with the documents in a new order in every epoch; the
learning rate falls linearly with the share of the budget that is used. One thread and a vocabulary in a fixed
order make the result a function of the seed, bit for bit.
"""

from __future__ import annotations

import contextlib
import logging
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from harness.errors import HarnessError, did_you_mean
from harness.pretraining.base import Outcome, Run
from harness.pretraining.budget import Budget, TrainingProgress
from harness.pretraining.word_vectors.common import (
    CheckpointManager,
    ProgressReporter,
    Sentence,
    SentenceReader,
    check_format,
    checked_options,
    coverage_result,
    write_vectors,
)

BLOCK = 10_000
"""Words that gensim receives at once: one step."""
OBJECTIVES = ("skipgram", "cbow")
NO_PERPLEXITY = "negative sampling assigns no probability to a text"


class GensimVectors(Protocol):
    """The vectors of a gensim model; ``vectors_vocab`` and ``vectors_ngrams`` are fastText's."""

    vectors: np.ndarray
    vectors_vocab: np.ndarray
    vectors_ngrams: np.ndarray
    index_to_key: list[str]

    def __len__(self) -> int: ...

    def adjust_vectors(self) -> None: ...


class GensimModel(Protocol):
    """The part of gensim's ``Word2Vec`` and ``FastText`` that is used here."""

    wv: GensimVectors
    syn1neg: np.ndarray
    vector_size: int
    seed: int
    workers: int
    min_count: int
    random: np.random.RandomState
    corpus_total_words: int

    def build_vocab(self, sentences: Sequence[Sentence], *, update: bool, min_count: int) -> None: ...

    def build_vocab_from_freq(self, word_freq: dict[str, int], *, corpus_count: int) -> None: ...

    def train(
        self,
        sentences: Sequence[Sentence],
        *,
        total_examples: int,
        epochs: int,
        start_alpha: float,
        end_alpha: float,
        report_delay: float,
    ) -> object: ...


@dataclass(frozen=True, slots=True)
class NegativeSampling:
    """Hyperparameters of skip-gram and CBOW with negative sampling.

    Attributes:
        objective: ``skipgram`` or ``cbow``.
        dim: size of a vector.
        window: maximum distance on either side; each position draws its window from 1 to this.
        negative: negative samples per positive example.
        exponent: of the word counts in the noise distribution.
        sample: subsampling threshold of frequent words; 0 = off.
        lr, min_lr: learning rate at the start and at the end.
    """

    objective: str = "skipgram"
    dim: int = 100
    window: int = 5
    negative: int = 5
    exponent: float = 0.75
    sample: float = 1e-3
    lr: float = 0.025
    min_lr: float = 1e-4

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise HarnessError(
                f"encoder.objective={self.objective}: {did_you_mean(self.objective, OBJECTIVES)}"
            )

    def gensim(self, *, seed: int) -> dict[str, object]:
        """Arguments of gensim's models; the vocabulary is selected and sorted before it is passed."""
        return {
            "sg": int(self.objective == "skipgram"),
            "hs": 0,
            "vector_size": self.dim,
            "window": self.window,
            "negative": self.negative,
            "ns_exponent": self.exponent,
            "sample": self.sample,
            "alpha": self.lr,
            "min_alpha": self.min_lr,
            "min_count": 1,
            "sorted_vocab": 0,
            "seed": seed,
            "workers": 1,
            "batch_words": BLOCK,
            "hashfxn": fixed_hash,
        }


def fixed_hash(word: str) -> int:
    """A hash that is the same in every process, unlike Python's."""
    return zlib.crc32(word.encode())


def gensim_model(name: str, **options: object) -> GensimModel:
    """Build a gensim model by the name of its class.

    Raises:
        HarnessError: gensim is not installed.
    """
    try:
        from gensim import models
    except ImportError as e:
        raise HarnessError(
            f"gensim cannot be imported ({e}): pip install 'transfer-harness[pretrain]'"
        ) from e
    model: GensimModel = getattr(models, name)(**options)
    return model


def train_block(model: GensimModel, block: Sequence[Sentence], *, lr: float) -> None:
    """Train gensim's model on some sentences at a constant learning rate."""
    model.train(block, total_examples=len(block), epochs=1, start_alpha=lr, end_alpha=lr, report_delay=1e9)


class Word2Vec:
    """A :class:`harness.pretraining.base.Pretrainer`.

    Args:
        objective, dim, window, negative, exponent, sample, lr, min_lr: see :class:`NegativeSampling`.
        epochs: passes over the corpus if no budget is given.
        min_count, max_words, lower, across_lines: see
            :class:`~harness.pretraining.word_vectors.common.SentenceReader`.
        format, digits: see :func:`~harness.pretraining.word_vectors.common.write_vectors`; text has a header.
    """

    family = "static"

    @checked_options
    def __init__(
        self, *, objective: str = "skipgram", dim: int = 100, window: int = 5, negative: int = 5,
        exponent: float = 0.75, sample: float = 1e-3, lr: float = 0.025, min_lr: float = 1e-4,
        epochs: float = 5.0, min_count: int = 5, max_words: int | None = None, lower: bool = False,
        across_lines: bool = True, format: str = "text", digits: int = 6,
    ) -> None:  # fmt: skip
        check_format(format)
        self.sgns = NegativeSampling(objective, dim, window, negative, exponent, sample, lr, min_lr)
        self.reader = SentenceReader(lower, across_lines, min_count, max_words)
        self.epochs, self.form, self.digits = epochs, format, digits

    def pretrain(self, run: Run) -> Outcome:
        """Train within the budget and write the vectors."""
        sentences = self.reader.sentences(run.corpus.train)
        counts = self.reader.vocabulary(sentences)
        state = train(
            sentences,
            run,
            counts=counts,
            build=lambda: self.build(seed=run.seed),
            options=self.training_options(),
            sgns=self.sgns,
            budget=run.budget.or_epochs(self.epochs),
        )
        self.write(state.model, run.folder)
        encoder_parameters = state.model.wv.vectors.size + self.ngram_parameters(state.model)
        return Outcome(
            progress=state.progress,
            epochs=state.progress.tokens / sum(map(len, sentences)),
            parameters=encoder_parameters + state.model.syn1neg.size,
            encoder_parameters=encoder_parameters,
            vocabulary=len(counts),
            held_out=coverage_result(run, self.reader, counts, reason=NO_PERPLEXITY),
        )

    def training_options(self) -> dict[str, object]:
        """Everything that determines the training besides corpus and seed."""
        return asdict(self.sgns) | asdict(self.reader)

    def build(self, *, seed: int) -> GensimModel:
        """Build gensim's model without a vocabulary."""
        return gensim_model("Word2Vec", **self.sgns.gensim(seed=seed))

    def write(self, model: GensimModel, folder: Path) -> None:
        write_vectors(
            folder, model.wv.index_to_key, model.wv.vectors, form=self.form, digits=self.digits, header=True
        )

    def ngram_parameters(self, model: GensimModel) -> int:
        """Number of parameters besides the vectors of the words."""
        return 0


@dataclass(slots=True)
class TrainingState:
    """gensim's model and the position in the data; the content of a checkpoint.

    Attributes:
        model: gensim's model.
        progress: what training has consumed.
        epoch, block: position of the next block.
    """

    model: GensimModel
    progress: TrainingProgress
    epoch: int = 0
    block: int = 0


def train(
    sentences: Sequence[Sentence],
    run: Run,
    *,
    counts: Mapping[str, int],
    build: Callable[[], GensimModel],
    options: Mapping[str, object],
    sgns: NegativeSampling,
    budget: Budget,
) -> TrainingState:
    """Train a gensim model within the budget, from the newest checkpoint if there is one.

    Args:
        sentences: of words.
        run: seed, work folder, progress.
        counts: of the words in the vocabulary, in the order of their rows.
        build: builds the model without a vocabulary.
        options: everything that determines the training besides corpus and seed.
        sgns: learning rates.
        budget: not empty.
    """
    checkpoints, report = CheckpointManager[TrainingState](run, options), ProgressReporter(run)
    state = checkpoints.load()
    total = sum(map(len, sentences))
    with quiet():
        if state is None:
            state = TrainingState(build(), TrainingProgress())
            state.model.build_vocab_from_freq(dict(counts), corpus_count=len(sentences))
            state.model.corpus_total_words = total
        else:
            run.report(f"resuming after {state.progress.tokens:,} words")
        blocks: list[list[Sentence]] = []
        while (used := budget.used(state.progress, tokens_per_epoch=total)) < 1:
            if not blocks:
                blocks = list(_blocks(sentences, seed=run.seed, epoch=state.epoch))
            left = budget.tokens_left(state.progress, tokens_per_epoch=total)
            _step(state, _truncate(blocks[state.block], left), sgns=sgns, used=used)
            if state.block == len(blocks):
                state.epoch, state.block, blocks = state.epoch + 1, 0, []
            if checkpoints.due():
                checkpoints.save(state)
            report(state.progress, used)
    return state


def _truncate(block: list[Sentence], words: int | None) -> list[Sentence]:
    """The first ``words`` words of a block; None = all."""
    if words is None or words >= sum(map(len, block)):
        return block
    truncated: list[Sentence] = []
    for sentence in block:
        truncated.append(sentence[:words])
        words -= len(truncated[-1])
        if not words:
            break
    return truncated


def _step(state: TrainingState, block: list[Sentence], *, sgns: NegativeSampling, used: float) -> None:
    begin = time.perf_counter()
    words = sum(map(len, block))
    train_block(state.model, block, lr=sgns.lr + (sgns.min_lr - sgns.lr) * used)
    seconds = time.perf_counter() - begin
    state.progress = state.progress.add(tokens=words, words=words, seconds=seconds)
    state.block += 1


def _blocks(sentences: Sequence[Sentence], *, seed: int, epoch: int) -> Iterator[list[Sentence]]:
    """Yield the sentences of an epoch in random order, in blocks of at most :data:`BLOCK` words."""
    block: list[Sentence] = []
    words = 0
    for number in np.random.default_rng([seed, epoch]).permutation(len(sentences)).tolist():
        sentence = sentences[number]
        if block and words + len(sentence) > BLOCK:
            yield block
            block, words = [], 0
        block.append(sentence)
        words += len(sentence)
    if block:
        yield block


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence gensim, which warns about every small block."""
    logger = logging.getLogger("gensim")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
