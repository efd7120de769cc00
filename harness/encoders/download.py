"""Fetching a published file once, into the cache; torch-free.

What is fetched is said beforehand with its size and place. Without a network there is one clear error that
names the address and how to go on without it. ``HARNESS_OFFLINE=1`` never tries.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from filelock import FileLock

from harness.errors import HarnessError, did_you_mean

TIMEOUT = 30.0
"""Seconds to wait for the server's next bytes."""
_BLOCK = 1 << 20
MADE = ("vectors.txt", "vectors.txt.gz", "vectors.bin", "model.bin")
"""Names under which word vectors are written."""


def single_file(config: Mapping[str, Any], cache_dir: Path) -> dict[str, Path]:
    """``_files_`` of encoders that are one file; see :func:`the_file`."""
    return {"file": the_file(config, cache_dir)}


def the_file(config: Mapping[str, Any], cache_dir: Path, *, what: str = "encoder") -> Path:
    """The one file behind ``path``, or behind ``url`` when no path is given.

    Args:
        config: reads ``name``, ``path``, ``url`` and from ``about`` the ``size`` and ``where`` (where people
            get the file).
        cache_dir: downloads go to its folder ``downloads``.
        what: the configuration group, for messages.

    Raises:
        HarnessError: no such file, neither path nor url, or a download that failed.
    """
    name, path = config.get("name", what), config.get("path")
    about = config.get("about") or {}
    if path is not None:
        return existing(_in_folder(Path(str(path)).expanduser()), key=f"{what}.path")
    url = config.get("url")
    if not url:
        where = f" ({about['where']})" if about.get("where") else ""
        raise HarnessError(
            f"{what} {name}: the file is not on this machine; get it{where} and give {what}.path=FILE"
        )
    return fetch(
        str(url), cache_dir / "downloads", size=str(about.get("size", "")), hint=f"give {what}.path=FILE"
    )


def _in_folder(path: Path) -> Path:
    """The one file of word vectors that ``harness pretrain`` left in a folder; else ``path`` itself."""
    if not path.is_dir():
        return path
    found = [path / name for name in MADE if (path / name).is_file()]
    return found[0] if len(found) == 1 else path


def existing(path: Path, *, key: str) -> Path:
    """``path`` as an absolute path.

    Raises:
        HarnessError: there is no such file; the nearest names in its folder are given.
    """
    path = path.expanduser().absolute()
    if path.is_file():
        return path
    if path.is_dir():
        raise HarnessError(f"{key}={path} is a folder: give the file")
    parent = path.parent
    if not parent.is_dir():
        raise HarnessError(f"{key}={path}: there is no folder {parent}")
    names = [p.name for p in parent.iterdir() if p.is_file()]
    raise HarnessError(f"{key}={path}: there is no such file, {did_you_mean(path.name, names)}")


def fetch(url: str, folder: Path, *, size: str = "", hint: str = "") -> Path:
    """The local copy of ``url`` in ``folder``, fetched when it is not there. Concurrent callers wait for one.

    Args:
        url: where it is.
        folder: where it goes, under the last part of the url.
        size: how large it is, in words, for the message when the server does not say.
        hint: how to go on without the download, for the error.
    """
    target = folder / (Path(urlsplit(url).path).name or "download")
    if target.is_file():
        return target
    if os.environ.get("HARNESS_OFFLINE", "0") not in ("", "0"):
        raise HarnessError(f"{url} is not in {folder}, and HARNESS_OFFLINE forbids to fetch it: {hint}")
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{target.name}.lock"):
        if not target.is_file():
            _download(url, target, size=size, hint=hint)
    return target


def _download(url: str, target: Path, *, size: str, hint: str) -> None:
    for stale in target.parent.glob(f".tmp-{target.name}-*"):  # left by a process that died: the lock is ours
        stale.unlink(missing_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".tmp-{target.name}-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out, urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            expected = int(answer.headers.get("Content-Length") or 0)
            large = f"{expected / 1e6:,.0f} MB" if expected else size or "of unknown size"
            print(f"fetching {url} ({large}) to {target}", file=sys.stderr)
            _copy(answer, out, expected)
            out.flush()
            os.fsync(out.fileno())
        got = os.path.getsize(name)
        if expected and got != expected:
            raise HarnessError(f"{url}: only {got} of {expected} bytes came; run it again")
        os.replace(name, target)
    except (urllib.error.URLError, OSError, ValueError) as e:
        reason = getattr(e, "reason", None) or getattr(e, "strerror", None) or e
        large = f" ({size})" if size else ""
        raise HarnessError(
            f"{url}{large} cannot be fetched to {target.parent} ({reason}): fetch it elsewhere and {hint}"
        ) from e
    finally:
        Path(name).unlink(missing_ok=True)


def _copy(answer: IO[bytes], out: IO[bytes], expected: int) -> None:
    if not (expected and sys.stderr.isatty()):
        shutil.copyfileobj(answer, out, _BLOCK)
        return
    done = 0
    while block := answer.read(_BLOCK):
        out.write(block)
        done += len(block)
        print(f"\r{done / 1e6:,.0f} of {expected / 1e6:,.0f} MB", end="", file=sys.stderr)
    print(file=sys.stderr)
