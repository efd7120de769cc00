"""Static word vectors: word2vec (Mikolov et al. 2013), GloVe (Pennington et al. 2014), fastText's .vec files.

One token a word, no special tokens. A word is looked up as it is written, then in lower case; what neither
finds is the one unknown word. Its vector is the file's own when the file has one, else a draw from a normal
distribution with the table's standard deviation and mean 0.

The table is the mapped file until :meth:`StaticEncoder.restrict` shrinks it to the words of the data, so an
encoder costs milliseconds to build and a trained table is no larger than it needs to be.
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
from harness.encoders.download import the_file
from harness.encoders.static.vectors import VectorTable, describe, open_vectors
from harness.encoders.word_rows import WordWindow, cut, word_rows
from harness.errors import HarnessError

CODE_VERSION = 1
"""Raised when the same file and options give other states; part of the fingerprint."""

UNKNOWN_NAMES = ("<unk>", "<UNK>", "UNK", "unk")
UNKNOWN, EXACT, LOWER = 0, 1, 2


def load(
    *,
    name: str,
    path: str | Path | None = None,
    random_init: bool = False,
    cache_dir: Path,
    url: str | None = None,
    member: str | None = None,
    dim: int | None = None,
    lower_fallback: bool = True,
    unknown: str = "auto",
) -> StaticEncoder:
    """Open word vectors as an encoder.

    Args:
        name: as in the configuration.
        path: file of any format in :mod:`harness.encoders.static.vector_files`.
        random_init: keep the vocabulary, draw the vectors.
        cache_dir: tables and downloads.
        url: where the file is fetched from without a path.
        member: the file wanted inside a zip.
        dim: numbers a word; None = as found.
        lower_fallback: look a word up in lower case when it is not found as written.
        unknown: ``auto`` (the file's own unknown word if it has one, else ``random``), ``random``, or a word
            of the file whose vector serves.

    Raises:
        HarnessError: the file cannot be read as word vectors, or ``unknown`` is not in it.
    """
    file = the_file({"name": name, "path": path, "url": url}, cache_dir)
    table = open_vectors(file, cache_dir=cache_dir, member=member, dim=dim)
    return StaticEncoder(
        table, name=name, random_init=random_init, lower_fallback=lower_fallback, unknown=unknown
    )


class WordTokenizer:
    """Words to rows of a table; id 0 is the unknown word. See :class:`harness.encoders.base.Tokenizer`."""

    def __init__(self, table: VectorTable, *, lower_fallback: bool) -> None:
        self.pad: Mapping[str, float] = {"input_ids": 0}
        self.lower_fallback = lower_fallback
        self.restricted = False
        self._table = table
        self._ids: dict[str, tuple[int, int]] = {}  # word -> id, how it was found
        self._seen: dict[str, int] = {}
        self._counts = {"words": 0, "words_known": 0, "matched_exact": 0, "matched_lower": 0, "texts_cut": 0}

    def tokenize(self, texts: Sequence[Text], windowing: WindowOptions) -> list[list[TokenizedWindow]]:
        """Windows of words; ``max_length`` counts words."""
        words = [t.words for t in texts]
        self._resolve({w for ws in words for w in ws})
        out = []
        for text, its in zip(texts, words, strict=True):
            ids = np.array([self._ids.get(w, (0, UNKNOWN))[0] for w in its], dtype=np.int64)
            rows = word_rows(text, windowing, lambda win, ids=ids: _slice(ids, win))  # type: ignore[misc]
            out.append(rows)
            self._counts["texts_cut"] += cut(rows, text, windowing)
        self._count(words)
        return out

    def tokenize_pairs(
        self, pairs: Sequence[tuple[Text, Text]], windowing: WindowOptions
    ) -> list[list[TokenizedWindow]]:
        """Word vectors know no separators: always an error."""
        raise HarnessError("word vectors take the two texts of a pair apart: encoder.pairs=separate")

    def coverage(self) -> dict[str, float]:
        """By token ``words``, ``words_known``, ``matched_exact``, ``matched_lower``; by type ``types``,
        ``types_known``; ``texts_cut``; and ``file_words``, ``file_duplicates``, ``file_undecodable``."""
        known = sum(how != UNKNOWN for how in self._seen.values())
        types = {"types": len(self._seen), "types_known": known}
        return {k: float(v) for k, v in {**self._counts, **types, **describe(self._table)}.items()}

    def restrict(self, words: Iterable[str]) -> np.ndarray:
        """Number only the rows that ``words`` use, from 1 on in the file's order; (n,) int64, those rows."""
        wanted = set(words)
        self._ids = {w: v for w, v in self._ids.items() if w in wanted}
        self._resolve(wanted)
        rows = np.array(sorted({i for i, how in self._ids.values() if how != UNKNOWN}), dtype=np.int64)
        new = {row: n + 1 for n, row in enumerate(rows.tolist())}
        self._ids = {w: (new.get(i, 0), how) for w, (i, how) in self._ids.items()}
        self.restricted = True
        return rows

    def _resolve(self, words: set[str]) -> None:
        """Find the words that have not been looked up; after :meth:`restrict` they are unknown."""
        new = sorted(words - self._ids.keys())
        if not new or self.restricted:
            return
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
                how = self._ids.get(word, (0, UNKNOWN))[1]
                self._seen[word] = how
                self._counts["words_known"] += how != UNKNOWN
                self._counts["matched_exact"] += how == EXACT
                self._counts["matched_lower"] += how == LOWER


def _slice(ids: np.ndarray, window: WordWindow) -> dict[str, np.ndarray]:
    return {"input_ids": ids[window.start : window.start + window.length]}


class StaticEncoder(Encoder):
    """An embedding table over words; see the module.

    ``table`` is (V + 1, H), row 0 the unknown word. States at padding are zero.
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
        self.name, self.hidden_size, self.num_layers, self.max_length = name, table.facts.dim, 0, None
        self.pooling, self.pairs = "mean", "separate"
        self.tokenizer = WordTokenizer(table, lower_fallback=lower_fallback)
        self.random_init = random_init
        self._facts = table.facts
        self._drawn = not random_init  # a random table is drawn when its size is known, or first used
        self._vocabulary = ""
        vector = self._unknown_vector(table, unknown)
        # zeros are only promised by the system until they are written: a large random table costs nothing yet
        matrix = np.zeros(table.matrix.shape, np.float32) if random_init else np.asarray(table.matrix)
        matrix[0] = vector
        self._first = data_fingerprint(vector.tolist())
        self.table = nn.Parameter(torch.from_numpy(matrix))

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        """States (B, S, H): the table's rows."""
        self._draw()
        states = self._states(tokens.inputs["input_ids"])
        states = states * tokens.mask[..., None]
        return EncoderOutput(states, hidden_states=states[None] if all_layers else None)

    def restrict(self, words: Iterable[str]) -> None:
        """Keep only the rows that ``words`` use and the unknown word's: call once, with every word of the
        data, before anything is tokenised for training. Other words are unknown from then on.

        Raises:
            HarnessError: called a second time; the rows of other words are gone.
        """
        if self.tokenizer.restricted:
            raise HarnessError(f"encoder {self.name}: its table was restricted before; load it again")
        rows = self.tokenizer.restrict(words)
        with torch.no_grad():
            kept = self._vectors(torch.from_numpy(np.concatenate([[0], rows])).to(self.table.device))
        self.table = nn.Parameter(kept, requires_grad=self.table.requires_grad)
        self._vocabulary = data_fingerprint(rows.tolist())
        self._draw()

    def _states(self, ids: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(ids, self.table)

    def _vectors(self, ids: torch.Tensor) -> torch.Tensor:
        """(..., H): a copy of the vectors of the tokenizer's ids."""
        return self.table[ids]

    def layer_groups(self) -> list[Group]:
        self._draw()
        return [("embeddings", [self.table])]

    def embedding_encoder(self) -> StaticEncoder:
        """Itself: it is nothing but a table."""
        return self

    def fingerprint(self) -> str:
        """Of the file, the options and the unknown word's draw, which all states depend on."""
        return data_fingerprint(
            {
                "content": self._facts.content,
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
                f"encoder.unknown={unknown}: the vectors of {self.name} hold no such word; "
                "give auto, random or a word they hold"
            )
        return (torch.randn(table.facts.dim) * table.facts.std).numpy()

    @torch.no_grad()
    def _draw(self) -> None:
        if not self._drawn:
            self._drawn = True
            rest = self.table[1:]
            rest.copy_(torch.randn(rest.shape) * self._facts.std)
