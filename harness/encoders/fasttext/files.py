"""Reader of fastText's binary model files (Bojanowski et al. 2017, Joulin et al. 2016).

All numbers are little-endian. A file consists of these parts, in this order:

=============  =========================================================================================
magic          int32 793712314 and an int32 version; the first releases wrote neither
arguments      int32 dim, ws, epoch, minCount, neg, wordNgrams, loss, model, bucket, minn, maxn,
               lrUpdateRate; float64 t
dictionary     int32 entries, words, labels; int64 tokens; int64 number of buckets after pruning (-1: not
               pruned; absent in the first releases); per entry its bytes, a zero byte, int64 count, int8
               kind; then pairs of int32, bucket and row, of the buckets that were not pruned
input matrix   one byte: whether it is quantised (absent in the first releases); then int64 rows, int64
               columns and the float32 values, or a :class:`Quantised`
output matrix  not read
=============  =========================================================================================

Rows of the input matrix are the words in the order of the dictionary, then the buckets. Imports no torch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from harness.encoders.download import resolve_file
from harness.encoders.facts import EncoderFacts
from harness.encoders.static.vector_chunks import check_first_words
from harness.encoders.static.vector_files import open_bytes, read_exactly
from harness.errors import HarnessError

MAGIC = 793712314
NEWEST = 12
SUPERVISED = 3
BLOCK = 16 << 20
_ARGUMENTS = struct.Struct("<12id")
_WORD, _LABEL = 0, 1
_CENTROIDS = 256
_MAX_DIM, _MAX_NGRAM = 100_000, 1000
_MAX_PRUNED_BUCKETS = 1 << 26
_MAX_WORD = 1 << 20


@dataclass(frozen=True, slots=True)
class Header:
    """The arguments that determine how a vector is computed from a word.

    Attributes:
        dim: vector size.
        buckets: number of hash buckets of the n-grams.
        minn, maxn: shortest and longest n-gram in characters; maxn 0 = the model has no n-grams.
        old: written by a release without a magic number.
    """

    dim: int
    buckets: int
    minn: int
    maxn: int
    old: bool = False


@dataclass(slots=True)
class Dictionary:
    """Words and buckets of a model.

    Attributes:
        words: words as bytes, in row order.
        bucket_rows: row of each bucket that was not pruned; None = not pruned.
    """

    words: list[bytes]
    bucket_rows: dict[int, int] | None = None


@dataclass(slots=True)
class Quantised:
    """Product quantiser (Jegou et al. 2011) of vectors; their norms may be quantised separately.

    Attributes:
        codes: (rows, subvectors) uint8.
        centroids: (subvectors, 256, width) float32; a narrower last subvector is zero-padded.
        dim: vector size.
        norms: (rows,) float32; None if the norms were not quantised separately.
    """

    codes: np.ndarray
    centroids: np.ndarray
    dim: int
    norms: np.ndarray | None

    def rows(self, start: int, end: int) -> np.ndarray:
        """Return the decoded rows from ``start`` to ``end``, (end - start, dim) float32."""
        codes = self.codes[start:end]
        # (n, subvectors, width): codes [[7 3]] select centroid 7 of subvector 0 and centroid 3 of subvector 1
        parts = self.centroids[np.arange(codes.shape[1])[None, :], codes]
        # the slice drops the zeros that fill up a narrower last subvector
        out: np.ndarray = parts.reshape(len(codes), -1)[:, : self.dim]
        return out if self.norms is None else out * self.norms[start:end, None]


@dataclass(slots=True)
class Model:
    """An open model file.

    Attributes:
        rows: number of rows of the input matrix.
        quantised: whether the input matrix is quantised.
        blocks: consecutive rows of the input matrix, (n, dim) float32 each; can be iterated once.
    """

    header: Header
    dictionary: Dictionary
    rows: int
    quantised: bool
    blocks: Iterator[np.ndarray] = field(repr=False)


def is_model(path: Path, *, member: str | None = None) -> bool:
    """Return whether a file starts like a fastText model.

    Raises:
        HarnessError: the file cannot be read.
    """
    with open_bytes(path, member) as stream:
        return _header(read_exactly(stream, 8 + _ARGUMENTS.size)) is not None


def check_fasttext(config: Mapping[str, object], cache_dir: Path) -> EncoderFacts:
    """Check the header of a fastText model, or the first lines of word vectors as text (``_check_``).

    Raises:
        HarnessError: it is neither.
    """
    path = resolve_file(config, cache_dir)
    if not is_model(path, member=None if config.get("member") is None else str(config["member"])):
        check_first_words(path, config)
    return EncoderFacts(num_layers=0)


def read_model(stream: IO[bytes], path: Path) -> Model:
    """Read a model up to its input matrix; ``path`` is used in error messages.

    Raises:
        HarnessError: the file is not a fastText model, has an unsupported version, or is damaged or
            incomplete.
    """
    reader = _Reader(stream, path)
    head = reader.take(8)
    magic, version = struct.unpack("<ii", head)
    old = magic != MAGIC
    # without a magic number the 8 bytes already read are the first two arguments
    raw = (head if old else b"") + reader.take(_ARGUMENTS.size - (8 if old else 0))
    header = _arguments(raw, version=0 if old else version)
    if header is None:
        raise reader.error("not a fastText model")
    if not old and version > NEWEST:
        raise HarnessError(
            f"{path}: fastText model of version {version}, but only versions up to {NEWEST} are supported; "
            "save its vectors as text (.vec) and use that file"
        )
    dictionary = _dictionary(reader, header)
    quantised = not old and reader.number("<?") != 0
    rows, blocks = _quantised(reader, header) if quantised else _dense(reader, header)
    buckets = header.buckets if dictionary.bucket_rows is None else len(dictionary.bucket_rows)
    expected = len(dictionary.words) + buckets
    # a model without character n-grams never uses the rows after its words, so their number is not checked
    if rows < len(dictionary.words) or (header.maxn and rows != expected):
        raise reader.error(
            f"the input matrix has {rows} rows for {len(dictionary.words)} words and {buckets} buckets"
        )
    return Model(header, dictionary, rows, quantised, blocks)


def _header(data: bytes) -> Header | None:
    if len(data) < 8 + _ARGUMENTS.size:
        return None
    magic, version = struct.unpack_from("<ii", data)
    # without a magic number the arguments begin at byte 0
    return _arguments(data[8:] if magic == MAGIC else data[:-8], version=version if magic == MAGIC else 0)


def _arguments(raw: bytes, *, version: int) -> Header | None:
    """Parse the arguments; None if fastText cannot have written them. ``version`` 0: none in the file."""
    dim, _, _, _, _, ngrams, loss, model, bucket, minn, maxn, _, _ = _ARGUMENTS.unpack(raw)
    sane = 0 < dim <= _MAX_DIM and 1 <= model <= 3 and 1 <= loss <= 4 and ngrams >= 0
    if not sane or bucket < 0 or not 0 <= minn <= _MAX_NGRAM or not 0 <= maxn <= _MAX_NGRAM:
        return None
    if version == 11 and model == SUPERVISED:  # these classifiers were trained without character n-grams
        maxn = 0
    return Header(dim, bucket, minn, maxn if bucket else 0, old=version == 0)


def _dictionary(reader: _Reader, header: Header) -> Dictionary:
    entries, n_words, n_labels, _ = reader.unpack("<3iq")
    pruned = -1 if header.old else int(reader.number("<q"))
    if min(entries, n_words, n_labels) < 0 or entries != n_words + n_labels or pruned < -1:
        raise reader.error(
            f"the dictionary declares {entries} entries, {n_words} words and {n_labels} labels"
        )
    words = []
    for word, kind in reader.entries(entries):
        if kind not in (_WORD, _LABEL):
            raise reader.error(f"entry {word[:40]!r} of the dictionary has the unknown kind {kind}")
        if kind == _WORD:
            words.append(word)
    if len(words) != n_words:
        raise reader.error(f"the dictionary contains {len(words)} words, but declares {n_words}")
    if pruned < 0:
        return Dictionary(words)
    if header.buckets > _MAX_PRUNED_BUCKETS:
        raise reader.error(f"{pruned} of {header.buckets} buckets were kept: at most {_MAX_PRUNED_BUCKETS}")
    pairs = np.frombuffer(reader.take(8 * pruned), dtype="<i4").reshape(-1, 2)
    return Dictionary(words, dict(pairs.tolist()))


def _dense(reader: _Reader, header: Header) -> tuple[int, Iterator[np.ndarray]]:
    rows, dim = reader.unpack("<2q")
    _check_dim(reader, header, dim)

    def blocks() -> Iterator[np.ndarray]:
        # as many rows as BLOCK bytes hold
        step = max(1, BLOCK // (4 * dim))
        for start in range(0, rows, step):
            n = min(step, rows - start)
            block = np.frombuffer(reader.take(4 * dim * n), dtype="<f4").reshape(n, dim)
            if not np.isfinite(block).all():
                raise reader.error("the input matrix contains values that are not finite")
            yield block

    return rows, blocks()


def _quantised(reader: _Reader, header: Header) -> tuple[int, Iterator[np.ndarray]]:
    with_norms, rows, dim, size = reader.unpack("<?2qi")
    _check_dim(reader, header, dim)
    codes = np.frombuffer(reader.take(size), dtype=np.uint8)
    centroids = _centroids(reader)
    if rows < 0 or size != rows * len(centroids):
        raise reader.error(f"the quantised matrix has {size} codes for {rows} rows")
    norms = None
    if with_norms:
        picked = np.frombuffer(reader.take(rows), dtype=np.uint8)
        # norms have a quantiser of one subvector of width 1: centroids (1, 256, 1)
        norms = _centroids(reader)[0, picked, 0]
    matrix = Quantised(codes.reshape(rows, len(centroids)), centroids, dim, norms)
    step = max(1, BLOCK // (4 * dim))
    return rows, (matrix.rows(at, min(rows, at + step)) for at in range(0, rows, step))


def _centroids(reader: _Reader) -> np.ndarray:
    """Read centroids, (subvectors, 256, width) float32; a narrower last subvector is zero-padded."""
    dim, parts, width, last = reader.unpack("<4i")
    sane = min(dim, parts, width, last) >= 1 and last <= width <= _MAX_DIM
    if not sane or (parts - 1) * width + last != dim:
        raise reader.error(
            f"the quantiser splits {dim} dimensions into {parts} parts of {width}, the last of {last}"
        )
    # The file stores the 256 centroids of each subvector in turn. Example: dim 5 in 3 parts of 2, the last of
    # 1, is 256 x 2, 256 x 2 and 256 x 1 numbers; the last 256 fill [2, :, 0], and [2, :, 1] stays 0.
    flat = np.frombuffer(reader.take(4 * dim * _CENTROIDS), dtype="<f4")
    full = (parts - 1) * width * _CENTROIDS
    out = np.zeros((parts, _CENTROIDS, width), dtype=np.float32)
    out[:-1] = flat[:full].reshape(parts - 1, _CENTROIDS, width)
    out[-1, :, :last] = flat[full:].reshape(_CENTROIDS, last)
    return out


def _check_dim(reader: _Reader, header: Header, dim: int) -> None:
    if dim != header.dim:
        raise reader.error(f"the matrix has {dim} columns, but the arguments declare dim {header.dim}")


class _Reader:
    """Sequential reader of a stream; its errors name the file."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self.stream, self.path = stream, path
        self._ahead = b""

    def take(self, size: int) -> bytes:
        """Read exactly ``size`` bytes."""
        if size < 0:
            raise self.error("the file declares a negative number of bytes")
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        if len(data) < size:
            data += read_exactly(self.stream, size - len(data))
        if len(data) < size:
            raise self.error("the file ends within its input matrix; the copy may be incomplete")
        return data

    def unpack(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def number(self, form: str) -> int:
        return self.unpack(form)[0]

    def entries(self, n: int) -> Iterator[tuple[bytes, int]]:
        """Yield ``n`` dictionary entries: the word's bytes and its kind."""
        # An entry is the word, a zero byte, 8 bytes of count, 1 byte of kind. Example: b"cat" at 0 has its
        # zero byte at end = 3 and its kind at 3 + 9 = 12, and the next entry begins at 3 + 10 = 13.
        buffer, at = self._ahead, 0
        for _ in range(n):
            end = buffer.find(b"\0", at)
            while end < 0 or end + 10 > len(buffer):
                more = self.stream.read(BLOCK)
                if not more:
                    raise self.error("the file ends within its dictionary; the copy may be incomplete")
                buffer, at = buffer[at:] + more, 0
                if len(buffer) > _MAX_WORD + 2 * BLOCK:
                    raise self.error("a word of its dictionary has no end")
                end = buffer.find(b"\0", at)
            yield buffer[at:end], buffer[end + 9]
            at = end + 10
        # bytes after the dictionary have also been read from the stream: take() returns them first
        self._ahead = buffer[at:]

    def error(self, problem: str) -> HarnessError:
        return HarnessError(
            f"{self.path}: {problem}; download the file again, or use its vectors as text (.vec)"
        )
