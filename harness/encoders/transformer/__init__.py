"""Transformers (BERT, GPT and related models) from any checkpoint that ``transformers`` can load."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.encoders.transformer.loaders import load_bert as load_bert
    from harness.encoders.transformer.loaders import load_gpt as load_gpt


def __getattr__(name: str) -> object:
    """Import the loaders on first use, so that importing the package does not import torch."""
    if name in ("load_bert", "load_gpt"):
        from harness.encoders.transformer import loaders

        return getattr(loaders, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
