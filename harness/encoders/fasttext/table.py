"""A fastText model as a word-vector table with the vectors of its n-grams beside it (Bojanowski et al. 2017).

The word table is that of :mod:`harness.encoders.static.vectors`, its vectors those that fastText gives: the mean of
the word's own vector and those of its n-grams. The n-grams' vectors lie in a second mapped matrix, from which
words outside the vocabulary are composed (equation in section 3.2 of the paper, as a mean). Imports no torch.

An n-gram is ``minn`` to ``maxn`` characters of ``<word>``; a lone ``<`` or ``>`` is none. Its bucket is the
32-bit FNV-1a hash of its UTF-8 bytes, each byte sign-extended before it is mixed in as the C++ original does,
modulo the number of buckets. The end of a sentence, ``</s>``, has no n-grams, but in models of the first
releases, which made no exception of it.
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
"""Raised when the reader makes something else of the same file; part of the table's key."""

EOS = b"</s>"
_BASIS, _PRIME = np.uint32(2166136261), np.uint32(16777619)
_NGRAMS, _KEPT, _FACTS = "ngrams.f32", "kept.npy", "subwords.json"
_WORDS_AT_ONCE = 20_000
_GATHERED = 1 << 26
"""Bytes of n-gram vectors that are summed at once."""


class SubwordTable(VectorTable):
    """An open table of words and n-grams. Pickles and copies by its folder.

    Attributes:
        ngrams: (rows, dim) float32, mapped read-only.
        minn, maxn, buckets: see the module.
        quantised: whether the file was.
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
        kept = np.load(folder / _KEPT) if facts["pruned"] else None
        self._subwords = Subwords(self.minn, self.maxn, self.buckets, kept=kept, plain_eos=facts["old"])

    def __reduce__(self) -> tuple[type[SubwordTable], tuple[Path]]:
        return SubwordTable, (self.folder,)

    def compose(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Vectors from n-grams alone: (len(words), dim) float32, and (len(words),) how many n-grams each is
        the mean of; a word without any has zeros."""
        encoded = [w.encode("utf-8", "replace") for w in words]
        owner, rows = self._subwords.of(encoded)
        counts = np.bincount(owner, minlength=len(words))
        totals = _sums(self.ngrams, rows, counts)
        # a word without n-grams has the sum 0; the clamp makes that 0 / 1 instead of 0 / 0
        return (totals / np.maximum(counts, 1)[:, None]).astype(np.float32), counts


