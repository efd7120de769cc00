"""Decoding bytes to text: byte order marks, UTF-8 with a few bad bytes, and legacy encodings.

Encoding names mean what browsers take them for (the Encoding Standard of the WHATWG): ``latin-1`` is
windows-1252, ``gb2312`` is gb18030, ``euc-kr`` is windows-949. ``NAME:replace`` replaces invalid bytes by
U+FFFD.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from encodings.aliases import aliases
from pathlib import Path

from harness.data.reading.log import ReadLog, ambiguous
from harness.errors import HarnessError, did_you_mean

AUTO = "auto"
REPLACE = ":replace"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is a prefix of this one
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ASCII = bytes(range(0x80))
_MAX_NON_ASCII = 0.3
"""A text that is not UTF-8 is read as windows-1252 only up to this share of non-ASCII bytes."""
_MOSTLY = 10
"""A text is UTF-8 with this many valid multi-byte characters for each invalid byte."""
_BROWSERS = {
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
"""The encoding that browsers use for a name, by Python's name."""
_C1 = ("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1257", "cp1258", "cp874")
"""Encodings whose undefined bytes 0x80 to 0x9F are control characters in browsers."""
_NO_TEXT = (
    "punycode",
    "idna",
    "unicode-escape",
    "raw-unicode-escape",
    "undefined",
    "charmap",
    "utf-7",
    "mbcs",
)
_SUGGESTED = ("auto", "utf-8", "cp1252", "latin-1", "cp949", "gb18030", "shift_jis", "cp1251", "utf-16")


def decode_text(data: bytes, path: Path, encoding: str, log: ReadLog) -> str:
    """Decode a file's bytes, without a byte order mark.

    Args:
        data: the file's bytes.
        path: for messages.
        encoding: a name, optionally with ``:replace``; or ``auto``: that of the byte order mark, else UTF-8,
            else windows-1252.
        log: receives the encoding, and a warning when bytes were replaced or the text is not UTF-8.

    Raises:
        HarnessError: the bytes are not valid in this encoding, the encoding is unknown, or several are
            plausible.
    """
    if encoding == AUTO:
        text = _auto(data, path, log)
    else:
        codec = _codec(encoding.removesuffix(REPLACE))
        text = (
            _strict(data, path, codec, encoding)
            if not encoding.endswith(REPLACE)
            else _lenient(data, path, codec, log)
        )
        log.given(path, "encoding", encoding)
    return text.removeprefix("\ufeff")


def _codec(name: str) -> str:
    """Return Python's name of the encoding that browsers use for ``name``.

    Raises:
        HarnessError: an unknown encoding, or a codec that is not for text.
    """
    try:
        codec = codecs.lookup(name)
        found = codec.name if getattr(codec, "_is_text_encoding", True) else ""  # not base64, rot13, ...
    except (LookupError, ValueError):
        found = ""
    if not found or found in _NO_TEXT or name.lower().replace("_", "-") in _NO_TEXT:
        hint = did_you_mean(name, (*_SUGGESTED, *(a for a in aliases.values() if _is_listed(a))))
        hint = hint if hint.startswith("did") else f"such as {', '.join(_SUGGESTED)}"
        raise HarnessError(f"task.encoding={name!r:.40}: unknown encoding {name!r:.40}; {hint}")
    return _BROWSERS.get(found, found)


def _is_listed(alias: str) -> bool:
    """Whether an encoding in Python's table may be suggested: no binary and no pseudo encoding."""
    return not alias.endswith("_codec") and alias.replace("_", "-") not in (*_NO_TEXT, "rot-13")


def _auto(data: bytes, path: Path, log: ReadLog) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            log.recognised(path, "encoding", encoding)
            return _strict(data, path, encoding, encoding)
    if b"\0" in data:
        raise HarnessError(f"{path}, line {_line(data, data.index(0))}: {_zero_bytes(data)}")
    try:
        text = data.decode("utf-8")
        log.recognised(path, "encoding", "utf-8")
        return text
    except UnicodeDecodeError as e:
        return _not_utf8(data, path, _line(data, e.start), log)


