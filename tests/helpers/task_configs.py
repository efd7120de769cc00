"""Tasks built from their bundled configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from harness.records.parts import TaskConfig
from tests.helpers.paths import ROOT


def task_config(name: str, *overrides: str) -> dict[str, Any]:
    """Compose a bundled task's configuration."""
    with initialize_config_dir(str(ROOT / "conf" / "task"), version_base="1.3"):
        config = OmegaConf.to_container(compose(name, list(overrides)), resolve=True)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


def build_task(config: Mapping[str, Any]) -> Any:
    """Build a task as a cell does."""
    return TaskConfig.parse(dict(config)).build()
