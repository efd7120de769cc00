"""Text classification: reading rows, cutting splits, fitting classes, refusing what cannot be used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.data.text import Example, Text
from harness.errors import HarnessError
from harness.task import Prediction, Splits, Task
from harness_tasks.classification.task import TextClassification, balanced
from tests.helpers.data_files import copied
from tests.helpers.paths import ROOT

torch.set_num_threads(1)

BASE = "text,label\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(20))


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def labels(examples: list[Example]) -> list[Any]:
    return [e.gold for e in examples]


def sizes(splits: Splits) -> tuple[int, ...]:
    return tuple(len(examples) for _, examples in splits.items())


def test_three_files_of_three_formats(tmp_path: Path) -> None:
    task = TextClassification(
        name="mine",
        train=write(tmp_path / "a.csv", BASE),
        dev=write(tmp_path / "b.tsv", 'sentence\tclass\n"open quote\ta\n'),
        test=write(tmp_path / "c.jsonl", '{"text": "null", "label": "b"}\n'),
    )
    splits = task.splits()
    assert isinstance(task, Task)
    assert sizes(splits) == (20, 1, 1)
    assert splits.dev[0].texts[0].text == '"open quote'
    assert splits.test == [Example("test-0", (Text.from_string("null"),), "b")]
    assert task.labels == ["a", "b"]
    assert splits.notes == []


def test_an_empty_text_is_refused_with_its_row_or_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,label\n"line one\nline two",pos\nnull,pos\nNA,neg\n,pos\n')
    with pytest.raises(HarnessError, match=r"a\.csv, line 6: the text .* is empty.*allow_empty"):
        TextClassification(train=path, dev="none", test=copied(path)).splits()
    kept = TextClassification(train=path, dev="none", test=copied(path), allow_empty=True).splits().train
    assert [e.texts[0].text for e in kept] == ["line one\nline two", "null", "NA", ""]


def test_windows_line_ends_give_the_same_examples(tmp_path: Path) -> None:
    lines = "".join(f"DESC:def What is it {i} ?\nHUM:ind Who is she {i} ?\n" for i in range(10))
    unix, windows = (
        TextClassification(train=write(tmp_path / name, text)).splits()
        for name, text in (("TREC.a", lines), ("TREC.b", lines.replace("\n", "\r\n")))
    )
    assert unix.train == windows.train
    assert {e.gold for e in windows.test} == {"DESC:def", "HUM:ind"}


def test_missing_splits_are_cut_and_said_so(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", BASE)
    splits = TextClassification(train=path).splits()
    assert sizes(splits) == (16, 2, 2)
    assert sorted(labels(splits.dev)) == sorted(labels(splits.test)) == ["a", "b"]
    assert splits.notes == [
        "test: 10 % (2) cut from train with seed 13, stratified",
        "dev: 10 % (2) cut from train with seed 13, stratified",
    ]
    ids = [e.id for _, examples in splits.items() for e in examples]
    assert len(set(ids)) == 20
    assert sizes(TextClassification(train=path, dev="none").splits()) == (18, 0, 2)


def test_limit_takes_part_of_each_split_but_fits_all_classes(tmp_path: Path) -> None:
    task = TextClassification(train=write(tmp_path / "a.csv", BASE))
    assert sizes(task.splits(limit=1)) == (1, 1, 1)
    assert task.labels == ["a", "b"]


def test_a_label_that_train_lacks_stays_gold_and_is_reported(tmp_path: Path) -> None:
    task = TextClassification(
        train=write(tmp_path / "a.csv", BASE),
        dev="none",
        test=write(tmp_path / "t.csv", "text,label\nx,a\ny,new\nz,new\n"),
    )
    splits = task.splits()
    assert "label 'new' is absent from train (2 in test): always counted as wrong" in splits.warnings
    assert splits.report["labels_absent_from_train"] == 1
    assert task.row_targets(splits.test[1], [None])[0]["label"] == -100
    assert task.score({e.id: Prediction("a") for e in splits.test}, splits.test)["accuracy"] == pytest.approx(
        1 / 3
    )


def test_weights_and_singletons(tmp_path: Path) -> None:
    assert balanced(["a", "b", "c"], {"a": 8, "b": 2}) == [0.625, 2.5, 1.0]
    rows = "text,label\n" + "".join(f"x{i},a\n" for i in range(8)) + "y,b\nz,b\n"
    train = write(tmp_path / "a.csv", rows)
    task = TextClassification(
        train=train, dev="none", test=copied(train), labels=["a", "b", "c"], class_weights="balanced"
    )
    notes = task.splits().notes
    assert task.weights == [0.625, 2.5, 1.0]
    assert any("'c'" in note for note in notes)
    more = write(tmp_path / "r.csv", rows + "w,single\n")
    rare = TextClassification(train=more, test=train).splits()
    assert "single" in labels(rare.train)
    assert any("'single'" in note for note in rare.notes)


def test_pairs_need_their_columns_named(tmp_path: Path) -> None:
    path = write(tmp_path / "p.tsv", "sentence1\tsentence2\tgold_label\na b\tc d\tx\ne\tf\ty\n")
    with pytest.raises(HarnessError, match=r"task\.text=sentence1 task\.text_b=sentence2"):
        TextClassification(train=path, dev="none", test=copied(path)).splits()
    task = TextClassification(train=path, dev="none", test=copied(path), text_b="sentence2")
    assert [t.text for t in task.splits().train[0].texts] == ["a b", "c d"]
    assert task.n_texts == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "txt"}, r"no column txt \(task\.text\); columns: text, label"),
        ({"label": "gold"}, r"no column gold \(task\.label\)"),
        ({"labels": ["a"]}, r"train holds label 'b'"),
        ({"label_names": {"a": "A"}}, r"a\.csv, line 3: label 'b' is not in task\.label_names"),
        ({"id": "label"}, "two rows have the id 'a'"),
        ({"metric": "f1", "positive": "c"}, r"task\.positive=c"),
        ({"test": "none"}, r"task\.test=none"),
    ],
)
def test_bad_settings_are_one_clear_error(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        TextClassification(**{"train": write(tmp_path / "a.csv", BASE)} | options).splits()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "acuracy"}, "did you mean accuracy"),
        ({"metric": "f1"}, r"needs task\.positive"),
        ({"class_weights": "x"}, "class_weights"),
        ({"label_level": "finest"}, "label_level"),
        ({"hub": {"name": "x"}}, r"task\.hub"),
    ],
)
def test_bad_options_are_refused_before_reading(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        TextClassification(**options)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"text": "x", "label": ["a", "b"]}', r"line 2: the label .* is \['a', 'b'\]: several labels"),
        (
            '{"text": "x", "label": {"name": "a"}}',
            r"line 2: the label .* object.* task\.label=label\.name",
        ),
        ('{"text": 3, "label": "a"}', "column text holds 3, not a text"),
        ('{"text": null, "label": "a"}', "the text .* is empty"),
        ('{"text": NaN, "label": "a"}', "column text holds nan"),
    ],
)
def test_bad_rows_name_their_line(tmp_path: Path, row: str, message: str) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "x", "label": 1.0}\n' + row + "\n")
    with pytest.raises(HarnessError, match=message):
        TextClassification(train=path).splits()


def test_label_only_one_class_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\nx,a\ny,a\n")
    with pytest.raises(HarnessError, match="single class"):
        TextClassification(train=path, dev="none", test=copied(path)).splits()


def test_reading_and_scoring_import_no_torch(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", BASE)
    code = (
        "import sys; from harness_tasks.classification.task import TextClassification as T, files;"
        f"t = T(train={path!r}); s = t.splits();"
        "from harness.task import Prediction as P; t.score({e.id: P('a') for e in s.test}, s.test);"
        "assert not {'torch', 'datasets', 'pytorch_lightning'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_numbers_with_decimals_are_no_classes(tmp_path: Path) -> None:
    rows = "".join(f"text {n},{n / 7:.2f}\n" for n in range(40))
    (tmp_path / "train.csv").write_text("text,label\n" + rows)
    with pytest.raises(HarnessError, match="task=text_regression"):
        TextClassification(train=str(tmp_path / "train.csv")).splits()
    few = "".join(f"text {n},{n % 2}.0\n" for n in range(40))
    (tmp_path / "train.csv").write_text("text,label\n" + few)
    assert TextClassification(train=str(tmp_path / "train.csv")).splits().train
