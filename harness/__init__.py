"""Benchmark pretrained encoders and transfer strategies on your task, with 95 % confidence intervals.

Importing this package is cheap; torch is imported at the first access to ``load_encoder``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.encoders.loading import load_encoder as load_encoder

    __version__: str

__all__ = ["load_encoder"]


def __getattr__(name: str) -> object:
    if name == "load_encoder":
        from harness.encoders.loading import load_encoder

        return load_encoder
    if name == "__version__":
        from importlib.metadata import version

        return version("transfer-harness")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
