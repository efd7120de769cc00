"""Atomic writes, log tails and timestamps."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

TEMPORARY = ".tmp-"
"""Prefix of the names of unfinished files."""
PART = "::"
"""Separates a file from the part of it that is meant: ``data.zip::train.csv``, ``data.json::train``."""


def split_part(path: Path) -> tuple[Path, str | None]:
    """Split ``FILE::PART`` into both; a path that exists, or one without ``::``, has no part."""
    name = str(path)
    if PART not in name or path.exists():
        return path, None
    file, _, part = name.partition(PART)
    return Path(file), part


def remove_temporary(folder: Path) -> None:
    """Delete the unfinished files of killed processes; no other process may be writing to ``folder``."""
    for path in folder.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``, for a writer that needs a path.

    At the end of the block the file is flushed to disk and renamed to ``path``, so that readers see the old
    file or the complete new one; a link at ``path`` is replaced, not followed. If the block raises, the
    temporary file is deleted.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f"{TEMPORARY}{secrets.token_hex(8)}"
    os.close(create_new(temporary))
    try:
        yield temporary
        fsync(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def create_new(path: Path, flags: int = os.O_EXCL) -> int:
    """Create a file for writing, with the permissions that the process's umask leaves.

    Args:
        path: where; a link is never followed.
        flags: further flags of ``os.open``; by default an existing file is an error.

    Returns:
        its file descriptor.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o666)


def remove_outward_links(folder: Path) -> None:
    """Delete the links in a folder and its subfolders that lead out of it: writing would follow them."""
    inside = Path(os.path.realpath(folder))
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent) / name for name in (*folders, *files)):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(inside):
                path.unlink()


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file under a temporary name in the same folder, fsync, rename."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def fsync(path: Path) -> None:
    """Flush a file or a folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def utc_now() -> str:
    """Return the current time in UTC, in ISO format to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def tail(path: Path, lines: int = 5) -> list[str]:
    """Return the last non-empty lines of a text file, each cut to 300 characters; [] if it cannot be read."""
    try:
        with path.open("rb") as f:
            f.seek(max(0, path.stat().st_size - 65536))
            text = f.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    return list(deque((line[:300].rstrip() for line in text.splitlines() if line.strip()), maxlen=lines))
