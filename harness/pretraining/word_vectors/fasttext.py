"""fastText (Bojanowski et al. 2017): skip-gram and CBOW over the n-grams of characters of words, trained by
gensim as :mod:`harness.pretraining.word_vectors.word2vec` is, and written as fastText's own ``.bin``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.pretraining.word_vectors.common import checked_options
from harness.pretraining.word_vectors.word2vec import Word2Vec, gensim_model

MODEL = "model.bin"


class FastText(Word2Vec):
    """A :class:`harness.pretraining.base.Pretrainer`.

    Args:
        minn, maxn: shortest and longest n-gram in characters, the word's marks ``<`` and ``>`` included.
        buckets: what n-grams are hashed into: so many rows has the table beside those of the words.
        options: as for :class:`~harness.pretraining.word_vectors.word2vec.Word2Vec`, without ``format`` and ``digits``.
    """

    family = "fasttext"

    @checked_options
    def __init__(self, *, minn: int = 3, maxn: int = 6, buckets: int = 2_000_000, **options: Any) -> None:
        super().__init__(**options)
        if not 1 <= minn <= maxn:
            raise HarnessError(f"encoder.minn={minn}, maxn={maxn}: 1 <= minn <= maxn is wanted")
        self.minn, self.maxn, self.buckets = minn, maxn, buckets

    def options(self) -> dict[str, Any]:
        return super().options() | {"minn": self.minn, "maxn": self.maxn, "buckets": self.buckets}

    def model(self, *, seed: int) -> Any:
        more = {"min_n": self.minn, "max_n": self.maxn, "bucket": self.buckets, "word_ngrams": 1}
        return gensim_model("FastText", **self.settings.gensim(seed=seed), **more)

    def write(self, model: Any, folder: Path) -> None:
        from gensim.models.fasttext import save_facebook_model

        save_facebook_model(model, str(folder / MODEL))

    def more(self, model: Any) -> int:
        return int(model.wv.vectors_ngrams.size)
