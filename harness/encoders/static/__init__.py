"""Static word vectors: word2vec, GloVe and fastText tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.encoders.static.encoder import load as load


def __getattr__(name: str) -> object:
    """Import ``load`` on first use, so that importing the package does not import torch."""
    if name == "load":
        from harness.encoders.static.encoder import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
