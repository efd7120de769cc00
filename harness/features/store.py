"""A cache of folders on disk: built once under a lock, complete or absent, bounded in size.

A folder is built under a temporary name, its files fsynced and their sizes written down, then renamed. A
kill at any moment leaves either nothing or a temporary folder that the next builder removes. Evicting a
folder that another process has mapped is harmless: the mapping keeps the data alive.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

_SIZES = "sizes.json"


class Store:
    """Folders by key below ``root``, the least recently used removed above ``max_bytes``."""

    def __init__(self, root: Path, *, max_bytes: int) -> None:
        self.root = root
        self.max_bytes = max_bytes

    def get(self, key: str, build: Callable[[Path], None]) -> tuple[Path, bool]:
        """The folder of ``key``, built by ``build(folder)`` when it is not there or damaged.

        Concurrent callers wait for the one that builds; when it dies, the next one builds.

        Returns:
            the folder, and whether it was there already.
        """
        if self.whole(key):
            return self._used(key), True
        self.root.mkdir(parents=True, exist_ok=True)
        with FileLock(self.root / f".{key}.lock"):
            if self.whole(key):
                return self._used(key), True
            self._build(key, build)
        self._evict(keep=key)
        return self._used(key), False

    def whole(self, key: str) -> bool:
        """The folder is there with every file at the size it was written with."""
        folder = self.root / key
        try:
            sizes = json.loads((folder / _SIZES).read_bytes())
            return all((folder / name).stat().st_size == size for name, size in sizes.items())
        except (OSError, ValueError):
            return False

    def _build(self, key: str, build: Callable[[Path], None]) -> None:
        for stale in self.root.glob(f".tmp-{key}-*"):  # its builder is dead: we hold the lock
            shutil.rmtree(stale, ignore_errors=True)
        folder = self.root / f".tmp-{key}-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        try:
            build(folder)
            files = [p for p in folder.iterdir() if p.is_file()]
            (folder / _SIZES).write_text(json.dumps({p.name: p.stat().st_size for p in files}))
            for path in folder.iterdir():
                _fsync(path)
            _remove(self.root / key)
            os.rename(folder, self.root / key)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _used(self, key: str) -> Path:
        os.utime(self.root / key / _SIZES)
        return self.root / key

    def _evict(self, *, keep: str) -> None:
        with FileLock(self.root / ".evict.lock"):
            folders = [p for p in self.root.iterdir() if p.is_dir() and (p / _SIZES).exists()]
            size = {p: sum(f.stat().st_size for f in p.iterdir()) for p in folders}
            total = sum(size.values())
            for folder in sorted(folders, key=lambda p: (p / _SIZES).stat().st_mtime):
                if total <= self.max_bytes:
                    return
                if folder.name != keep:
                    _remove(folder)
                    total -= size[folder]


def _remove(folder: Path) -> None:
    """Out of sight first, so that no reader sees half of it."""
    if folder.exists():
        trash = folder.with_name(f".trash-{uuid.uuid4().hex[:8]}")
        os.rename(folder, trash)
        shutil.rmtree(trash, ignore_errors=True)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
