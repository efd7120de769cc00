"""Atomic writes, log tails and timestamps."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

TEMPORARY = ".tmp-"
"""What the names of files begin with while they are written."""


def remove_temporary(folder: Path) -> None:
    """What processes that were killed had half written, when no other can be writing there."""
    for path in folder.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError):
            path.unlink()


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file under a temporary name in the same folder, fsync, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        if os.path.exists(name):
            os.unlink(name)
        raise


def utc_now() -> str:
    """Now, in UTC to the second, as records hold it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def tail(path: Path, lines: int = 5) -> list[str]:
    """The last non-empty lines of a text file, each cut to 300 characters; none when it cannot be read."""
    try:
        with path.open("rb") as f:
            f.seek(max(0, path.stat().st_size - 65536))
            text = f.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    return list(deque((line[:300].rstrip() for line in text.splitlines() if line.strip()), maxlen=lines))
