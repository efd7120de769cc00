"""fastText (Bojanowski et al. 2017): word vectors that also compose words which training never saw.

A word is looked up as it is written, then, where that is asked for, in lower case; any other word is the mean
of the vectors of its n-grams of characters. Only what has none of these is unknown. By default words are not
lower-cased, so that every vector is the one fastText gives.

In a cell :meth:`FastTextEncoder.restrict` makes one table of the words of the data, composed ones included;
strategies that train the embeddings train the rows of this table, each word's its own, and no longer the
n-grams behind them. Before that, and outside cells, composed vectors are constants.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from harness.core.fingerprint import data_fingerprint
from harness.encoders.download import the_file
from harness.encoders.fasttext.files import is_model
from harness.encoders.fasttext.table import SubwordTable, open_fasttext
from harness.encoders.static.encoder import UNKNOWN, StaticEncoder, WordTokenizer
from harness.encoders.static.encoder import load as load_table
from harness.encoders.static.vectors import VectorTable
from harness.errors import HarnessError

__all__ = ["FastTextEncoder", "SubwordTokenizer", "load"]

CODE_VERSION = 1
"""Raised when the same file and options give other states; part of the fingerprint."""

ZEROS = "zeros"
COMPOSED = 3


def load(
    *,
    name: str,
    path: str | Path | None = None,
    random_init: bool = False,
    cache_dir: Path,
    url: str | None = None,
    member: str | None = None,
    dim: int | None = None,
    lower_fallback: bool = False,
    unknown: str = ZEROS,
) -> StaticEncoder:
    """Open a fastText model, or its word vectors as text, as an encoder.

    Args:
        name: as in the configuration.
        path: ``.bin`` or ``.ftz``, plain, gzipped or in a zip; or ``.vec``, which composes nothing.
        random_init: keep the vocabulary, draw the vectors.
        cache_dir: tables and downloads.
        url: where the file is fetched from without a path.
        member: the file wanted inside a zip.
        dim: numbers a word; None = as found. A model says it itself.
        lower_fallback: look a word up in lower case before it is composed.
        unknown: vector of a word without any n-gram: ``zeros`` as in fastText, or as for word vectors
            (:func:`harness.encoders.static.encoder.load`).

    Raises:
        HarnessError: the file cannot be read, ``dim`` is not the model's, or ``unknown`` is not in it.
    """
    file = the_file({"name": name, "path": path, "url": url}, cache_dir)
    if not is_model(file, member=member):
        unknown = "auto" if unknown == ZEROS else unknown
        return load_table(
            name=name,
            path=file,
            random_init=random_init,
            cache_dir=cache_dir,
            member=member,
            dim=dim,
            lower_fallback=lower_fallback,
            unknown=unknown,
        )
    table = open_fasttext(file, cache_dir=cache_dir, member=member)
    if dim not in (None, table.facts.dim):
        raise HarnessError(
            f"{file}: its vectors hold {table.facts.dim} numbers, encoder.dim={dim} does not fit"
        )
    return FastTextEncoder(
        table, name=name, random_init=random_init, lower_fallback=lower_fallback, unknown=unknown
    )


class SubwordTokenizer(WordTokenizer):
    """Words to rows of a table, and beyond them to composed vectors: id ``words + 1 + j`` is the j-th word
    that was composed. See :class:`harness.encoders.base.Tokenizer`.

    Attributes:
        composed: words in the order in which they were composed.
    """

    def __init__(self, table: SubwordTable, *, lower_fallback: bool) -> None:
        super().__init__(table, lower_fallback=lower_fallback)
        self._subwords = table
        self.composed: list[str] = []
        self._blocks: list[np.ndarray] = []

    def vectors(self) -> np.ndarray:
        """(len(composed), H) float32."""
        if not self._blocks:
            return np.zeros((0, self._subwords.facts.dim), np.float32)
        if len(self._blocks) > 1:
            self._blocks = [np.concatenate(self._blocks)]
        return self._blocks[0]

    def coverage(self) -> dict[str, float]:
        """As of word vectors; and by token ``composed_from_subwords``, by type ``types_composed``. Composed
        words are known words: they have a vector of their own."""
        types = sum(how == COMPOSED for how in self._seen.values())
        report = super().coverage()
        tokens = report["words_known"] - report["matched_exact"] - report["matched_lower"]
        return {**report, "composed_from_subwords": tokens, "types_composed": float(types)}

    def _resolve(self, words: set[str]) -> None:
        new = words - self._ids.keys()
        super()._resolve(words)
        missing = sorted(w for w in new if self._ids.get(w, (0, UNKNOWN))[1] == UNKNOWN)
        if not missing or self.restricted:
            return
        vectors, counts = self._subwords.compose(missing)
        found = [w for w, n in zip(missing, counts.tolist(), strict=True) if n]
        first = self._subwords.facts.words + 1 + len(self.composed)
        self._ids |= {w: (first + j, COMPOSED) for j, w in enumerate(found)}
        self.composed += found
        self._blocks.append(vectors[counts > 0])


class FastTextEncoder(StaticEncoder):
    """Word vectors with composed ones for words outside the vocabulary; see the module."""

    tokenizer: SubwordTokenizer

    def __init__(
        self,
        table: SubwordTable,
        *,
        name: str,
        random_init: bool = False,
        lower_fallback: bool = False,
        unknown: str = ZEROS,
    ) -> None:
        super().__init__(
            table, name=name, random_init=random_init, lower_fallback=lower_fallback, unknown=unknown
        )
        self.tokenizer = SubwordTokenizer(table, lower_fallback=lower_fallback)
        self._drawn_vectors = torch.zeros(0, self.hidden_size)

    def restrict(self, words: Iterable[str]) -> None:
        super().restrict(words)
        self._vocabulary = data_fingerprint([self._vocabulary, self.tokenizer.composed])

    def fingerprint(self) -> str:
        return data_fingerprint([super().fingerprint(), "fasttext", CODE_VERSION])

    def _states(self, ids: Tensor) -> Tensor:
        inside = ids < len(self.table)
        if self.tokenizer.restricted or bool(inside.all()):
            return super()._states(ids)
        beyond = self._composed()[torch.where(inside, 0, ids - len(self.table))]
        return torch.where(inside[..., None], super()._states(torch.where(inside, ids, 0)), beyond)

    def _vectors(self, ids: Tensor) -> Tensor:
        known = ids[ids < len(self.table)]
        beyond = self._composed()[ids[ids >= len(self.table)] - len(self.table)]
        return torch.cat([self.table[known], beyond])

    def _composed(self) -> Tensor:
        """(composed words, H); drawn where the encoder is random, those of earlier calls as they were."""
        if not self.random_init:
            return torch.from_numpy(self.tokenizer.vectors()).to(self.table.device)
        more = len(self.tokenizer.composed) - len(self._drawn_vectors)
        if more > 0:
            drawn = torch.randn(more, self.hidden_size) * self._facts.std
            self._drawn_vectors = torch.cat([self._drawn_vectors, drawn])
        return self._drawn_vectors.to(self.table.device)

    def _unknown_vector(self, table: VectorTable, unknown: str) -> np.ndarray:
        if unknown == ZEROS:
            return np.zeros(table.facts.dim, np.float32)
        return super()._unknown_vector(table, unknown)
