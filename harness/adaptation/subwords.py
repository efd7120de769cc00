"""fastText models: continue skip-gram over character n-grams (Bojanowski et al. 2017), trained by gensim.

The vectors of words and n-grams are trained together, so the composed vectors of words outside the vocabulary
change, too. An n-gram is trained in the bucket that its hash selects, so different n-grams may share a row::

    vector("cat") = mean of v_word["cat"] and v_ngram[hash(g) % buckets] for g in <ca cat at> <cat cat> <cat>

Word vectors as text (``.vec``) have no n-grams and are continued as :mod:`harness.adaptation.word_vectors`
does.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np

from harness.adaptation import word_vectors
from harness.adaptation.job import AdaptationJob, AdaptationResult
from harness.adaptation.word_vectors import MIN_COUNT, new_words_note, train_epochs
from harness.encoders.config import EncoderConfig
from harness.encoders.fasttext.encoder import ZEROS
from harness.encoders.fasttext.files import is_model
from harness.encoders.static.vector_files import open_bytes
from harness.errors import HarnessError
from harness.pretraining.word_vectors.fasttext import MODEL
from harness.pretraining.word_vectors.word2vec import GensimModel, gensim_model, quiet


def adapt(job: AdaptationJob) -> AdaptationResult:
    """Continue a fastText model, or its vectors as text.

    Raises:
        HarnessError: a model that gensim cannot continue: a classifier or a compressed model.
    """
    source, member = job.encoder.files(job.cache_dir)["file"], job.encoder.text_option("member")
    member = None if member is None else str(member)
    if not is_model(source, member=member):
        return word_vectors.adapt(job)
    model = _read(source, member)
    if job.random_init:
        _randomize(model, seed=job.seed)
    model.seed, model.workers, model.min_count = job.seed, 1, MIN_COUNT
    # gensim draws the vectors of new words from this generator, and the file does not contain its state
    model.random = np.random.RandomState(job.seed)
    sentences = [t.words for t in job.texts.train]
    before = len(model.wv)
    with quiet():
        model.build_vocab(sentences, update=True, min_count=MIN_COUNT)
    model.corpus_total_words = sum(map(len, sentences))
    train_epochs(model, sentences, job)
    _write(model, job.folder / MODEL)
    return AdaptationResult(notes=new_words_note(len(model.wv) - before))


def _read(source: Path, member: str | None) -> GensimModel:
    gensim_model("FastText", vector_size=1)  # raises a helpful error without gensim
    from gensim.models.fasttext import load_facebook_model

    with tempfile.TemporaryDirectory(prefix="adapt-") as work:
        plain = Path(work) / MODEL
        with open_bytes(source, member) as stream, plain.open("wb") as out:
            shutil.copyfileobj(stream, out, 1 << 20)
        try:
            with quiet():
                model: GensimModel = load_facebook_model(str(plain))
        except Exception as e:
            raise HarnessError(
                f"{source}: cannot be trained further ({type(e).__name__}: {e}); only uncompressed models of "
                "words can: remove strategy.adapt"
            ) from e
    return model


def _randomize(model: GensimModel, *, seed: int) -> None:
    """Reset all vectors to fastText's initialisation: uniform in [-1/dim, 1/dim], output vectors zero."""
    rng = np.random.default_rng([seed, 1])
    width = 1.0 / model.vector_size
    for matrix in (model.wv.vectors_vocab, model.wv.vectors_ngrams):
        matrix[:] = rng.uniform(-width, width, matrix.shape)
    # a model has output vectors for negative sampling (syn1neg), for hierarchical softmax (syn1), or both
    for name in ("syn1neg", "syn1"):
        if getattr(model, name, None) is not None:
            getattr(model, name)[:] = 0
    model.wv.adjust_vectors()


def _write(model: GensimModel, path: Path) -> None:
    from gensim.models.fasttext import save_facebook_model

    save_facebook_model(model, str(path))


def adapted_config(encoder: EncoderConfig, folder: Path) -> EncoderConfig:
    """The encoder's configuration with its file in ``folder``."""
    if (folder / MODEL).is_file():
        return encoder.with_options(path=str(folder / MODEL), url=None, member=None)
    unknown = encoder.options.get("unknown", ZEROS)
    changed = encoder.with_options(unknown="auto" if unknown == ZEROS else unknown)
    return word_vectors.adapted_config(changed, folder)