def _zero_bytes(data: bytes) -> str:
    head = data[:4096]
    even, odd = head[::2].count(0), head[1::2].count(0)
    if len(head) > 10 and max(even, odd) * 6 > len(head):
        return f"every second byte is zero; set task.encoding=utf-16-{'be' if even > odd else 'le'}"
    return (
        "not a text file (it contains zero bytes); set task.format for a binary format, or remove the bytes. "
        "A given task.encoding keeps them"
    )


def _not_utf8(data: bytes, path: Path, line: int, log: ReadLog) -> str:
    """Decode a text that is not valid UTF-8, whose first bad byte is in ``line``."""
    text = data.decode("utf-8", "replace")
    ascii_bytes = len(data) - len(data.translate(None, _ASCII))
    bad = text.count("\ufffd") - data.count(b"\xef\xbf\xbd")
    good = len(text) - ascii_bytes - bad
    if good >= _MOSTLY * bad:
        return _lenient(data, path, "utf-8", log)
    share = 1 - ascii_bytes / len(data)
    if share > _MAX_NON_ASCII:
        raise HarnessError(
            f"{path}, line {line}: neither UTF-8 nor, with {share:.0%} non-ASCII bytes, windows-1252; set "
            "its encoding, such as task.encoding=cp949, gb18030, shift_jis, cp1251"
        )
    if good * _MOSTLY > bad:
        raise ambiguous(
            f"{path}, line {line}",
            f"which encoding ({good} characters are UTF-8, {bad} bytes are not)",
            {
                "the bytes that are not are replaced": f"task.encoding=utf-8{REPLACE}",
                "as browsers read Western texts": "task.encoding=cp1252",
            },
        )
    log.warn(f"{path.name} is not UTF-8 (line {line}) and was read as windows-1252; see task.encoding")
    log.recognised(path, "encoding", "windows-1252")
    return data.decode("cp1252", _C1_HANDLER)


def _lenient(data: bytes, path: Path, codec: str, log: ReadLog) -> str:
    """Decode with U+FFFD in place of invalid bytes, and warn with their number and the first line."""
    text = data.decode(codec, "replace")
    try:
        data.decode(codec)
    except UnicodeDecodeError as e:
        present = data.count(b"\xef\xbf\xbd") if codec == "utf-8" else 0
        n = text.count("\ufffd") - present
        log.warn(
            f"{path.name} is {codec} with {n} invalid byte sequence(s), the first in line "
            f"{_line(data, e.start)}; read as U+FFFD"
        )
        log.add("replaced_bytes", n)
    log.recognised(path, "encoding", codec)
    return text


def _strict(data: bytes, path: Path, codec: str, given: str) -> str:
    try:
        return data.decode(codec, _C1_HANDLER if codec in _C1 else "strict")
    except UnicodeDecodeError as e:
        bad = data[e.start : e.start + 1]
        where = f"{path}, line {_line(data, e.start)}"
        raise HarnessError(
            f"{where}: byte {bad!r} is not valid {given}; {_advice(data, path, given)}"
        ) from None
    except (ValueError, OverflowError) as e:
        raise HarnessError(f"{path}: cannot be read as {given} ({e}); set task.encoding=auto") from None


def _advice(data: bytes, path: Path, given: str) -> str:
    """Say how the file can be read instead."""
    if any(data.startswith(mark) for mark, _ in _MARKS):
        return "the file begins with a byte order mark, but is damaged or cut off"
    log = ReadLog()
    replaced = f"task.encoding={given}{REPLACE} replaces invalid bytes"
    try:
        _auto(data, path, log)
    except HarnessError:
        return replaced
    fact = log.facts[str(path)]["encoding"].value
    return f"task.encoding=auto reads it as {fact}, {replaced}" if fact != given else replaced


def _line(data: bytes, at: int) -> int:
    return data.count(b"\n", 0, at) + 1


def _c1(error: UnicodeError) -> tuple[str, int]:
    """Decode an undefined byte of an eight-bit encoding as the control character of the same number."""
    if isinstance(error, UnicodeDecodeError) and 0x80 <= error.object[error.start] < 0xA0:
        return chr(error.object[error.start]), error.start + 1
    raise error


_C1_HANDLER = "harness_c1"
_handler: Callable[[UnicodeError], tuple[str, int]] = _c1
codecs.register_error(_C1_HANDLER, _handler)
