"""Transformers (BERT, GPT and related models) from any checkpoint that ``transformers`` can load."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.encoders.transformer.bert import load_bert as load_bert
    from harness.encoders.transformer.gpt import load_gpt as load_gpt


def __getattr__(name: str) -> object:
    """Import the loaders on first use, so that importing the package does not import torch."""
    if name == "load_bert":
        from harness.encoders.transformer.bert import load_bert

        return load_bert
    if name == "load_gpt":
        from harness.encoders.transformer.gpt import load_gpt

        return load_gpt
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
