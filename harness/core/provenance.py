"""Provenance of a result: versions, host and state of the code."""

from __future__ import annotations

import functools
import platform
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = ("torch", "pytorch-lightning", "transformers", "tokenizers", "numpy", "transfer-harness")


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that can change a result."""
    out = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            out[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            out[package] = "not installed"
    return out


@functools.cache
def git_state() -> dict[str, str | bool]:
    """Return ``commit`` and ``dirty`` (local changes) of the code; {} if it is not a checkout."""
    folder = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()

    try:
        if not git("ls-files", "--error-unmatch", Path(__file__).name):
            return {}
        commit, changed = git("rev-parse", "HEAD"), git("status", "--porcelain", "--untracked-files=no")
        return {"commit": commit, "dirty": bool(changed)}
    except (OSError, subprocess.SubprocessError):
        return {}


def host() -> str:
    """Return the name of this machine."""
    return platform.node()
