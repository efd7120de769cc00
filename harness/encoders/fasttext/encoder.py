"""fastText (Bojanowski et al. 2017): word vectors that are composed for out-of-vocabulary words.

A word is looked up as written, then optionally in lower case; the vector of any other word is the mean of the
vectors of its character n-grams. Only words without any of these are unknown. By default words are not
lower-cased, so that every vector equals fastText's.

In a cell :meth:`FastTextEncoder.restrict` builds one table of all words of the data, composed words included.
Strategies that train the embeddings train the rows of this table, one per word, and no longer the n-grams.
Otherwise composed vectors are constants.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from harness.core.fingerprint import data_fingerprint
from harness.encoders.download import resolve_file
from harness.encoders.fasttext.files import is_model
from harness.encoders.fasttext.table import SubwordTable, open_fasttext
from harness.encoders.static.encoder import UNKNOWN, StaticEncoder, WordTokenizer
from harness.encoders.static.vectors import VectorTable, open_vectors
from harness.errors import HarnessError

CODE_VERSION = 1
"""Increment when the same file and options give different states; part of the fingerprint."""

ZEROS = "zeros"
COMPOSED = 3


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
    lower_fallback: bool = False,
    unknown: str = ZEROS,
) -> StaticEncoder:
    """Open a fastText model, or its word vectors as text, as an encoder.

    Args:
        name, random_init, cache_dir, url, sha256, member: see :func:`harness.encoders.static.encoder.load`.
        path: ``.bin`` or ``.ftz``, plain, gzipped or in a zip; or ``.vec``, from which no words can be
            composed.
        dim: vector size; None = as in the file.
        lower_fallback: look a word up in lower case before composing it.
        unknown: vector of a word without n-grams: ``zeros`` as in fastText, or as for word vectors
            (:func:`harness.encoders.static.encoder.load`).

    Raises:
        HarnessError: the file cannot be read, ``dim`` is not the model's, or ``unknown`` is not in the file.
    """
    file = resolve_file({"name": name, "path": path, "url": url, "sha256": sha256}, cache_dir)
    if not is_model(file, member=member):
        vectors = open_vectors(file, cache_dir=cache_dir, member=member, dim=dim)
        unknown = "auto" if unknown == ZEROS else unknown
        return StaticEncoder(
            vectors, name=name, random_init=random_init, lower_fallback=lower_fallback, unknown=unknown
        )
    table = open_fasttext(file, cache_dir=cache_dir, member=member)
    if dim not in (None, table.info.dim):
        raise HarnessError(f"encoder.dim={dim}: the vectors of {file} have size {table.info.dim}")
    return FastTextEncoder(
        table, name=name, random_init=random_init, lower_fallback=lower_fallback, unknown=unknown
    )


class SubwordTokenizer(WordTokenizer):
    """Maps words to rows of a table, and out-of-vocabulary words to composed vectors.

    Id ``words + 1 + j`` is the j-th composed word: in a table of 1000 words, ids 1 to 1000 are rows of the
    table, and 1001 is the first composed word. See :class:`harness.data.tokenizer.Tokenizer`.

    Attributes:
        composed: words in the order in which they were composed.
    """

    def __init__(self, table: SubwordTable, *, lower_fallback: bool) -> None:
        super().__init__(table, lower_fallback=lower_fallback)
        self._subwords = table
        self.composed: list[str] = []
        self._blocks: list[np.ndarray] = []

    def vectors(self) -> np.ndarray:
        """Return the composed vectors, (len(composed), H) float32."""
        if not self._blocks:
            return np.zeros((0, self._subwords.info.dim), np.float32)
        if len(self._blocks) > 1:
            self._blocks = [np.concatenate(self._blocks)]
        return self._blocks[0]

    def coverage(self) -> dict[str, float]:
        """Return the counts of word vectors, plus ``composed_from_subwords`` (tokens) and ``types_composed``.

        Composed words count as known words.
        """
        types = sum(match == COMPOSED for match in self._seen.values())
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
        composed = [w for w, n in zip(missing, counts.tolist(), strict=True) if n]
        first = self._subwords.info.words + 1 + len(self.composed)
        self._ids |= {w: (first + j, COMPOSED) for j, w in enumerate(composed)}
        self.composed += composed
        self._blocks.append(vectors[counts > 0])


class FastTextEncoder(StaticEncoder):
    """Word vectors, with composed vectors for out-of-vocabulary words."""

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
        """Return the composed vectors, (composed words, H); random encoders draw only those of new words."""
        if not self.random_init:
            return torch.from_numpy(self.tokenizer.vectors()).to(self.table.device)
        more = len(self.tokenizer.composed) - len(self._drawn_vectors)
        if more > 0:
            drawn = torch.randn(more, self.hidden_size) * self._info.std
            self._drawn_vectors = torch.cat([self._drawn_vectors, drawn])
        return self._drawn_vectors.to(self.table.device)

    def _unknown_vector(self, table: VectorTable, unknown: str) -> np.ndarray:
        if unknown == ZEROS:
            return np.zeros(table.info.dim, np.float32)
        return super()._unknown_vector(table, unknown)
