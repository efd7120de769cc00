"""What configuration may ask for with ``${name:}``, beyond what OmegaConf brings. Torch-free."""

from __future__ import annotations

from omegaconf import OmegaConf


def register() -> None:
    """Make ``${mini_dir:}`` known: the folder of the mini world, wherever it is installed. Idempotent."""
    from harness.core.paths import mini_dir

    OmegaConf.register_new_resolver("mini_dir", lambda: str(mini_dir()), replace=True)
