"""Word vectors as a memory-mapped table on disk: parsed once, opened in milliseconds, read row by row.

A file is parsed into a cache folder with the float32 matrix, the words and an index from word hashes to rows.
The folder's key is the file's content: a changed file gets a new table, and a moved file keeps its table. Row
0 of the matrix is reserved for the unknown word, so that the mapped matrix can be used directly as an
embedding table. Imports no torch.
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
"""Increment when the same file gives a different table; part of the table's key."""

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
    """Metadata of a table.

    Attributes:
        words: number of distinct words; they are rows 1 to ``words`` of the matrix.
        dim: vector size.
        std: standard deviation over all elements of the vectors.
        duplicates: lines dropped because their word occurred before (the first occurrence is used).
        undecodable: words that were not UTF-8; invalid bytes are replaced by U+FFFD.
        content: fingerprint of the file, its member, and the reader's version.
        sample: digest of some bytes of each part, to detect a damaged table without reading all of it.
    """

    words: int
    dim: int
    std: float
    duplicates: int
    undecodable: int
    content: str
    sample: str


class VectorTable:
    """An open table; see the module docstring. Pickled and copied by its folder's path.

    Attributes:
        info: see :class:`TableInfo`.
        matrix: (words + 1, dim) float32, mapped copy-on-write: writes stay in this process.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info = TableInfo(**json.loads((folder / _FACTS).read_bytes()))
        if self.info.sample != _sample(folder):
            raise ValueError("the table's files differ from those that were written")
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
        """Return the row of each word, (len(words),) int64; 0 for words that are not in the table."""
        encoded = [w.encode("utf-8", "replace") for w in words]
        hashes = _hashes(encoded)
        # position of the first of equal hashes; words with equal hashes are consecutive
        positions = np.searchsorted(self._hashes, hashes)
        # 0 is never the row of a word: it means not found
        rows = np.zeros(len(words), dtype=np.int64)
        for i, (position, value) in enumerate(zip(positions.tolist(), hashes, strict=True)):
            while position < len(self._hashes) and self._hashes[position] == value:
                row = int(self._rows[position])
                if self._word(row) == encoded[i]:
                    rows[i] = row
                    break
                position += 1  # hash collision: try the next word with this hash
        return rows

    def word(self, row: int) -> str:
        """Return the word of a row from 1 to ``info.words``."""
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
    """Open the table of a word-vector file; parse the file on first use.

    Args:
        path: the file, in any format of :mod:`harness.encoders.static.vector_files`.
        cache_dir: folder for tables.
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
    """Return ``reader(folder)`` of the cache folder for ``content``; ``build(folder)`` creates it if missing.

    Args:
        content: the folder's key, see :func:`content_fingerprint`.
        build: writes the table's files into a folder.
        reader: opens the table in a folder.
        path: source file of the table, for error messages.
        cache_dir: folder for tables.

    Raises:
        HarnessError: the cache cannot be written.
    """
    store = Store(cache_dir / "vectors", max_bytes=MAX_BYTES)
    try:
        return store.read(content[:32], build, reader)[0]
    except OSError as e:
        raise _cannot_keep(path, cache_dir, e) from e


def _cannot_keep(path: Path, cache_dir: Path, error: OSError) -> HarnessError:
    return HarnessError(
        f"cache_dir={cache_dir}: the table of {path} cannot be written there ({error.strerror or error}); "
        "set cache_dir=DIR to another folder"
    )


def content_fingerprint(path: Path, *, cache_dir: Path, key: Sequence[Any]) -> str:
    """Return a hex digest of a file's content and of ``key`` (how the file is read).

    The content's digest is cached under the file's path, size, times and inode, so that a new process does
    not have to read a large file only to find that it has not changed.

    Raises:
        HarnessError: the file does not exist, or the cache cannot be written.
    """
    if not path.is_file():
        raise HarnessError(f"{path}: no such word-vector file; set encoder.path=FILE")
    stat = path.stat()
    # ctime too: unlike mtime, programs cannot set it
    identity = [str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
    digest_file = cache_dir / "vectors" / ".seen" / data_fingerprint(identity)[:32]
    try:
        digest = digest_file.read_text()
    except OSError:
        digest = ""
    if len(digest) != 64:
        digest = file_fingerprint(path)
        try:
            write_atomic(digest_file, digest.encode())
        except OSError as e:
            raise _cannot_keep(path, cache_dir, e) from e
    return data_fingerprint([digest, *key])


def _build(folder: Path, path: Path, member: str | None, dim: int | None, content: str) -> None:
    layout = detect(path, member=member, dim=dim)
    write_table(
        folder, read_chunks(path, layout, member=member), dim=layout.dim, source=path, content=content
    )


def write_table(folder: Path, chunks: Iterable[Chunk], *, dim: int, source: Path, content: str) -> None:
    """Write the files of a table.

    Args:
        folder: target folder.
        chunks: words and vectors in row order; the first occurrence of a duplicate word is used.
        dim: vector size.
        source: source file, for error messages.
        content: see :class:`TableInfo`.

    Raises:
        HarnessError: ``chunks`` contain no words.
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
            words, vectors = _drop_duplicates(chunk.words, chunk.vectors, seen)
            encoded = [w.encode() for w in words]
            vectors.tofile(matrix)
            text.write(b"".join(encoded))
            lengths += map(len, encoded)
            hashes.append(_hashes(encoded))
            # in double precision: single precision loses digits over millions of numbers
            total += float(vectors.sum(dtype=np.float64))
            squares += float(np.square(vectors, dtype=np.float64).sum())
        text.write(b"\n")  # an empty file cannot be memory-mapped
    if not seen:
        raise HarnessError(f"{source}: contains no word vectors")
    _write_index(folder, lengths, np.concatenate(hashes))
    n = len(seen) * dim
    # E[x^2] - E[x]^2 may be rounded to less than 0
    std = max(0.0, squares / n - (total / n) ** 2) ** 0.5
    info = TableInfo(
        words=len(seen),
        dim=dim,
        std=std,
        duplicates=read - len(seen),
        undecodable=undecodable,
        content=content,
        sample=_sample(folder),
    )
    (folder / _FACTS).write_text(json.dumps(asdict(info)))


def _drop_duplicates(words: list[str], vectors: np.ndarray, seen: set[str]) -> tuple[list[str], np.ndarray]:
    """Drop words in ``seen`` and repeated words, with their vectors; add the remaining words to ``seen``."""
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
    """Return (n,) uint64 hashes that are the same on every machine and in every process."""
    digests = b"".join(hashlib.blake2b(w, digest_size=8).digest() for w in words)
    return np.frombuffer(digests, dtype="<u8")


def _sample(folder: Path, *, samples: int = 16, width: int = 512) -> str:
    """Return a digest of each file's size and ``samples`` evenly spaced pieces of ``width`` bytes."""
    digest = hashlib.sha256()
    for name in (_MATRIX, _WORDS, _OFFSETS, _HASHES, _ROWS):
        size = os.path.getsize(folder / name)
        digest.update(f"{name} {size} ".encode())
        with (folder / name).open("rb", buffering=0) as f:
            for i in range(samples):
                # evenly spread from the first byte to the last
                f.seek(max(0, size - width) * i // max(1, samples - 1))
                digest.update(f.read(width))
    return digest.hexdigest()


def describe(table: VectorTable) -> dict[str, Any]:
    """Return the fields of :class:`TableInfo` that are stored in a record."""
    return {"file_words": table.info.words, "file_duplicates": table.info.duplicates,
            "file_undecodable": table.info.undecodable}  # fmt: skip
