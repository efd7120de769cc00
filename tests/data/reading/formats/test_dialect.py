"""Delimiters, quoting and headers of csv and tsv files, recognised or refused."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from harness.data.reading.log import ReadLog
from harness.data.reading.tables import DataTable, ReadOptions, read_table
from harness.errors import HarnessError

PLAIN = [(f"the film number {i}", "pn"[i % 2]) for i in range(20)]


def read(
    folder: Path,
    content: str,
    name: str = "a.csv",
    how: ReadOptions | None = None,
    *,
    on_error: str = "raise",
) -> tuple[DataTable, ReadLog]:
    (folder / name).write_text(content, encoding="utf-8", newline="")
    log = ReadLog(on_error=on_error)
    return read_table(folder / name, how, log=log), log


def pairs(table: DataTable) -> list[tuple[str, str]]:
    return list(zip(table.data["text"], table.data["label"], strict=True))


def fact(log: ReadLog, name: str) -> tuple[str, str]:
    (facts,) = log.facts.values()
    return facts[name].value.split(" ")[0], facts[name].origin


def separated(delimiter: str, rows: list[tuple[str, str]] = PLAIN, quoting: int = csv.QUOTE_MINIMAL) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=quoting)  # type: ignore[arg-type]
    writer.writerows([("text", "label"), *rows])
    return out.getvalue()


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize(
    ("delimiter", "word"), [(",", "comma"), ("\t", "tab"), (";", "semicolon"), ("|", "pipe")]
)
def test_the_delimiter_that_gives_every_line_equally_many_fields_is_recognised(
    tmp_path: Path, name: str, delimiter: str, word: str
) -> None:
    """Texts contain the other delimiters, but not as often in every line."""
    rows = [*PLAIN, ("one, two; three | four, five", "p")]
    table, log = read(tmp_path, separated(delimiter, rows), name)
    assert pairs(table) == rows
    assert fact(log, "delimiter") == (word, "recognised")


def test_the_line_of_excel_that_states_the_delimiter_is_no_row(tmp_path: Path) -> None:
    table, log = read(tmp_path, "sep=;\n" + separated(";"))
    assert pairs(table) == PLAIN
    assert table.at[0] == 3
    assert fact(log, "delimiter") == ("semicolon", "recognised")


@pytest.mark.parametrize("given", ["\\t", "\t", "tab", "'\\t'", "TAB"])
def test_a_tab_can_be_given_as_delimiter(tmp_path: Path, given: str) -> None:
    table, log = read(tmp_path, separated("\t"), how=ReadOptions(delimiter=given))
    assert pairs(table) == PLAIN
    assert fact(log, "delimiter") == ("tab", "given")


@pytest.mark.parametrize("given", ["||", "", '"', "\n"])
def test_other_delimiters_are_refused(given: str) -> None:
    with pytest.raises(HarnessError, match=r"task\.delimiter=.*expected one character, or one of"):
        ReadOptions(delimiter=given)


def test_two_delimiters_that_fit_are_refused(tmp_path: Path) -> None:
    content = "id,text;label\n" + "".join(f"a, b, {i};x\n" for i in range(9))
    with pytest.raises(
        HarnessError, match=r"which delimiter.*task\.delimiter=comma.*task\.delimiter=semicolon"
    ):
        read(tmp_path, content)


DOUBLED = [*PLAIN, ('He said "the film" twice', "p"), ('"quoted whole"', "n")]


@pytest.mark.parametrize(
    ("rows", "quoting"),
    [
        (DOUBLED, csv.QUOTE_MINIMAL),
        (PLAIN, csv.QUOTE_ALL),
        ([*PLAIN, ("line one\nline two", "p")], csv.QUOTE_MINIMAL),
        ([*PLAIN, ("a\ttab", "p"), ("more", "n")], csv.QUOTE_MINIMAL),
    ],
    ids=["doubled quotes", "all quoted", "line break", "tab"],
)
def test_a_tsv_that_was_written_with_quotes_is_recognised(
    tmp_path: Path, rows: list[tuple[str, str]], quoting: int
) -> None:
    table, log = read(tmp_path, separated("\t", rows, quoting), "a.tsv")
    assert pairs(table) == rows
    assert fact(log, "quoting") == ("yes", "recognised")


@pytest.mark.parametrize(
    ("texts", "warned"),
    [
        (['"Quoted start never closed', "plain", 'another "quote" inside'], False),
        (['"Stop," he said.', '"Go."'], False),
        (['"A quotation."', "plain", "more"], True),
    ],
    ids=["open", "one open", "quotations"],
)
def test_quotes_of_texts_stay_in_a_tsv(tmp_path: Path, texts: list[str], warned: bool) -> None:
    """Quotations are well quoted fields as well, but nothing shows that the quotes are marks."""
    table, log = read(tmp_path, "text\tlabel\n" + "".join(f"{t}\tx\n" for t in texts), "a.tsv")
    assert list(table.data["text"]) == texts
    assert fact(log, "quoting") == ("no", "recognised")
    assert [("task.quoting=true" in w) for w in log.warnings] == [True] * warned


def test_fields_between_quotes_are_read_as_in_the_other_files_of_the_data_set(tmp_path: Path) -> None:
    for name, rows in (("train.tsv", DOUBLED), ("dev.tsv", PLAIN)):
        (tmp_path / name).write_text(separated("\t", rows))
    with (tmp_path / "dev.tsv").open("a") as f:
        f.write('"a, b"\tp\n')
    log = ReadLog()
    read_table(tmp_path / "train.tsv", log=log)
    assert list(read_table(tmp_path / "dev.tsv", log=log).data["text"])[-1] == "a, b"


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_a_header_in_the_middle_is_left_out_and_counted(tmp_path: Path, delimiter: str) -> None:
    """Two files that were put behind one another."""
    name = "a.csv" if delimiter == "," else "a.tsv"
    table, log = read(tmp_path, separated(delimiter) * 2, name)
    assert pairs(table) == PLAIN * 2
    assert table.at == [*range(2, 22), *range(23, 43)]
    assert dict(log.excluded) == {(str(tmp_path / name), "repeats the header line"): 1}


def test_a_row_equal_to_given_column_names_is_data(tmp_path: Path) -> None:
    table, log = read(tmp_path, "a,b\ntext,label\n", how=ReadOptions(columns=["text", "label"]))
    assert pairs(table) == [("a", "b"), ("text", "label")]
    assert fact(log, "header") == ("none", "given")


def test_bad_rows_of_a_csv_are_skipped_and_listed(tmp_path: Path) -> None:
    content = 'text,label\nx,1\n"a"b,1\nc,2\n"d""e",3\ny\n"open,1\nz,4\n'
    table, log = read(tmp_path, content, on_error="skip")
    assert pairs(table) == [("x", "1"), ("c", "2"), ('d"e', "3"), ("z", "4")]
    assert table.at == [2, 4, 5, 8]
    where = [row.where.rpartition("line ")[2] for row in log.skipped]
    assert where == ["3", "6", "7"]
    assert ["invalid quotes" in row.reason for row in log.skipped] == [True, False, True]


def test_a_header_of_fifty_thousand_columns_is_read_at_once(tmp_path: Path) -> None:
    """The search for a repeated name was quadratic."""
    header = ",".join(f"c{i}" for i in range(50_000))
    assert len(read(tmp_path, f"{header}\n{',' * 49_999}\n")[0].columns) == 50_000
    with pytest.raises(HarnessError) as error:
        read(tmp_path, f"{header}\nx\n")
    assert len(str(error.value)) < 500
