"""Word vectors from a file: continue with skip-gram and negative sampling (Mikolov et al. 2013b).

A word of the training texts is trained in the row in which the encoder looks it up. A word that the file
lacks gets a new row if it occurs at least twice; rarer words remain unknown, so that the task still learns
what an unknown word is. Rows of all other words stay unchanged. The files contain no output vectors: these
start at zero, as at the beginning of any training, so no row moves before the contexts have been learned. The
same objective is used for GloVe and fastText vectors, whose own ones cannot be continued from the files.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.adaptation.job import AdaptationJob, AdaptationResult
from harness.core.fingerprint import data_fingerprint
from harness.encoders.config import EncoderConfig
from harness.encoders.static.encoder import StaticEncoder
from harness.encoders.static.vector_chunks import Chunk
from harness.encoders.static.vectors import VectorTable, open_vectors, write_table
from harness.errors import HarnessError
from harness.pretraining.word_vectors.common import Sentence
from harness.pretraining.word_vectors.word2vec import (
    BLOCK,
    GensimModel,
    NegativeSampling,
    gensim_model,
    quiet,
    train_block,
)

MIN_COUNT = 2
"""Number of occurrences from which on a new word gets a row."""
MIN_LR = 1e-4
"""Final learning rate (word2vec's)."""
ROWS = 1 << 16
"""Rows that are written at once."""
LOADER = f"{__name__}.load"


def adapt(job: AdaptationJob) -> AdaptationResult:
    """Continue the vectors of a file.

    The folder receives a table in the format of :mod:`harness.encoders.static.vectors`.
    """
    source = job.encoder.files(job.cache_dir)["file"]
    dim = job.encoder.options.get("dim")
    table = open_vectors(
        source,
        cache_dir=job.cache_dir,
        member=job.encoder.text_option("member"),
        dim=dim if isinstance(dim, int) else None,
    )
    lower = bool(job.encoder.options.get("lower_fallback", False))
    sentences = _sentences(table, job, lower=lower)
    counts = _trained_words(table, sentences)
    rows = table.lookup(list(counts))
    model = _build_model(table, counts, rows, job)
    train_epochs(model, [[w for w in s if w in counts] for s in sentences], job)
    # row 0 means that the table lacks the word
    new = [(w, i) for i, (w, row) in enumerate(zip(counts, rows.tolist(), strict=True)) if not row]
    changed = {row: model.wv.vectors[i] for i, row in enumerate(rows.tolist()) if row}
    added = Chunk([w for w, _ in new], model.wv.vectors[[i for _, i in new]])
    chunks = _chunks(_initial_rows(table, job), table, changed, added)
    content = data_fingerprint([table.info.content, job.options.to_config(), job.texts.fingerprint()])
    write_table(job.folder, chunks, dim=table.info.dim, source=source, content=content)
    return AdaptationResult(notes=new_words_note(len(new)))


def new_words_note(count: int) -> list[str]:
    """The remark on words that the file lacks."""
    return [f"{count} words of the training texts were added to the vocabulary"] if count else []


def _sentences(table: VectorTable, job: AdaptationJob, *, lower: bool) -> list[Sentence]:
    """The training texts, each word spelled as the encoder looks it up (lower-cased as a fallback)."""
    texts = [t.words for t in job.texts.train]
    words = sorted({w for text in texts for w in text})
    exact = dict(zip(words, table.lookup(words).tolist(), strict=True))
    lowered = dict(zip(words, table.lookup([w.lower() for w in words]).tolist(), strict=True))
    spelling = {w: w.lower() if lower and not exact[w] and lowered[w] else w for w in words}
    return [[spelling[w] for w in text] for text in texts]


def _trained_words(table: VectorTable, sentences: Sequence[Sentence]) -> dict[str, int]:
    """Counts of the words that are trained, by descending count.

    Raises:
        HarnessError: there are none.
    """
    counts = Counter(w for s in sentences for w in s)
    rows = dict(zip(counts, table.lookup(list(counts)).tolist(), strict=True))
    words = sorted((w for w, n in counts.items() if rows[w] or n >= MIN_COUNT), key=lambda w: (-counts[w], w))
    if not words:
        raise HarnessError(
            "strategy.adapt: no word of the training texts has a vector or occurs twice; "
            "remove strategy.adapt"
        )
    return {w: counts[w] for w in words}


def _initial_rows(table: VectorTable, job: AdaptationJob) -> np.ndarray:
    """(words + 1, dim): the table's rows, or random ones with the same standard deviation."""
    if not job.random_init:
        return table.matrix
    rng = np.random.default_rng([job.seed, 1])
    initial: np.ndarray = rng.standard_normal(table.matrix.shape, dtype=np.float32)
    return initial * np.float32(table.info.std)


def _build_model(
    table: VectorTable, counts: Mapping[str, int], rows: np.ndarray, job: AdaptationJob
) -> GensimModel:
    sgns = NegativeSampling(dim=table.info.dim, lr=job.lr, min_lr=MIN_LR)
    model = gensim_model("Word2Vec", **sgns.gensim(seed=job.seed))
    with quiet():
        model.build_vocab_from_freq(dict(counts), corpus_count=len(job.texts.train))
    model.corpus_total_words = sum(counts.values())
    in_table = rows > 0
    model.wv.vectors[in_table] = _initial_rows(table, job)[rows[in_table]]
    return model


def train_epochs(model: GensimModel, sentences: Sequence[Sentence], job: AdaptationJob) -> None:
    """Train a gensim model for the job's epochs, with the sentences in a new order in each."""
    epochs = float(job.options.epochs)
    total = sum(map(len, sentences)) * epochs
    done = 0.0
    with quiet():
        for epoch in range(math.ceil(epochs)):
            job.report(epoch=epoch + 1, epochs=math.ceil(epochs))
            for block in _blocks(sentences, seed=job.seed, epoch=epoch):
                if done >= total:
                    return
                train_block(model, block, lr=max(MIN_LR, job.lr * (1 - done / total)))
                done += sum(map(len, block))


def _blocks(sentences: Sequence[Sentence], *, seed: int, epoch: int) -> Iterator[list[Sentence]]:
    """Yield the sentences in random order, in blocks of a tenth of the text or :data:`BLOCK` words."""
    order = np.random.default_rng([seed, epoch]).permutation(len(sentences)).tolist()
    max_words = max(1, min(BLOCK, sum(map(len, sentences)) // 10))
    block: list[Sentence] = []
    words = 0
    for number in order:
        block.append(sentences[number])
        words += len(sentences[number])
        if words >= max_words:
            yield block
            block, words = [], 0
    if words:
        yield block


def _chunks(
    initial: np.ndarray, table: VectorTable, changed: Mapping[int, np.ndarray], added: Chunk
) -> Iterator[Chunk]:
    """Yield all words with their vectors, new words last."""
    for at in range(1, len(table) + 1, ROWS):
        numbers = range(at, min(at + ROWS, len(table) + 1))
        vectors = np.array(initial[at : at + len(numbers)])
        for row in numbers:
            if row in changed:
                vectors[row - at] = changed[row]
        yield Chunk([table.word(row) for row in numbers], vectors)
    if added.words:
        yield added


def load(
    *, name: str, path: str, random_init: bool, cache_dir: Path, lower_fallback: bool = True,
    unknown: str = "auto",
) -> StaticEncoder:  # fmt: skip
    """Load the encoder over a table that :func:`adapt` wrote.

    ``path`` is its folder; all other options are those of :func:`harness.encoders.static.encoder.load`.
    """
    return StaticEncoder(
        VectorTable(Path(path)),
        name=name,
        random_init=random_init,
        lower_fallback=lower_fallback,
        unknown=unknown,
    )


def adapted_config(encoder: EncoderConfig, folder: Path) -> EncoderConfig:
    """The encoder's configuration with its table in ``folder``."""
    download = ("url", "sha256", "member", "dim")
    options = {k: v for k, v in encoder.options.items() if k not in download}
    return replace(encoder, target=LOADER, options={**options, "path": str(folder)})
