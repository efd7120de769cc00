"""Small data files for tests."""

from __future__ import annotations

import shutil
from pathlib import Path


def copied(path: Path | str, name: str = "copy") -> Path:
    """Copy a file next to itself as ``NAME-FILE``: no file may serve as two splits."""
    source = Path(path)
    target = source.with_name(f"{name}-{source.name}")
    shutil.copy(source, target)
    return target
