"""Small fastText models, written byte by byte in fastText's file format."""

from __future__ import annotations

import atexit
import functools
import shutil
import struct
import tempfile
from pathlib import Path

import numpy as np

HEAD = struct.pack("<2i", 793712314, 12)


def arguments(*, dim: int, bucket: int, minn: int, maxn: int, model: int = 2) -> bytes:
    return struct.pack("<12id", dim, 5, 5, 1, 5, 1, 2, model, bucket, minn, maxn, 100, 1e-4)


def dictionary(
    words: list[str], *, bucket_rows: dict[int, int] | None = None, old: bool = False, labels: int = 0
) -> bytes:
    names = [*words, *(f"__label__{i}" for i in range(labels))]
    out = struct.pack("<3iq", len(names), len(words), labels, 100)
    if not old:
        out += struct.pack("<q", -1 if bucket_rows is None else len(bucket_rows))
    for i, name in enumerate(names):
        out += name.encode() + b"\0" + struct.pack("<qb", 9, int(i >= len(words)))
    for pair in (bucket_rows or {}).items():
        out += struct.pack("<2i", *pair)
    return out


def dense(values: np.ndarray, *, old: bool = False) -> bytes:
    return (b"" if old else b"\0") + struct.pack("<2q", *values.shape) + values.tobytes()


@functools.cache
def fasttext_file() -> Path:
    """Write a model with random vectors of some English words; other words are composed."""
    folder = Path(tempfile.mkdtemp(prefix="tiny-fasttext-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    words = ["the", "The", "a", "in", ".", ",", "to", "Who"]
    values = np.random.default_rng(0).normal(size=(len(words) + 500, 16)).astype(np.float32)
    path = folder / "tiny.bin"
    settings = arguments(dim=16, bucket=500, minn=2, maxn=4)
    path.write_bytes(HEAD + settings + dictionary(words) + dense(values))
    return path
