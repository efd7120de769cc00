"""Benchmark of transfer learning in NLP: encoders x strategies x tasks, on one footing.

Importing this package imports nothing heavy; ``load_encoder`` brings torch when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.encoders.loading import load_encoder as load_encoder

    __version__: str

__all__ = ["load_encoder"]


def __getattr__(name: str) -> Any:
    if name == "load_encoder":
        from harness.encoders.loading import load_encoder

        return load_encoder
    if name == "__version__":
        from importlib.metadata import version

        return version("transfer-harness")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
