"""Fingerprints of files and plain data, used as cache keys and in cell ids; does not import torch."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import regex

from harness.errors import HarnessError

_BLOCK = 1 << 22
_digests: dict[tuple[object, ...], str] = {}


def file_fingerprint(path: Path | str) -> str:
    """Return the SHA-256 of a file's content as hex. Cached in the process by :func:`signature`.

    Raises:
        HarnessError: the file is missing or cannot be read.
    """
    return _cached_digest(Path(path), _sha256)


def files_fingerprint(files: Mapping[str, Path], *, of: Callable[[Path], str] | None = None) -> str:
    """Return one hex digest over the roles and contents of files, independent of their paths.

    Args:
        files: role -> path.
        of: computes the fingerprint of one file; by default the SHA-256 of its bytes.
    """
    return data_fingerprint({role: _cached_digest(path, of or _sha256) for role, path in files.items()})


def data_fingerprint(value: object) -> str:
    """Return the SHA-256 of a JSON-serialisable value as hex, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _cached_digest(path: Path, compute: Callable[[Path], str]) -> str:
    try:
        stat = path.stat()
        key = (compute, str(path.resolve()), *signature(path, stat))
        if key not in _digests:
            _digests[key] = compute(path)
        return _digests[key]
    except OSError as e:
        raise HarnessError(f"{path}: cannot be read ({e.strerror or e})") from e


def signature(path: Path, stat: os.stat_result | None = None) -> tuple[int, ...]:
    """Return size, mtime, ctime and inode of a file: if they are unchanged, so is its content. Unlike the
    mtime, the ctime cannot be set by programs.

    Raises:
        OSError: the file does not exist.
    """
    s = stat or path.stat()
    return (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as f:
        while block := f.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def slug(name: str, *, max_bytes: int = 80) -> str:
    """Return a folder name for ``name``: the name itself if it is safe and at most ``max_bytes`` long, else a
    cleaned and cut name with a hash of the full name appended, so that two names never share a folder."""
    clean = regex.sub(r"[^\p{L}\p{M}\p{N}_.+-]+", "-", name).lstrip(".-")
    if clean == name and len(name.encode()) <= max_bytes:
        return name
    head = clean.encode()[: max_bytes - 9].decode(errors="ignore")
    return f"{head}-{data_fingerprint(name)[:8]}"
