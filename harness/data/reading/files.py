"""Text files: encodings, byte order marks, line endings and compression.

All text is read with :func:`open_text`, so that the same data with Windows line endings, a byte order mark or
gzip compression give the same text and the same :func:`fingerprint`.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import zlib
from pathlib import Path

from harness.data.reading.log import ReadLog
from harness.errors import HarnessError, did_you_mean

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is a prefix of this one
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ASCII = bytes(range(0x80))
_MAX_NON_ASCII = 0.3
"""A text that is not UTF-8 is read as Latin-1 only up to this share of non-ASCII bytes."""


def read_bytes(path: Path) -> bytes:
    """Read a file's bytes, decompressed when its name ends in ``.gz``.

    Raises:
        HarnessError: the file does not exist or cannot be read.
    """
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix.lower() == ".gz" else data
    except (FileNotFoundError, NotADirectoryError):
        raise HarnessError(f"{path}: no such file{near(path)}") from None
    except (OSError, EOFError, zlib.error) as e:
        raise HarnessError(f"{path}: cannot be read ({e})") from e


def decode(data: bytes, *, path: Path, encoding: str = "auto", log: ReadLog | None = None) -> str:
    """Decode ``data`` to text without a byte order mark and with line feeds as line endings.

    Args:
        data: the file's bytes.
        path: for error messages.
        encoding: a codec name, or ``auto``: that of the byte order mark, else UTF-8, else Latin-1.
        log: receives the encoding, and a warning when ``auto`` fell back to Latin-1.

    Raises:
        HarnessError: the bytes are not valid in this encoding, or the encoding is unknown.
    """
    log = log or ReadLog()
    if encoding == "auto":
        text = _auto(data, path, log)
    else:
        text = _strict(data, path, encoding)
        log.given(path, "encoding", encoding)
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    # carriage returns end lines only in a text without line feeds (old Mac files)
    return text if "\n" in text else text.replace("\r", "\n")


def open_text(path: Path, *, encoding: str = "auto", log: ReadLog | None = None) -> io.StringIO:
    """Open the file's text (see :func:`decode`) as a stream; iterating yields lines, split at line feeds
    only."""
    return io.StringIO(decode(read_bytes(path), path=path, encoding=encoding, log=log), newline="\n")


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file's content as hex, independent of a text's line endings, byte order mark
    and compression; binary files are hashed unchanged."""
    data = read_bytes(path)
    if b"\0" not in data:
        data = data.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    return hashlib.sha256(data).hexdigest()


def _auto(data: bytes, path: Path, log: ReadLog) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            log.recognised(path, "encoding", encoding)
            return _strict(data, path, encoding)
    if b"\0" in data[:4096]:
        raise HarnessError(
            f"{path}: not a text file (it contains zero bytes); set task.format or task.encoding"
        )
    try:
        text = data.decode("utf-8")
        log.recognised(path, "encoding", "utf-8")
        return text
    except UnicodeDecodeError as e:
        head = data[: 1 << 20]
        share = len(head.translate(None, _ASCII)) / len(head)
        if share > _MAX_NON_ASCII:
            raise HarnessError(
                f"{path}: neither UTF-8 nor, with {share:.0%} non-ASCII bytes, Latin-1; set its encoding, "
                "such as task.encoding=cp949, gb18030, shift_jis, cp1251"
            ) from None
        line = data.count(b"\n", 0, e.start) + 1
        log.warn(f"{path.name} is not UTF-8 (line {line}) and was read as latin-1")
        log.recognised(path, "encoding", "latin-1")
        return data.decode("latin-1")


def _strict(data: bytes, path: Path, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except LookupError:
        raise HarnessError(f"unknown encoding {encoding!r}; try auto, utf-8, latin-1 or cp1252") from None
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        bad = data[e.start : e.start + 1]
        raise HarnessError(
            f"{path}, line {line}: byte {bad!r} is not valid {encoding}; set task.encoding (auto, ...)"
        ) from None


def near(path: Path) -> str:
    """Describe the folder of a missing file, as the end of an error message."""
    parent = path.parent
    if not parent.is_dir():
        return f" (nor a folder {parent})"
    names = [p.name for p in parent.iterdir() if not p.name.startswith(".")]
    return f" in {parent.resolve()}; {did_you_mean(path.name, names)}" if names else f" ({parent} is empty)"
