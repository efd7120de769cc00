"""A plain text corpus: one sentence or paragraph a line, blank lines between documents; torch-free.

The held-out part is another text, or a share that is drawn by documents with the seed of the division only:
every family and every training seed is measured on the same text.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.fingerprint import data_fingerprint
from harness.data.files import open_text
from harness.data.text import split_words
from harness.errors import HarnessError, did_you_mean

Document = tuple[str, ...]
"""The lines of a document, blanks at their ends removed, none empty."""
ENDINGS = (".txt", ".txt.gz")


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents to train on and documents held out.

    Attributes:
        train, held_out: documents in the order of the corpus.
        fingerprint: hex digest of all documents and of how they were divided.
        notes: what a reader must know of how it was read.
    """

    train: tuple[Document, ...]
    held_out: tuple[Document, ...]
    fingerprint: str
    notes: tuple[str, ...] = field(default=())

    def words(self, *, held_out: bool = False) -> int:
        """Words of a part by the common word splitter."""
        return count_words(self.held_out if held_out else self.train)

    def unigram_perplexity(self) -> float | None:
        """Per held-out word, of the words' own frequencies in the training part: what any language model must
        be below. One is added to each count; words that the training part lacks are one word more. None
        where nothing is held out."""
        counts, asked = (_counted(part) for part in (self.train, self.held_out))
        if not asked:
            return None
        total = counts.total() + len(counts) + 1
        nats = sum(n * math.log(total / (counts[word] + 1)) for word, n in asked.items())
        return math.exp(nats / asked.total())


def _counted(documents: Sequence[Document]) -> Counter[str]:
    return Counter(line[a:b] for document in documents for line in document for a, b in split_words(line))


def count_words(documents: Sequence[Document]) -> int:
    """Words by the common word splitter."""
    return sum(len(split_words(line)) for document in documents for line in document)


def read_corpus(
    where: str | Path,
    *,
    held_out: float | str = 0.05,
    division_seed: int = 0,
    encoding: str = "auto",
    column: str = "text",
    split: str = "train",
) -> Corpus:
    """Read and divide a corpus.

    Args:
        where: a text file (``.gz`` is unpacked), or a folder of ``.txt`` and ``.txt.gz`` files, which are
            read in the order of their paths, folders in it included. The end of a file ends a document. Or,
            where no such path is there, a data set of the hub, ``owner/name``: a row a document; where some
            rows are empty, these are between documents.
        held_out: share of the documents, drawn at random; 0 = none. At least one when it is not 0. Or a text
            of its own: a file or folder as ``where``.
        division_seed: of that draw.
        encoding: see :func:`harness.data.files.decode`.
        column, split: of a data set of the hub.

    Raises:
        HarnessError: no such file, no text in it, or nothing left to train on.
    """
    notes: list[str] = []
    if _is_hub(str(where)):
        documents = list(_hub(str(where), column=column, split=split))
    else:
        documents = _read("corpus", where, encoding, notes)
    if not documents:
        raise HarnessError(f"corpus={where}: holds no text; one sentence a line is wanted")
    if isinstance(held_out, str):
        return _beside(documents, _read("held_out", held_out, encoding, notes), notes, where=held_out)
    return divide(documents, held_out=held_out, seed=division_seed, notes=notes, where=str(where))


def _read(key: str, where: str | Path, encoding: str, notes: list[str]) -> list[Document]:
    files = corpus_files(Path(where).expanduser(), key=key)
    return [d for path in files for d in _documents(open_text(path, encoding=encoding, notes=notes))]


def _beside(train: list[Document], held_out: list[Document], notes: Sequence[str], *, where: str) -> Corpus:
    """Two texts, of which the second is held out."""
    if not held_out:
        raise HarnessError(f"held_out={where}: holds no text; one sentence a line is wanted")
    known = {tuple(d) for d in train}
    if again := sum(tuple(d) in known for d in held_out):
        notes = [*notes, f"held_out={where}: {again} of {len(held_out)} documents are training text as well"]
    parts = [[list(d) for d in documents] for documents in (train, held_out)]
    return Corpus(tuple(train), tuple(held_out), data_fingerprint(parts), tuple(notes))


def divide(
    documents: Sequence[Document], *, held_out: float, seed: int = 0, notes: Sequence[str] = (), where: str
) -> Corpus:
    """Documents as a corpus, a share of them held out; ``where`` is for messages.

    Raises:
        HarnessError: nothing is left to train on.
    """
    if not 0 <= held_out < 1:
        raise HarnessError(f"held_out={held_out}: a share of the documents, from 0 to below 1, is wanted")
    count = max(1, round(held_out * len(documents))) if held_out else 0
    if count >= len(documents):
        raise HarnessError(
            f"corpus={where}: {len(documents)} document, so that none is left to train on when one is held "
            "out; put blank lines between documents, or say held_out=0"
        )
    kept = set(random.Random(seed).sample(range(len(documents)), count))
    return Corpus(
        train=tuple(d for i, d in enumerate(documents) if i not in kept),
        held_out=tuple(d for i, d in enumerate(documents) if i in kept),
        fingerprint=data_fingerprint([[list(d) for d in documents], held_out, seed]),
        notes=tuple(notes),
    )


def corpus_files(where: Path, *, key: str = "corpus") -> list[Path]:
    """The text files of a corpus; ``key`` is for messages.

    Raises:
        HarnessError: there are none.
    """
    if not where.is_dir():
        return [where]
    found = sorted(p for p in where.rglob("*") if p.is_file() and p.name.lower().endswith(ENDINGS))
    if not found:
        raise HarnessError(f"{key}={where}: no {' or '.join(ENDINGS)} file in this folder")
    return found


def _is_hub(where: str) -> bool:
    named = re.fullmatch(r"[\w.-]+/[\w.-]+", where) and not where.lower().endswith(ENDINGS)
    return bool(named) and not Path(where).exists()


def _hub(dataset: str, *, column: str, split: str) -> Iterator[Document]:
    from harness.data.hub import load_hub

    try:
        table = load_hub(dataset, {"train": split})["train"]
    except HarnessError as e:
        said = str(e).partition(". Without the hub")[0]
        raise HarnessError(
            f"corpus={dataset}: no such file or folder here, nor to be had as a data set of the hub ({said})"
        ) from e
    if column not in table.columns:
        raise HarnessError(f"corpus={dataset}: column={column}: {did_you_mean(column, table.columns)}")
    texts = [str(row[column] or "") for row in table.rows]
    if all(text.strip() for text in texts):
        for text in texts:
            yield tuple(line.strip() for line in text.split("\n") if line.strip())
        return
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
