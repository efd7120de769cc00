"""Paths of the installed configuration, the bundled data and the cache; does not import torch."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from harness.errors import HarnessError


def conf_dir() -> Path:
    """Return the ``conf`` folder: inside the package when installed from a wheel, beside it in an editable
    install.

    Raises:
        HarnessError: the installation has none.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise HarnessError(f"{package}: the installation has no conf folder; install transfer-harness again")


def mini_dir() -> Path:
    """Return the folder of the mini world (bundled data and encoders), without importing it.

    Raises:
        HarnessError: the installation has none.
    """
    spec = importlib.util.find_spec("harness_tasks")
    for folder in spec.submodule_search_locations or () if spec else ():
        if (Path(folder) / "mini").is_dir():
            return Path(folder).resolve() / "mini"
    raise HarnessError("the mini world (harness_tasks/mini) is not installed; install transfer-harness again")


def cache_folder(cache_dir: str | None) -> Path:
    """Return the folder of features, tables and downloads: as given, else $HARNESS_CACHE, else ~/.cache."""
    folder = cache_dir or os.environ.get("HARNESS_CACHE") or "~/.cache/transfer-harness"
    return Path(folder).expanduser().absolute()
