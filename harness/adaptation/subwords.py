"""fastText models: skip-gram over n-grams goes on (Bojanowski et al. 2017), trained by gensim.

Words and n-grams are trained together, so that composed vectors move, too. Word vectors as text (``.vec``)
have no n-grams and are continued as :mod:`harness.adaptation.word_vectors` does.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.adaptation import word_vectors
from harness.adaptation.job import Job, Told
from harness.adaptation.word_vectors import LEAST, go_on
from harness.encoders.download import resolve_file
from harness.encoders.fasttext.encoder import ZEROS
from harness.encoders.fasttext.files import is_model
from harness.encoders.static.vector_files import open_bytes
from harness.errors import HarnessError
from harness.pretraining.word_vectors.fasttext import MODEL
from harness.pretraining.word_vectors.word2vec import gensim_model, quiet


def adapt(job: Job) -> Told:
    """Continue a fastText model, or its vectors as text.

    Raises:
        HarnessError: a model that gensim cannot continue: a classifier, or a compressed one.
    """
    source, member = resolve_file(job.encoder, job.cache_dir), job.encoder.get("member")
    if not is_model(source, member=member):
        return word_vectors.adapt(job)
    model = _read(source, member)
    if job.random_init:
        _draw(model, seed=job.seed)
    model.seed, model.workers, model.min_count = job.seed, 1, LEAST
    model.random = np.random.RandomState(job.seed)
    sentences = [t.words for t in job.texts.train]
    before = len(model.wv)
    with quiet():
        model.build_vocab(sentences, update=True, min_count=LEAST)
    model.corpus_total_words = sum(map(len, sentences))
    go_on(model, sentences, job)
    _write(model, job.folder / MODEL)
    new = len(model.wv) - before
    return Told(notes=[f"{new} words of the training texts got vectors of their own"] if new else [])


def _read(source: Path, member: str | None) -> Any:
    gensim_model("FastText", vector_size=1)  # says what to install where there is no gensim
    from gensim.models.fasttext import load_facebook_model

    with tempfile.TemporaryDirectory(prefix="adapt-") as work:
        plain = Path(work) / MODEL
        with open_bytes(source, member) as stream, plain.open("wb") as out:
            shutil.copyfileobj(stream, out, 1 << 20)
        try:
            with quiet():
                return load_facebook_model(str(plain))
        except Exception as e:
            raise HarnessError(
                f"{source}: cannot be trained further ({type(e).__name__}: {e}); only models of words, not "
                "compressed, can: leave strategy.adapt out"
            ) from e


def _draw(model: Any, *, seed: int) -> None:
    """All vectors as before any training."""
    draw = np.random.default_rng([seed, 1])
    width = 1.0 / model.vector_size
    for matrix in (model.wv.vectors_vocab, model.wv.vectors_ngrams):
        matrix[:] = draw.uniform(-width, width, matrix.shape)
    for name in ("syn1neg", "syn1"):
        if getattr(model, name, None) is not None:
            getattr(model, name)[:] = 0
    model.wv.adjust_vectors()


def _write(model: Any, path: Path) -> None:
    from gensim.models.fasttext import save_facebook_model

    save_facebook_model(model, str(path))


def placed(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The encoder's configuration with its file in ``folder``."""
    if (folder / MODEL).is_file():
        return {**config, "path": str(folder / MODEL), "url": None, "member": None}
    unknown = "auto" if config.get("unknown", ZEROS) == ZEROS else config["unknown"]
    return word_vectors.placed({**config, "unknown": unknown}, folder)
