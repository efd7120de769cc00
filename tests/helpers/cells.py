"""Compose and resolve cells in tests as the command line does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from harness.config.composer import job_values
from harness.config.resolve import prepare
from harness.core.paths import conf_dir
from harness.core.resolvers import register
from harness.records.cell import Cell


def composed(*overrides: str) -> dict[str, Any]:
    """Return the configuration for these overrides as plain data."""
    register()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config = compose("config", overrides=["hydra/launcher=basic", *overrides])
    return job_values(config)


def make_cell(folder: Path, *overrides: str) -> Cell:
    """Return a resolved cell with results and caches in ``folder``."""
    paths = [f"results_dir={folder / 'results'}", f"cache_dir={folder / 'cache'}"]
    return prepare(composed(*overrides, *paths), overrides=overrides)