class Subwords:
    """Rows of the n-gram matrix for words.

    Args:
        minn, maxn: shortest and longest n-gram in characters.
        buckets: number of hash buckets.
        kept: (buckets,) int32 row of each bucket, -1 where it was pruned; None = all are there.
        plain_eos: ``</s>`` has n-grams like any word.
    """

    def __init__(
        self, minn: int, maxn: int, buckets: int, *, kept: np.ndarray | None = None, plain_eos: bool = False
    ) -> None:
        self.minn, self.maxn, self.buckets, self.kept = minn, maxn, buckets, kept
        self.plain_eos = plain_eos

    def of(self, words: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """The n-grams of all words: (n,) index of the word, ascending, and (n,) row."""
        none = np.empty(0, np.int64)
        if not self.maxn or not self.buckets or not words:
            return none, none
        owner, hashes = self._hashes(words)
        rows = (hashes % np.uint32(self.buckets)).astype(np.int64)
        if self.kept is not None:
            # pruned buckets are -1: their n-grams are left out, also of the mean's denominator
            rows = self.kept[rows].astype(np.int64)
            owner, rows = owner[rows >= 0], rows[rows >= 0]
        # _hashes() lists all n-grams of one length before those of the next: owner [0 1 0 1] becomes
        # [0 0 1 1]. A stable sort fixes the order of the additions, hence the bits of the sums.
        order = np.argsort(owner, kind="stable")
        return owner[order], rows[order]

    def _hashes(self, words: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Word and hash of every n-gram, all words at once: the hashes of n-grams that begin at one character
        grow together, character by character."""
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
        # numbers of the characters at which an n-gram begins that still fits into its word
        alive = np.flatnonzero(plain[word])
        state = np.full(len(alive), _BASIS, np.uint32)
        owners, hashes = [np.empty(0, np.int64)], [np.empty(0, np.uint32)]
        for n in range(1, self.maxn + 1):
            here = alive + n - 1
            # the clamp only keeps the index valid, the comparison before it decides
            inside = (here < len(starts)) & (word[np.minimum(here, len(starts) - 1)] == word[alive])
            alive, state, here = alive[inside], state[inside], here[inside]
            if not len(alive):
                break
            state = _mix(state, values, starts[here], sizes[here])
            if n >= self.minn:
                good = ~(first[alive] | last[alive]) if n == 1 else np.ones(len(alive), bool)
                owners.append(word[alive[good]])
                hashes.append(state[good])
        return np.concatenate(owners), np.concatenate(hashes)


def _mix(state: np.ndarray, values: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """FNV-1a states after one more character each."""
    for byte in range(int(sizes.max())):
        more = sizes > byte
        # characters of fewer bytes read byte 0 instead and discard the result
        mixed = (state ^ values[np.where(more, starts + byte, 0)]) * _PRIME
        state = np.where(more, mixed, state)
    return state


def _sums(matrix: np.ndarray, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(len(counts), dim) float64: sums of ``matrix[rows]`` over consecutive runs of ``counts`` rows."""
    out = np.zeros((len(counts), matrix.shape[1]))
    ends = np.cumsum(counts)
    most = max(1, _GATHERED // (4 * matrix.shape[1]))
    at = 0
    while at < len(counts):
        offset = int(ends[at - 1]) if at else 0
        # the words whose n-grams end within these rows, and one word at least, however long
        stop = max(at + 1, int(np.searchsorted(ends, offset + most, side="right")))
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
    """The table of a fastText model, read when this is the first time.

    Args:
        path: the model, plain, gzipped or in a zip.
        cache_dir: where tables are kept.
        member: the file wanted inside a zip.

    Raises:
        HarnessError: no fastText model, damaged, or the cache cannot be written.
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
    header, kept = model.header, model.dictionary.kept
    words, dim = model.dictionary.words, header.dim
    rows = model.rows - len(words)
    table = None
    if kept is not None:
        # -1: no row, the bucket was pruned
        table = np.full(header.buckets, -1, dtype=np.int32)
        for bucket, row in kept.items():
            if 0 <= bucket < header.buckets and 0 <= row < rows:
                table[bucket] = row
        np.save(folder / _KEPT, table)
    facts = {"minn": header.minn, "maxn": header.maxn, "buckets": header.buckets, "rows": rows}
    more = {"pruned": table is not None, "quantised": model.quantised, "old": header.old}
    (folder / _FACTS).write_text(json.dumps({**facts, **more}))
    subwords = Subwords(header.minn, header.maxn, header.buckets, kept=table, plain_eos=header.old)
    own = _mapped(raw, len(words), dim)
    grams = _mapped(folder / _NGRAMS, rows, dim)
    write_table(folder, _composed(words, own, grams, subwords), dim=dim, source=path, content=content)
    del own
    raw.unlink()


def _spill(model: Model, words: Path, ngrams: Path) -> None:
    """Write the matrix as it comes, so that no part of a large file is held in memory."""
    # rows of words still to come: with 3 words and blocks of 2 rows, the second block is split after 1 row
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
    words: Sequence[bytes], own: np.ndarray, ngrams: np.ndarray, subwords: Subwords
) -> Iterator[Chunk]:
    """Words and their vectors: the mean of their own and their n-grams'."""
    for at in range(0, len(words), _WORDS_AT_ONCE):
        part = words[at : at + _WORDS_AT_ONCE]
        owner, rows = subwords.of(part)
        counts = np.bincount(owner, minlength=len(part))
        totals = own[at : at + len(part)] + _sums(ngrams, rows, counts)
        vectors = (totals / (counts + 1)[:, None]).astype(np.float32)
        yield Chunk([w.decode("utf-8", "replace") for w in part], vectors, sum(not is_utf8(w) for w in part))
