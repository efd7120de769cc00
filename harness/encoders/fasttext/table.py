"""A fastText model as a word-vector table plus a table of n-gram vectors (Bojanowski et al. 2017).

The word table is that of :mod:`harness.encoders.static.vectors`, with the same vectors as fastText: the mean
of the word's input vector and its n-grams' vectors. The n-gram vectors are in a second memory-mapped matrix,
from which out-of-vocabulary words are composed (equation in section 3.2 of the paper, as a mean). Imports no
torch.

An n-gram consists of ``minn`` to ``maxn`` characters of ``<word>``; a single ``<`` or ``>`` is not an n-gram.
Its bucket is the 32-bit FNV-1a hash of its UTF-8 bytes modulo the number of buckets; each byte is
sign-extended first, as in the C++ implementation. The end-of-sentence token ``</s>`` has no n-grams, except
in models of the first releases, which treat it as an ordinary word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from harness.encoders.fasttext.files import Model, read_model
from harness.encoders.static.vector_chunks import Chunk
from harness.encoders.static.vector_files import is_utf8, open_bytes
from harness.encoders.static.vectors import VectorTable, content_fingerprint, keep_table, write_table

SUBWORDS_VERSION = 1
"""Increment when the same file gives a different table; part of the table's key."""

EOS = b"</s>"
_BASIS, _PRIME = np.uint32(2166136261), np.uint32(16777619)
_NGRAMS, _BUCKET_ROWS, _FACTS = "ngrams.f32", "kept.npy", "subwords.json"
_WORDS_AT_ONCE = 20_000
_GATHERED = 1 << 26
"""Maximum number of bytes of n-gram vectors that are gathered and summed at once."""


class SubwordTable(VectorTable):
    """An open table of words and n-grams. Pickled and copied by its folder's path.

    Attributes:
        ngrams: (rows, dim) float32, mapped read-only.
        minn, maxn, buckets: see the module docstring.
        quantised: whether the model was quantised.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        facts = json.loads((folder / _FACTS).read_bytes())
        self.minn, self.maxn, self.buckets = facts["minn"], facts["maxn"], facts["buckets"]
        self.quantised, rows = facts["quantised"], facts["rows"]
        shape = (rows, self.info.dim)
        self.ngrams: np.ndarray = (
            np.memmap(folder / _NGRAMS, dtype=np.float32, mode="r", shape=shape)
            if rows
            else np.empty(shape, np.float32)
        )
        bucket_rows = np.load(folder / _BUCKET_ROWS) if facts["pruned"] else None
        self._subwords = Subwords(
            self.minn, self.maxn, self.buckets, bucket_rows=bucket_rows, plain_eos=facts["old"]
        )

    def __reduce__(self) -> tuple[type[SubwordTable], tuple[Path]]:
        return SubwordTable, (self.folder,)

    def compose(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Compose vectors as means of n-gram vectors; a word without n-grams gets zeros.

        Returns:
            The vectors, (len(words), dim) float32, and the number of n-grams of each word, (len(words),).
        """
        encoded = [w.encode("utf-8", "replace") for w in words]
        owner, rows = self._subwords.of(encoded)
        counts = np.bincount(owner, minlength=len(words))
        totals = _sums(self.ngrams, rows, counts)
        # a word without n-grams has the sum 0; the clamp makes that 0 / 1 instead of 0 / 0
        return (totals / np.maximum(counts, 1)[:, None]).astype(np.float32), counts


