"""Word vectors from a file: skip-gram with negative sampling goes on from them (Mikolov et al. 2013b).

A word of the training texts is trained in the row in which the encoder would look it up; a word that the
file lacks gets a row of its own when it is there at least twice, so that rarer ones still teach the task what
an unknown word is. Rows of other words stay as they are. Files hold no output vectors: these start at zero,
as before any training, so nothing moves a row before its contexts are learnt. This holds for GloVe's and
fastText's vectors, too, whose own objectives the files do not suffice for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.adaptation.job import Job, Told
from harness.core.fingerprint import data_fingerprint
from harness.encoders.download import resolve_file
from harness.encoders.static.encoder import StaticEncoder
from harness.encoders.static.vector_chunks import Chunk
from harness.encoders.static.vectors import VectorTable, open_vectors, write_table
from harness.errors import HarnessError
from harness.pretraining.word_vectors.word2vec import BLOCK, Settings, gensim_model, quiet

LEAST = 2
"""Occurrences from which on a new word has a row."""
LOWEST = 1e-4
"""The rate at the end (word2vec's)."""
ROWS = 1 << 16
LOADER = f"{__name__}.load"
Sentence = list[str]


def adapt(job: Job) -> Told:
    """Continue the vectors of a file; the folder gets a table as :mod:`harness.encoders.static.vectors` keeps it."""
    source = resolve_file(job.encoder, job.cache_dir)
    table = open_vectors(
        source, cache_dir=job.cache_dir, member=job.encoder.get("member"), dim=job.encoder.get("dim")
    )
    lower = bool(job.encoder.get("lower_fallback", False))
    sentences = _sentences(table, job, lower=lower)
    counts = _kept(table, sentences)
    rows = table.lookup(list(counts))
    model = _model(table, counts, rows, job)
    go_on(model, [[w for w in s if w in counts] for s in sentences], job)
    new = [(w, i) for i, (w, row) in enumerate(zip(counts, rows.tolist(), strict=True)) if not row]
    changed = {row: model.wv.vectors[i] for i, row in enumerate(rows.tolist()) if row}
    added = Chunk([w for w, _ in new], model.wv.vectors[[i for _, i in new]])
    chunks = _chunks(_start(table, job), table, changed, added)
    content = data_fingerprint([table.info.content, job.options.to_config(), job.texts.fingerprint()])
    write_table(job.folder, chunks, dim=table.info.dim, source=source, content=content)
    return Told(notes=[f"{len(new)} words of the training texts got vectors of their own"] if new else [])


def _sentences(table: VectorTable, job: Job, *, lower: bool) -> list[Sentence]:
    """The training texts in the words that the table has for theirs."""
    texts = [t.words for t in job.texts.train]
    words = sorted({w for text in texts for w in text})
    exact = dict(zip(words, table.lookup(words).tolist(), strict=True))
    small = dict(zip(words, table.lookup([w.lower() for w in words]).tolist(), strict=True))
    name = {w: w.lower() if lower and not exact[w] and small[w] else w for w in words}
    return [[name[w] for w in text] for text in texts]


def _kept(table: VectorTable, sentences: Sequence[Sentence]) -> dict[str, int]:
    """Counts of the words that are trained, the most frequent first.

    Raises:
        HarnessError: there are none.
    """
    counts = Counter(w for s in sentences for w in s)
    known = dict(zip(counts, table.lookup(list(counts)).tolist(), strict=True))
    kept = sorted((w for w, n in counts.items() if known[w] or n >= LEAST), key=lambda w: (-counts[w], w))
    if not kept:
        raise HarnessError(
            "strategy.adapt: no word of the training texts is in the vectors or there twice; leave it out"
        )
    return {w: counts[w] for w in kept}


def _start(table: VectorTable, job: Job) -> np.ndarray:
    """(words + 1, dim): the table's rows, or drawn as those of a random one."""
    if not job.random_init:
        return table.matrix
    draw = np.random.default_rng([job.seed, 1])
    return draw.standard_normal(table.matrix.shape, dtype=np.float32) * np.float32(table.info.std)


def _model(table: VectorTable, counts: Mapping[str, int], rows: np.ndarray, job: Job) -> Any:
    settings = Settings(dim=table.info.dim, lr=job.lr, min_lr=LOWEST)
    model = gensim_model("Word2Vec", **settings.gensim(seed=job.seed))
    with quiet():
        model.build_vocab_from_freq(dict(counts), corpus_count=len(job.texts.train))
    model.corpus_total_words = sum(counts.values())
    known = rows > 0
    model.wv.vectors[known] = _start(table, job)[rows[known]]
    return model


def go_on(model: Any, sentences: Sequence[Sentence], job: Job) -> None:
    """Train a model of gensim for the job's passes, sentences in a new order in each."""
    epochs = float(job.options.epochs)
    total = sum(map(len, sentences)) * epochs
    done = 0.0
    with quiet():
        for epoch in range(math.ceil(epochs)):
            job.tell(epoch=epoch + 1, epochs=math.ceil(epochs))
            for block in _blocks(sentences, seed=job.seed, epoch=epoch):
                if done >= total:
                    return
                rate = max(LOWEST, job.lr * (1 - done / total))
                model.train(
                    block, total_examples=len(block), epochs=1, start_alpha=rate, end_alpha=rate,
                    report_delay=1e9,
                )  # fmt: skip
                done += sum(map(len, block))


def _blocks(sentences: Sequence[Sentence], *, seed: int, epoch: int) -> Iterator[list[Sentence]]:
    """The sentences in random order, a tenth of them or :data:`BLOCK` words at once."""
    order = np.random.default_rng([seed, epoch]).permutation(len(sentences)).tolist()
    most = max(1, min(BLOCK, sum(map(len, sentences)) // 10))
    block: list[Sentence] = []
    words = 0
    for number in order:
        block.append(sentences[number])
        words += len(sentences[number])
        if words >= most:
            yield block
            block, words = [], 0
    if words:
        yield block


def _chunks(
    start: np.ndarray, table: VectorTable, changed: Mapping[int, np.ndarray], added: Chunk
) -> Iterator[Chunk]:
    """All words with their vectors, new ones last."""
    for at in range(1, len(table) + 1, ROWS):
        numbers = range(at, min(at + ROWS, len(table) + 1))
        vectors = np.array(start[at : at + len(numbers)])
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
    """The encoder over a table that :func:`adapt` wrote; ``path`` is its folder, the rest as for
    :func:`harness.encoders.static.encoder.load`."""
    return StaticEncoder(
        VectorTable(Path(path)),
        name=name,
        random_init=random_init,
        lower_fallback=lower_fallback,
        unknown=unknown,
    )


def placed(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The encoder's configuration with its table in ``folder``."""
    out = {k: v for k, v in config.items() if k not in ("url", "member", "dim")}
    return {**out, "path": str(folder), "_target_": LOADER}
