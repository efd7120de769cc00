"""Decoding: UTF-8 with bad bytes, encodings as browsers read them, and names that are no encodings."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.data.reading.encodings import decode_text
from harness.data.reading.log import ReadLog
from harness.errors import HarnessError

NAME = Path("train.csv")
ACCENTS = "".join(f"line {i}: caf\u00e9 \u00e0 Z\u00fcrich \u2013 5\u20ac\n" for i in range(20))
KOREAN = "\uc774 \uc601\ud654\ub294 \uc815\ub9d0 \uc7ac\ubbf8\uc788\ub2e4\n" * 20


def decode(data: bytes, encoding: str = "auto") -> tuple[str, ReadLog]:
    log = ReadLog()
    return decode_text(data, NAME, encoding, log), log


@pytest.mark.parametrize(
    ("text", "at", "bad", "line"),
    [(ACCENTS, 3, b"\xe9", 1), (KOREAN, len(KOREAN.encode()) // 20 * 5, b"\xff", 6)],
    ids=["accents", "korean"],
)
def test_one_bad_byte_leaves_the_rest_of_a_utf_8_text_as_it_is(
    text: str, at: int, bad: bytes, line: int
) -> None:
    """A stray byte is replaced, counted and reported with its line."""
    data = text.encode()
    decoded, log = decode(data[:at] + bad + data[at:])
    assert decoded.replace("\ufffd", "", 1) == text
    assert log.facts[str(NAME)]["encoding"].value == "utf-8"
    assert log.warnings == [
        f"train.csv is utf-8 with 1 invalid byte sequence(s), the first in line {line}; read as U+FFFD"
    ]
    assert log.counts == {"replaced_bytes": 1}


def test_a_character_cut_in_two_in_an_english_text_is_replaced() -> None:
    data = b"plain words\n" * 50 + KOREAN.encode() + "\uc88b".encode()[:2] + b" end\n"
    decoded, log = decode(data)
    assert decoded == "plain words\n" * 50 + KOREAN + "\ufffd end\n"
    assert log.counts == {"replaced_bytes": 1}


def test_replacement_characters_of_the_file_itself_are_not_counted() -> None:
    _, log = decode(("\ufffd" * 5 + ACCENTS).encode() + b"\xe9\n")
    assert log.counts == {"replaced_bytes": 1}


def test_windows_quotes_and_undefined_bytes_are_decoded_as_browsers_do() -> None:
    """0x93 and 0x94 are quotes; 0x81, which windows-1252 leaves undefined, is a control character."""
    decoded, log = decode(b"he said \x93caf\xe9\x94 \x85 \x81\n")
    assert decoded == "he said \u201ccaf\u00e9\u201d \u2026 \x81\n"
    assert log.facts[str(NAME)]["encoding"].value == "windows-1252"
    assert len(log.warnings) == 1


def test_a_text_half_in_utf_8_and_half_not_is_refused() -> None:
    with pytest.raises(
        HarnessError, match=r"line 22: which encoding .*utf-8:replace .*task\.encoding=cp1252"
    ):
        decode((ACCENTS + "plain\n").encode() + ACCENTS.encode("cp1252"))


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("latin-1", b"\x80\x93", "\u20ac\u201c"),
        ("ISO-8859-1", b"\x80\xe9", "\u20ac\u00e9"),
        ("ascii", b"\xe9", "\u00e9"),
        ("iso-8859-9", b"\x80\xfd\x8e", "\u20ac\u0131\x8e"),
        ("tis-620", b"\xa1", "\u0e01"),
        ("gb2312", b"\x81\x30\x81\x30", "\x80"),
        ("shift_jis", b"\x87\x40", "\u2460"),
        ("euc-kr", b"\x81\x41", "\uac02"),
        ("1252", b"\x80", "\u20ac"),
        ("cp1251", b"\x98\xdf", "\x98\u042f"),
        ("utf-16-le", b"a\0b\0", "ab"),
        ("utf-8:replace", b"a\xffb", "a\ufffdb"),
    ],
)
def test_given_encodings_mean_what_browsers_take_them_for(name: str, data: bytes, text: str) -> None:
    """Values of the index tables of the WHATWG's Encoding Standard."""
    decoded, log = decode(data, name)
    assert decoded == text
    assert log.facts[str(NAME)]["encoding"].origin == "given"


@pytest.mark.parametrize(
    "name",
    ["punycode", "idna", "rot13", "base64", "hex", "zlib", "bz2", "unicode_escape", "undefined", "utf-7", "",
     "charmap", "../x", "cp1252\0", "mbcs"],
)  # fmt: skip
def test_what_is_no_text_encoding_is_refused(name: str) -> None:
    with pytest.raises(HarnessError, match=r"^task\.encoding=.*: unknown encoding .*(such as|did you mean)"):
        decode(b"abc-\n", name)


def test_a_wrong_given_encoding_names_the_one_that_fits() -> None:
    with pytest.raises(HarnessError, match=r"line 2: byte b'\\xe9' .*auto reads it as windows-1252"):
        decode(b"fine\ncaf\xe9 \n", "utf-8")


def test_a_damaged_text_with_a_byte_order_mark_is_refused_once() -> None:
    with pytest.raises(HarnessError, match="byte order mark, but is damaged"):
        decode(b"\xff\xfea\0b")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_named(encoding: str) -> None:
    with pytest.raises(HarnessError, match=f"task.encoding={encoding}"):
        decode("a longer text, and more".encode(encoding))


def test_a_zero_byte_in_a_text_is_refused_with_its_line() -> None:
    with pytest.raises(HarnessError, match="line 2: not a text file"):
        decode(b"a long first line of text\nx\0y\n")
