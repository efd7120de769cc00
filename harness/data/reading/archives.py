"""Compressed files and archives: gzip, bzip2, xz, zip and tar.

They are recognised by their first bytes, not by their names. One file of an archive that contains several
is named ``ARCHIVE::FILE``. Sizes are bounded by :func:`_limit`, so that a small hostile file cannot fill the
memory.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import IO

from harness.core.files import PART, split_part
from harness.data.reading.log import ReadLog, ambiguous
from harness.errors import HarnessError, did_you_mean

_MIN_LIMIT = 100 << 20
_MAX_RATIO = 200
_MAX_DEPTH = 3
_CHUNK = 1 << 20
_REFUSED = ((b"7z\xbc\xaf\x27\x1c", "7z"), (b"Rar!\x1a\x07", "rar"), (b"\x28\xb5\x2f\xfd", "zstd"))
_NO_DATA = ("readme", "license", "licence", "changelog", "citation", "notice")


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Content of a file.

    Attributes:
        data: its bytes, decompressed.
        name: name of the innermost file, whose suffix tells its format.
        part: what remains of the part after ``::``, such as a key of a JSON file.
    """

    data: bytes
    name: PurePath
    part: str | None


def unpack(path: Path, part: str | None, data: bytes, log: ReadLog) -> Unpacked:
    """Decompress a file, and take the one file with data out of an archive.

    Args:
        path: the file, with its part.
        part: the file to take out of an archive; None = the only one that may contain data.
        data: the file's bytes.
        log: receives compression and archive member.

    Raises:
        HarnessError: a damaged, encrypted or unsupported archive, one that is far larger than its size
            allows, or one with several files of which none is named.
    """
    name, limit = PurePath(split_part(path)[0].name), _limit(len(data))
    for _ in range(_MAX_DEPTH):
        kind = _kind(data, path)
        if kind is None:
            return Unpacked(data, name, part)
        with _damaged(path, kind):
            if kind in _STREAMS:
                log.recognised(path, "compression", kind)
                with _STREAMS[kind](io.BytesIO(data)) as stream:
                    data, name = _bounded(stream, limit, path), _without_suffix(name)
            else:
                members = (_zip_members if kind == "zip" else _tar_members)(data, path)
                given = part is not None
                chosen, part = _choose(members, part, path)
                log.fact(path, "archive member", chosen, given=given)
                data, name = members[chosen](limit), PurePath(chosen)
    raise HarnessError(f"{path}: archives within archives; unpack it first")


def _limit(size: int) -> int:
    """Return the largest accepted size of a compressed file's content in bytes."""
    return max(_MIN_LIMIT, _MAX_RATIO * size)


def _kind(data: bytes, path: Path) -> str | None:
    if data.startswith(b"\x1f\x8b"):
        return "gzip"
    if data.startswith(b"BZh") and data[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return "bzip2"
    if data.startswith(b"\xfd7zXZ\x00"):
        return "xz"
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if data[257:262] == b"ustar":
        return "tar"
    for magic, kind in _REFUSED:
        if data.startswith(magic):
            raise HarnessError(f"{path}: a {kind} archive; unpack it first")
    return None


@contextmanager
def _damaged(path: Path, kind: str) -> Iterator[None]:
    """Convert every error of the standard library's readers, which raise many types on damaged files."""
    try:
        yield
    except HarnessError:
        raise
    except NotImplementedError as e:
        raise HarnessError(
            f"{path}: {kind} archive with an unsupported method ({e}); unpack it first"
        ) from None
    except Exception as e:
        raise HarnessError(f"{path}: cannot be read, the {kind} data are damaged ({e})") from e


def _bounded(stream: IO[bytes] | io.BufferedIOBase, limit: int, path: Path) -> bytes:
    out = io.BytesIO()
    while chunk := stream.read(_CHUNK):
        out.write(chunk)
        if out.tell() > limit:
            raise HarnessError(
                f"{path}: unpacks to more than {limit >> 20} MiB, over {_MAX_RATIO} times its size; if that "
                "is right, unpack it first"
            )
    return out.getvalue()


def _without_suffix(name: PurePath) -> PurePath:
    suffix = name.suffix.lower()
    if suffix in (".tgz", ".tbz2", ".txz"):
        return name.with_suffix(".tar")
    return name.with_suffix("") if suffix in (".gz", ".bz2", ".xz") else name


class _Member:
    """A file of an archive; calling it returns its bytes."""

    def __init__(self, archive: zipfile.ZipFile | tarfile.TarFile, info: object, path: Path) -> None:
        self.archive, self.info, self.path = archive, info, path

    def __call__(self, limit: int) -> bytes:
        if isinstance(self.info, zipfile.ZipInfo):
            assert isinstance(self.archive, zipfile.ZipFile)
            _check_zip(self.info, self.path)
            stream: IO[bytes] | None = self.archive.open(self.info)
        else:
            assert isinstance(self.archive, tarfile.TarFile)
            assert isinstance(self.info, tarfile.TarInfo)
            stream = self.archive.extractfile(self.info)
        if stream is None:
            raise HarnessError(f"{self.path}: cannot be read; unpack it first")
        with stream:
            return _bounded(stream, limit, self.path)


def _zip_members(data: bytes, path: Path) -> dict[str, _Member]:
    archive = zipfile.ZipFile(io.BytesIO(data))
    names = archive.namelist()
    if "[Content_Types].xml" in names:
        raise HarnessError(f"{path}: an Office document (such as .xlsx); save the table as csv")
    return {info.filename: _Member(archive, info, path) for info in archive.infolist() if not info.is_dir()}


def _check_zip(info: zipfile.ZipInfo, path: Path) -> None:
    where = f"{path}: {info.filename}"
    if info.flag_bits & 1:
        raise HarnessError(f"{where} is encrypted; unpack it first with its password")
    if info.compress_type == 9:
        raise HarnessError(f"{where} uses Deflate64, which Python cannot read; unpack it first")


def _tar_members(data: bytes, path: Path) -> dict[str, _Member]:
    archive = tarfile.open(fileobj=io.BytesIO(data), mode="r:")  # noqa: SIM115, read by the members
    return {
        info.name: _Member(archive, info, path) for info in archive if info.isreg() and not info.issparse()
    }


def _choose(
    members: Sequence[str] | dict[str, _Member], part: str | None, path: Path
) -> tuple[str, str | None]:
    """Return the member that is read, and the rest of the part."""
    names = list(members)
    if part is not None:
        inner, _, rest = part.partition(PART)
        matches = [name for name in names if inner in (name, PurePath(name).name)]
        if len(matches) == 1:
            return matches[0], rest or None
        raise HarnessError(f"{path}: contains no single file {inner}; {did_you_mean(inner, names)}")
    data = [name for name in names if _may_contain_data(PurePath(name))]
    if len(data) == 1:
        return data[0], None
    if not data:
        raise HarnessError(f"{path}: the archive contains no data file")
    shown = {name: f"task.train={path}{PART}{name}" for name in data[:10]}
    raise ambiguous(path, f"which of the {len(data)} files in the archive", shown)


def _may_contain_data(name: PurePath) -> bool:
    hidden = any(part.startswith((".", "__MACOSX")) for part in name.parts)
    return not hidden and not name.name.lower().startswith(_NO_DATA)


_STREAMS: dict[str, Callable[[io.BytesIO], io.BufferedIOBase]] = {
    "gzip": lambda data: gzip.GzipFile(fileobj=data),
    "bzip2": bz2.open,
    "xz": lzma.open,
}
