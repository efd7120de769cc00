"""OmegaConf resolvers of the harness; does not import torch."""

from __future__ import annotations

from omegaconf import OmegaConf


def register() -> None:
    """Register ``${mini_dir:}``, the folder of the installed mini world. Idempotent."""
    from harness.core.paths import mini_dir

    OmegaConf.register_new_resolver("mini_dir", lambda: str(mini_dir()), replace=True)
