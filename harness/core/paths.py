"""Paths of the installed configuration, the bundled data and the cache; does not import torch."""

from __future__ import annotations

import glob
import importlib.util
import os
from collections.abc import Collection, Mapping
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


def absolute_places(section: Mapping[str, object], places: Collection[str]) -> dict[str, object]:
    """Return a copy of a section, and of its ``members``, in which existing relative paths are absolute, so
    that it means the same in another directory. Hub names, URLs and missing files stay as they are.

    Args:
        section: as configured.
        places: keys of paths, or of lists and sections of paths.
    """
    out = {key: _absolute(value) if key in places else value for key, value in section.items()}
    members = out.get("members")
    if isinstance(members, Mapping):
        out["members"] = {
            name: absolute_places(member, places) if isinstance(member, Mapping) else member
            for name, member in members.items()
        }
    return out


def _absolute(value: object) -> object:
    if isinstance(value, Mapping):
        return {k: _absolute(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_absolute(v) for v in value]
    if not isinstance(value, str) or value.lower() in ("", "none"):
        return value
    path = Path(value).expanduser()
    exists = path.exists() or (any(c in value for c in "*?[") and bool(glob.glob(str(path))))
    return str(path.absolute()) if exists else value


def cache_folder(cache_dir: str | None) -> Path:
    """Return the folder of features, tables and downloads: as given, else $HARNESS_CACHE, else ~/.cache."""
    folder = cache_dir or os.environ.get("HARNESS_CACHE") or "~/.cache/transfer-harness"
    return Path(folder).expanduser().absolute()
