"""Compressed files and archives, valid and hostile."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from harness.core.fingerprint import files_fingerprint
from harness.data.reading import archives
from harness.data.reading.files import fingerprint
from harness.data.reading.locate import named_files
from harness.data.reading.log import ReadLog
from harness.data.reading.tables import read_table
from harness.errors import HarnessError

CSV = b"text,label\na film,x\n"


def zipped(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "."), data)
    return out.getvalue()


def tarred(mode: str = "w:gz", **files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name.replace("__", "."))
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv.gz", gzip.compress(CSV)),
        ("a.csv.bz2", bz2.compress(CSV)),
        ("a.csv.xz", lzma.compress(CSV)),
        ("several.csv.bz2", bz2.compress(CSV[:9]) + bz2.compress(CSV[9:])),
        ("a.zip", zipped(a__csv=CSV)),
        ("notes.zip", zipped(README__md=b"x", a__csv=CSV)),
        ("a.tar.gz", tarred(a__csv=CSV)),
        ("a.tgz", tarred(a__csv=CSV)),
        ("a.tar", tarred("w", a__csv=CSV)),
        ("a.tar.xz", tarred("w:xz", a__csv=CSV)),
        ("unnamed", gzip.compress(b"__label__x a film\n")),
    ],
)
def test_packed_data_are_read_and_fingerprinted_as_their_content(
    tmp_path: Path, name: str, data: bytes
) -> None:
    path, log = write(tmp_path / name, data), ReadLog()
    table = read_table(path, log=log)
    assert (list(table.data["text"]), list(table.data["label"])) == (["a film"], ["x"])
    assert {"compression", "archive member"} & set(log.facts[str(path)])
    if name != "unnamed":
        assert fingerprint(path) == fingerprint(write(tmp_path / "plain.csv", CSV))


def test_a_file_of_an_archive_is_named_after_two_colons(tmp_path: Path) -> None:
    path = write(tmp_path / "all.zip", zipped(train__csv=CSV, test__csv=CSV + b"b,y\n"))
    with pytest.raises(HarnessError, match=r"which of the 2 files in the archive\? .*all\.zip::train\.csv"):
        read_table(path)
    part = Path(f"{path}::test.csv")
    assert len(read_table(part)) == 2
    assert named_files(str(part), "test") == [part]
    assert files_fingerprint({"test": part}, of=fingerprint) != files_fingerprint(
        {"test": Path(f"{path}::train.csv")}, of=fingerprint
    )
    with pytest.raises(HarnessError, match=r"no single file tset\.csv; did you mean test\.csv"):
        read_table(Path(f"{path}::tset.csv"))


def patched(data: bytes, *, flags: int | None = None, method: int | None = None) -> bytes:
    """A zip with one file whose flags or compression method are changed in both headers."""
    out, central = bytearray(data), data.index(b"PK\x01\x02")
    for offset, value in ((0, flags), (2, method)):
        if value is not None:
            out[6 + offset] = out[central + 8 + offset] = value
    return bytes(out)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.zip", patched(zipped(a__csv=CSV), flags=1), "a.csv is encrypted; unpack it first"),
        ("a.zip", patched(zipped(a__csv=CSV), method=9), "Deflate64"),
        ("a.zip", patched(zipped(a__csv=CSV), method=95), "unsupported method"),
        ("a.zip", zipped(a__csv=CSV)[:-30], "the zip data are damaged"),
        ("a.zip", zipped(a__csv=CSV).replace(b"film", b"mlif"), "the zip data are damaged"),
        ("a.zip", zipped(README__md=b"x"), "contains no data file"),
        ("a.csv.gz", gzip.compress(CSV)[:-5], "the gzip data are damaged"),
        ("a.csv.gz", b"not compressed", "not gzip data"),
        ("a.csv.bz2", bz2.compress(CSV)[:-5], "the bzip2 data are damaged"),
        ("a.csv.xz", lzma.compress(CSV)[:-5], "the xz data are damaged"),
        ("a.tar", tarred("w", a__csv=CSV)[:515], "damaged"),
        ("a.7z", b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first"),
        ("a.rar", b"Rar!\x1a\x07", "a rar archive"),
        ("a.csv.zst", b"\x28\xb5\x2f\xfd", "a zstd archive"),
        ("a.xlsx", zipped(**{"[Content_Types]__xml": b"", "b__xml": b""}), "an Office document"),
        (
            "deep.gz",
            gzip.compress(gzip.compress(gzip.compress(gzip.compress(CSV)))),
            "archives within archives",
        ),
    ],
)
def test_damaged_and_unsupported_archives_are_one_line(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    with pytest.raises(HarnessError, match=message) as error:
        read_table(write(tmp_path / name, data))
    assert str(tmp_path / name) in str(error.value)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, lambda d: zip_one(d)])
def test_a_decompression_bomb_is_refused(
    tmp_path: Path, pack: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content may be 200 times as large as the file, or of a minimum size that is lowered here."""
    monkeypatch.setattr(archives, "_MIN_LIMIT", 1 << 16)
    with pytest.raises(HarnessError, match="over 200 times its size"):
        read_table(write(tmp_path / "a.csv", pack(bytes(1 << 22))))  # type: ignore[operator]


def zip_one(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", data)
    return out.getvalue()


def test_a_sparse_file_of_a_tar_is_left_out(tmp_path: Path) -> None:
    """A sparse entry declares terabytes of zeros in a few bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        info = tarfile.TarInfo("a.csv")
        info.type = tarfile.GNUTYPE_SPARSE
        archive.addfile(info)
    with pytest.raises(HarnessError):
        read_table(write(tmp_path / "a.tar", out.getvalue()))
