"""A cache of folders on disk: built once under a lock, complete or absent, bounded in size.

A folder is built under a temporary name, its files are flushed to disk and their sizes and checksums
recorded, and it is renamed. A process killed at any moment leaves either nothing or a temporary folder that
the next builder removes. Evicting a folder that another process has mapped is harmless: the mapping keeps
the data alive.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from harness.core.files import fsync

_MANIFEST = ".store.json"
ATTEMPTS = 5
FULL_BYTES = 1 << 26
"""Larger files are checked by a sample: :data:`N_PAGES` pages of :data:`PAGE_BYTES`, evenly spaced."""
N_PAGES, PAGE_BYTES = 256, 4096
T = TypeVar("T")


class Store:
    """Folders by key below ``root``; above ``max_bytes`` the least recently used are evicted."""

    def __init__(self, root: Path, *, max_bytes: int) -> None:
        self.root = root
        self.max_bytes = max_bytes

    def get(self, key: str, build: Callable[[Path], None]) -> tuple[Path, bool]:
        """Return the folder of ``key``; call ``build(folder)`` if it is missing or damaged.

        Concurrent callers wait for the one that builds; if it dies, the next one builds. Another process
        may evict the folder at any time: use :meth:`read` where that matters.

        Returns:
            the folder, and whether it was a cache hit.
        """
        if self.is_complete(key) and self._use(key):
            return self.root / key, True
        self.root.mkdir(parents=True, exist_ok=True)
        with FileLock(self.root / f".{key}.lock"):
            if self.is_complete(key) and self._use(key):
                return self.root / key, True
            self._build(key, build)
        self._evict(keep=key)
        return self.root / key, False

    def read(self, key: str, build: Callable[[Path], None], reader: Callable[[Path], T]) -> tuple[T, bool]:
        """Return ``reader(folder)`` for the folder of ``key``; rebuild it if it was evicted or damaged
        meanwhile.

        Returns:
            the result of the reader, and whether the folder was a cache hit.
        """
        for _ in range(ATTEMPTS - 1):
            folder, hit = self.get(key, build)
            try:
                return reader(folder), hit
            except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
                with FileLock(self.root / f".{key}.lock"):
                    _remove(folder)
        # the last attempt blocks eviction while it reads
        folder, hit = self.get(key, build)
        with FileLock(self.root / ".evict.lock"):
            if not self.is_complete(key):
                with FileLock(self.root / f".{key}.lock"):
                    self._build(key, build)
            return reader(folder), hit

    def is_complete(self, key: str) -> bool:
        """Whether the folder exists and every file has the size and checksum it was written with."""
        folder = self.root / key
        try:
            manifest = json.loads((folder / _MANIFEST).read_bytes())
            return bool(manifest) and all(_digest(folder / name) == d for name, d in manifest.items())
        except (OSError, ValueError, AttributeError):
            return False

    def _build(self, key: str, build: Callable[[Path], None]) -> None:
        for stale in self.root.glob(f".tmp-{key}-*"):  # its builder is dead: we hold the lock
            shutil.rmtree(stale, ignore_errors=True)
        folder = self.root / f".tmp-{key}-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        try:
            build(folder)
            files = [p for p in folder.iterdir() if p.is_file()]
            (folder / _MANIFEST).write_text(json.dumps({p.name: _digest(p) for p in files}))
            for path in folder.iterdir():
                fsync(path)
            _remove(self.root / key)
            os.rename(folder, self.root / key)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _use(self, key: str) -> bool:
        """Record the time of use; return False if the folder has just been evicted."""
        try:
            os.utime(self.root / key / _MANIFEST)
            return True
        except OSError:
            return False

    def _evict(self, *, keep: str) -> None:
        with FileLock(self.root / ".evict.lock"):
            for trash in self.root.glob(".trash-*"):  # left by a process killed in _remove
                shutil.rmtree(trash, ignore_errors=True)
            folders = sorted(filter(None, map(_usage, self.root.iterdir())))
            total = sum(size for _, size, _ in folders)
            for _, size, folder in folders:
                if total <= self.max_bytes:
                    return
                if folder.name != keep:
                    _remove(folder)
                    total -= size


def _usage(folder: Path) -> tuple[float, int, Path] | None:
    """Return the time of last use, the bytes and the folder; None if it is not a finished folder."""
    if folder.name.startswith("."):
        return None
    try:
        used = (folder / _MANIFEST).stat().st_mtime
        return used, sum(f.stat().st_size for f in folder.iterdir()), folder
    except OSError:
        return None


def _digest(path: Path) -> list[int]:
    """Return size and CRC-32 of a file; above :data:`FULL_BYTES`, the CRC-32 of a sample."""
    size = path.stat().st_size
    with path.open("rb") as f:
        if size <= FULL_BYTES:
            return [size, zlib.crc32(f.read())]
        check = 0
        for i in range(N_PAGES):
            f.seek(i * (size - PAGE_BYTES) // (N_PAGES - 1))
            check = zlib.crc32(f.read(PAGE_BYTES), check)
    return [size, check]


def _remove(folder: Path) -> None:
    """Delete a folder; rename it first, so that readers never see a partial folder."""
    trash = folder.with_name(f".trash-{uuid.uuid4().hex[:8]}")
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, trash)
        shutil.rmtree(trash, ignore_errors=True)
