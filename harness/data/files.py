"""Text files as they come: encodings, byte order marks, line ends, compression; and where splits lie.

Everything that reads a text goes through :func:`open_text`, so the same data with Windows line ends, with a
byte order mark or gzipped is the same data, and :func:`fingerprint` says so.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, did_you_mean

ROLES = ("train", "dev", "test")
NONE = "none"
"""Value of ``dev`` that asks for no split at all, where null asks for one to be cut."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as UTF-16's does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ASCII = bytes(range(0x80))
_FOREIGN = 0.3
"""Share of bytes beyond ASCII above which a text that is not UTF-8 is no Latin-1 either."""


def read_bytes(path: Path) -> bytes:
    """The file's bytes, unpacked when its name ends in ``.gz``.

    Raises:
        HarnessError: there is no such file, or it cannot be read.
    """
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix.lower() == ".gz" else data
    except (FileNotFoundError, NotADirectoryError):
        raise HarnessError(f"{path}: no such file{_near(path)}") from None
    except (OSError, EOFError, zlib.error) as e:
        raise HarnessError(f"{path}: cannot be read ({e})") from e


def decode(data: bytes, *, path: Path, encoding: str = "auto", notes: list[str] | None = None) -> str:
    """Text of ``data`` without a byte order mark, all lines ended by a line feed.

    Args:
        data: the file's bytes.
        path: for messages.
        encoding: a codec's name, or ``auto``: as the byte order mark says, else UTF-8, else Latin-1.
        notes: gets a sentence when ``auto`` fell back to Latin-1.

    Raises:
        HarnessError: the bytes are not text of this encoding, or there is no such encoding.
    """
    text = _auto(data, path, notes) if encoding == "auto" else _strict(data, path, encoding)
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    # a lone carriage return ends lines only where nothing else does; elsewhere it is part of a line
    return text if "\n" in text else text.replace("\r", "\n")


def open_text(path: Path, *, encoding: str = "auto", notes: list[str] | None = None) -> io.StringIO:
    """The file's text (see :func:`decode`) as a stream; iterating gives lines, broken at line feeds only."""
    return io.StringIO(decode(read_bytes(path), path=path, encoding=encoding, notes=notes), newline="\n")


def fingerprint(path: Path) -> str:
    """Hex digest of a file's content; the same for the same text whatever its line ends, byte order mark or
    compression. Binary files count byte by byte."""
    data = read_bytes(path)
    if b"\0" not in data:
        data = data.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    return hashlib.sha256(data).hexdigest()


def locate(config: Mapping[str, Any]) -> dict[str, list[Path]]:
    """Local files of each split a task's configuration names; empty when it names none.

    ``train``, ``dev`` and ``test`` name files (or patterns such as ``data/train-*.parquet``, or lists of
    them); what they leave open is looked up in the folder ``path`` under the names that ``files`` lists for
    it; the first that is there counts.

    Raises:
        HarnessError: a named file is missing, or ``path`` holds none for train.
    """
    found: dict[str, list[Path]] = {}
    folder = _folder(config)
    candidates = config.get("files") or {}
    for role in ROLES:
        given = config.get(role)
        if is_none(given):
            continue
        if given:
            found[role] = _given(given, role)
        elif folder is not None:
            found |= _first(folder, candidates.get(role), role)
    if folder is not None and "train" not in found:
        tried = ", ".join(_as_list(candidates.get("train"))) or "nothing: this task knows no file names"
        raise HarnessError(
            f"task.path={folder}: no training file there (looked for {tried}); name it with task.train=FILE"
        )
    return found


def is_none(value: Any) -> bool:
    """Whether a split's setting asks for no split at all."""
    return isinstance(value, str) and value.lower() == NONE


def by_role(located: Mapping[str, Sequence[Path]]) -> dict[str, Path]:
    """One path a role, as ``_files_`` functions return them; further files of a split are ``train-1``, ..."""
    return {
        role if i == 0 else f"{role}-{i}": path
        for role, paths in located.items()
        for i, path in enumerate(paths)
    }


def _auto(data: bytes, path: Path, notes: list[str] | None) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _strict(data, path, encoding)
    if b"\0" in data[:4096]:
        raise HarnessError(f"{path}: not a text file (it holds zero bytes); name its format or encoding")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        head = data[: 1 << 20]
        beyond = len(head.translate(None, _ASCII)) / len(head)
        if beyond > _FOREIGN:
            raise HarnessError(
                f"{path}: neither UTF-8 nor, with {beyond:.0%} of its bytes beyond ASCII, Latin-1; give its "
                "encoding, such as task.encoding=cp949, gb18030, shift_jis, cp1251"
            ) from None
        if notes is not None:
            line = data.count(b"\n", 0, e.start) + 1
            notes.append(f"{path.name} is not UTF-8 (line {line}) and was read as latin-1")
        return data.decode("latin-1")


def _strict(data: bytes, path: Path, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except LookupError:
        raise HarnessError(
            f"encoding {encoding!r} is not known; try auto, utf-8, latin-1 or cp1252"
        ) from None
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        bad = data[e.start : e.start + 1]
        raise HarnessError(
            f"{path}, line {line}: byte {bad!r} is not {encoding}; give the encoding (auto, latin-1, ...)"
        ) from None


def _folder(config: Mapping[str, Any]) -> Path | None:
    if not config.get("path"):
        return None
    folder = Path(str(config["path"])).expanduser()
    if not folder.is_dir():
        what = "is a file; give its folder, or task.train=FILE" if folder.exists() else "no such folder"
        raise HarnessError(f"task.path={folder}: {what}{'' if folder.exists() else _near(folder)}")
    return folder


def _given(given: Any, role: str) -> list[Path]:
    paths: list[Path] = []
    for one in _as_list(given):
        path = Path(one).expanduser()
        if path.is_file():
            paths.append(path)
        elif path.is_dir():
            raise HarnessError(f"task.{role}={one}: is a folder; name a file or a pattern in it")
        else:
            matches = _glob(path)
            if not matches:
                raise HarnessError(f"task.{role}={one}: no such file{_near(path)}")
            paths += matches
    return paths


def _first(folder: Path, candidates: Any, role: str) -> dict[str, list[Path]]:
    for name in _as_list(candidates):
        matches = _glob(folder / name)
        if len({tuple(p.suffixes) for p in matches}) > 1:
            names = ", ".join(p.name for p in matches)
            raise HarnessError(f"{folder}: which is {role}: {names}? Name it with task.{role}=FILE")
        if matches:
            return {role: matches}
    return {}


def _glob(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    base = Path(path.anchor or ".")
    pattern = str(path.relative_to(path.anchor)) if path.anchor else str(path)
    if not any(c in pattern for c in "*?["):
        return []
    return sorted(p for p in base.glob(pattern) if p.is_file())


def _as_list(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(value)] if isinstance(value, str | Path) else [str(v) for v in value]


def _near(path: Path) -> str:
    """What lies beside a missing file, as the end of a message."""
    parent = path.parent
    if not parent.is_dir():
        return f" (nor a folder {parent})"
    names = [p.name for p in parent.iterdir() if not p.name.startswith(".")]
    return f" in {parent.resolve()}; {did_you_mean(path.name, names)}" if names else f" ({parent} is empty)"
