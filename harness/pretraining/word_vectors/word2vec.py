"""word2vec (Mikolov et al. 2013a and b): skip-gram and CBOW with negative sampling, trained by gensim.

Trained in blocks of at most :data:`BLOCK` words, documents in a new order every pass; the rate falls linearly
with the share of the budget that is used. One thread and a vocabulary in an order of our own, so the same
seed gives the same bits.
"""

from __future__ import annotations

import contextlib
import logging
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import HarnessError, did_you_mean
from harness.pretraining.base import Budget, Outcome, Run, Seen
from harness.pretraining.word_vectors.common import (
    Keeper,
    Reading,
    Reporter,
    Sentence,
    check_format,
    checked_options,
    measured,
    write_vectors,
)

BLOCK = 10_000
"""Words that are handed over at once: a step."""
OBJECTIVES = ("skipgram", "cbow")
WHY = "negative sampling gives no probability of a text"


@dataclass(frozen=True, slots=True)
class Settings:
    """What gensim is told.

    Attributes:
        objective: ``skipgram`` or ``cbow``.
        dim: numbers a word.
        window: most words on either side; each place draws its own from 1 to this.
        negative: words drawn for each real one.
        exponent: of the words' counts in that draw.
        sample: words more frequent than this share are thinned out; 0 = none.
        lr, min_lr: the rate at the start and at the end.
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

    def gensim(self, *, seed: int) -> dict[str, Any]:
        """Arguments of gensim's models; words are kept and in order before they get there."""
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
    """The same in every process, which Python's own is not."""
    return zlib.crc32(word.encode())


def gensim_model(name: str, **options: Any) -> Any:
    """A model of gensim by the name of its class.

    Raises:
        HarnessError: gensim is not installed.
    """
    try:
        from gensim import models
    except ImportError as e:
        raise HarnessError(
            f"gensim cannot be imported ({e}): pip install 'transfer-harness[pretrain]'"
        ) from e
    return getattr(models, name)(**options)


class Word2Vec:
    """A :class:`harness.pretraining.base.Pretrainer`.

    Args:
        objective, dim, window, negative, exponent, sample, lr, min_lr: see :class:`Settings`.
        epochs: passes when there is no budget.
        min_count, max_words, lower, across_lines: see :class:`~harness.pretraining.word_vectors.common.Reading`.
        format, digits: see :func:`~harness.pretraining.word_vectors.common.write_vectors`; text has a header.
    """

    family = "static"

    @checked_options
    def __init__(
        self,
        *,
        objective: str = "skipgram",
        dim: int = 100,
        window: int = 5,
        negative: int = 5,
        exponent: float = 0.75,
        sample: float = 1e-3,
        lr: float = 0.025,
        min_lr: float = 1e-4,
        epochs: float = 5.0,
        min_count: int = 5,
        max_words: int | None = None,
        lower: bool = False,
        across_lines: bool = True,
        format: str = "text",
        digits: int = 6,
    ) -> None:
        check_format(format)
        self.settings = Settings(objective, dim, window, negative, exponent, sample, lr, min_lr)
        self.reading = Reading(lower, across_lines, min_count, max_words)
        self.epochs, self.form, self.digits = epochs, format, digits

    def pretrain(self, run: Run) -> Outcome:
        """See the module."""
        sentences = self.reading.sentences(run.corpus.train)
        counts = self.reading.vocabulary(sentences)
        trained = train(
            sentences,
            run,
            counts=counts,
            make=lambda: self.model(seed=run.seed),
            options=self.options(),
            settings=self.settings,
            budget=run.budget.or_epochs(self.epochs),
        )
        self.write(trained.model, run.folder)
        return Outcome(
            seen=trained.seen,
            epochs=trained.seen.tokens / sum(map(len, sentences)),
            parameters=trained.model.wv.vectors.size + trained.model.syn1neg.size + self.more(trained.model),
            encoder_parameters=trained.model.wv.vectors.size + self.more(trained.model),
            vocabulary=len(counts),
            held_out=measured(run, self.reading, counts, why=WHY),
        )

    def options(self) -> dict[str, Any]:
        """All that decides the training."""
        return asdict(self.settings) | asdict(self.reading)

    def model(self, *, seed: int) -> Any:
        """gensim's model without a vocabulary."""
        return gensim_model("Word2Vec", **self.settings.gensim(seed=seed))

    def write(self, model: Any, folder: Path) -> None:
        write_vectors(
            folder, model.wv.index_to_key, model.wv.vectors, form=self.form, digits=self.digits, header=True
        )

    def more(self, model: Any) -> int:
        """Parameters beyond the words' vectors."""
        return 0


@dataclass(slots=True)
class Trained:
    """gensim's model, what it has seen, and where in a pass it is."""

    model: Any
    seen: Seen
    epoch: int = 0
    block: int = 0


def train(
    sentences: Sequence[Sentence],
    run: Run,
    *,
    counts: Mapping[str, int],
    make: Any,
    options: Mapping[str, Any],
    settings: Settings,
    budget: Budget,
) -> Trained:
    """Train a model of gensim within the budget, from a checkpoint where there is one.

    Args:
        sentences: of words.
        run: seed, work folder, progress.
        counts: of the words that are kept, in the order of their rows.
        make: makes the model without a vocabulary.
        options: what decides the training beside corpus and seed.
        settings: rates.
        budget: not empty.
    """
    keeper, tell = Keeper(run, options), Reporter(run)
    state = keeper.load()
    total = sum(map(len, sentences))
    with quiet():
        if state is None:
            state = Trained(make(), Seen())
            state.model.build_vocab_from_freq(dict(counts), corpus_count=len(sentences))
            state.model.corpus_total_words = total
        else:
            run.say(f"going on after {state.seen.tokens:,} words")
        blocks: list[list[Sentence]] = []
        while (used := budget.used(state.seen, tokens_per_epoch=total)) < 1:
            if not blocks:
                blocks = list(_blocks(sentences, seed=run.seed, epoch=state.epoch))
            left = budget.tokens_left(state.seen, tokens_per_epoch=total)
            _step(state, _cut(blocks[state.block], left), settings=settings, used=used)
            if state.block == len(blocks):
                state.epoch, state.block, blocks = state.epoch + 1, 0, []
            if keeper.due():
                keeper.save(state)
            tell(state.seen, used)
    return state


def _cut(block: list[Sentence], words: int | None) -> list[Sentence]:
    """The first ``words`` of a block; all of it where that is None."""
    if words is None or words >= sum(map(len, block)):
        return block
    out: list[Sentence] = []
    for sentence in block:
        out.append(sentence[:words])
        words -= len(out[-1])
        if not words:
            break
    return out


def _step(state: Trained, block: list[Sentence], *, settings: Settings, used: float) -> None:
    begin = time.perf_counter()
    rate = settings.lr + (settings.min_lr - settings.lr) * used
    words = sum(map(len, block))
    state.model.train(
        block, total_examples=len(block), epochs=1, start_alpha=rate, end_alpha=rate, report_delay=1e9
    )
    seconds = time.perf_counter() - begin
    state.seen = state.seen.add(tokens=words, words=words, seconds=seconds)
    state.block += 1


def _blocks(sentences: Sequence[Sentence], *, seed: int, epoch: int) -> Iterator[list[Sentence]]:
    """The sentences of a pass in random order, in blocks."""
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
    """gensim finds blocks, or little text, worth a warning each time."""
    logger = logging.getLogger("gensim")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
