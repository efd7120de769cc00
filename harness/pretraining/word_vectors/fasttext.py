"""fastText (Bojanowski et al. 2017): skip-gram and CBOW over character n-grams of words.

Trained by gensim like :mod:`harness.pretraining.word_vectors.word2vec`, and written as fastText's ``.bin``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.pretraining.word_vectors.common import checked_options
from harness.pretraining.word_vectors.word2vec import GensimModel, Word2Vec, gensim_model

MODEL = "model.bin"


class FastText(Word2Vec):
    """A :class:`harness.pretraining.base.Pretrainer`.

    Args:
        minn, maxn: minimum and maximum n-gram length in characters, the word boundaries ``<`` and ``>``
            included.
        buckets: number of hash buckets for n-grams: rows of the table besides those of the words.
        options: as for :class:`~harness.pretraining.word_vectors.word2vec.Word2Vec`, without ``format`` and
            ``digits``.
    """

    family = "fasttext"

    @checked_options
    def __init__(self, *, minn: int = 3, maxn: int = 6, buckets: int = 2_000_000, **options: Any) -> None:
        super().__init__(**options)
        if not 1 <= minn <= maxn:
            raise HarnessError(f"encoder.minn={minn}, maxn={maxn}: must satisfy 1 <= minn <= maxn")
        self.minn, self.maxn, self.buckets = minn, maxn, buckets

    def training_options(self) -> dict[str, object]:
        ngrams = {"minn": self.minn, "maxn": self.maxn, "buckets": self.buckets}
        return super().training_options() | ngrams

    def build(self, *, seed: int) -> GensimModel:
        ngrams = {"min_n": self.minn, "max_n": self.maxn, "bucket": self.buckets, "word_ngrams": 1}
        return gensim_model("FastText", **self.sgns.gensim(seed=seed), **ngrams)

    def write(self, model: GensimModel, folder: Path) -> None:
        from gensim.models.fasttext import save_facebook_model

        save_facebook_model(model, str(folder / MODEL))

    def ngram_parameters(self, model: GensimModel) -> int:
        return int(model.wv.vectors_ngrams.size)
