"""AWD-LSTM language models (ULMFiT; Howard & Ruder 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.encoders.awd_lstm.bidirectional import load_bidirectional as load_bidirectional
    from harness.encoders.awd_lstm.encoder import load as load


def __getattr__(name: str) -> object:
    """Import the loaders on first use, so that importing the package does not import torch."""
    if name == "load":
        from harness.encoders.awd_lstm.encoder import load

        return load
    if name == "load_bidirectional":
        from harness.encoders.awd_lstm.bidirectional import load_bidirectional

        return load_bidirectional
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
