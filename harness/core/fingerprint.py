"""Fingerprints of files and plain data, used as cache keys and in cell ids; does not import torch."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import regex

from harness.core.files import split_part
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


OWN_PACKAGES = frozenset({"harness", "harness_tasks", "hydra_plugins"})
"""Packages of this program, whose changes ``result_version`` and ENGINE_VERSION report."""


def source_files(targets: Iterable[str]) -> dict[str, Path]:
    """Return the source files behind dotted paths, by name; nothing is imported.

    Files of a package that lies in a folder of the user: all modules of the package, since the callable may
    use any of them. Of an installed package: the file of the module. Of this program: none.

    Args:
        targets: dotted paths of callables or modules; missing ones are left out.
    """
    out: dict[str, Path] = {}
    for target in targets:
        top, *rest = target.split(".")
        if not top or top in OWN_PACKAGES:
            continue
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(top)
            out |= _package_files(top, rest, spec) if spec else {}
    return out


def _package_files(top: str, rest: Sequence[str], spec: ModuleSpec) -> dict[str, Path]:
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if not folders:
        return {top: Path(spec.origin)} if spec.origin and spec.has_location else {}
    if {"site-packages", "dist-packages"} & {part for folder in folders for part in folder.parts}:
        modules = ["/".join(rest[:n]) for n in range(len(rest) + 1)]
        names = [name for module in modules for name in (f"{module}.py", f"{module}/__init__.py".lstrip("/"))]
        return {f"{top}/{name}": f / name for f in folders for name in names if (f / name).is_file()}
    return {f"{top}/{p.relative_to(f)}": p for f in folders for p in sorted(f.rglob("*.py")) if p.is_file()}


def _cached_digest(path: Path, compute: Callable[[Path], str]) -> str:
    try:
        stat = split_part(path)[0].stat()
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
    s = stat or split_part(path)[0].stat()
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
