"""Files in the forms in which data sets are published: rows, and how each was recognised."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from harness.data.reading.log import ReadLog
from harness.data.reading.tables import DataTable, ReadOptions, read_table
from harness.errors import HarnessError
from harness_tasks.classification.columns import Columns


def read(path: Path) -> tuple[DataTable, ReadLog]:
    log = ReadLog()
    return read_table(path, ReadOptions(has_header=Columns().is_header), log=log), log


@pytest.fixture
def cases(shared_data: Path) -> Path:
    folder = shared_data / "cases" / "round2"
    if not folder.is_dir():
        pytest.skip("the folder with published cases is missing")
    return folder


@pytest.mark.parametrize(
    ("name", "rows", "classes", "recognised"),
    [
        ("x05.csv", 40, {"pos", "neg"}, {"encoding": "utf-8"}),
        ("x05_ko.csv", 40, {"pos", "neg"}, {"encoding": "utf-8"}),
        ("x05_mixed.csv", 40, {"pos", "neg"}, {"encoding": "utf-8"}),
        ("x16.txt", 60, {"0", "1"}, {"columns": "text, label"}),
        ("x16_all.txt", 60, {"0", "1"}, {"columns": "text, label"}),
        ("x16_spam.txt", 60, {"pos", "neg"}, {"columns": "label, text"}),
        ("x21.csv", 80, {"pos", "neg"}, {"header": "line 1"}),
        ("x21.tsv", 80, {"pos", "neg"}, {"header": "line 1"}),
        ("x26.tsv", 60, {"pos", "neg"}, {"quoting": "yes (30 fields)"}),
        ("x26_all.tsv", 60, {"pos", "neg"}, {"quoting": "yes (122 fields)"}),
        ("x26_break.tsv", 60, {"pos", "neg"}, {"quoting": "yes (more rows fit the header)"}),
        ("x32_cls.json", 40, {"pos", "neg"}, {"rows": "key data"}),
        ("x33.csv", 40, {"pos", "neg"}, {"delimiter": "tab"}),
        ("x33_semi.csv", 40, {"pos", "neg"}, {"delimiter": "semicolon"}),
        ("x33_sep.csv", 40, {"pos", "neg"}, {"delimiter": "semicolon"}),
    ],
)
def test_labelled_texts(
    cases: Path, name: str, rows: int, classes: set[str], recognised: dict[str, str]
) -> None:
    table, log = read(cases / name)
    assert (len(table), set(table.data["label"])) == (rows, classes)
    facts = log.facts[str(cases / name)]
    assert {key: facts[key].value for key in recognised} == recognised
    texts = list(table.data["text"])
    assert not any(t in ("text", "0", "1") or t[:1] == '"' or "\u00c3" in t for t in texts)
    assert sum("\ufffd" in t for t in texts) == (1 if name.startswith("x05") else 0)


@pytest.mark.parametrize("name", ["x32_hf.json", "x32_hf2.json"])
def test_questions_under_one_key(cases: Path, name: str) -> None:
    table, _ = read(cases / name)
    assert len(table) == 30
    last = table.row(29)
    (start,) = last["answers"]["answer_start"]
    assert last["context"][start : start + 4] == last["answers"]["text"][0] == "1229"


@pytest.mark.parametrize("name", ["list", "oldpylist", "oldseq", "pylist", "seq"])
def test_names_of_numbered_tags_in_parquet(cases: Path, name: str) -> None:
    table, _ = read(cases / f"x19_{name}.parquet")
    assert table.names == {"ner_tags": ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]}


def test_a_csv_of_words_keeps_its_columns(cases: Path) -> None:
    table, _ = read(cases / "x12_kaggle.csv")
    assert table.columns == ["Sentence #", "Word", "POS", "Tag"]
    assert (len(table), sum(s != "" for s in table.data["Sentence #"])) == (120, 24)


@pytest.mark.parametrize(
    "name", ["kornli_xnli/dev.tsv", "kornli_xnli/test.tsv", "korsts/train.tsv", "korsts/dev.tsv",
             "korsts/test.tsv", "sick/train.tsv", "sick/trial.tsv", "sick/test.tsv"]
)  # fmt: skip
def test_tsv_files_without_quoting_equal_a_plain_split(shared_data: Path, name: str) -> None:
    """Their quotes are quotations."""
    path = shared_data / "data" / name
    lines = [line for line in path.read_bytes().decode().replace("\r\n", "\n").split("\n") if line.strip()]
    header, *rows = (line.split("\t") for line in lines)
    table, log = read(path)
    assert table.columns == header
    assert [list(table.row(i).values()) for i in range(len(table))] == rows
    assert log.facts[str(path)]["quoting"].value.startswith("no")
    assert log.warnings == []


def test_lists_of_texts_and_labels_in_several_dialects_are_equal(tmp_path: Path) -> None:
    """The sentiment sentences of UCI (text, tab, label), SMS spam (label, tab, text), and a pandas export."""
    rows = [(f'so "good", film {i}', str(i % 2)) for i in range(40)]
    forms = {
        "amazon_cells_labelled.txt": "".join(f"{t}\t{y}\n" for t, y in rows),
        "SMSSpamCollection": "".join(f"{y}\t{t}\n" for t, y in rows),
        "stsa.binary.train": "".join(f"{y} {t}\n" for t, y in rows),
    }
    for name, content in forms.items():
        (tmp_path / name).write_text(content)
    with (tmp_path / "pandas.tsv").open("w", newline="") as f:
        csv.writer(f, delimiter="\t").writerows([("text", "label"), *rows])
    for name in (*forms, "pandas.tsv"):
        table, _ = read(tmp_path / name)
        assert list(zip(table.data["text"], table.data["label"], strict=True)) == rows, name


def test_texts_without_their_labels_are_refused_with_the_way_to_join_them(tmp_path: Path) -> None:
    """Texts in one file and labels in another, as TweetEval has them."""
    texts = "".join(f"@user{i} look at number {i} now\n" for i in range(40))
    (tmp_path / "train_text.txt").write_text(texts)
    with pytest.raises(HarnessError, match=r"40 classes in 40 rows .*paste LABELS TEXTS > FILE\.tsv"):
        read(tmp_path / "train_text.txt")


def test_label_first_files_of_public_data(shared_data: Path) -> None:
    for name, n, classes in (
        ("sst2/train.txt", 6920, 2),
        ("trec/TREC.train", 5452, 50),
        ("trec/TREC.test", 500, 42),
    ):
        path = shared_data / "data" / name
        table, _ = read(path)
        lines = [line for line in path.read_bytes().decode("cp1252").split("\n") if line.strip()]
        first = Counter(line.split(" ")[0] for line in lines)
        assert Counter(table.data["label"]) == first
        assert (len(table), len(first)) == (n, classes)
