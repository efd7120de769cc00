"""Word-vector files: GloVe text, word2vec text and binary; plain, gzipped or in a zip.

The format is found from the content, never from the name:

===============  ==========================================================================================
word2vec binary  header ``<words> <numbers>``, then for each word its bytes, one blank, ``4 * dim`` bytes of
                 little-endian float32, with or without a newline behind them
word2vec text    the same header, then one line a word: the word, blanks, ``dim`` numbers
GloVe text       the same lines without the header
===============  ==========================================================================================

In text the last ``dim`` fields of a line are the vector and all before them is the word, so words may hold
blanks or look like numbers. :mod:`harness.encoders.static.vector_chunks` reads them. Imports no torch.
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
FIELD = re.compile(rb"[^ \t]+")
_LONGEST_WORD = 4096


@dataclass(frozen=True, slots=True)
class Layout:
    """What a file turned out to be.

    Attributes:
        binary: word2vec binary, else text.
        dim: numbers a word.
        count: words the header promises, None without a header.
        skip: bytes before the first word (byte order mark, header).
        separator: between the fields of a text line.
    """

    binary: bool
    dim: int
    count: int | None
    skip: int
    separator: bytes = b" "


@contextmanager
def open_bytes(path: Path, member: str | None = None) -> Iterator[IO[bytes]]:
    """The uncompressed bytes of a plain, gzipped or zipped file, told by its first bytes.

    Args:
        path: the file.
        member: the file wanted inside a zip; may be left out when the zip holds one file, and is ignored
            where the file is no zip.

    Raises:
        HarnessError: missing, unreadable, damaged, or a zip without that member.
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
        raise HarnessError(f"{path}: damaged or incomplete ({e}); fetch it again") from e
    except OSError as e:
        raise HarnessError(f"{path}: cannot be read ({e.strerror or e})") from e


def _member(path: Path, archive: zipfile.ZipFile, member: str | None) -> str:
    names = [i.filename for i in archive.infolist() if not i.is_dir() and "__MACOSX" not in i.filename]
    if member is None and len(names) == 1:
        return names[0]
    if member in names:
        return str(member)
    if member is None:
        raise HarnessError(f"{path}: holds {', '.join(names)}; say which with encoder.member=NAME")
    raise HarnessError(f"{path}: holds no file {member}, {did_you_mean(member, names)}")


def detect(path: Path, *, member: str | None = None, dim: int | None = None) -> Layout:
    """Find a file's format from its first megabyte.

    Args:
        path, member: as in :func:`open_bytes`.
        dim: numbers a word; found from the header, or the commonest line length, when None.

    Raises:
        HarnessError: the file is empty or holds no word vectors.
    """
    with open_bytes(path, member) as stream:
        head = read_exactly(stream, _HEAD)
        whole = not stream.read(1)
    bom = 3 if head.startswith(b"\xef\xbb\xbf") else 0
    header = _HEADER.match(head, bom)
    if not head[bom:].strip():
        raise HarnessError(f"{path}: is empty; word vectors are wanted")
    if header:
        return _with_header(path, head, header, whole=whole, dim=dim)
    lines = _whole_lines(head[bom:], whole=whole)
    if not lines or b"\0" in head:
        raise HarnessError(f"{path}: {_WANTED}; a fastText model (.bin) is read by encoder=fasttext")
    separator = _separator(lines)
    found = dim or _commonest_dim(lines)
    if found < 1:
        raise HarnessError(f"{path}, line 1: {show(lines[0])} has no vector; {_WANTED}")
    return Layout(binary=False, dim=found, count=None, skip=bom, separator=separator)


_WANTED = "GloVe text, word2vec text or word2vec binary is wanted"


def _with_header(path: Path, head: bytes, header: re.Match[bytes], *, whole: bool, dim: int | None) -> Layout:
    count, found = int(header[1]), int(header[2])
    if count == 0 or found == 0:
        raise HarnessError(f"{path}, line 1: the header {show(header[0])} promises no vectors")
    if dim is not None and dim != found:
        raise HarnessError(
            f"{path}, line 1: the header says {found} numbers a word, encoder.dim={dim} does not fit"
        )
    body = head[header.end() :]
    lines = _whole_lines(body, whole=whole)
    fields = lines[0].split() if lines else []
    text = len(fields) > found and all(number_in(f) is not None for f in fields[-found:])
    binary = not text and _walks_as_binary(body, count=count, dim=found, whole=whole)
    separator = _separator(lines) if lines and not binary else b" "
    return Layout(binary=binary, dim=found, count=count, skip=header.end(), separator=separator)


def _walks_as_binary(body: bytes, *, count: int, dim: int, whole: bool) -> bool:
    if b"\0" in body:  # in floats, never in text; what is cut short is then said of the right format
        return True
    at = 0
    for _ in range(min(count, 20)):
        blank = body.find(b" ", at, at + _LONGEST_WORD)
        if blank < 0 or blank + 1 + 4 * dim > len(body):
            return not whole and len(body) - at < _LONGEST_WORD + 4 * dim and at > 0
        if b"\n" in body[at:blank].lstrip(b"\n"):
            return False
        at = blank + 1 + 4 * dim
    return True


def _separator(lines: Sequence[bytes]) -> bytes:
    return b"\t" if lines[0].count(b"\t") > lines[0].count(b" ") else b" "


def _commonest_dim(lines: Sequence[bytes]) -> int:
    """Fields but the word; words with blanks have more, so of equally common ones the smallest."""
    counts = Counter(len(FIELD.findall(line.rstrip())) - 1 for line in lines if line.strip())
    most = max(counts.values())
    return min(n for n, c in counts.items() if c == most)


def _whole_lines(data: bytes, *, whole: bool) -> list[bytes]:
    lines = data.split(b"\n")
    if not whole or not lines[-1]:
        lines = lines[:-1]
    return lines


def number_in(field: bytes) -> float | None:
    """The number a field spells, None when it spells none."""
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


def show(data: bytes, most: int = 60) -> str:
    """The start of ``data`` as an error message quotes it."""
    text = repr(data[: most + 1].decode("utf-8", "replace").strip("\r\n"))
    return text if len(data) <= most else text[:most] + "...'"


def read_exactly(stream: IO[bytes], size: int) -> bytes:
    """Exactly ``size`` bytes unless the stream ends before."""
    out = bytearray()
    while len(out) < size and (data := stream.read(size - len(out))):
        out += data
    return bytes(out)
