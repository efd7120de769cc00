"""Where a result came from: versions, host, device, state of the code."""

from __future__ import annotations

import functools
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "pytorch-lightning", "transformers", "tokenizers", "numpy", "transfer-harness")


@functools.cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that can move a result."""
    out = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            out[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            out[package] = "not installed"
    return out


@functools.cache
def git_state() -> dict[str, Any]:
    """Commit of the code and whether it was changed; empty when it is no checkout."""
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()

    try:
        if not git("ls-files", "--error-unmatch", Path(__file__).name):
            return {}
        commit, changed = git("rev-parse", "HEAD"), git("status", "--porcelain", "--untracked-files=no")
        return {"commit": commit, "dirty": bool(changed)}
    except (OSError, subprocess.SubprocessError):
        return {}


def host() -> str:
    return platform.node()
