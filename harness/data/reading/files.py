"""Text files: encodings, byte order marks, line endings and compression.

All text is read with :func:`open_text`, so that the same data with Windows line endings, a byte order mark or
compression give the same text and the same :func:`fingerprint`.
"""

from __future__ import annotations

import codecs
import hashlib
import io
from pathlib import Path

from harness.core.files import split_part
from harness.data.reading.archives import Unpacked, unpack
from harness.data.reading.encodings import decode_text
from harness.data.reading.log import ReadLog
from harness.errors import HarnessError, did_you_mean


def read_file(path: Path, *, log: ReadLog | None = None) -> Unpacked:
    """Read a file's bytes, decompressed and taken out of an archive; ``path`` may be ``ARCHIVE::FILE``.

    Raises:
        HarnessError: the file does not exist or cannot be read.
    """
    file, part = split_part(path)
    try:
        data = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise HarnessError(f"{file}: no such file{near(file)}") from None
    except (OSError, ValueError) as e:
        raise HarnessError(f"{file}: cannot be read ({e})") from e
    if file.suffix.lower() == ".gz" and not data.startswith(b"\x1f\x8b"):
        raise HarnessError(f"{file}: cannot be read (not gzip data, in spite of the name)")
    return unpack(path, part, data, log or ReadLog())


def read_bytes(path: Path, *, log: ReadLog | None = None) -> bytes:
    """Read the bytes of a file, see :func:`read_file`."""
    return read_file(path, log=log).data


def decode(data: bytes, *, path: Path, encoding: str = "auto", log: ReadLog | None = None) -> str:
    """Decode ``data`` to text without a byte order mark and with line feeds as line endings.

    Args:
        data: the file's bytes.
        path: for error messages.
        encoding: see :func:`harness.data.reading.encodings.decode_text`.
        log: receives the encoding and warnings.

    Raises:
        HarnessError: the bytes are not valid in this encoding, the encoding is unknown, or several are
            plausible.
    """
    text = decode_text(data, path, str(encoding), log or ReadLog()).replace("\r\n", "\n")
    # carriage returns end lines only in a text without line feeds (old Mac files)
    return text if "\n" in text else text.replace("\r", "\n")


def open_text(path: Path, *, encoding: str = "auto", log: ReadLog | None = None) -> io.StringIO:
    """Open the file's text (see :func:`decode`) as a stream; iterating yields lines, split at line feeds
    only."""
    text = decode(read_bytes(path, log=log), path=path, encoding=encoding, log=log)
    return io.StringIO(text, newline="\n")


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file's content as hex, independent of a text's line endings, byte order mark
    and compression; binary files are hashed unchanged."""
    data = read_bytes(path)
    if b"\0" not in data:
        data = data.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    return hashlib.sha256(data).hexdigest()


def near(path: Path) -> str:
    """Describe the folder of a missing file, as the end of an error message."""
    parent = path.parent
    if not parent.is_dir():
        return f" (nor a folder {parent})"
    names = [p.name for p in parent.iterdir() if not p.name.startswith(".")]
    return f" in {parent.resolve()}; {did_you_mean(path.name, names)}" if names else f" ({parent} is empty)"
