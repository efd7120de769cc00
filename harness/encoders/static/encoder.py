"""Static word vectors: word2vec (Mikolov et al. 2013), GloVe (Pennington et al. 2014), fastText's .vec files.

One token per word, no special tokens. A word is looked up as written, then in lower case; all other words
share the unknown word. Its vector is taken from the file if the file contains an unknown word; otherwise it
is drawn from a normal distribution with mean 0 and the table's standard deviation.

The table is the memory-mapped file until :meth:`StaticEncoder.restrict` reduces it to the words of the data:
an encoder is built in milliseconds, and a trained table is no larger than necessary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from harness.core.fingerprint import data_fingerprint
from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import EncoderOutput, TokenBatch, TokenizedWindow
from harness.encoders.base import Encoder, Group
from harness.encoders.download import resolve_file
from harness.encoders.static.vectors import VectorTable, describe, open_vectors
from harness.encoders.word_windows import WordWindow, is_truncated, word_windows
from harness.errors import HarnessError

CODE_VERSION = 1
"""Increment when the same file and options give different states; part of the fingerprint."""

UNKNOWN_NAMES = ("<unk>", "<UNK>", "UNK", "unk")
UNKNOWN, EXACT, LOWER = 0, 1, 2


def load(
    *,
    name: str,
    path: str | Path | None = None,
    random_init: bool = False,
    cache_dir: Path,
    url: str | None = None,
    sha256: str | None = None,
    member: str | None = None,
    dim: int | None = None,
    lower_fallback: bool = True,
    unknown: str = "auto",
) -> StaticEncoder:
    """Open word vectors as an encoder.

    Args:
        name: name in the configuration.
        path: file in any format of :mod:`harness.encoders.static.vector_files`.
        random_init: keep the vocabulary, draw random vectors.
        cache_dir: for tables and downloads.
        url: download address, used if ``path`` is None.
        sha256: expected checksum of the download; None = not verified.
        member: name of the file inside a zip.
        dim: vector size; None = as detected.
        lower_fallback: look a word up in lower case if it is not found as written.
        unknown: ``auto`` (the file's unknown word if it has one, otherwise ``random``), ``random``, or a word
            of the file whose vector is used.

    Raises:
        HarnessError: the file cannot be read as word vectors, or ``unknown`` is not in it.
    """
    file = resolve_file({"name": name, "path": path, "url": url, "sha256": sha256}, cache_dir)
    table = open_vectors(file, cache_dir=cache_dir, member=member, dim=dim)
    return StaticEncoder(
        table, name=name, random_init=random_init, lower_fallback=lower_fallback, unknown=unknown
    )


class WordTokenizer:
    """Maps words to table rows; id 0 is the unknown word. See :class:`harness.data.tokenizer.Tokenizer`."""

    def __init__(self, table: VectorTable, *, lower_fallback: bool) -> None:
        self.pad: Mapping[str, float] = {"input_ids": 0}
        self.lower_fallback = lower_fallback
        self.restricted = False
        self._table = table
        self._ids: dict[str, tuple[int, int]] = {}  # word -> (id, kind of match)
        self._seen: dict[str, int] = {}
        self._counts = {"words": 0, "words_known": 0, "matched_exact": 0, "matched_lower": 0, "texts_cut": 0}

    def tokenize(self, texts: Sequence[Text], windowing: WindowOptions) -> list[list[TokenizedWindow]]:
        """Return windows of words; ``max_length`` counts words."""
        words = [text.words for text in texts]
        self._resolve({word for words_of_text in words for word in words_of_text})
        out = []
        for text in texts:
            windows = word_windows(text, windowing, self._inputs)
            out.append(windows)
            self._counts["texts_cut"] += is_truncated(windows, text, windowing)
        self._count(words)
        return out

    def tokenize_pairs(
        self, pairs: Sequence[tuple[Text, Text]], windowing: WindowOptions
    ) -> list[list[TokenizedWindow]]:
        """Not supported, since word vectors have no separators: always an error."""
        raise HarnessError(
            "word vectors encode the two texts of a pair separately: set encoder.pairs=separate"
        )

    def coverage(self) -> dict[str, float]:
        """Return counts of tokens, types, texts and the file's words.

        Tokens: ``words``, ``words_known``, ``matched_exact``, ``matched_lower``. Types: ``types``,
            ``types_known``.
        Texts: ``texts_cut``. File: ``file_words``, ``file_duplicates``, ``file_undecodable``.
        """
        known = sum(match != UNKNOWN for match in self._seen.values())
        types = {"types": len(self._seen), "types_known": known}
        return {k: float(v) for k, v in {**self._counts, **types, **describe(self._table)}.items()}

    def restrict(self, words: Iterable[str]) -> np.ndarray:
        """Renumber the rows that ``words`` use from 1 on, in the file's order; return these rows, (n,) int64.

        Example: if "cat" is row 7 and "the" row 3 of the file, they get the ids 2 and 1, and [3, 7] is
            returned.
        """
        vocabulary = set(words)
        self._ids = {w: v for w, v in self._ids.items() if w in vocabulary}
        self._resolve(vocabulary)
        # sorted, so that the mapped file is read from front to back
        rows = np.array(sorted({i for i, match in self._ids.values() if match != UNKNOWN}), dtype=np.int64)
        # + 1: id 0 remains the unknown word
        new_ids = {row: n + 1 for n, row in enumerate(rows.tolist())}
        self._ids = {w: (new_ids.get(i, 0), match) for w, (i, match) in self._ids.items()}
        self.restricted = True
        return rows

    def _resolve(self, words: set[str]) -> None:
        """Look up new words; after :meth:`restrict` all new words are unknown."""
        # sorted, since the order of a set of strings differs between processes
        new = sorted(words - self._ids.keys())
        if not new or self.restricted:
            return
        # row 0 means that the table does not contain the word
        exact = self._table.lookup(new).tolist()
        self._ids |= {w: (i, EXACT if i else UNKNOWN) for w, i in zip(new, exact, strict=True)}
        missing = [w for w, i in zip(new, exact, strict=True) if not i]
        if self.lower_fallback and missing:
            lower = self._table.lookup([w.lower() for w in missing]).tolist()
            self._ids |= {w: (i, LOWER) for w, i in zip(missing, lower, strict=True) if i}

    def _count(self, texts: Sequence[Sequence[str]]) -> None:
        for words in texts:
            self._counts["words"] += len(words)
            for word in words:
                # words that came after restrict() have no entry: they are unknown
                match = self._ids.get(word, (0, UNKNOWN))[1]
                self._seen[word] = match
                self._counts["words_known"] += match != UNKNOWN
                self._counts["matched_exact"] += match == EXACT
                self._counts["matched_lower"] += match == LOWER

    def _inputs(self, window: WordWindow) -> dict[str, np.ndarray]:
        ids = [self._ids.get(word, (0, UNKNOWN))[0] for word in window.words]
        return {"input_ids": np.array(ids, dtype=np.int64)}


class StaticEncoder(Encoder):
    """An embedding table over words.

    ``table`` is (V + 1, H); row 0 is the unknown word. States at padding are zero.
    """

    tokenizer: WordTokenizer

    def __init__(
        self,
        table: VectorTable,
        *,
        name: str,
        random_init: bool = False,
        lower_fallback: bool = True,
        unknown: str = "auto",
    ) -> None:
        super().__init__()
        self.name, self.hidden_size, self.num_layers, self.max_length = name, table.info.dim, 0, None
        self.pooling, self.pairs = "mean", "separate"
        self.tokenizer = WordTokenizer(table, lower_fallback=lower_fallback)
        self.random_init = random_init
        self._info = table.info
        self._drawn = not random_init  # a random table is drawn after restrict(), or at its first use
        self._vocabulary = ""
        vector = self._unknown_vector(table, unknown)
        # np.zeros allocates lazily, so a large random table costs nothing before it is drawn
        matrix = np.zeros(table.matrix.shape, np.float32) if random_init else np.asarray(table.matrix)
        # a mapped matrix is copy-on-write: the file is not changed
        matrix[0] = vector
        self._first = data_fingerprint(vector.tolist())
        self.table = nn.Parameter(torch.from_numpy(matrix))

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        """Look up the states (B, S, H) in the table."""
        self._draw()
        states = self._states(tokens.inputs["input_ids"])
        # padding has the id 0 too, the unknown word's vector: (B, S, H) * (B, S, 1) sets it to zero
        states = states * tokens.mask[..., None]
        return EncoderOutput(states, hidden_states=states[None] if all_layers else None)

    def restrict(self, words: Iterable[str]) -> None:
        """Keep only the rows of ``words`` and of the unknown word; all other words become unknown.

        Call it once, with every word of the data, before tokenizing for training.

        Raises:
            HarnessError: called a second time; the rows of other words have been dropped.
        """
        if self.tokenizer.restricted:
            raise HarnessError(
                f"encoder {self.name}: its table is already restricted; load the encoder again"
            )
        rows = self.tokenizer.restrict(words)
        with torch.no_grad():
            # row 0 stays in front of the kept rows, as their new ids require
            kept = self._vectors(torch.from_numpy(np.concatenate([[0], rows])).to(self.table.device))
        self.table = nn.Parameter(kept, requires_grad=self.table.requires_grad)
        self._vocabulary = data_fingerprint(rows.tolist())
        self._draw()

    def _states(self, ids: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(ids, self.table)

    def _vectors(self, ids: torch.Tensor) -> torch.Tensor:
        """Return a copy of the vectors of token ids, (..., H)."""
        return self.table[ids]

    def layer_groups(self) -> list[Group]:
        self._draw()
        return [("embeddings", [self.table])]

    def embedding_encoder(self) -> StaticEncoder:
        """Return itself: the encoder is only a table."""
        return self

    def fingerprint(self) -> str:
        """Return a digest of all that determines the states: file, options, the unknown word's vector."""
        return data_fingerprint(
            {
                "content": self._info.content,
                "lower_fallback": self.tokenizer.lower_fallback,
                "unknown": self._first,
                "vocabulary": self._vocabulary,
                "random": self.random_init,
                "version": CODE_VERSION,
            }
        )

    def _unknown_vector(self, table: VectorTable, unknown: str) -> np.ndarray:
        names = [] if unknown == "random" else UNKNOWN_NAMES if unknown == "auto" else [unknown]
        rows = [] if self.random_init else [row for row in table.lookup(list(names)).tolist() if row]
        if rows:
            return np.array(table.matrix[rows[0]])
        if unknown not in ("auto", "random") and not self.random_init:
            raise HarnessError(
                f"encoder.unknown={unknown}: no such word in the vectors of {self.name}; "
                "use auto, random or a word of the file"
            )
        return (torch.randn(table.info.dim) * table.info.std).numpy()

    @torch.no_grad()
    def _draw(self) -> None:
        if not self._drawn:
            self._drawn = True
            # a view: row 0 keeps the unknown word's vector
            rest = self.table[1:]
            rest.copy_(torch.randn(rest.shape) * self._info.std)
