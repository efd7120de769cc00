"""A plain text corpus: one sentence or paragraph per line, blank lines between documents; torch-free.

The held-out part is another text, or a share of the documents drawn with a fixed seed, so that all families
and training seeds are evaluated on the same text.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from harness.core.fingerprint import data_fingerprint
from harness.data.reading.files import open_text
from harness.data.reading.log import ReadLog
from harness.data.text import split_words
from harness.errors import HarnessError, did_you_mean

Document: TypeAlias = tuple[str, ...]
"""Lines of a document, stripped, none empty."""
SUFFIXES = (".txt", ".txt.gz")


@dataclass(frozen=True, slots=True)
class Corpus:
    """Training and held-out documents.

    Attributes:
        train, held_out: documents in the order of the corpus.
        fingerprint: hex digest of all documents and of the split.
        notes: remarks on how the text was read.
    """

    train: tuple[Document, ...]
    held_out: tuple[Document, ...]
    fingerprint: str
    notes: tuple[str, ...] = field(default=())

    def words(self, *, held_out: bool = False) -> int:
        """Number of words of a part by the common word splitter."""
        return count_words(self.held_out if held_out else self.train)

    def unigram_perplexity(self) -> float | None:
        """Perplexity per held-out word of a unigram model with add-one smoothing; None without held-out text.

        Any language model must be below it. All words that the training part lacks share one count. Example:
        training ``a a b c`` (counts plus one: a 3, b 2, c 2, unknown 1, total 8) and held-out ``a d`` give
        sqrt(8/3 * 8/1).
        """
        train_counts, test_counts = (_word_counts(part) for part in (self.train, self.held_out))
        if not test_counts:
            return None
        total = train_counts.total() + len(train_counts) + 1
        nats = sum(n * math.log(total / (train_counts[word] + 1)) for word, n in test_counts.items())
        return math.exp(nats / test_counts.total())


def _word_counts(documents: Sequence[Document]) -> Counter[str]:
    return Counter(line[a:b] for document in documents for line in document for a, b in split_words(line))


def count_words(documents: Sequence[Document]) -> int:
    """Number of words by the common word splitter."""
    return sum(len(split_words(line)) for document in documents for line in document)


def read_corpus(
    where: str | Path,
    *,
    held_out: float | str = 0.05,
    split_seed: int = 0,
    encoding: str = "auto",
    column: str = "text",
    split: str = "train",
) -> Corpus:
    """Read a corpus and split it.

    Args:
        where: a text file (``.gz`` is decompressed), or a folder that is searched recursively for ``.txt``
            and ``.txt.gz`` files, read in the order of their paths. The end of a file ends a document. If
            there is no such path: a data set of the hub, ``owner/name``, with one document per row; if some
            rows are empty, these separate documents instead.
        held_out: share of the documents, drawn at random; 0 = none, otherwise at least one document. Or
            another text: a file or folder as for ``where``.
        split_seed: seed of that draw.
        encoding: see :func:`harness.data.reading.files.decode`.
        column, split: of a data set of the hub.

    Raises:
        HarnessError: no such file, no text in it, or nothing left to train on.
    """
    log = ReadLog()
    if _is_hub(str(where)):
        documents = list(_read_hub(str(where), column=column, split=split))
    else:
        documents = _read("corpus", where, encoding, log)
    if not documents:
        raise HarnessError(f"corpus={where}: contains no text; expected one sentence per line")
    if isinstance(held_out, str):
        test = _read("held_out", held_out, encoding, log)
        return _with_held_out_text(documents, test, _remarks(log), where=held_out)
    notes = _remarks(log)
    return split_documents(documents, held_out=held_out, seed=split_seed, notes=notes, where=str(where))


def _remarks(log: ReadLog) -> list[str]:
    return [*log.notes, *log.warnings]


def _read(key: str, where: str | Path, encoding: str, log: ReadLog) -> list[Document]:
    files = corpus_files(Path(where).expanduser(), key=key)
    return [d for path in files for d in _documents(open_text(path, encoding=encoding, log=log))]


def _with_held_out_text(
    train: list[Document], held_out: list[Document], notes: Sequence[str], *, where: str
) -> Corpus:
    if not held_out:
        raise HarnessError(f"held_out={where}: contains no text; expected one sentence per line")
    train_set = set(train)
    if repeated := sum(d in train_set for d in held_out):
        notes = [
            *notes,
            f"held_out={where}: {repeated} of {len(held_out)} documents are in the training text as well",
        ]
    parts = [[list(d) for d in documents] for documents in (train, held_out)]
    return Corpus(tuple(train), tuple(held_out), data_fingerprint(parts), tuple(notes))


def split_documents(
    documents: Sequence[Document], *, held_out: float, seed: int = 0, notes: Sequence[str] = (), where: str
) -> Corpus:
    """Split documents into a training and a held-out part; ``where`` is for messages.

    Raises:
        HarnessError: nothing is left to train on.
    """
    if not 0 <= held_out < 1:
        raise HarnessError(f"held_out={held_out}: expected a share of the documents in [0, 1)")
    count = max(1, round(held_out * len(documents))) if held_out else 0
    if count >= len(documents):
        raise HarnessError(
            f"corpus={where}: has {len(documents)} document(s), so none is left to train on when one is held "
            "out; put blank lines between documents, or set held_out=0"
        )
    test = set(random.Random(seed).sample(range(len(documents)), count))
    return Corpus(
        train=tuple(d for i, d in enumerate(documents) if i not in test),
        held_out=tuple(d for i, d in enumerate(documents) if i in test),
        fingerprint=data_fingerprint([[list(d) for d in documents], held_out, seed]),
        notes=tuple(notes),
    )


def corpus_files(where: Path, *, key: str = "corpus") -> list[Path]:
    """List the text files of a corpus; ``key`` is for messages.

    Raises:
        HarnessError: there are none.
    """
    if not where.is_dir():
        return [where]
    files = sorted(p for p in where.rglob("*") if p.is_file() and p.name.lower().endswith(SUFFIXES))
    if not files:
        raise HarnessError(f"{key}={where}: no {' or '.join(SUFFIXES)} file in this folder")
    return files


def _is_hub(where: str) -> bool:
    named = re.fullmatch(r"[\w.-]+/[\w.-]+", where) and not where.lower().endswith(SUFFIXES)
    return bool(named) and not Path(where).exists()


def _read_hub(dataset: str, *, column: str, split: str) -> Iterator[Document]:
    from harness.data.reading.hub import load_hub

    try:
        table = load_hub(dataset, {"train": split})["train"]
    except HarnessError as e:
        cause = str(e).partition(". Without the hub")[0]
        raise HarnessError(
            f"corpus={dataset}: no such file or folder here, and not available as a data set of the hub "
            f"({cause})"
        ) from e
    if column not in table.columns:
        raise HarnessError(f"corpus={dataset}: column={column}: {did_you_mean(column, table.columns)}")
    texts = [str(value or "") for value in table.data[column]]
    if all(text.strip() for text in texts):
        for text in texts:
            yield tuple(line.strip() for line in text.split("\n") if line.strip())
        return
    # some rows are empty: they separate documents, and a row is a line or several
    yield from _documents(line for text in texts for line in (text.split("\n") if text.strip() else [""]))


def _documents(source: Iterable[str]) -> Iterator[Document]:
    lines: list[str] = []
    for line in source:
        text = line.strip()
        if text:
            lines.append(text)
        elif lines:
            yield tuple(lines)
            lines = []
    if lines:
        yield tuple(lines)
