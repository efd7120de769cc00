"""BERT and its kin (Devlin et al. 2019): encoders that look in both directions, from any such checkpoint.

A row is ``[CLS] text [SEP]``, a joint pair ``[CLS] a [SEP] b [SEP]`` with segment embeddings, each in the
form the checkpoint's own tokenizer gives it. A row's natural vector is its first unit's, through the pooler
where the checkpoint has one that was trained.
"""

from __future__ import annotations

from pathlib import Path

from harness.encoders.transformer.checkpoint import load_transformer
from harness.encoders.transformer.encoder import TransformerEncoder


def load_bert(*, name: str, path: str | None, random_init: bool, cache_dir: Path) -> TransformerEncoder:
    """An encoder-only checkpoint by directory or hub name.

    Raises:
        HarnessError: see :func:`harness.encoders.transformer.checkpoint.load_transformer`.
    """
    return load_transformer(name=name, path=path, random_init=random_init, cache_dir=cache_dir, causal=False)
