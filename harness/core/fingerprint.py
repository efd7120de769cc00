"""Fingerprints of file contents and of plain data. They key every cache and enter the cell id; torch-free."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import regex

from harness.errors import HarnessError

_BLOCK = 1 << 22
_known: dict[tuple[Any, ...], str] = {}


def file_fingerprint(path: Path | str) -> str:
    """SHA-256 of a file's content as hex. Read once per process while size, time and inode stay.

    Raises:
        HarnessError: the file is missing or cannot be read.
    """
    return _remembered(Path(path), _sha256)


def files_fingerprint(files: Mapping[str, Path], *, of: Callable[[Path], str] | None = None) -> str:
    """One hex digest over the contents of files and the roles they play, but not over where they lie.

    Args:
        files: role -> path.
        of: what makes the fingerprint of one file; its bytes' SHA-256 by default.
    """
    return data_fingerprint({role: _remembered(path, of or _sha256) for role, path in files.items()})


def data_fingerprint(value: Any) -> str:
    """SHA-256 as hex of anything JSON takes, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _remembered(path: Path, compute: Callable[[Path], str]) -> str:
    try:
        stat = path.stat()
        key = (compute, str(path.resolve()), *signature(path, stat))
        if key not in _known:
            _known[key] = compute(path)
        return _known[key]
    except OSError as e:
        raise HarnessError(f"{path}: cannot be read ({e.strerror or e})") from e


def signature(path: Path, stat: os.stat_result | None = None) -> tuple[int, ...]:
    """Size, times and inode of a file: while they stay, so does its content. The time of the last change of
    any kind is among them, which nobody can set back.

    Raises:
        OSError: the file is not there.
    """
    s = stat or path.stat()
    return (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as f:
        while block := f.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def slug(name: str, *, most: int = 80) -> str:
    """A folder name for ``name``: itself where that is safe and at most ``most`` bytes, else cut and changed
    with a hash of the whole behind it, so that no two names share a folder."""
    clean = regex.sub(r"[^\p{L}\p{M}\p{N}_.+-]+", "-", name).lstrip(".-")
    if clean == name and len(name.encode()) <= most:
        return name
    head = clean.encode()[: most - 9].decode(errors="ignore")
    return f"{head}-{data_fingerprint(name)[:8]}"
