"""BERT and related models (Devlin et al. 2019): bidirectional encoders, from any such checkpoint.

A row is ``[CLS] text [SEP]``, a joint pair ``[CLS] a [SEP] b [SEP]`` with segment embeddings, in the form of
the checkpoint's tokenizer. The default row vector is that of the first token, passed through the pooler if
the checkpoint contains a pretrained one.
"""

from __future__ import annotations

from pathlib import Path

from harness.encoders.transformer.checkpoint import load_transformer
from harness.encoders.transformer.encoder import TransformerEncoder


def load_bert(*, name: str, path: str | None, random_init: bool, cache_dir: Path) -> TransformerEncoder:
    """Load an encoder-only checkpoint by folder or hub name.

    Raises:
        HarnessError: see :func:`harness.encoders.transformer.checkpoint.load_transformer`.
    """
    return load_transformer(name=name, path=path, random_init=random_init, cache_dir=cache_dir, causal=False)
