"""Word-vector files: GloVe text, word2vec text and binary; plain, gzipped or in a zip.

The format is detected from the content, never from the name:

===============  ==========================================================================================
word2vec binary  header ``<words> <dim>``, then for each word its bytes, one space, ``4 * dim`` bytes of
                 little-endian float32, with or without a newline after them
word2vec text    the same header, then one line per word: the word, spaces, ``dim`` numbers
GloVe text       the same lines without the header
===============  ==========================================================================================

In text files the last ``dim`` fields of a line are the vector and everything before them is the word, so
words may contain spaces or look like numbers. :mod:`harness.encoders.static.vector_chunks` reads the files.
Imports no torch.
"""

from __future__ import annotations

import gzip
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness.errors import HarnessError, did_you_mean

_HEAD = 1 << 20
_HEADER = re.compile(rb"[ \t]*(\d+)[ \t]+(\d+)[ \t]*\r?\n")
MAX_DIM = 100_000
"""Largest vector size that is read."""
_MAX_DIGITS, _BLOCK = 15, 16 << 20
FIELD = re.compile(rb"[^ \t]+")
_LONGEST_WORD = 4096


@dataclass(frozen=True, slots=True)
class Layout:
    """Detected format of a file.

    Attributes:
        binary: True for word2vec binary, False for text.
        dim: vector size.
        count: number of words that the header declares; None without a header.
        skip: bytes before the first word (byte order mark, header).
        separator: separator of the fields of a text line.
    """

    binary: bool
    dim: int
    count: int | None
    skip: int
    separator: bytes = b" "


@contextmanager
def open_bytes(path: Path, member: str | None = None) -> Iterator[IO[bytes]]:
    """Open a plain, gzipped or zipped file as uncompressed bytes; detect compression by the first bytes.

    Args:
        path: the file.
        member: name of the file inside a zip; optional if the zip contains a single file, ignored if the file
            is not a zip.

    Raises:
        HarnessError: the file is missing, unreadable or damaged, or is a zip without ``member``.
    """
    try:
        with path.open("rb") as raw:
            magic = raw.read(4)
            raw.seek(0)
            if magic[:2] == b"\x1f\x8b":
                with gzip.open(raw) as f:
                    yield io.BufferedReader(f, _HEAD)
            elif magic == b"PK\x03\x04":
                with zipfile.ZipFile(raw) as archive, archive.open(_member(path, archive, member)) as f:
                    yield f
            else:
                yield raw
    except (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile) as e:
        raise HarnessError(f"{path}: damaged or incomplete ({e}); download it again") from e
    except OSError as e:
        raise HarnessError(f"{path}: cannot be read ({e.strerror or e})") from e


def _member(path: Path, archive: zipfile.ZipFile, member: str | None) -> str:
    names = [i.filename for i in archive.infolist() if not i.is_dir() and "__MACOSX" not in i.filename]
    if member is None and len(names) == 1:
        return names[0]
    if member in names:
        return str(member)
    if member is None:
        raise HarnessError(f"{path}: contains {', '.join(names)}; choose one with encoder.member=NAME")
    raise HarnessError(f"{path}: contains no file {member}, {did_you_mean(member, names)}")


def detect(path: Path, *, member: str | None = None, dim: int | None = None) -> Layout:
    """Detect a file's format from its first megabyte.

    Args:
        path, member: as in :func:`open_bytes`.
        dim: vector size; None = from the header, or from the most common line length.

    Raises:
        HarnessError: the file is empty or contains no word vectors.
    """
    with open_bytes(path, member) as stream:
        head = read_exactly(stream, _HEAD)
        complete = not stream.read(1)
    bom = 3 if head.startswith(b"\xef\xbb\xbf") else 0
    header = _HEADER.match(head, bom)
    if not head[bom:].strip():
        raise HarnessError(f"{path}: is empty; expected word vectors")
    if header:
        return _with_header(path, head, header, complete=complete, dim=dim)
    lines = _complete_lines(head[bom:], complete=complete)
    if not lines or b"\0" in head:
        raise HarnessError(f"{path}: {_EXPECTED}; for a fastText model (.bin) use encoder=fasttext")
    separator = _separator(lines)
    detected = dim or _most_common_dim(lines)
    if detected > MAX_DIM:
        raise HarnessError(f"{path}, line 1: {detected} numbers, at most {MAX_DIM}; {_EXPECTED}")
    if detected < 1:
        raise HarnessError(f"{path}, line 1: {show(lines[0])} has no vector; {_EXPECTED}")
    return Layout(binary=False, dim=detected, count=None, skip=bom, separator=separator)


