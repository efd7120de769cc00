"""Word vectors as a table on disk: parsed once, opened in milliseconds, read row by row.

A file is parsed into a folder of the cache that holds the float32 matrix, the words and an index from a hash
of a word to its row. The folder's key is the file's content, so a changed file gets a new table and a moved
one keeps its own. Row 0 of the matrix belongs to no word: it is kept free for the unknown word, so that the
mapped file serves as an embedding table as it is. Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from harness.core.cache import Store
from harness.core.files import write_atomic
from harness.core.fingerprint import data_fingerprint, file_fingerprint
from harness.encoders.static.vector_chunks import Chunk, read_chunks
from harness.encoders.static.vector_files import detect
from harness.errors import HarnessError

READER_VERSION = 1
"""Raised when the reader makes something else of the same file; part of the table's key."""

MAX_BYTES = 64 << 30
T = TypeVar("T")
_MATRIX, _WORDS, _OFFSETS, _HASHES, _ROWS, _FACTS = (
    "vectors.f32",
    "words.bin",
    "offsets.npy",
    "hashes.npy",
    "rows.npy",
    "facts.json",
)


@dataclass(frozen=True, slots=True)
class TableInfo:
    """What is known of a table.

    Attributes:
        words: distinct words, rows 1 to ``words`` of the matrix.
        dim: numbers a word.
        std: standard deviation over all numbers.
        duplicates: lines dropped because their word was there before (the first one wins).
        undecodable: words that were not UTF-8; the bytes that were not are U+FFFD now.
        content: fingerprint of the file, its member, and the reader.
        sample: digest of some bytes of each part, which finds a damaged table without reading it all.
    """

    words: int
    dim: int
    std: float
    duplicates: int
    undecodable: int
    content: str
    sample: str


