"""The two families: BERT (Devlin et al. 2019) and related encoders, GPT (Radford et al. 2018,
2019) and related
decoders, from any such checkpoint.

A bidirectional encoder reads ``[CLS] text [SEP]``, a joint pair ``[CLS] a [SEP] b [SEP]`` with segment
embeddings, in the form of the checkpoint's tokenizer. The default row vector is that of the first
token, passed
through the pooler if the checkpoint contains a pretrained one.

A decoder reads a joint pair as ``<start> a <delimiter> b <extract>`` (Radford et al. 2018, section
3.3). These three
tokens are new: their vectors are initialised with the mean of the embedding table and are trained with the
embeddings. The default row vector is that of the last token. Single texts are read as in pretraining, or
between ``<start>`` and ``<extract>`` as in the paper with ``frame: all``; frozen encoders then contain two
untrained vectors.
"""

from __future__ import annotations

from pathlib import Path

from harness.encoders.transformer.checkpoint import load_transformer
from harness.encoders.transformer.encoder import TransformerEncoder
from harness.encoders.transformer.structure import embedding_table
from harness.encoders.transformer.template import Template
from harness.errors import HarnessError, did_you_mean

FRAMES = ("pairs", "all")


def load_bert(*, name: str, path: str | None, random_init: bool, cache_dir: Path) -> TransformerEncoder:
    """Load an encoder-only checkpoint by folder or hub name.

    Raises:
        HarnessError: see :func:`harness.encoders.transformer.checkpoint.load_transformer`.
    """
    return load_transformer(name=name, path=path, random_init=random_init, cache_dir=cache_dir, causal=False)


def load_gpt(
    *, name: str, path: str | None, random_init: bool, cache_dir: Path, frame: str = "pairs"
) -> TransformerEncoder:
    """Load a decoder-only checkpoint by folder or hub name.

    Args:
        name, path, random_init, cache_dir: see
            :func:`harness.encoders.transformer.checkpoint.load_transformer`.
        frame: the rows with start and extract tokens: ``pairs`` or ``all``.

    Raises:
        HarnessError: see :func:`harness.encoders.transformer.checkpoint.load_transformer`.
    """
    if frame not in FRAMES:
        raise HarnessError(f"encoder.frame={frame}: {did_you_mean(str(frame), FRAMES)}")
    encoder = load_transformer(
        name=name,
        path=path,
        random_init=random_init,
        cache_dir=cache_dir,
        causal=True,
        added=3,
        options={"frame": frame},
    )
    start = len(embedding_table(encoder.model))
    delimiter, extract = start + 1, start + 2
    tokenizer = encoder.tokenizer
    tokenizer.pair = Template.of([start], 0, [delimiter], 1, [extract])
    tokenizer.empty = Template.of([extract])
    if frame == "all":
        tokenizer.single = Template.of([start], 0, [extract])
    return encoder
