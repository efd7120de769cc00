"""Resolve or download the published files of an encoder; torch-free.

Files are downloaded once, into the cache. The size and the destination are printed before a download starts.
A failed download is one error that names the URL and the alternative. ``HARNESS_OFFLINE=1`` disables
downloads.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock

from harness.core.fingerprint import file_fingerprint
from harness.errors import HarnessError, did_you_mean

TIMEOUT = 30.0
"""Seconds to wait for the next bytes from the server."""
VECTOR_FILE_NAMES = ("vectors.txt", "vectors.txt.gz", "vectors.bin", "model.bin")
"""File names that ``harness pretrain`` uses for word vectors."""


def single_file(config: Mapping[str, object], cache_dir: Path) -> dict[str, Path]:
    """Return the files (``_files_``) of encoders that consist of one file; see :func:`resolve_file`."""
    return {"file": resolve_file(config, cache_dir)}


def resolve_file(config: Mapping[str, object], cache_dir: Path, *, group: str = "encoder") -> Path:
    """Return the local file for ``path``, or download it from ``url`` if ``path`` is not set.

    Args:
        config: the keys ``name``, ``path``, ``url``, ``sha256`` (optional, of the file behind ``url``), and
            from ``about`` the ``size`` and ``where`` (where to obtain the file) for messages.
        cache_dir: downloads are stored in its folder ``downloads``.
        group: the configuration group, for messages.

    Raises:
        HarnessError: no such file, neither path nor url, or a failed download.
    """
    path, url, about = config.get("path"), config.get("url"), about_of(config)
    if path is not None:
        return existing_file(_in_folder(Path(str(path)).expanduser()), key=f"{group}.path")
    if not url:
        source = f" ({about['where']})" if about.get("where") else ""
        raise HarnessError(
            f"{group} {config.get('name', group)}: the file is not on this machine; download it{source} "
            "and set "
            f"{group}.path=FILE"
        )
    sha256 = config.get("sha256")
    return fetch(
        str(url),
        cache_dir / "downloads",
        sha256=None if sha256 is None else str(sha256),
        size=str(about.get("size", "")),
        hint=f"set {group}.path=FILE",
    )


def about_of(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return the section ``about`` of an encoder's configuration, empty if it has none."""
    about = config.get("about")
    return about if isinstance(about, Mapping) else {}


def _in_folder(path: Path) -> Path:
    """Return the single word-vector file that ``harness pretrain`` wrote to a folder; otherwise ``path``."""
    if not path.is_dir():
        return path
    candidates = [path / name for name in VECTOR_FILE_NAMES if (path / name).is_file()]
    return candidates[0] if len(candidates) == 1 else path


def existing_file(path: Path, *, key: str) -> Path:
    """Return ``path`` as an absolute path.

    Raises:
        HarnessError: no such file; the message suggests the most similar names in its folder.
    """
    path = path.expanduser().absolute()
    if path.is_file():
        return path
    if path.is_dir():
        raise HarnessError(f"{key}={path} is a folder: give the file")
    parent = path.parent
    if not parent.is_dir():
        raise HarnessError(f"{key}={path}: no such folder {parent}")
    names = [p.name for p in parent.iterdir() if p.is_file()]
    raise HarnessError(f"{key}={path}: no such file, {did_you_mean(path.name, names)}")


def fetch(url: str, folder: Path, *, sha256: str | None = None, size: str = "", hint: str = "") -> Path:
    """Return the local copy of ``url`` in ``folder``; download it if missing. Concurrent callers wait for
    one.

    Args:
        url: address of the file (http or https).
        folder: the file is in its subfolder for this address, under the last part of the URL.
        sha256: expected SHA-256 as hex; None = not verified.
        size: the size in words, for the message if the server does not report it.
        hint: the alternative to downloading, for the error message.

    Raises:
        HarnessError: the download failed, is disabled, or does not have the expected checksum.
    """
    # two addresses with the same last part are two files
    folder = folder / hashlib.sha256(url.encode()).hexdigest()[:16]
    target = folder / (Path(urlsplit(url).path).name or "download")
    if not target.is_file():
        if os.environ.get("HARNESS_OFFLINE", "0") not in ("", "0"):
            raise HarnessError(f"{url} is not in {folder}, and HARNESS_OFFLINE disables downloads: {hint}")
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{target.name}.lock"):
            if not target.is_file():
                _download(url, target, size=size, hint=hint)
    if sha256 is not None:
        _verify(target, sha256.lower(), url)
    return target


def _verify(target: Path, sha256: str, url: str) -> None:
    """Compare the checksum, once per file: a successful comparison is recorded beside it."""
    stat = target.stat()
    verified = f"{sha256} {stat.st_size} {stat.st_mtime_ns}"
    note = target.with_name(f".{target.name}.sha256")
    if note.is_file() and note.read_text() == verified:
        return
    actual = file_fingerprint(target)
    if actual != sha256:
        raise HarnessError(
            f"{target}: SHA-256 is {actual}, expected {sha256} for {url}; delete the file to download it "
            "again, or "
            "correct encoder.sha256"
        )
    note.write_text(verified)


def _download(url: str, target: Path, *, size: str, hint: str) -> None:
    """Download with the lock held; the file appears under its name only when it is complete."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    partial = target.parent / f".tmp-{target.name}"
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed process; the lock excludes running ones
    progress = _Progress(url, target, size)
    # compressed files must arrive as they are, and the size must be that of the file
    options = {"timeout": TIMEOUT, "headers": {"Accept-Encoding": "identity"}}
    downloader = pooch.HTTPDownloader(progressbar=progress, chunk_size=1 << 16, **options)
    try:
        pooch.retrieve(url, None, fname=target.name, path=partial, downloader=downloader)
        received = (partial / target.name).stat().st_size
        if progress.total and received != progress.total:
            raise HarnessError(f"{url}: received {received} of {progress.total} bytes; run it again")
        os.replace(partial / target.name, target)
    except (OSError, ValueError) as e:  # requests' exceptions are OSErrors
        cause: BaseException = e
        while cause.__context__ is not None:  # requests wraps the socket's error several times
            cause = cause.__context__
        reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0][:200]
        large = f" ({size})" if size else ""
        raise HarnessError(
            f"{url}{large} cannot be downloaded to {target.parent} ({reason}): download it elsewhere and "
            f"{hint}"
        ) from e
    finally:
        shutil.rmtree(partial, ignore_errors=True)


class _Progress:
    """Prints size and destination when pooch reports the size, then a progress bar on terminals."""

    def __init__(self, url: str, target: Path, size: str) -> None:
        self._url, self._target, self._size = url, target, size
        self._total = self._received = 0

    @property
    def total(self) -> int:
        """Bytes according to the server; 0 if it does not say."""
        return self._total

    @total.setter
    def total(self, value: int) -> None:
        self._total = value
        size = f"{value / 1e6:,.0f} MB" if value else self._size or "unknown size"
        print(f"downloading {self._url} ({size}) to {self._target}", file=sys.stderr)

    def update(self, received: int) -> None:
        self._received += received
        if self._total and sys.stderr.isatty():
            done = min(self._received, self._total) / 1e6
            print(f"\r{done:,.0f} of {self._total / 1e6:,.0f} MB", end="", file=sys.stderr)

    def reset(self) -> None:
        self._received = 0

    def close(self) -> None:
        if self._total and sys.stderr.isatty():
            print(file=sys.stderr)
