"""ReadOptions of column files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness_tasks.tagging.columns import Parsed, parse_lines, read_columns
from harness_tasks.tagging.forms import ColumnLayout


def parse(text: str, **layout: object) -> Parsed:
    return parse_lines(text.split("\n"), source="x.conll", layout=ColumnLayout(**layout))  # type: ignore[arg-type]


def words(parsed: Parsed) -> list[list[str]]:
    return [s.words for s in parsed.sentences]


def labels(parsed: Parsed) -> list[list[str]]:
    return [s.labels for s in parsed.sentences]


def test_separator_lines_of_blanks_and_tabs() -> None:
    parsed = parse("Mira B-PER\nsmiled O\n   \nOslo B-LOC\nrained O\n\t\n")
    assert words(parsed) == [["Mira", "smiled"], ["Oslo", "rained"]]
    assert labels(parsed) == [["B-PER", "O"], ["B-LOC", "O"]]


def test_docstart_blocks_are_counted_and_are_no_sentences() -> None:
    start = "-DOCSTART- -X- -X- O\n\n"
    parsed = parse(f"{start}\nKara NNP I-NP B-PER\nran VBD I-VP O\n\n\n{start}Yes UH O O\n\n")
    assert words(parsed) == [["Kara", "ran"], ["Yes"]]
    assert labels(parsed) == [["B-PER", "O"], ["O"]]
    assert parsed.documents == 2


def test_docstart_without_blank_lines_around_it() -> None:
    parsed = parse("a O\n-DOCSTART- O\nb O")
    assert words(parsed) == [["a"], ["b"]]


def test_windows_line_ends(tmp_path: Path) -> None:
    raw = b"Anu B-PER\r\nleft O\r\n\r\nin O\r\nLima B-LOC\r\n"
    (tmp_path / "crlf").write_bytes(raw)
    (tmp_path / "lf").write_bytes(raw.replace(b"\r\n", b"\n"))
    (tmp_path / "bom").write_bytes(b"\xef\xbb\xbf" + raw)
    parsed = read_columns(tmp_path / "crlf")
    assert words(parsed) == [["Anu", "left"], ["in", "Lima"]]
    assert {x for s in parsed.sentences for x in s.labels} == {"B-LOC", "B-PER", "O"}
    assert parsed == read_columns(tmp_path / "lf") == read_columns(tmp_path / "bom")


def test_unusual_line_separators_inside_a_token_end_no_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\u2028b\tO\nc\x85d\tO\n", encoding="utf-8")
    assert words(read_columns(tmp_path / "f")) == [["a\u2028b", "c\x85d"]]


def test_a_blank_is_a_token_between_tabs() -> None:
    parsed = parse(
        "## 주석 : ##\n## klue-00000\t<경:PS>찰 은\n경\tB-PS\n찰\tI-PS\n \tO\n은\tO\n\n#\tO\n##\tO\n"
    )
    assert words(parsed) == [["경", "찰", " ", "은"], ["#", "##"]]
    assert parsed.comments == 2


def test_hash_tokens_of_tweets_are_tokens() -> None:
    assert words(parse("# O\n## O\nid O\n\n#id O\n")) == [["#", "##", "id"], ["#id"]]


def test_comment_lines_recognised_and_configured() -> None:
    assert words(parse("# id 7ab domain=en\nthe _ _ O\ncat _ _ B-X\n")) == [["the", "cat"]]
    assert words(parse("% note\nthe O\n", comment="%")) == [["the"]]


def test_columns_are_settable() -> None:
    parsed = parse("1 Kara PER x\n2 ran O x\n", token_column=1, label_column=2)
    assert (words(parsed), labels(parsed)) == ([["Kara", "ran"]], [["PER", "O"]])


def test_first_line_of_a_sentence_is_kept() -> None:
    assert [s.line for s in parse("\na O\nb O\n\nc O\n").sentences] == [2, 5]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a\tO\nb\nc\tO\n", "x.conll:2: 'b' has 1 column"),
        ("a NN O\nb NN\nc NN O\n", "x.conll:2: 'b NN' has 2 columns"),
        ("a O\nNew York O\nc O\n", "x.conll:2: 'New York O' has 3 columns"),
        ("a\tO\n\tO\n", "x.conll:2: '\\tO' has an empty token or label"),
    ],
)
def test_a_broken_line_is_named(text: str, where: str) -> None:
    with pytest.raises(HarnessError) as e:
        parse(text)
    assert str(e.value).startswith(where)


def test_a_file_without_sentences_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n \n")
    with pytest.raises(HarnessError, match="no sentences"):
        read_columns(tmp_path / "empty")


def test_bad_layouts() -> None:
    with pytest.raises(HarnessError, match="separator=comma"):
        ColumnLayout(separator="comma")
    with pytest.raises(HarnessError, match="both 1"):
        ColumnLayout(token_column=1, label_column=1)


def test_real_files() -> None:
    root = os.environ.get("HARNESS_TEST_DATA")
    if not root:
        pytest.skip("HARNESS_TEST_DATA names no folder of real data")
    data = Path(root) / "data"
    counts = []
    for split in ("train", "dev", "test"):
        sentences = read_columns(data / "wnut17" / f"{split}.conll").sentences
        counts.append((len(sentences), sum(len(s.words) for s in sentences)))
    assert counts == [(3394, 62730), (1009, 15733), (1287, 23394)]
    klue = read_columns(data / "klue_ner_dev" / "klue-ner-v1.1_dev.tsv")
    assert (len(klue.sentences), klue.comments) == (5000, 5005)
    assert "".join(klue.sentences[0].words).startswith("경찰은 또 ")