class Subwords:
    """Maps words to rows of the n-gram matrix.

    Args:
        minn, maxn: shortest and longest n-gram in characters.
        buckets: number of hash buckets.
        bucket_rows: (buckets,) int32 row of each bucket, -1 if it was pruned; None = not pruned.
        plain_eos: ``</s>`` has n-grams like any other word.
    """

    def __init__(
        self,
        minn: int,
        maxn: int,
        buckets: int,
        *,
        bucket_rows: np.ndarray | None = None,
        plain_eos: bool = False,
    ) -> None:
        self.minn, self.maxn, self.buckets, self.bucket_rows = minn, maxn, buckets, bucket_rows
        self.plain_eos = plain_eos

    def of(self, words: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Return the n-grams of all words: (n,) index of the word, ascending, and (n,) row."""
        none = np.empty(0, np.int64)
        if not self.maxn or not self.buckets or not words:
            return none, none
        owner, hashes = self._hashes(words)
        rows = (hashes % np.uint32(self.buckets)).astype(np.int64)
        if self.bucket_rows is not None:
            # pruned buckets are -1: their n-grams are dropped, also from the mean's denominator
            rows = self.bucket_rows[rows].astype(np.int64)
            owner, rows = owner[rows >= 0], rows[rows >= 0]
        # _hashes() lists all n-grams of one length before those of the next: owner [0 1 0 1] becomes
        # [0 0 1 1]. A stable sort fixes the order of the additions, hence the bits of the sums.
        order = np.argsort(owner, kind="stable")
        return owner[order], rows[order]

    def _hashes(self, words: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Return the word index and hash of every n-gram of all words.

        One hash state per start character is extended by one character at a time: after n characters, the
            states are
        the hashes of all n-grams of length n.
        """
        # Example: the words b"ab" and b"\xc3\xa9" (one character of two bytes) give
        #   data    <  a  b  >  <  c3 a9 >        begin [0 4 8]
        #   starts  0  1  2  3  4  5     7        sizes [1 1 1 1 1 2 1], word [0 0 0 0 1 1 1]
        #   first   at starts 0 and 4 (the <)     last at starts 3 and 7 (the >)
        data = np.frombuffer(b"".join(b"<" + w + b">" for w in words), dtype=np.uint8)
        lengths = np.array([len(w) + 2 for w in words])
        begin = np.concatenate([[0], np.cumsum(lengths)])
        starts = np.flatnonzero((data & 0xC0) != 0x80)  # first bytes of characters
        sizes = np.diff(np.append(starts, len(data)))
        # side=right, so that a < belongs to the word that it begins, not to the one before
        word = np.searchsorted(begin, starts, side="right") - 1
        first, last = starts == begin[word], starts + sizes == begin[word + 1]
        plain = np.array([w != EOS or self.plain_eos for w in words])
        # sign-extended like a C++ signed char: c3 becomes ffffffc3
        values = data.astype(np.int8).astype(np.int32).view(np.uint32)
        # indices of the characters at which an n-gram of the current length starts and fits into its word
        alive = np.flatnonzero(plain[word])
        state = np.full(len(alive), _BASIS, np.uint32)
        owners, hashes = [np.empty(0, np.int64)], [np.empty(0, np.uint32)]
        for n in range(1, self.maxn + 1):
            end = alive + n - 1  # last character of the n-gram
            # the clamp only keeps the index valid, the comparison before it decides
            inside = (end < len(starts)) & (word[np.minimum(end, len(starts) - 1)] == word[alive])
            alive, state, end = alive[inside], state[inside], end[inside]
            if not len(alive):
                break
            state = _mix(state, values, starts[end], sizes[end])
            if n >= self.minn:
                good = ~(first[alive] | last[alive]) if n == 1 else np.ones(len(alive), bool)
                owners.append(word[alive[good]])
                hashes.append(state[good])
        return np.concatenate(owners), np.concatenate(hashes)


def _mix(state: np.ndarray, values: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the FNV-1a states after one more character each."""
    for byte in range(int(sizes.max())):
        more = sizes > byte
        # characters of fewer bytes read byte 0 instead and discard the result
        mixed = (state ^ values[np.where(more, starts + byte, 0)]) * _PRIME
        state = np.where(more, mixed, state)
    return state


def _sums(matrix: np.ndarray, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sum ``matrix[rows]`` over consecutive runs of ``counts`` rows; return (len(counts), dim) float64."""
    out = np.zeros((len(counts), matrix.shape[1]))
    ends = np.cumsum(counts)
    max_rows = max(1, _GATHERED // (4 * matrix.shape[1]))
    at = 0
    while at < len(counts):
        offset = int(ends[at - 1]) if at else 0
        # the words whose n-grams end within these rows, but at least one word
        stop = max(at + 1, int(np.searchsorted(ends, offset + max_rows, side="right")))
        # reduceat() gives a row instead of 0 for an empty run, so words without n-grams are skipped: counts
        # [2 0 1] have ends [2 2 3], words 0 and 2 are summed from rows 0 and 2 on, and word 1 keeps its zeros
        full = np.flatnonzero(counts[at:stop]) + at
        if len(full):
            gathered = matrix[rows[offset : int(ends[stop - 1])]]
            out[full] = np.add.reduceat(
                gathered, ends[full] - counts[full] - offset, axis=0, dtype=np.float64
            )
        at = stop
    return out


def open_fasttext(path: Path, *, cache_dir: Path, member: str | None = None) -> SubwordTable:
    """Open the table of a fastText model; read the model on first use.

    Args:
        path: the model, plain, gzipped or in a zip.
        cache_dir: folder for tables.
        member: name of the file inside a zip.

    Raises:
        HarnessError: the file is not a fastText model or is damaged, or the cache cannot be written.
    """
    content = content_fingerprint(path, cache_dir=cache_dir, key=["fasttext", member, SUBWORDS_VERSION])
    return keep_table(
        content, lambda f: _build(f, path, member, content), SubwordTable, path=path, cache_dir=cache_dir
    )


def _build(folder: Path, path: Path, member: str | None, content: str) -> None:
    raw = folder / "words.f32"
    with open_bytes(path, member) as stream:
        model = read_model(stream, path)
        _spill(model, raw, folder / _NGRAMS)
    header, bucket_rows = model.header, model.dictionary.bucket_rows
    words, dim = model.dictionary.words, header.dim
    rows = model.rows - len(words)
    table = None
    if bucket_rows is not None:
        # -1: the bucket was pruned
        table = np.full(header.buckets, -1, dtype=np.int32)
        for bucket, row in bucket_rows.items():
            if 0 <= bucket < header.buckets and 0 <= row < rows:
                table[bucket] = row
        np.save(folder / _BUCKET_ROWS, table)
    facts = {"minn": header.minn, "maxn": header.maxn, "buckets": header.buckets, "rows": rows}
    more = {"pruned": table is not None, "quantised": model.quantised, "old": header.old}
    (folder / _FACTS).write_text(json.dumps({**facts, **more}))
    subwords = Subwords(header.minn, header.maxn, header.buckets, bucket_rows=table, plain_eos=header.old)
    word_vectors = _mapped(raw, len(words), dim)
    ngrams = _mapped(folder / _NGRAMS, rows, dim)
    write_table(
        folder, _composed(words, word_vectors, ngrams, subwords), dim=dim, source=path, content=content
    )
    del word_vectors
    raw.unlink()


def _spill(model: Model, words: Path, ngrams: Path) -> None:
    """Write the matrix block by block, so that a large file is never in memory as a whole."""
    # number of word rows not yet written: with 3 words and blocks of 2 rows, the second block is split after
    # 1 row
    left = len(model.dictionary.words)
    with words.open("wb") as first, ngrams.open("wb") as second:
        for block in model.blocks:
            np.ascontiguousarray(block[:left], dtype=np.float32).tofile(first)
            np.ascontiguousarray(block[left:], dtype=np.float32).tofile(second)
            left -= min(left, len(block))


def _mapped(path: Path, rows: int, dim: int) -> np.ndarray:
    if not rows:
        return np.empty((0, dim), np.float32)
    return np.memmap(path, dtype=np.float32, mode="r", shape=(rows, dim))


def _composed(
    words: Sequence[bytes], word_vectors: np.ndarray, ngrams: np.ndarray, subwords: Subwords
) -> Iterator[Chunk]:
    """Yield words with their final vectors: the mean of a word's input vector and its n-gram vectors."""
    for at in range(0, len(words), _WORDS_AT_ONCE):
        part = words[at : at + _WORDS_AT_ONCE]
        owner, rows = subwords.of(part)
        counts = np.bincount(owner, minlength=len(part))
        totals = word_vectors[at : at + len(part)] + _sums(ngrams, rows, counts)
        vectors = (totals / (counts + 1)[:, None]).astype(np.float32)
        yield Chunk([w.decode("utf-8", "replace") for w in part], vectors, sum(not is_utf8(w) for w in part))