class VectorTable:
    """An open table; see the module. Pickles and copies by its folder.

    Attributes:
        facts: see :class:`TableInfo`.
        matrix: (words + 1, dim) float32, mapped copy-on-write: what is written stays in this process.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info = TableInfo(**json.loads((folder / _FACTS).read_bytes()))
        if self.info.sample != _sample(folder):
            raise ValueError("the parts are not those that were written")
        shape = (self.info.words + 1, self.info.dim)
        self.matrix = np.memmap(folder / _MATRIX, dtype=np.float32, mode="c", shape=shape)
        self._offsets, self._hashes, self._rows = (
            np.asarray(np.load(folder / name, mmap_mode="r")) for name in (_OFFSETS, _HASHES, _ROWS)
        )
        with (folder / _WORDS).open("rb") as f:
            self._words = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)

    def __reduce__(self) -> tuple[type[VectorTable], tuple[Path]]:
        return VectorTable, (self.folder,)

    def lookup(self, words: Sequence[str]) -> np.ndarray:
        """(len(words),) int64: the row of each word, 0 for a word the table does not have."""
        encoded = [w.encode("utf-8", "replace") for w in words]
        hashes = _hashes(encoded)
        # the first of equal hashes; words of the same hash follow each other
        places = np.searchsorted(self._hashes, hashes)
        # 0 is never the row of a word: it means not found
        found = np.zeros(len(words), dtype=np.int64)
        for i, (place, value) in enumerate(zip(places.tolist(), hashes, strict=True)):
            while place < len(self._hashes) and self._hashes[place] == value:
                row = int(self._rows[place])
                if self._word(row) == encoded[i]:
                    found[i] = row
                    break
                place += 1  # another word of the same hash
        return found

    def word(self, row: int) -> str:
        """The word of a row from 1 to ``facts.words``."""
        return self._word(row).decode()

    def _word(self, row: int) -> bytes:
        # words the, cat are stored as thecat with offsets [0 3 6]: row 2 is bytes 3 to 6
        return self._words[self._offsets[row - 1] : self._offsets[row]]

    def __contains__(self, word: str) -> bool:
        return bool(self.lookup([word])[0])

    def __len__(self) -> int:
        """Number of words."""
        return self.info.words


def open_vectors(
    path: Path, *, cache_dir: Path, member: str | None = None, dim: int | None = None
) -> VectorTable:
    """The table of a word-vector file, parsed when this is the first time.

    Args:
        path: the file, in any format of :mod:`harness.encoders.static.vector_files`.
        cache_dir: where tables are kept.
        member, dim: see :func:`harness.encoders.static.vector_files.detect`.

    Raises:
        HarnessError: the file cannot be read as word vectors, or the cache cannot be written.
    """
    content = content_fingerprint(path, cache_dir=cache_dir, key=[member, dim, READER_VERSION])
    return keep_table(
        content, lambda f: _build(f, path, member, dim, content), VectorTable, path=path, cache_dir=cache_dir
    )


def keep_table(
    content: str, build: Callable[[Path], None], reader: Callable[[Path], T], *, path: Path, cache_dir: Path
) -> T:
    """``reader(folder)`` of the cache's folder for ``content``, filled by ``build(folder)`` where it is not
    there.

    Raises:
        HarnessError: the cache cannot be written; ``path`` is the file that the table is of.
    """
    store = Store(cache_dir / "vectors", max_bytes=MAX_BYTES)
    try:
        return store.read(content[:32], build, reader)[0]
    except OSError as e:
        raise _cannot_keep(path, cache_dir, e) from e


def _cannot_keep(path: Path, cache_dir: Path, error: OSError) -> HarnessError:
    return HarnessError(
        f"cache_dir={cache_dir}: the table of {path} cannot be kept there ({error.strerror or error}); "
        "choose another with cache_dir=DIR"
    )


def content_fingerprint(path: Path, *, cache_dir: Path, key: Sequence[Any]) -> str:
    """Hex digest of what a table is made from: a file's content and ``key``, how it is read. The file's own
    digest is kept in the cache beside its size, time and inode, so that a new process need not read a large
    file only to know that it has not changed.

    Raises:
        HarnessError: there is no such file, or the cache cannot be written.
    """
    if not path.is_file():
        raise HarnessError(f"{path}: there is no such file of word vectors; give encoder.path=FILE")
    stat = path.stat()
    # the time of the last change of any kind is one that nobody can set
    seen = [str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
    note = cache_dir / "vectors" / ".seen" / data_fingerprint(seen)[:32]
    try:
        digest = note.read_text()
    except OSError:
        digest = ""
    if len(digest) != 64:
        digest = file_fingerprint(path)
        try:
            write_atomic(note, digest.encode())
        except OSError as e:
            raise _cannot_keep(path, cache_dir, e) from e
    return data_fingerprint([digest, *key])


def _build(folder: Path, path: Path, member: str | None, dim: int | None, content: str) -> None:
    layout = detect(path, member=member, dim=dim)
    write_table(
        folder, read_chunks(path, layout, member=member), dim=layout.dim, source=path, content=content
    )


def write_table(folder: Path, chunks: Iterable[Chunk], *, dim: int, source: Path, content: str) -> None:
    """Write the parts of a table.

    Args:
        folder: where to.
        chunks: words and vectors in the order of the rows; of equal words the first counts.
        dim: numbers a word.
        source: the file they are from, for messages.
        content: see :class:`TableInfo`.

    Raises:
        HarnessError: there are no words.
    """
    seen: set[str] = set()
    read, undecodable, total, squares = 0, 0, 0.0, 0.0
    with (folder / _MATRIX).open("wb") as matrix, (folder / _WORDS).open("wb") as text:
        matrix.write(bytes(4 * dim))  # row 0, the unknown word's
        lengths: list[int] = []
        hashes: list[np.ndarray] = []
        for chunk in chunks:
            read += len(chunk.words)
            undecodable += chunk.undecodable
            words, vectors = _first_ones(chunk.words, chunk.vectors, seen)
            encoded = [w.encode() for w in words]
            vectors.tofile(matrix)
            text.write(b"".join(encoded))
            lengths += map(len, encoded)
            hashes.append(_hashes(encoded))
            # in double precision: single precision loses digits over millions of numbers
            total += float(vectors.sum(dtype=np.float64))
            squares += float(np.square(vectors, dtype=np.float64).sum())
        text.write(b"\n")  # so that the file is never empty: nothing cannot be mapped
    if not seen:
        raise HarnessError(f"{source}: holds no word vectors")
    _write_index(folder, lengths, np.concatenate(hashes))
    n = len(seen) * dim
    # E[x^2] - E[x]^2 may be rounded to less than 0
    std = max(0.0, squares / n - (total / n) ** 2) ** 0.5
    facts = TableInfo(
        words=len(seen),
        dim=dim,
        std=std,
        duplicates=read - len(seen),
        undecodable=undecodable,
        content=content,
        sample=_sample(folder),
    )
    (folder / _FACTS).write_text(json.dumps(asdict(facts)))


def _first_ones(words: list[str], vectors: np.ndarray, seen: set[str]) -> tuple[list[str], np.ndarray]:
    before = len(seen)
    keep = []
    for i, word in enumerate(words):
        if word not in seen:
            seen.add(word)
            keep.append(i)
    # the usual case, without a copy of the vectors
    if len(seen) - before == len(words):
        return words, vectors
    return [words[i] for i in keep], vectors[keep]


def _write_index(folder: Path, lengths: Iterable[int], hashes: np.ndarray) -> None:
    # hashes [9 4 7] of rows 1 2 3 are stored as [4 7 9], rows [2 3 1]; lookup() searches by bisection
    order = np.argsort(hashes, kind="stable")
    np.save(folder / _OFFSETS, np.concatenate([[0], np.cumsum(list(lengths), dtype=np.int64)]))
    np.save(folder / _HASHES, hashes[order])
    np.save(folder / _ROWS, order.astype(np.int64) + 1)


def _hashes(words: Iterable[bytes]) -> np.ndarray:
    """(n,) uint64, the same on every machine and in every process."""
    digests = b"".join(hashlib.blake2b(w, digest_size=8).digest() for w in words)
    return np.frombuffer(digests, dtype="<u8")


def _sample(folder: Path, *, places: int = 16, width: int = 512) -> str:
    digest = hashlib.sha256()
    for name in (_MATRIX, _WORDS, _OFFSETS, _HASHES, _ROWS):
        size = os.path.getsize(folder / name)
        digest.update(f"{name} {size} ".encode())
        with (folder / name).open("rb", buffering=0) as f:
            for place in range(places):
                # evenly spread from the first byte to the last
                f.seek(max(0, size - width) * place // max(1, places - 1))
                digest.update(f.read(width))
    return digest.hexdigest()


def describe(table: VectorTable) -> dict[str, Any]:
    """TableInfo of a table that a record keeps."""
    return {"file_words": table.info.words, "file_duplicates": table.info.duplicates,
            "file_undecodable": table.info.undecodable}  # fmt: skip