_EXPECTED = "expected GloVe text, word2vec text or word2vec binary"


def _with_header(
    path: Path, head: bytes, header: re.Match[bytes], *, complete: bool, dim: int | None
) -> Layout:
    if max(len(header[1]), len(header[2])) > _MAX_DIGITS or int(header[2]) > MAX_DIM:
        raise HarnessError(
            f"{path}, line 1: the header {show(header[0])} declares more than {MAX_DIM} dimensions or 10^15 "
            f"words; {_EXPECTED}"
        )
    count, declared = int(header[1]), int(header[2])
    if count == 0 or declared == 0:
        raise HarnessError(f"{path}, line 1: the header {show(header[0])} declares no vectors")
    if complete and 2 * declared > len(head):
        raise HarnessError(
            f"{path}, line 1: the header {show(header[0])} declares vectors of {declared} numbers, "
            f"but the file "
            f"has {len(head)} bytes"
        )
    if dim is not None and dim != declared:
        raise HarnessError(
            f"{path}, line 1: encoder.dim={dim} does not match the vector size {declared} of the header"
        )
    body = head[header.end() :]
    lines = _complete_lines(body, complete=complete)
    fields = lines[0].split() if lines else []
    text = len(fields) > declared and all(number_in(f) is not None for f in fields[-declared:])
    binary = not text and _parses_as_binary(body, count=count, dim=declared, complete=complete)
    separator = _separator(lines) if lines and not binary else b" "
    return Layout(binary=binary, dim=declared, count=count, skip=header.end(), separator=separator)


def _parses_as_binary(body: bytes, *, count: int, dim: int, complete: bool) -> bool:
    # Zero bytes occur in floats, never in text. Deciding here gives truncated binary files the right error
    # message.
    if b"\0" in body:
        return True
    at = 0
    for _ in range(min(count, 20)):
        space = body.find(b" ", at, at + _LONGEST_WORD)
        if space < 0 or space + 1 + 4 * dim > len(body):
            return not complete and len(body) - at < _LONGEST_WORD + 4 * dim and at > 0
        if b"\n" in body[at:space].lstrip(b"\n"):
            return False
        at = space + 1 + 4 * dim
    return True


def _separator(lines: Sequence[bytes]) -> bytes:
    return b"\t" if lines[0].count(b"\t") > lines[0].count(b" ") else b" "


def _most_common_dim(lines: Sequence[bytes]) -> int:
    """Return the most common vector size; the smallest of ties, since words may contain spaces."""
    counts = Counter(len(FIELD.findall(line.rstrip())) - 1 for line in lines if line.strip())
    highest = max(counts.values())
    return min(n for n, c in counts.items() if c == highest)


def _complete_lines(data: bytes, *, complete: bool) -> list[bytes]:
    """Split into lines and drop a last line that is empty or may be cut off (``complete`` = not cut off)."""
    lines = data.split(b"\n")
    if not complete or not lines[-1]:
        lines = lines[:-1]
    return lines


def number_in(field: bytes) -> float | None:
    """Parse a field as a number; None if it is not one."""
    try:
        return None if b"_" in field else float(field)
    except ValueError:
        return None


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def show(data: bytes, max_length: int = 60) -> str:
    """Return the start of ``data`` quoted for an error message."""
    text = repr(data[: max_length + 1].decode("utf-8", "replace").strip("\r\n"))
    return text if len(data) <= max_length else text[:max_length] + "...'"


def read_exactly(stream: IO[bytes], size: int) -> bytes:
    """Read exactly ``size`` bytes, or fewer if the stream ends earlier."""
    out = bytearray()
    while len(out) < size and (data := stream.read(min(_BLOCK, size - len(out)))):
        out += data
    return bytes(out)
