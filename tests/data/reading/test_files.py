"""Text files of every encoding and line end, and rows out of every tabular format."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.data.reading.files import fingerprint, open_text
from harness.data.reading.locate import by_role
from harness.data.reading.log import ReadLog
from harness.data.reading.source import DataSource
from harness.data.reading.tables import DataTable, ReadOptions, read_table
from harness.errors import HarnessError

CSV = 'text,label\n"line one\nline two",pos\n"she said ""hi"", twice",neg\nnull,pos\nNA,neg\n,pos\n'
TSV = 'sentence\tlabel\n"Quoted start never closed\t0\nplain line\t1\nanother "quote" inside\t0\n'


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def column(table: DataTable, name: str) -> list[object]:
    return list(table.data[name])


def rows(table: DataTable) -> list[dict[str, Any]]:
    return [table.row(i) for i in range(len(table))]


def test_csv_keeps_line_breaks_quotes_and_words_that_look_like_missing_values(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "a.csv", CSV))
    assert column(table, "text") == ["line one\nline two", 'she said "hi", twice', "null", "NA", ""]
    assert column(table, "label") == ["pos", "neg", "pos", "neg", "pos"]
    assert table.where(1).endswith("a.csv, line 4")


def test_tsv_reads_quotes_as_text(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "a.tsv", TSV))
    texts = ['"Quoted start never closed', "plain line", 'another "quote" inside']
    assert column(table, "sentence") == texts
    assert column(table, "label") == ["0", "1", "0"]


def test_quoting_is_an_option_of_tsv(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'text\tlabel\n"two\nlines"\tx\n')
    assert column(read_table(path, ReadOptions(quoting=True)), "text") == ["two\nlines"]


@pytest.mark.parametrize("content", [CSV, TSV], ids=["csv", "tsv"])
def test_line_ends_mark_and_compression_change_nothing(tmp_path: Path, content: str) -> None:
    name = "a.csv" if content is CSV else "a.tsv"
    paths = [tmp_path / kind for kind in ("lf", "crlf", "bom", "zip")]
    for p in paths:
        p.mkdir()
    files = [
        write(paths[0] / name, content),
        write(paths[1] / name, content.replace("\n", "\r\n")),
        write(paths[2] / name, b"\xef\xbb\xbf" + content.encode()),
        write(paths[3] / f"{name}.gz", gzip.compress(content.encode())),
    ]
    assert len({json.dumps(rows(read_table(f))) for f in files}) == 1
    assert len({fingerprint(f) for f in files}) == 1
    assert fingerprint(write(tmp_path / "other.csv", content + "x,y\n")) != fingerprint(files[0])


def test_auto_encoding_falls_back_to_windows_1252_with_a_warning(tmp_path: Path) -> None:
    log = ReadLog()
    path = write(tmp_path / "x", "A:b ok\nA:b caf\xe9\x85s\n".encode("latin-1"))
    assert list(open_text(path, log=log)) == ["A:b ok\n", "A:b caf\xe9\u2026s\n"]
    assert log.warnings == ["x is not UTF-8 (line 2) and was read as windows-1252; see task.encoding"]


def test_utf16_is_known_by_its_mark(tmp_path: Path) -> None:
    assert open_text(write(tmp_path / "x.txt", "ä\r\nb".encode("utf-16"))).read() == "ä\nb"


def test_old_mac_line_ends(tmp_path: Path) -> None:
    assert open_text(write(tmp_path / "x.txt", "a\rb\r")).read() == "a\nb\n"


def test_wrong_or_unknown_encoding_names_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", b"fine\n\xff\n")
    with pytest.raises(HarnessError, match=r"x\.txt, line 2: byte b'\\xff' is not valid utf-8"):
        open_text(path, encoding="utf-8")
    with pytest.raises(HarnessError, match="unknown encoding 'utf-9'"):
        open_text(path, encoding="utf-9")
    with pytest.raises(HarnessError, match="not a text file"):
        open_text(write(tmp_path / "y.txt", b"a\0b"))


def test_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", "x")
    with pytest.raises(HarnessError, match=r"no such file in .*did you mean train\.csv"):
        open_text(tmp_path / "trian.csv")
    with pytest.raises(HarnessError, match="cannot be read"):
        open_text(write(tmp_path / "bad.gz", b"no gzip"))


JSON_ROWS = [{"text": "null", "label": 1}, {"text": "NA\u2028x", "label": 0}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", "\n".join(json.dumps(r, ensure_ascii=False) for r in JSON_ROWS) + "\n\n"),
        ("a.json", json.dumps(JSON_ROWS, indent=1)),
        ("lines.json", "\n".join(map(json.dumps, JSON_ROWS))),
        ("data.json", json.dumps({"data": JSON_ROWS})),
        ("columns.json", json.dumps({k: [r[k] for r in JSON_ROWS] for k in ("text", "label")})),
        ("unknown", "\n".join(map(json.dumps, JSON_ROWS))),
        ("unknown.txt", json.dumps(JSON_ROWS)),
    ],
)
def test_json_in_its_shapes(tmp_path: Path, name: str, content: str) -> None:
    table = read_table(write(tmp_path / name, content))
    assert rows(table) == JSON_ROWS
    assert table.columns == ["text", "label"]


def test_parquet_with_class_names(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    features = {"info": {"features": {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}}}
    data = pa.Table.from_pylist(JSON_ROWS).replace_schema_metadata({"huggingface": json.dumps(features)})
    for name in ("a.parquet", "noname"):
        pq.write_table(data, tmp_path / name)
        table = read_table(tmp_path / name)
        assert rows(table) == JSON_ROWS
        assert table.names == {"label": ["neg", "pos"]}
        assert table.where(1) == f"{tmp_path / name}, row 2"
    with pytest.raises(HarnessError, match="not a Parquet file"):
        read_table(write(tmp_path / "b.parquet", "text"))


def test_label_text_lines_without_an_ending(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "TREC.train", "NUM:dist How far ?\n\nLOC:city What  county ?\n"))
    assert rows(table) == [
        {"label": "NUM:dist", "text": "How far ?"},
        {"label": "LOC:city", "text": "What  county ?"},
    ]
    assert table.at == [1, 3]


def test_label_and_text_parted_by_tabs(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "a.txt", "sci fi\ta text that is longer\nnews\tone more of them\n"))
    assert column(table, "label") == ["sci fi", "news"]


def test_fasttext_lines(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "a.txt", "__label__x some text\n__label__y more\n"))
    assert rows(table) == [{"label": "x", "text": "some text"}, {"label": "y", "text": "more"}]
    table = read_table(write(tmp_path / "a.txt", "__label__x\tsome  text\n__label__y\ta\tb\n"))
    assert rows(table) == [{"label": "x", "text": "some  text"}, {"label": "y", "text": "a\tb"}]
    for line, what in [("__label__x __label__y text", "2 labels"), ("bare text", "no label")]:
        path = write(tmp_path / "b.txt", f"__label__x fine\n{line}\n")
        with pytest.raises(HarnessError, match=rf"b\.txt, line 2: {what}"):
            read_table(path)


def test_columns_name_what_has_no_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", '"3","A title","Text, more"\n')
    table = read_table(path, ReadOptions(columns=["label", "title", "description"]))
    assert rows(table) == [{"label": "3", "title": "A title", "description": "Text, more"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\nx,1\ny\n", r"a\.csv, line 3: 1 field\(s\), expected 2"),
        ("a.csv", "text,label\nx,y,1\n", r"line 2: 3 field\(s\)"),
        ("a.csv", 'text,label\nx,1\n"open,1\ny,2\n', r"line 3: .* invalid quotes .* task\.quoting=false"),
        ("a.csv", "a,a\n1,2\n", "two columns are named 'a'"),
        ("a.csv", " \n", "the file is empty"),
        ("a.tsv", "text\tlabel\nx\n", r"a\.tsv, line 2"),
        ("a.jsonl", '{"text": "x"}\n{bad\n', r"a\.jsonl, line 2: not JSON"),
        ("a.jsonl", "[1]\n", r"line 1: \[1\] is not an object"),
        ("a.json", '{"a": [1, 2], "b": [1]}', "neither a list of objects"),
        ("a.json", "[1", "not JSON"),
    ],
)
def test_bad_files_name_the_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        read_table(write(tmp_path / name, content))


def test_surplus_empty_fields_are_dropped(tmp_path: Path) -> None:
    assert rows(read_table(write(tmp_path / "a.csv", "text,label\nx,1,,\n"))) == [{"text": "x", "label": "1"}]


def test_unknown_format_is_named() -> None:
    with pytest.raises(HarnessError, match="did you mean jsonl"):
        ReadOptions(format="jsnl")
    with pytest.raises(HarnessError, match="expected one character"):
        ReadOptions(delimiter="||")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_characters="\r\0\ufeff", exclude_categories=["Cs"]), min_size=1),
            st.sampled_from("ab"),
        ),
        min_size=1,
    )
)
def test_csv_round_trip(tmp_path: Path, lines: list[tuple[str, str]]) -> None:
    out = io.StringIO(newline="")
    csv.writer(out).writerows([("text", "label"), *lines])
    table = read_table(write(tmp_path / "a.csv", out.getvalue()))
    assert list(zip(table.data["text"], table.data["label"], strict=True)) == lines


def test_locate_prefers_given_files_over_the_folder(tmp_path: Path) -> None:
    for name in ("train.csv", "test-0.parquet", "test-1.parquet", "mine.csv"):
        write(tmp_path / name, "x")
    config = {
        "path": str(tmp_path),
        "files": {"train": ["train.tsv", "train.csv"], "test": ["test-*.parquet"]},
        "dev": str(tmp_path / "mine.csv"),
    }
    assert by_role(DataSource.of(config).locate()) == {
        "train": tmp_path / "train.csv",
        "dev": tmp_path / "mine.csv",
        "test": tmp_path / "test-0.parquet",
        "test-1": tmp_path / "test-1.parquet",
    }
    assert "dev" not in DataSource.of(config | {"dev": "none"}).locate()
    assert DataSource.of({"hub": "owner/name"}).locate() == {}


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"task\.train=.*no such file"):
        DataSource.of({"train": str(tmp_path / "no.csv")}).locate()
    with pytest.raises(HarnessError, match=r"looked for a\.csv, b\.csv"):
        DataSource.of({"path": str(tmp_path), "files": {"train": ["a.csv", "b.csv"]}}).locate()
    with pytest.raises(HarnessError, match="no such folder"):
        DataSource.of({"path": str(tmp_path / "nowhere")}).locate()
    with pytest.raises(HarnessError, match="is a folder"):
        DataSource.of({"train": str(tmp_path)}).locate()
    with pytest.raises(HarnessError, match="no data: give task"):
        DataSource.of({}).locate()
    with pytest.raises(HarnessError, match=r"task\.test=none: a cell needs a test split"):
        DataSource.of({"test": "none"})
    with pytest.raises(HarnessError, match=r"task\.trian: unknown option, did you mean train"):
        DataSource.of({"trian": "a.csv"})


def test_arrow_files_of_datasets(tmp_path: Path) -> None:
    from datasets import ClassLabel, Dataset, Features, Value

    features = Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"])})
    data = Dataset.from_dict({"text": ["a", "NA"], "label": [1, 0]}, features=features)
    data.save_to_disk(str(tmp_path / "saved"))
    table = read_table(tmp_path / "saved" / "data-00000-of-00001.arrow")
    assert column(table, "text") == ["a", "NA"]
    assert (column(table, "label"), table.names) == ([1, 0], {"label": ["neg", "pos"]})
    with pytest.raises(HarnessError, match="not an Arrow file"):
        read_table(write(tmp_path / "b.arrow", "text"))


def test_utf_32_is_known_by_its_mark(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("text label\n한국 x\n".encode("utf-32"))
    assert open_text(tmp_path / "a.txt").read() == "text label\n한국 x\n"


def test_text_that_is_neither_utf_8_nor_latin_1_is_refused_with_the_mend(tmp_path: Path) -> None:
    text = "이 영화는 정말 재미있다 1\n" * 20
    (tmp_path / "a.txt").write_bytes(text.encode("cp949"))
    with pytest.raises(HarnessError, match="cp949"):
        open_text(tmp_path / "a.txt")
    assert open_text(tmp_path / "a.txt", encoding="cp949").read() == text
    french = "L'été dernier, Zoë a goûté un café crème à Orléans.\n" * 5
    (tmp_path / "b.txt").write_bytes(french.encode("latin-1"))
    assert open_text(tmp_path / "b.txt").read() == french
