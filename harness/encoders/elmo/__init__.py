"""ELMo (Peters et al. 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.encoders.elmo.encoder import load as load


def __getattr__(name: str) -> object:
    """Import ``load`` on first use, so that importing the package does not import torch."""
    if name == "load":
        from harness.encoders.elmo.encoder import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
