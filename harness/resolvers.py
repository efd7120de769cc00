"""What configuration may ask for with ``${name:}``, beyond what OmegaConf brings. Torch-free."""

from __future__ import annotations

from omegaconf import OmegaConf


def register() -> None:
    """Make ``${demo_dir:}`` known: the folder of the bundled demo, wherever it is installed. Idempotent."""
    from harness.paths import demo_dir

    OmegaConf.register_new_resolver("demo_dir", lambda: str(demo_dir()), replace=True)
