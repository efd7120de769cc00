"""Lines of a label and a text: which is which, and lines that are neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.data.reading.log import ReadLog
from harness.data.reading.tables import DataTable, ReadOptions, read_table
from harness.errors import HarnessError

N = 60
TEXTS = [f"the film number {i} was {'good' if i % 2 else 'bad'}" for i in range(N)]
LABELS = [str(i % 2) for i in range(N)]


def read(
    folder: Path, lines: list[str], how: ReadOptions | None = None, *, on_error: str = "raise"
) -> tuple[DataTable, ReadLog]:
    path, log = folder / "a.txt", ReadLog(on_error=on_error)
    path.write_text("".join(f"{line}\n" for line in lines))
    return read_table(path, how, log=log), log


@pytest.mark.parametrize("text_first", [True, False])
@pytest.mark.parametrize("texts", [TEXTS, [f"{t} ." for t in TEXTS]], ids=["", "tokenised"])
def test_the_column_with_few_values_is_the_label(tmp_path: Path, texts: list[str], text_first: bool) -> None:
    lines = [f"{t}\t{y}" if text_first else f"{y}\t{t}" for t, y in zip(texts, LABELS, strict=True)]
    table, log = read(tmp_path, lines)
    assert (list(table.data["text"]), list(table.data["label"])) == (texts, LABELS)
    (facts,) = log.facts.values()
    assert facts["columns"].origin == "recognised"


def test_the_order_can_be_given(tmp_path: Path) -> None:
    lines = ["a\tb", "c\td"]
    with pytest.raises(
        HarnessError, match=r"which column is the label .*columns=\[label,text\].*\[text,label\]"
    ):
        read(tmp_path, lines)
    for how in (ReadOptions(columns=["text", "label"]), ReadOptions(format="text_label")):
        assert list(read(tmp_path, lines, how)[0].data["text"]) == ["a", "c"]


def test_a_first_row_that_may_be_a_header_is_refused(tmp_path: Path) -> None:
    lines = ["review\tstars", *(f"{t}\t{y}" for t, y in zip(TEXTS, LABELS, strict=True))]
    with pytest.raises(HarnessError, match=r"is the first line a header \('stars'.*task\.format=tsv"):
        read(tmp_path, lines)
    assert read(tmp_path, lines, ReadOptions(format="tsv"))[0].columns == ["review", "stars"]


def test_a_header_that_names_both_columns_is_known(tmp_path: Path) -> None:
    lines = ["sentence\tlabel", *(f"{t}\t{y}" for t, y in zip(TEXTS, LABELS, strict=True))]
    how = ReadOptions(has_header=lambda cells: cells == ["sentence", "label"])
    assert list(read(tmp_path, lines, how)[0].data["sentence"]) == TEXTS


def test_a_line_without_tab_is_skipped_and_listed(tmp_path: Path) -> None:
    lines = [f"{t}\t{y}" for t, y in zip(TEXTS, LABELS, strict=True)]
    lines[4] = "no tab"
    with pytest.raises(HarnessError, match=r"line 5: 1 field\(s\) separated by tabs"):
        read(tmp_path, lines)
    table, log = read(tmp_path, lines, on_error="skip")
    assert (len(table), len(log.skipped)) == (N - 1, 1)


def test_texts_without_labels_are_refused_with_the_count(tmp_path: Path) -> None:
    """The first word of every text would be its class."""
    tweets = [f"@user{i} {t}" for i, t in enumerate(TEXTS)]
    with pytest.raises(HarnessError, match=r"60 classes in 60 rows .*task\.format=label_text"):
        read(tmp_path, tweets)
    table, _ = read(tmp_path, tweets, ReadOptions(format="label_text"))
    assert list(table.data["label"])[:2] == ["@user0", "@user1"]


@pytest.mark.parametrize("delimiter", ["@", "|", ";", ","])
def test_a_label_behind_another_delimiter_is_asked_for(tmp_path: Path, delimiter: str) -> None:
    lines = [f"{t} .{delimiter}{y}" for t, y in zip(TEXTS, LABELS, strict=True)]
    with pytest.raises(HarnessError, match=rf"task\.columns=\[text,label\] task\.delimiter='\{delimiter}'"):
        read(tmp_path, lines)
    how = ReadOptions(columns=["text", "label"], delimiter=delimiter)
    assert list(read(tmp_path, lines, how)[0].data["label"]) == LABELS


def test_many_classes_that_repeat_are_labels(tmp_path: Path) -> None:
    lines = [f"TYPE{i % 50}:sub What is number {i} ?" for i in range(500)]
    table, log = read(tmp_path, lines)
    assert len(set(table.data["label"])) == 50
    (facts,) = log.facts.values()
    assert facts["format"].value == "label_text"


def test_trees_in_brackets_are_no_labelled_text(tmp_path: Path) -> None:
    """As the Stanford Sentiment Treebank publishes them: the number is the label of a phrase."""
    path = tmp_path / "train.txt"
    path.write_text("(3 (2 It) (4 (2 works) (2 well)))\n(1 (2 It) (1 fails))\n" * 300)
    with pytest.raises(HarnessError, match=r"trees such as .* label of the root"):
        read_table(path)


def test_a_header_beside_given_columns_is_no_example(tmp_path: Path) -> None:
    """AG News with a header line, read with the names that its version without a header needs."""
    path = tmp_path / "train.csv"
    path.write_text("Class Index,Title,Description\n3,Stocks,Up\n")
    with pytest.raises(HarnessError, match=r"line 1: .Title. is a value of the first row and a name"):
        read_table(path, ReadOptions(columns=["label", "title", "text"]))
    path.write_text("3,Stocks,Up\n")
    assert read_table(path, ReadOptions(columns=["label", "title", "text"])).row(0)["title"] == "Stocks"
