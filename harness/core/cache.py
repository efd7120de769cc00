"""A cache of folders on disk: built once under a lock, complete or absent, bounded in size.

A folder is built under a temporary name, its files fsynced and their sizes written down, then renamed. A
kill at any moment leaves either nothing or a temporary folder that the next builder removes. Evicting a
folder that another process has mapped is harmless: the mapping keeps the data alive.
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

_FACTS = ".store.json"
ATTEMPTS = 5
FULL_BYTES = 1 << 26
"""Files up to this size are checked whole, larger ones at so many places of a page each."""
PLACES, PAGE = 256, 4096
T = TypeVar("T")


class Store:
    """Folders by key below ``root``, the least recently used removed above ``max_bytes``."""

    def __init__(self, root: Path, *, max_bytes: int) -> None:
        self.root = root
        self.max_bytes = max_bytes

    def get(self, key: str, build: Callable[[Path], None]) -> tuple[Path, bool]:
        """The folder of ``key``, built by ``build(folder)`` when it is not there or damaged.

        Concurrent callers wait for the one that builds; when it dies, the next one builds. Another process
        may evict the folder at any later moment: use :meth:`read` where that matters.

        Returns:
            the folder, and whether it was there already.
        """
        if self.whole(key) and self._use(key):
            return self.root / key, True
        self.root.mkdir(parents=True, exist_ok=True)
        with FileLock(self.root / f".{key}.lock"):
            if self.whole(key) and self._use(key):
                return self.root / key, True
            self._build(key, build)
        self._evict(keep=key)
        return self.root / key, False

    def read(self, key: str, build: Callable[[Path], None], reader: Callable[[Path], T]) -> tuple[T, bool]:
        """``reader(folder)`` of the folder of ``key``; built again when it was evicted or damaged meanwhile.

        Returns:
            what the reader made, and whether the folder was there already.
        """
        for _ in range(ATTEMPTS - 1):
            folder, hit = self.get(key, build)
            try:
                return reader(folder), hit
            except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
                with FileLock(self.root / f".{key}.lock"):
                    _remove(folder)
        # the last attempt lets nobody evict while it reads
        folder, hit = self.get(key, build)
        with FileLock(self.root / ".evict.lock"):
            if not self.whole(key):
                with FileLock(self.root / f".{key}.lock"):
                    self._build(key, build)
            return reader(folder), hit

    def whole(self, key: str) -> bool:
        """The folder is there, every file of the size and checksum it was written with."""
        folder = self.root / key
        try:
            facts = json.loads((folder / _FACTS).read_bytes())
            return bool(facts) and all(_facts(folder / name) == fact for name, fact in facts.items())
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
            (folder / _FACTS).write_text(json.dumps({p.name: _facts(p) for p in files}))
            for path in folder.iterdir():
                fsync(path)
            _remove(self.root / key)
            os.rename(folder, self.root / key)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _use(self, key: str) -> bool:
        """Note the use; False when the folder has just been evicted."""
        try:
            os.utime(self.root / key / _FACTS)
            return True
        except OSError:
            return False

    def _evict(self, *, keep: str) -> None:
        with FileLock(self.root / ".evict.lock"):
            for trash in self.root.glob(".trash-*"):  # of a remover that was killed
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
    """Time of last use, bytes and folder; None for what is no finished folder."""
    if folder.name.startswith("."):
        return None
    try:
        used = (folder / _FACTS).stat().st_mtime
        return used, sum(f.stat().st_size for f in folder.iterdir()), folder
    except OSError:
        return None


def _facts(path: Path) -> list[int]:
    """Size and checksum of a file's content (of a sample of it when it is large)."""
    size = path.stat().st_size
    with path.open("rb") as f:
        if size <= FULL_BYTES:
            return [size, zlib.crc32(f.read())]
        check = 0
        for place in range(PLACES):
            f.seek(place * (size - PAGE) // (PLACES - 1))
            check = zlib.crc32(f.read(PAGE), check)
    return [size, check]


def _remove(folder: Path) -> None:
    """Out of sight first, so that no reader sees half of it."""
    trash = folder.with_name(f".trash-{uuid.uuid4().hex[:8]}")
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, trash)
        shutil.rmtree(trash, ignore_errors=True)
